//! The worker's dispatcher.

use std::fmt::Write;

use super::calls::reply;
use crate::check::element_name;
use crate::rows::{At, Charge, Element, Kind, Param, Row};
use crate::table::Api;

pub fn emit(api: &Api) -> String {
    let mut rows: Vec<&Row> = api.rows.iter().filter(|r| r.id.is_some()).collect();
    rows.sort_by_key(|r| r.id);
    let mut out = String::from(PRELUDE);
    out.push_str(
        "/// Executes one operation of the table. The context it needs is current already.\n\
         pub fn dispatch(s: &mut Session, header: &Header, body: Reader<'_>, reply: &mut Vec<u8>) -> \
         Handled {\nmatch header.op {\n",
    );
    for row in &rows {
        let name = &row.name;
        let id = row.op_const();
        match row.worker_module() {
            Some(_) if api.pending.worker.contains(name) => {
                writeln!(out, "ops::{id} => Ok(Outcome::Done(CUDA_ERROR_NOT_SUPPORTED)),").unwrap();
            }
            Some(module) => {
                writeln!(out, "ops::{id} => crate::worker::calls::{module}::{name}(s, header, body, reply),").unwrap();
            }
            None => writeln!(out, "ops::{id} => {name}(s, header, body, reply),").unwrap(),
        }
    }
    out.push_str("_ => Err(Fault(\"no such operation\").into()),\n}\n}\n\n");
    out.push_str(
        "/// Operations that need a function which this driver does not have; the client answers for them.\n\
         pub fn missing(driver: &Driver) -> Vec<u16> {\n\
         let names = driver.missing();\n\
         ops::OPS.iter().filter(|op| names.contains(&op.name)).map(|op| op.id).collect()\n}\n\n",
    );
    for row in rows.iter().filter(|r| r.generic_worker()) {
        one(&mut out, row);
    }
    out
}

/// Structs that name a device, and where in them.
fn location(element: &Element) -> Option<&'static str> {
    match element_name(element) {
        "CUmemLocation" => Some("|e| e"),
        "CUmemAccessDesc" => Some("|e| &mut e.location"),
        _ => None,
    }
}

fn one(out: &mut String, row: &Row) {
    let name = &row.name;
    writeln!(
        out,
        "fn {name}(s: &mut Session, header: &Header, mut body: Reader<'_>, reply: &mut Vec<u8>) -> Handled {{"
    )
    .unwrap();
    let q = if row.params.is_empty() { "_" } else { "q" };
    writeln!(out, "let {q} = calls::{name}::decode(&mut body)?;").unwrap();
    let mut arguments = Vec::new();
    for param in &row.params {
        arguments.push(prepare(out, row, param));
    }
    out.push_str(
        "// SAFETY: pointers are to locals of the size the function expects; handles are the session's own.\n",
    );
    let arguments = arguments.join(", ");
    match row.charges.and_then(|charge| charged(row, charge)) {
        Some((before, what)) => {
            let call = match what {
                Some(what) => {
                    format!("{{\nlet result = unsafe {{ driver.{name}({arguments}) }};\n(result, {what})\n}}")
                }
                None => format!("unsafe {{ driver.{name}({arguments}) }}"),
            };
            writeln!(out, "let result = s.{before}, |driver| {call});").unwrap();
        }
        None => writeln!(out, "let result = unsafe {{ s.driver.{name}({arguments}) }};").unwrap(),
    }
    if let Some(destroyed) = &row.destroys
        && let Some(Param { kind: Kind::Value(Element::Handle { kind, .. }), .. }) =
            row.params.iter().find(|p| p.name == *destroyed)
    {
        // The client gives the handle up whatever the result is.
        writeln!(
            out,
            "match result {{\nCUDA_SUCCESS => s.unbind(Kind::{kind}, q.{destroyed}),\n\
             _ => s.give_up(Kind::{kind}, q.{destroyed}),\n}}"
        )
        .unwrap();
    }
    finish(out, row);
    out.push_str("}\n\n");
}

/// The beginning of the session's call that charges, and the name of what it charges.
fn charged(row: &Row, charge: Charge) -> Option<(String, Option<String>)> {
    let created = || row.creates.clone().unwrap_or_default();
    Some(match charge {
        Charge::ByHand => return None,
        Charge::Array => {
            let descriptor = &row.params[1].name;
            let bytes = format!("array_bytes(&{descriptor}.get())");
            (format!("allocating({bytes}"), Some(format!("What::Array({} as usize)", created())))
        }
        Charge::MipmappedArray => {
            let (descriptor, levels) = (&row.params[1].name, &row.params[2].name);
            let bytes = format!("mipmapped_bytes(&{descriptor}.get(), q.{levels})");
            (format!("allocating({bytes}"), Some(format!("What::MipmappedArray({} as usize)", created())))
        }
        Charge::Graph => (format!("launching({}", row.params[0].name), None),
    })
}

/// Makes the local for a parameter; answers what is passed to the driver.
fn prepare(out: &mut String, row: &Row, param: &Param) -> String {
    let name = &param.name;
    match &param.kind {
        Kind::Value(element) => value(out, row, name, element),
        Kind::Out { element, .. } => place(out, name, element),
        Kind::In { element, optional: true } => match element {
            Element::Scalar { .. } => {
                writeln!(out, "let mut {name} = q.{name};").unwrap();
                format!("{name}.as_mut().map_or(std::ptr::null_mut(), |v| (&raw mut *v).cast())")
            }
            _ => optional(out, name, element, "1"),
        },
        Kind::In { element, optional: false } | Kind::InOut { element } => match element {
            Element::Scalar { .. } => {
                writeln!(out, "let mut {name} = q.{name};").unwrap();
                format!("(&raw mut {name}).cast()")
            }
            _ => plain(out, row, name, element, "1"),
        },
        Kind::InArray { element, len, optional } => array(out, row, name, element, len, *optional),
        Kind::OutArray { element, len, .. } => {
            let (limit, of) = (&row.limit, element_name(element));
            writeln!(
                out,
                "limit(q.{len} as usize, {limit})?;\nlet mut {name} = Plain::<{of}>::zeroed(q.{len} as usize);"
            )
            .unwrap();
            format!("{name}.at().cast()")
        }
        Kind::Str => {
            writeln!(out, "let {name} = CString::new(q.{name}).map_err(|_| Fault(\"a string with a NUL inside\"))?;")
                .unwrap();
            format!("{name}.as_ptr()")
        }
        Kind::Raw(_) => String::new(),
    }
}

fn stream_of(row: &Row) -> Option<&str> {
    let is_stream = |param: &&Param| matches!(param.kind, Kind::Value(Element::Handle { kind: "Stream", .. }));
    row.params.iter().find(is_stream).map(|param| param.name.as_str())
}

/// One value, as the driver is given it.
fn value(out: &mut String, row: &Row, name: &str, element: &Element) -> String {
    match element {
        Element::Scalar { .. } => match row.at.iter().find(|at| at.param == *name) {
            Some(at) => {
                let bytes = bytes(row, at);
                match stream_of(row).filter(|_| row.is_recorded) {
                    Some(stream) => {
                        writeln!(out, "let {name} = s.reach_in(q.{stream}, header.thread, q.{name}, {bytes})?;")
                            .unwrap();
                        let flags = ["cuStreamWriteValue", "cuStreamWaitValue"];
                        match flags.iter().any(|call| row.name.starts_with(call)) {
                            true => writeln!(out, "s.name_flag({name}, {bytes});"),
                            false => Ok(()),
                        }
                    }
                    None => writeln!(out, "let {name} = s.reach(q.{name}, {bytes})?;"),
                }
                .unwrap();
                format!("{name}.raw()")
            }
            None => format!("q.{name}"),
        },
        Element::Device => {
            writeln!(out, "let {name} = device(s, q.{name})?;").unwrap();
            name.to_owned()
        }
        Element::Plain { .. } => {
            writeln!(out, "let mut {name} = Plain::<{}>::of(q.{name}, 1)?;", element_name(element)).unwrap();
            locations(out, name, element);
            format!("{name}.get()")
        }
        Element::Handle { name: ty, kind } => {
            if *kind == "Stream" {
                writeln!(out, "let {name} = s.stream(q.{name}, header.thread)?;").unwrap();
            } else if ty == "CUmemGenericAllocationHandle" {
                writeln!(out, "let {name} = s.handle(Kind::{kind}, q.{name})? as u64;").unwrap();
            } else {
                writeln!(out, "let {name}: {ty} = s.handle(Kind::{kind}, q.{name})?.cast();").unwrap();
            }
            name.to_owned()
        }
    }
}

/// A place for what the driver answers.
fn place(out: &mut String, name: &str, element: &Element) -> String {
    match element {
        Element::Handle { name: ty, .. } => {
            if ty == "CUmemGenericAllocationHandle" {
                writeln!(out, "let mut {name}: u64 = 0;").unwrap();
            } else {
                writeln!(out, "let mut {name}: {ty} = std::ptr::null_mut();").unwrap();
            }
            format!("&mut {name}")
        }
        Element::Scalar { primitive, .. } => {
            let zero = if primitive.starts_with('f') { "0.0" } else { "0" };
            writeln!(out, "let mut {name}: {primitive} = {zero};").unwrap();
            format!("(&raw mut {name}).cast()")
        }
        _ => {
            writeln!(out, "let mut {name} = Plain::<{}>::zeroed(1);", element_name(element)).unwrap();
            format!("{name}.at().cast()")
        }
    }
}

/// `count` structs, or one.
fn plain(out: &mut String, row: &Row, name: &str, element: &Element, count: &str) -> String {
    writeln!(out, "let mut {name} = Plain::<{}>::of(q.{name}, {count})?;", element_name(element)).unwrap();
    locations(out, name, element);
    if let Some(decide) = decided(element, name, row) {
        writeln!(out, "{decide}?;").unwrap();
    }
    format!("{name}.at().cast()")
}

/// Devices that the elements name.
fn locations(out: &mut String, name: &str, element: &Element) {
    if let Some(path) = location(element) {
        writeln!(out, "places(s, {name}.elements(), {path})?;").unwrap();
    }
}

fn array(out: &mut String, row: &Row, name: &str, element: &Element, len: &str, is_optional: bool) -> String {
    writeln!(out, "limit(q.{len} as usize, {})?;", row.limit).unwrap();
    let count = format!("q.{len} as usize");
    match element {
        Element::Handle { kind, .. } => {
            let take = if is_optional { format!("q.{name}.as_deref()") } else { format!("Some(&q.{name}[..])") };
            writeln!(out, "let mut {name} = handles(s, Kind::{kind}, {take}, {count})?;").unwrap();
            format!("{name}.as_mut().map_or(std::ptr::null_mut(), |v| v.as_mut_ptr().cast())")
        }
        _ if is_optional => optional(out, name, element, &count),
        _ => plain(out, row, name, element, &count),
    }
}

/// How many bytes lie at an address.
fn bytes(row: &Row, at: &At) -> String {
    let value = |text: &String| match row.params.iter().any(|p| p.name == *text) {
        true => format!("q.{text} as u64"),
        false => text.clone(),
    };
    let line = match &at.factors[..] {
        [one] => value(one),
        factors => {
            let factors: Vec<String> = factors.iter().map(value).collect();
            format!("address::line(&[{}])?", factors.join(", "))
        }
    };
    match &at.rows {
        None => line,
        Some((pitch, count)) => format!("address::rows({}, {}, {line})?", value(pitch), value(count)),
    }
}

/// What the worker decides on in the elements of an array or struct.
fn decided(element: &Element, name: &str, row: &Row) -> Option<String> {
    match element_name(element) {
        "CUstreamBatchMemOpParams" => {
            let stream = stream_of(row).expect("operations of a node are decided on by hand");
            Some(format!("s.mem_ops_in(q.{stream}, header.thread, {name}.elements())"))
        }
        "CUDA_MEMSET_NODE_PARAMS" => Some(format!("s.fills({name}.elements())")),
        "CUstreamAttrValue" if row.params.iter().any(|p| p.name == "attr") => {
            Some("address::stream_attribute(q.attr)".to_owned())
        }
        _ => None,
    }
}

fn optional(out: &mut String, name: &str, element: &Element, count: &str) -> String {
    writeln!(
        out,
        "let mut {name} = match q.{name} {{\nNone => None,\n\
         Some(bytes) => Some(Plain::<{}>::of(bytes, {count})?),\n}};",
        element_name(element)
    )
    .unwrap();
    if let Some(path) = location(element) {
        writeln!(out, "if let Some({name}) = &mut {name} {{\nplaces(s, {name}.elements(), {path})?;\n}}").unwrap();
    }
    format!("{name}.as_mut().map_or(std::ptr::null_mut(), |v| v.at().cast())")
}

/// Binds what was created and encodes what comes back.
fn finish(out: &mut String, row: &Row) {
    let mut success = String::new();
    if let Some(created) = &row.creates
        && let Some(Param { kind: Kind::Out { element: Element::Handle { kind, name: ty }, .. }, .. }) =
            row.params.iter().find(|p| p.name == *created)
    {
        let pointer = if ty == "CUmemGenericAllocationHandle" {
            format!("std::ptr::without_provenance_mut({created} as usize)")
        } else {
            format!("{created}.cast()")
        };
        match &row.inside {
            Some(owner) => {
                writeln!(success, "s.bind_inside(q.{owner}, Kind::{kind}, q.{created}, {pointer})?;").unwrap();
            }
            None => writeln!(success, "s.bind(Kind::{kind}, q.{created}, {pointer})?;").unwrap(),
        }
    }
    let fields = reply(row);
    if !fields.is_empty() {
        let mut values = String::new();
        for field in &fields {
            let by_bytes = matches!(field.shape, super::calls::Shape::Bytes);
            if by_bytes {
                writeln!(values, "{0}: {0}.bytes(),", field.name).unwrap();
            } else {
                writeln!(values, "{},", field.name).unwrap();
            }
        }
        writeln!(success, "calls::{}_reply {{ {values} }}.encode(reply);", row.name).unwrap();
    }
    if !success.is_empty() {
        let codes: String = row.answers.iter().map(|c| format!(" || result == {c}")).collect();
        writeln!(out, "if result == CUDA_SUCCESS{codes} {{\n{success}").unwrap();
        if !row.answers.is_empty() {
            // The body says which of the answers it is.
            out.push_str("return Ok(Outcome::Done(CUDA_SUCCESS));\n");
        }
        out.push_str("}\n");
    }
    out.push_str("Ok(Outcome::Done(result))\n");
}

const PRELUDE: &str = "//! From records to the driver: decode, resolve handles, call, encode.\n\n\
     // UNSAFETY: calls the driver with values that were decoded, bounded and resolved right here.\n\n\
     #![allow(unused_imports, unused_mut, unused_variables, clippy::unnecessary_cast, clippy::ptr_arg)]\n\n\
     use std::ffi::CString;\n\n\
     use orion_cuda::driver::Driver;\nuse orion_cuda::sys::*;\nuse orion_wire::generated::ops;\n\
     use orion_wire::message::calls;\nuse orion_wire::record::Header;\nuse orion_wire::{Fault, Kind, Reader};\n\n\
     use crate::worker::calls::decoded::{Plain, device, handles, limit, places};\n\
     use crate::worker::outcome::{Handled, Outcome};\nuse crate::worker::session::Session;\n\
     use crate::worker::state::addresses as address;\n\
     use crate::worker::state::ledger::{What, array_bytes, mipmapped_bytes};\n\n";
