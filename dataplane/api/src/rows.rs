//! The rows: what each function of the driver API is to Orion.

use std::collections::HashSet;

use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;

use crate::header::{Header, Type, handle_kind};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answered {
    /// In the shim, from what it knows.
    Local,
    /// By code in the shim that is composed of other operations.
    Client,
    /// Sent, not awaited.
    Post,
    /// Sent, reply awaited.
    Call,
    /// Sent; which of the two parts are hand-written.
    ByHand { client: bool, worker: bool },
    /// The same as another function.
    Alias(String),
    /// Answered with this code.
    Refuse(String),
    /// Not exported.
    Absent,
}

/// A value that is not a pointer, or what a pointer points to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Element {
    /// One word; the Rust primitive behind the C name.
    Scalar {
        name: String,
        primitive: &'static str,
    },
    /// A struct without pointers; its bytes.
    Plain {
        name: String,
    },
    Device,
    Handle {
        name: String,
        kind: &'static str,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    Value(Element),
    Out {
        element: Element,
        optional: bool,
    },
    In {
        element: Element,
        optional: bool,
    },
    InOut {
        element: Element,
    },
    InArray {
        element: Element,
        len: String,
        optional: bool,
    },
    OutArray {
        element: Element,
        len: String,
        optional: bool,
    },
    Str,
    /// As in C: what it means is known to hand-written code only.
    Raw(Type),
}

#[derive(Debug, Clone)]
pub struct Param {
    pub name: String,
    pub kind: Kind,
}

#[derive(Debug, Clone)]
pub struct Row {
    pub group: String,
    pub name: String,
    pub doc: String,
    pub answered: Answered,
    pub id: Option<u16>,
    /// First version for which `cuGetProcAddress` answers with this symbol.
    pub since: Option<u32>,
    /// `ptsz` or `ptds`.
    pub per_thread: Option<String>,
    pub creates: Option<String>,
    /// The parameter whose object the created one lives in and ends with.
    pub inside: Option<String>,
    pub destroys: Option<String>,
    /// Handles that come back of objects that exist already.
    pub finds: Vec<String>,
    pub answers: Vec<String>,
    pub needs_context: bool,
    /// Elements that an array parameter may have.
    pub limit: usize,
    pub at: Vec<At>,
    /// While its stream is captured, any address is recorded.
    pub is_recorded: bool,
    /// What of a generated row takes device memory, and so has to be charged.
    pub charges: Option<Charge>,
    pub params: Vec<Param>,
}

const LIMIT_DEFAULT: usize = 4096;

/// How much lies behind a device address that a parameter holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At {
    pub param: String,
    /// Pitch and number of rows, if it is rows.
    pub rows: Option<(String, String)>,
    /// Numbers and parameters; the bytes, of a row if it is rows, are their product.
    pub factors: Vec<String>,
}

/// How a row takes device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge {
    /// By a function of the worker's own.
    ByHand,
    Array,
    MipmappedArray,
    /// What the nodes of an executable graph allocate.
    Graph,
}

impl Charge {
    fn parse(text: &str) -> Result<Charge, String> {
        Ok(match text {
            "by_hand" => Charge::ByHand,
            "array" => Charge::Array,
            "mipmapped_array" => Charge::MipmappedArray,
            "graph" => Charge::Graph,
            other => return Err(format!("charges: {other} is nothing that the worker knows to charge")),
        })
    }
}

impl Row {
    /// Whether the client part is generated from the parameters' kinds.
    pub fn generic_client(&self) -> bool {
        matches!(self.answered, Answered::Post | Answered::Call | Answered::ByHand { client: false, .. })
    }

    pub fn generic_worker(&self) -> bool {
        matches!(self.answered, Answered::Post | Answered::Call | Answered::ByHand { worker: false, .. })
    }

    /// Whether the request and the reply are described by the kinds.
    pub fn has_wire(&self) -> bool {
        self.generic_client() || self.generic_worker()
    }

    pub fn hand_client(&self) -> bool {
        self.client_path().is_some()
    }

    pub fn hand_worker(&self) -> bool {
        self.worker_module().is_some()
    }

    /// Where the hand-written client function lives, below `crate` of the shim: in the module named as the row's file.
    pub fn client_path(&self) -> Option<String> {
        let written =
            matches!(self.answered, Answered::Local | Answered::Client | Answered::ByHand { client: true, .. });
        written.then(|| format!("api::{}", self.group))
    }

    /// Below `crate::worker::calls` of oriond: the subject, as the file of rows is called.
    pub fn worker_module(&self) -> Option<&str> {
        match &self.answered {
            Answered::ByHand { worker: true, .. } => Some(&self.group),
            _ => None,
        }
    }

    /// The name of the id: `CU_MEM_ALLOC_V2`.
    pub fn op_const(&self) -> String {
        shouty(&self.name)
    }

    /// The name that programs ask `cuGetProcAddress` for.
    pub fn public(&self) -> &str {
        match self.name.rsplit_once("_v") {
            Some((base, version)) if version.parse::<u32>().is_ok() => base,
            _ => &self.name,
        }
    }

    pub fn per_thread_symbol(&self) -> Option<String> {
        self.per_thread.as_ref().map(|p| format!("{}_{p}", self.name))
    }

    pub fn takes_stream(&self) -> bool {
        self.params.iter().any(|p| matches!(&p.kind, Kind::Value(Element::Handle { name, .. }) if name == "CUstream"))
    }

    /// Whether the hand-written client function is told which default stream its caller means.
    pub fn takes_default_stream(&self) -> bool {
        self.per_thread.as_deref() == Some("ptds") && !self.takes_stream() && self.hand_client()
    }

    pub fn class(&self) -> &'static str {
        match &self.answered {
            Answered::Local => "local",
            Answered::Client => "client",
            Answered::Post => "post",
            Answered::Call => "call",
            Answered::ByHand { client: true, worker: true } => "by hand",
            Answered::ByHand { client: true, .. } => "by hand (client)",
            Answered::ByHand { .. } => "by hand (worker)",
            Answered::Alias(_) => "alias",
            Answered::Refuse(_) => "refuse",
            Answered::Absent => "absent",
        }
    }
}

/// Words split where a capital follows a small letter, and before the last of several capitals.
fn shouty(name: &str) -> String {
    #[derive(PartialEq)]
    enum Last {
        Start,
        Small,
        Capital,
    }
    let mut out = String::new();
    for part in name.split('_') {
        let chars: Vec<char> = part.chars().collect();
        let mut last = Last::Start;
        if !out.is_empty() {
            out.push('_');
        }
        for (i, c) in chars.iter().enumerate() {
            let next = chars.get(i + 1);
            if last == Last::Capital && c.is_uppercase() && next.is_some_and(|n| n.is_lowercase()) {
                out.push('_');
                last = Last::Start;
            }
            out.push(c.to_ascii_uppercase());
            if c.is_lowercase() {
                last = Last::Small;
            } else if c.is_uppercase() {
                last = Last::Capital;
            }
            if last == Last::Small && next.is_some_and(|n| n.is_uppercase()) {
                out.push('_');
                last = Last::Start;
            }
        }
    }
    out
}

struct File {
    functions: Vec<syn::ForeignItemFn>,
}

impl Parse for File {
    fn parse(input: ParseStream<'_>) -> syn::Result<File> {
        syn::Attribute::parse_inner(input)?;
        let mut functions = Vec::new();
        while !input.is_empty() {
            functions.push(input.parse()?);
        }
        Ok(File { functions })
    }
}

pub fn parse(group: &str, text: &str, header: &Header) -> Result<Vec<Row>, String> {
    let file: File = syn::parse_str(text).map_err(|e| {
        let at = e.span().start();
        format!("rows/{group}.rs:{}:{}: {e}", at.line, at.column)
    })?;
    file.functions.iter().map(|f| row(group, f, header)).collect()
}

fn row(group: &str, f: &syn::ForeignItemFn, header: &Header) -> Result<Row, String> {
    let name = f.sig.ident.to_string();
    let fail = |what: String| format!("rows/{group}.rs: {name}: {what}");
    let mut row = Row {
        group: group.to_owned(),
        name: name.clone(),
        doc: String::new(),
        answered: Answered::Absent,
        id: None,
        since: None,
        per_thread: None,
        creates: None,
        inside: None,
        destroys: None,
        finds: Vec::new(),
        answers: Vec::new(),
        needs_context: true,
        limit: LIMIT_DEFAULT,
        at: Vec::new(),
        is_recorded: false,
        charges: None,
        params: Vec::new(),
    };
    let mut answered = 0;
    for attribute in &f.attrs {
        let word = attribute.path().get_ident().map(ToString::to_string).unwrap_or_default();
        if word == "doc" {
            if let syn::Meta::NameValue(nv) = &attribute.meta
                && let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(s), .. }) = &nv.value
            {
                if !row.doc.is_empty() {
                    row.doc.push(' ');
                }
                row.doc.push_str(s.value().trim());
            }
            continue;
        }
        let args = arguments(attribute).map_err(|e| fail(e.to_string()))?;
        let one = || args.first().cloned().ok_or_else(|| fail(format!("#[{word}] needs an argument")));
        match word.as_str() {
            "local" => row.answered = Answered::Local,
            "client" => row.answered = Answered::Client,
            "post" => (row.answered, row.id) = (Answered::Post, Some(id(&one()?).map_err(&fail)?)),
            "call" => (row.answered, row.id) = (Answered::Call, Some(id(&one()?).map_err(&fail)?)),
            "by_hand" => {
                row.id = Some(id(&one()?).map_err(&fail)?);
                let (client, worker) = match args.get(1).map(String::as_str) {
                    None => (true, true),
                    Some("client") => (true, false),
                    Some("worker") => (false, true),
                    Some(other) => return Err(fail(format!("by_hand: {other} is neither `client` nor `worker`"))),
                };
                row.answered = Answered::ByHand { client, worker };
            }
            "alias" => row.answered = Answered::Alias(one()?),
            "refuse" => row.answered = Answered::Refuse(one()?),
            "absent" => row.answered = Answered::Absent,
            "since" => row.since = Some(one()?.parse().map_err(|_| fail("since: not a version".to_owned()))?),
            "per_thread" => row.per_thread = Some(one()?),
            "creates" => (row.creates, row.inside) = (Some(one()?), args.get(1).cloned()),
            "destroys" => row.destroys = Some(one()?),
            "finds" => row.finds = args.clone(),
            "answers" => row.answers = args.clone(),
            "at" => row.at.push(At { param: one()?, rows: None, factors: args[1..].to_vec() }),
            "at_rows" => match &args[..] {
                [param, pitch, count, factors @ ..] => row.at.push(At {
                    param: param.clone(),
                    rows: Some((pitch.clone(), count.clone())),
                    factors: factors.to_vec(),
                }),
                _ => return Err(fail("at_rows: parameter, pitch, rows, bytes of a row".to_owned())),
            },
            "recorded" => row.is_recorded = true,
            "charges" => row.charges = Some(Charge::parse(&one()?).map_err(&fail)?),
            "no_context" => row.needs_context = false,
            "limit" => row.limit = one()?.parse().map_err(|_| fail("limit: not a number".to_owned()))?,
            other => return Err(fail(format!("unknown word #[{other}]; README.md has the vocabulary"))),
        }
        if matches!(word.as_str(), "local" | "client" | "post" | "call" | "by_hand" | "alias" | "refuse" | "absent") {
            answered += 1;
        }
    }
    if answered != 1 {
        return Err(fail(format!("says {answered} times where it is answered, instead of once")));
    }
    for arg in &f.sig.inputs {
        let syn::FnArg::Typed(arg) = arg else { return Err(fail("self is no parameter".to_owned())) };
        let syn::Pat::Ident(ident) = &*arg.pat else { return Err(fail("a parameter without a name".to_owned())) };
        let param = ident.ident.to_string();
        let kind = kind(&arg.ty, header).map_err(|e| fail(format!("{param}: {e}")))?;
        row.params.push(Param { name: param, kind });
    }
    Ok(row)
}

fn id(text: &str) -> Result<u16, String> {
    text.strip_prefix("0x")
        .and_then(|hex| u16::from_str_radix(hex, 16).ok())
        .ok_or_else(|| format!("{text} is not an id: write it as 0x0123"))
}

fn arguments(attribute: &syn::Attribute) -> syn::Result<Vec<String>> {
    use quote::ToTokens;
    match &attribute.meta {
        syn::Meta::Path(_) => Ok(Vec::new()),
        syn::Meta::List(list) => {
            let args = list.parse_args_with(Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated)?;
            Ok(args.iter().map(|a| a.to_token_stream().to_string().replace(' ', "")).collect())
        }
        syn::Meta::NameValue(_) => Err(syn::Error::new_spanned(attribute, "no `=` in a row")),
    }
}

fn kind(ty: &syn::Type, header: &Header) -> Result<Kind, String> {
    if let syn::Type::Path(path) = ty
        && let Some(last) = path.path.segments.last()
    {
        let word = last.ident.to_string();
        if word == "Str" {
            return Ok(Kind::Str);
        }
        if let syn::PathArguments::AngleBracketed(args) = &last.arguments {
            let Some(syn::GenericArgument::Type(inner)) = args.args.first() else {
                return Err(format!("{word} of what?"));
            };
            return wrapped(&word, inner, header);
        }
        return Ok(Kind::Value(element(&word, header)?));
    }
    Type::from_syn(ty).map(Kind::Raw).ok_or_else(|| "a kind this table does not have".to_owned())
}

fn wrapped(word: &str, inner: &syn::Type, header: &Header) -> Result<Kind, String> {
    if let syn::Type::Array(array) = inner {
        let element = named_element(&array.elem, header)?;
        let syn::Expr::Path(len) = &array.len else { return Err("an array's length is a parameter".to_owned()) };
        let len = len.path.get_ident().map(ToString::to_string).unwrap_or_default();
        return match word {
            "In" => Ok(Kind::InArray { element, len, optional: false }),
            "InOpt" => Ok(Kind::InArray { element, len, optional: true }),
            "Out" => Ok(Kind::OutArray { element, len, optional: false }),
            "OutOpt" => Ok(Kind::OutArray { element, len, optional: true }),
            _ => Err(format!("{word} of an array")),
        };
    }
    let element = named_element(inner, header)?;
    match word {
        "In" => Ok(Kind::In { element, optional: false }),
        "InOpt" => Ok(Kind::In { element, optional: true }),
        "Out" => Ok(Kind::Out { element, optional: false }),
        "OutOpt" => Ok(Kind::Out { element, optional: true }),
        "InOut" => Ok(Kind::InOut { element }),
        _ => Err(format!("unknown kind {word}")),
    }
}

fn named_element(ty: &syn::Type, header: &Header) -> Result<Element, String> {
    match Type::from_syn(ty) {
        Some(Type::Name(n)) => element(&n, header),
        _ => Err("a pointer inside a kind".to_owned()),
    }
}

fn element(name: &str, header: &Header) -> Result<Element, String> {
    if name == "CUdevice" {
        return Ok(Element::Device);
    }
    if let Some(kind) = handle_kind(name) {
        return Ok(Element::Handle { name: name.to_owned(), kind });
    }
    if let Some(primitive) = header.scalar(name) {
        return Ok(Element::Scalar { name: name.to_owned(), primitive });
    }
    Ok(Element::Plain { name: name.to_owned() })
}

/// Hand-written functions that do not exist yet; `pending.txt` says so, one per line.
#[derive(Debug, Default)]
pub struct Pending {
    pub client: HashSet<String>,
    pub worker: HashSet<String>,
}

impl Pending {
    pub fn parse(text: &str) -> Result<Pending, String> {
        let mut pending = Pending::default();
        for line in text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
            let fresh = match line.split_once(' ') {
                Some(("client", name)) => pending.client.insert(name.to_owned()),
                Some(("worker", name)) => pending.worker.insert(name.to_owned()),
                _ => return Err(format!("pending.txt: {line:?} is neither `client cuXxx` nor `worker cuXxx`")),
            };
            if !fresh {
                return Err(format!("pending.txt: {line:?} twice"));
            }
        }
        Ok(pending)
    }
}
