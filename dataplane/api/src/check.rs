//! What must hold of the table.

use std::collections::HashSet;

use crate::header::{Type, handle_kind};
use crate::rows::{Answered, Element, Kind, Row};
use crate::table::Api;

const ID_FIRST: u16 = 0x0100;
const ID_LAST: u16 = 0x7fff;

/// Every broken rule, in one message.
pub fn check(api: &Api) -> Result<(), String> {
    let mut wrong = Vec::new();
    names_and_ids(api, &mut wrong);
    for row in &api.rows {
        let mut say = |what: String| wrong.push(format!("rows/{}.rs: {}: {what}", row.group, row.name));
        signature(api, row, &mut say);
        words(api, row, &mut say);
    }
    pending(api, &mut wrong);
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

fn names_and_ids(api: &Api, wrong: &mut Vec<String>) {
    let (mut names, mut ids) = (HashSet::new(), HashSet::new());
    for row in &api.rows {
        for symbol in std::iter::once(row.name.clone()).chain(row.per_thread_symbol()) {
            if !names.insert(symbol.clone()) {
                wrong.push(format!("{symbol} has two rows"));
            }
        }
        if let Some(id) = row.id {
            if !(ID_FIRST..=ID_LAST).contains(&id) {
                wrong.push(format!("{}: id {id:#06x} is outside {ID_FIRST:#06x}..={ID_LAST:#06x}", row.name));
            }
            if !ids.insert(id) {
                wrong.push(format!("{}: id {id:#06x} is taken", row.name));
            }
        }
    }
    let declared = api.header.functions.iter().map(|f| &f.name);
    for symbol in api.exports.iter().chain(declared) {
        if !names.contains(symbol) {
            wrong.push(format!("{symbol} is exported by the driver or declared by cuda.h and has no row"));
        }
    }
    for row in &api.rows {
        if let Some(symbol) = row.per_thread_symbol()
            && !api.exports.contains(&symbol)
        {
            wrong.push(format!("{symbol} is not exported by the driver"));
        }
    }
}

/// The row says the same as `cuda.h`.
fn signature(api: &Api, row: &Row, say: &mut impl FnMut(String)) {
    let Some(function) = api.header.function(&row.name) else {
        if row.has_wire() {
            say("is not in cuda.h, so it cannot be generated".to_owned());
        }
        return;
    };
    if function.params.len() != row.params.len() {
        say(format!("has {} parameters, cuda.h {}", row.params.len(), function.params.len()));
        return;
    }
    for ((name, ty), param) in function.params.iter().zip(&row.params) {
        if *name != param.name {
            say(format!("parameter {} is called {name} in cuda.h", param.name));
        }
        let theirs = api.header.canonical(ty);
        if !candidates(&param.kind).iter().any(|ours| api.header.canonical(ours) == theirs) {
            say(format!("{name} is {ty} in cuda.h, which does not fit"));
        }
    }
}

fn pointers(element: &Element, also_mutable: bool, also_const: bool) -> Vec<Type> {
    let mut out = Vec::new();
    for to in [Type::Name(element_name(element).to_owned()), Type::Name("c_void".to_owned())] {
        for mutable in [true, false] {
            if (mutable && also_mutable) || (!mutable && also_const) {
                out.push(Type::Pointer { mutable, to: Box::new(to.clone()) });
            }
        }
    }
    out
}

/// C types that a kind may stand for. Several of NVIDIA's inputs are not `const`.
fn candidates(kind: &Kind) -> Vec<Type> {
    match kind {
        Kind::Value(element) => vec![Type::Name(element_name(element).to_owned())],
        Kind::Out { element, .. } | Kind::OutArray { element, .. } | Kind::InOut { element } => {
            pointers(element, true, false)
        }
        Kind::In { element, .. } | Kind::InArray { element, .. } => pointers(element, true, true),
        Kind::Str => {
            vec![Type::Pointer { mutable: false, to: Box::new(Type::Name("c_char".to_owned())) }]
        }
        Kind::Raw(ty) => vec![ty.clone()],
    }
}

pub fn element_name(element: &Element) -> &str {
    match element {
        Element::Scalar { name, .. } | Element::Plain { name } | Element::Handle { name, .. } => name,
        Element::Device => "CUdevice",
    }
}

fn words(api: &Api, row: &Row, say: &mut impl FnMut(String)) {
    match &row.answered {
        Answered::Alias(target) => match api.row(target) {
            None => say(format!("is an alias of {target}, which has no row")),
            Some(t) => alias(row, t, say),
        },
        Answered::Refuse(code) => {
            if !api.header.results.values().any(|name| name == code) {
                say(format!("{code} is no CUresult"));
            }
            if row.doc.is_empty() {
                say("is refused without a reason".to_owned());
            }
        }
        Answered::Absent if row.doc.is_empty() => say("is absent without a reason".to_owned()),
        _ => {}
    }
    for code in &row.answers {
        if !api.header.results.values().any(|name| name == code) {
            say(format!("{code} is no CUresult"));
        }
    }
    if let Some(p) = &row.per_thread
        && p != "ptsz"
        && p != "ptds"
    {
        say(format!("per_thread({p}): ptsz or ptds"));
    }
    for named in [&row.creates, &row.inside, &row.destroys].into_iter().flatten().chain(&row.finds) {
        if !row.params.iter().any(|p| p.name == *named) {
            say(format!("{named} is not a parameter"));
        }
    }
    if !matches!(row.answered, Answered::Refuse(_) | Answered::Absent | Answered::Alias(_)) {
        for param in row.params.iter().filter(|p| comes_back(&p.kind)) {
            if row.creates.as_ref() != Some(&param.name) && !row.finds.contains(&param.name) {
                say(format!("{} comes back: the row says neither creates({0}) nor finds({0})", param.name));
            }
        }
    }
    if row.has_wire() {
        wire(api, row, say);
    }
    if row.generic_worker() {
        addresses(api, row, say);
    } else if !row.at.is_empty() {
        say("says what lies at an address, and its worker's part is written by hand".to_owned());
    }
}

/// Structs that hold device addresses, for which the dispatcher has the worker decide.
const DECIDED_ON: [&str; 3] = ["CUstreamBatchMemOpParams", "CUstreamAttrValue", "CUDA_MEMSET_NODE_PARAMS"];

/// Every device address that a client names has to be decided on, so its row says how much lies there.
fn addresses(api: &Api, row: &Row, say: &mut impl FnMut(String)) {
    let numbers = |text: &String| text.parse::<u64>().is_ok() || row.params.iter().any(|p| p.name == *text);
    for at in &row.at {
        let all = at.factors.iter().chain(at.rows.iter().flat_map(|(pitch, count)| [pitch, count]));
        if let Some(unknown) = all.into_iter().find(|text| !numbers(text)) {
            say(format!("{}: {unknown} is neither a parameter nor a number", at.param));
        }
    }
    for param in &row.params {
        let decided = row.at.iter().filter(|at| at.param == param.name).count();
        let is_address = matches!(&param.kind, Kind::Value(Element::Scalar { name, .. }) if name == "CUdeviceptr");
        match (is_address, decided) {
            (true, 1) | (false, 0) => {}
            (true, 0) => say(format!("{}: #[at({}, ...)] says how many bytes lie there", param.name, param.name)),
            (true, _) => say(format!("{}: says more than once what lies there", param.name)),
            (false, _) => say(format!("{}: is no device address", param.name)),
        }
        if let Kind::Value(Element::Plain { name })
        | Kind::In { element: Element::Plain { name }, .. }
        | Kind::InArray { element: Element::Plain { name }, .. }
        | Kind::InOut { element: Element::Plain { name } } = &param.kind
            && api.header.holds_address(&Type::Name(name.clone()))
            && !DECIDED_ON.contains(&name.as_str())
        {
            say(format!("{}: nobody decides on the addresses in {name}", param.name));
        }
    }
}

/// Whether a parameter is where a handle is written to, or several.
fn comes_back(kind: &Kind) -> bool {
    match kind {
        Kind::Out { element, .. } | Kind::OutArray { element, .. } => matches!(element, Element::Handle { .. }),
        Kind::Raw(Type::Pointer { mutable: true, to }) => to.name().and_then(handle_kind).is_some(),
        _ => false,
    }
}

fn alias(row: &Row, target: &Row, say: &mut impl FnMut(String)) {
    if matches!(target.answered, Answered::Absent | Answered::Refuse(_)) {
        say(format!("is an alias of {}, which is not answered", target.name));
    }
    let extra = target.params.len().checked_sub(row.params.len());
    let stream_last = target.takes_stream();
    if !(extra == Some(0) || (extra == Some(1) && stream_last)) {
        say(format!("takes other parameters than {}", target.name));
    }
}

/// What generated code can carry.
fn wire(api: &Api, row: &Row, say: &mut impl FnMut(String)) {
    let posted = row.answered == Answered::Post;
    if posted && !row.answers.is_empty() {
        say("is posted: nobody sees its answer".to_owned());
    }
    for param in &row.params {
        let name = &param.name;
        let created = row.creates.as_ref() == Some(name);
        let destroyed = row.destroys.as_ref() == Some(name);
        match &param.kind {
            Kind::Raw(_) => say(format!("{name}: generated code needs to know what this pointer is")),
            Kind::Out { element: Element::Handle { .. }, .. } if !created => {
                say(format!("{name}: a handle that comes back has to be created by this call"));
            }
            Kind::Out { element: Element::Device, .. } => say(format!("{name}: a device cannot come back")),
            Kind::InOut { element: Element::Handle { .. } | Element::Device } => {
                say(format!("{name}: neither handles nor devices go in and out"));
            }
            Kind::In { element: Element::Handle { .. } | Element::Device, .. } => {
                say(format!("{name}: a pointer to one handle or device is written by hand"));
            }
            Kind::OutArray { element: Element::Handle { .. } | Element::Device, .. } => {
                say(format!("{name}: handles that come back are written by hand"));
            }
            Kind::InArray { element: Element::Device, .. } => say(format!("{name}: devices go one by one")),
            Kind::Out { .. } | Kind::OutArray { .. } | Kind::InOut { .. } if posted && !created => {
                say(format!("{name}: a posted call has no answer"));
            }
            _ => {}
        }
        if created && !matches!(&param.kind, Kind::Out { element: Element::Handle { .. }, optional: false }) {
            say(format!("{name}: only an Out<handle> is created"));
        }
        if destroyed && !row.hand_client() && !matches!(&param.kind, Kind::Value(Element::Handle { .. })) {
            say(format!("{name}: only a handle is destroyed"));
        }
        if let Some(element) = element(&param.kind)
            && let Element::Plain { name: ty } = element
            && !api.header.is_plain(&Type::Name(ty.clone()))
        {
            say(format!("{name}: {ty} holds pointers or handles, so it is written by hand"));
        }
        if let Kind::InArray { len, .. } | Kind::OutArray { len, .. } = &param.kind
            && !row.params.iter().any(|p| {
                p.name == *len && matches!(&p.kind, Kind::Value(Element::Scalar { primitive: "u32" | "usize", .. }))
            })
        {
            say(format!("{name}: its length {len} is not an unsigned parameter"));
        }
    }
}

pub fn element(kind: &Kind) -> Option<&Element> {
    match kind {
        Kind::Value(e)
        | Kind::Out { element: e, .. }
        | Kind::In { element: e, .. }
        | Kind::InOut { element: e }
        | Kind::InArray { element: e, .. }
        | Kind::OutArray { element: e, .. } => Some(e),
        Kind::Str | Kind::Raw(_) => None,
    }
}

fn pending(api: &Api, wrong: &mut Vec<String>) {
    for name in &api.pending.client {
        if !api.row(name).is_some_and(Row::hand_client) {
            wrong.push(format!("pending.txt: {name} has no hand-written client part"));
        }
    }
    for name in &api.pending.worker {
        if !api.row(name).is_some_and(Row::hand_worker) {
            wrong.push(format!("pending.txt: {name} has no hand-written worker part"));
        }
    }
}
