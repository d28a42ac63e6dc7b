//! The shim's exported functions.

use std::fmt::Write;

use super::calls::reply;
use super::parameters::parameters;
use crate::check::element_name;
use crate::header::Type;
use crate::rows::{Answered, Element, Kind, Param, Row};
use crate::table::Api;

pub fn module() -> String {
    "//! The exported functions of the driver API, from the table.\n\n\
     pub mod exports;\n"
        .to_owned()
}

pub fn emit(api: &Api) -> String {
    let mut out =
        Parts { exports: String::from(PRELUDE), plain: String::from(PLAIN), recorded: String::from(RECORDED) };
    for row in api.rows.iter().filter(|r| r.answered != Answered::Absent) {
        let params = c_parameters(api, row);
        let mut text = String::new();
        body(api, &mut text, row, &params);
        out.function(api, row, &row.name, &params, &text);
        if let Some(symbol) = row.per_thread_symbol() {
            let mut text = String::new();
            per_thread_body(api, &mut text, row, &params);
            out.function(api, row, &symbol, &params, &text);
        }
    }
    out.exports + &out.plain + "}\n\n" + &out.recorded + "}\n"
}

/// An export, what it does, and what it does while somebody looks: a profiler that records, or who has vGPUs of several
/// nodes and finds out which of them a call is for. Two jumps, so that the first needs no frame for
/// the sake of the last.
struct Parts {
    exports: String,
    plain: String,
    recorded: String,
}

impl Parts {
    fn function(&mut self, api: &Api, row: &Row, symbol: &str, params: &[(String, Type)], body: &str) {
        let head = format!("unsafe extern \"C\" fn {symbol}({}) -> CUresult {{\n", parameters(params));
        let arguments = arguments(params);
        write!(self.exports, "#[unsafe(no_mangle)]\npub {head}").unwrap();
        let cbid = api.cbids.driver(symbol);
        let routed = routed(row, symbol, params);
        if cbid.is_none() && routed.is_none() {
            write!(self.exports, "{body}}}\n\n").unwrap();
            return;
        }
        writeln!(
            self.exports,
            "if is_recorded() {{\n// SAFETY: the caller's promises are the same.\n\
             return unsafe {{ recorded::{symbol}({arguments}) }};\n}}\n\
             // SAFETY: the same.\nunsafe {{ plain::{symbol}({arguments}) }}\n}}\n"
        )
        .unwrap();
        // A jump cannot pass on what lies on the stack.
        let inline = if params.len() > 6 { "always" } else { "never" };
        write!(self.plain, "#[inline({inline})]\npub {head}{body}}}\n\n").unwrap();
        let plain = format!("unsafe {{\nplain::{symbol}({arguments})\n}}");
        let call = match cbid {
            Some(cbid) => {
                format!("activity::driver_call({cbid}, &Parameters{}({arguments}), || {plain})", params.len())
            }
            None => plain,
        };
        let call = match routed {
            Some(routed) => format!("let call = || {call};\n{routed}"),
            None => call,
        };
        writeln!(
            self.recorded,
            "#[cold]\n#[inline(never)]\npub {head}// SAFETY: the caller's promises are the same.\n{call}\n}}\n"
        )
        .unwrap();
    }
}

/// How it is found out for which session a call is, from what it names; nothing where that decides nothing. The current
/// context and its stack are the client's own, and who asks about a device asks the client.
fn routed(row: &Row, symbol: &str, params: &[(String, Type)]) -> Option<String> {
    // What is said of memory is said from the map of addresses, which all sessions share.
    let is_clients = ["context", "device", "initialization", "pointer"].contains(&row.group.as_str());
    if matches!(row.answered, Answered::Refuse(_)) || is_clients || row.name.starts_with("cuMemGetAddressRange") {
        return None;
    }
    if let Some(copy) = linear_copy(row, symbol, params) {
        return Some(copy);
    }
    let mut keys: Vec<String> = params.iter().filter_map(|(name, ty)| key(row, name, ty)).collect();
    if keys.is_empty() {
        return None;
    }
    // Whether two things go together that are not both named.
    if row.group == "peer" || row.name.starts_with("cuMemHostGetDevicePointer") {
        keys.push("Key::Current".to_owned());
    }
    let otherwise = match row.name.as_str() {
        "cuStreamWaitEvent" => "|_| crate::api::stream::wait_apart(hStream, hEvent)".to_owned(),
        _ => format!("|apart| apart.refused(\"{symbol}\")"),
    };
    // Fills and deprecated launches need a current context, whatever they name; so does work in a default stream.
    let in_stream = params.iter().any(|(_, ty)| ty.name() == Some("CUstream"));
    let needs_one = in_stream || row.group == "memset" || is_deprecated_launch(&row.name);
    let through = if needs_one { "in_a_context" } else { "through" };
    Some(format!("route::{through}(&[{}], call).unwrap_or_else({otherwise})", keys.join(", ")))
}

fn is_deprecated_launch(name: &str) -> bool {
    let prepares = name.starts_with("cuParamSet") || ["cuFuncSetBlockShape", "cuFuncSetSharedSize"].contains(&name);
    prepares || ["cuLaunch", "cuLaunchGrid", "cuLaunchGridAsync"].contains(&name)
}

fn key(row: &Row, name: &str, ty: &Type) -> Option<String> {
    // By its name: what a `void *` is.
    if row.group == "host_memory" && name == "p" && !row.name.starts_with("cuMemHostRegister") {
        return Some(format!("Key::Host({name} as u64)"));
    }
    Some(match ty.name()? {
        "CUstream" => format!("Key::Stream({name} as u64)"),
        "CUcontext" => format!("Key::Context({name} as u64)"),
        "CUdeviceptr" => format!("Key::Address({name})"),
        "CUdevice" if row.group != "peer" => format!("Key::Device({name})"),
        "CUevent"
        | "CUmodule"
        | "CUfunction"
        | "CUarray"
        | "CUmipmappedArray"
        | "CUgraph"
        | "CUgraphNode"
        | "CUgraphExec"
        | "CUmemoryPool"
        | "CUlinkState"
        | "CUgreenCtx"
        | "CUuserObject"
        | "CUtexref"
        | "CUsurfref"
        | "CUdevResourceDesc"
        | "CUmemGenericAllocationHandle" => format!("Key::Object({name} as u64)"),
        _ => return None,
    })
}

/// A copy of bytes that lie side by side is made whatever nodes they lie on.
fn linear_copy(row: &Row, symbol: &str, params: &[(String, Type)]) -> Option<String> {
    let find = |names: &[&'static str]| names.iter().find(|n| params.iter().any(|(name, _)| name == *n)).copied();
    let (to, from) = (find(&["dst", "dstDevice", "dstHost"])?, find(&["src", "srcDevice", "srcHost"])?);
    let bytes = find(&["ByteCount"]).filter(|_| row.group == "copy")?;
    let per_thread = row.per_thread_symbol().is_some_and(|per_thread| per_thread == symbol);
    let stream = match (find(&["hStream"]), per_thread) {
        (Some(stream), false) => stream.to_owned(),
        (Some(stream), true) => format!("per_thread({stream})"),
        (None, false) => "LEGACY".to_owned(),
        (None, true) => "PER_THREAD".to_owned(),
    };
    Some(format!("crate::api::copy::wherever({to} as u64, {from} as u64, {bytes}, {stream}, call)"))
}

/// As in `cuda.h`; a function that is not there has what the row says.
fn c_parameters(api: &Api, row: &Row) -> Vec<(String, Type)> {
    if let Some(function) = api.header.function(&row.name) {
        return function.params.clone();
    }
    let ty = |p: &Param| match &p.kind {
        Kind::Raw(ty) => ty.clone(),
        Kind::Value(e) => Type::Name(element_name(e).to_owned()),
        _ => Type::Pointer { mutable: true, to: Box::new(Type::Name("c_void".to_owned())) },
    };
    row.params.iter().map(|p| (p.name.clone(), ty(p))).collect()
}

fn arguments(params: &[(String, Type)]) -> String {
    params.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>().join(", ")
}

fn body(api: &Api, out: &mut String, row: &Row, params: &[(String, Type)]) {
    match &row.answered {
        Answered::Refuse(code) => refuse(out, row, code),
        Answered::Alias(target) => {
            let extra = api.row(target).is_some_and(|t| t.params.len() > row.params.len());
            let stream = if extra { ", LEGACY" } else { "" };
            passed_on(out, target, &format!("{}{stream}", arguments(params)));
        }
        Answered::Absent => {}
        _ if row.hand_client() => by_hand(api, out, row, params, Some("LEGACY")),
        _ => generic(out, row),
    }
}

fn per_thread_body(api: &Api, out: &mut String, row: &Row, params: &[(String, Type)]) {
    match &row.answered {
        Answered::Refuse(code) => refuse(out, row, code),
        Answered::Alias(target) => {
            let Some(t) = api.row(target) else { return };
            if t.params.len() > row.params.len() {
                passed_on(out, target, &format!("{}, PER_THREAD", arguments(params)));
            } else {
                let symbol = t.per_thread_symbol().unwrap_or_else(|| target.clone());
                passed_on(out, &symbol, &arguments(params));
            }
        }
        _ if row.takes_stream() => {
            let mapped = params
                .iter()
                .map(|(n, t)| if t.name() == Some("CUstream") { format!("per_thread({n})") } else { n.clone() });
            passed_on(out, &row.name, &mapped.collect::<Vec<_>>().join(", "));
        }
        _ if row.takes_default_stream() => by_hand(api, out, row, params, Some("PER_THREAD")),
        // The stream is inside one of the arguments: there is a second hand-written function.
        _ if row.hand_client() => by_hand(api, out, row, params, None),
        // The legacy stream waits for every other one, so it is at least as ordered as the thread's own.
        _ => passed_on(out, &row.name, &arguments(params)),
    }
}

fn passed_on(out: &mut String, to: &str, arguments: &str) {
    writeln!(out, "// SAFETY: the caller's promises are the same.\nunsafe {{ {to}({arguments}) }}").unwrap();
}

fn refuse(out: &mut String, row: &Row, code: &str) {
    writeln!(out, "refuse::refused(\"{}\", {:?});\n{code}", row.name, row.doc).unwrap();
}

/// `stream`: what the default stream is to the caller, or nothing for the function's own per-thread form.
fn by_hand(api: &Api, out: &mut String, row: &Row, params: &[(String, Type)], stream: Option<&str>) {
    if api.pending.client.contains(&row.name) {
        writeln!(out, "refuse::pending(\"{}\")", row.name).unwrap();
        return;
    }
    let path = row.client_path().unwrap_or_default();
    let own = row.per_thread_symbol().filter(|_| stream.is_none());
    let name = own.as_ref().unwrap_or(&row.name);
    let first = match stream {
        Some(stream) if row.takes_default_stream() => format!("{stream}, "),
        _ => String::new(),
    };
    passed_on(out, &format!("crate::{path}::{name}"), &format!("{first}{}", arguments(params)));
}

fn generic(out: &mut String, row: &Row) {
    for param in &row.params {
        checks(out, row, param);
    }
    let created = row.params.iter().find(|p| row.creates.as_ref() == Some(&p.name));
    if let Some(Param { kind: Kind::Out { element: Element::Handle { kind, .. }, .. }, .. }) = created {
        writeln!(out, "let created = state().handles.reserve(Kind::{kind});").unwrap();
    }
    let mut fields = String::new();
    for param in &row.params {
        if let Some(value) = value(row, param) {
            if value.contains("unsafe") {
                writeln!(
                    out,
                    "// SAFETY: checked above where it may not be null; the caller vouches for its size.\n\
                     let sent_{0} = {value};",
                    param.name
                )
                .unwrap();
                writeln!(fields, "{0}: sent_{0},", param.name).unwrap();
            } else if value == param.name {
                writeln!(fields, "{value},").unwrap();
            } else {
                writeln!(fields, "{}: {value},", param.name).unwrap();
            }
        }
    }
    writeln!(out, "let q = calls::{} {{ {fields} }};", row.name).unwrap();
    if row.answered == Answered::Post {
        let give = if created.is_some() || row.destroys.is_some() { "post" } else { "give" };
        writeln!(out, "let result = {give}(ops::{}, |w| q.encode(w));", row.op_const()).unwrap();
    } else {
        writeln!(
            out,
            "let result = call(ops::{}, |w| q.encode(w), {}).unwrap_or_else(|code| code);",
            row.op_const(),
            decoder(row)
        )
        .unwrap();
    }
    if let Some(param) = created
        && let Kind::Out { element: Element::Handle { name, .. }, .. } = &param.kind
    {
        writeln!(
            out,
            "if result == CUDA_SUCCESS {{\n// SAFETY: not null, and the caller's to write.\n\
             unsafe {{ {}.write(created.0 as {name}) }};\n}} else {{\nhandles::release(created);\n}}",
            param.name
        )
        .unwrap();
    }
    if let Some(name) = &row.destroys {
        writeln!(out, "handles::release(Handle({name} as u64));").unwrap();
    }
    out.push_str("result\n");
}

/// What has to hold before anything is sent.
fn checks(out: &mut String, row: &Row, param: &Param) {
    let name = &param.name;
    let condition = match &param.kind {
        Kind::Out { optional: false, .. } | Kind::In { optional: false, .. } | Kind::InOut { .. } | Kind::Str => {
            format!("{name}.is_null()")
        }
        Kind::InArray { len, optional, .. } | Kind::OutArray { len, optional, .. } => {
            let too_many = format!("{len} as usize > {}", row.limit);
            if *optional { too_many } else { format!("{too_many} || ({name}.is_null() && {len} != 0)") }
        }
        _ => return,
    };
    writeln!(out, "if {condition} {{\nreturn CUDA_ERROR_INVALID_VALUE;\n}}").unwrap();
}

fn size(element: &Element) -> String {
    format!("size_of::<{}>()", element_name(element))
}

/// The request's field for a parameter.
fn value(row: &Row, param: &Param) -> Option<String> {
    let name = &param.name;
    let optional = |inner: String| format!("if {name}.is_null() {{ None }} else {{ Some({inner}) }}");
    let one = |element: &Element| match element {
        Element::Scalar { primitive, .. } => {
            format!("unsafe {{ {name}.cast::<{primitive}>().read() }}")
        }
        _ => format!("unsafe {{ bytes_at({name}.cast(), {}) }}", size(element)),
    };
    let text = match &param.kind {
        Kind::Value(Element::Scalar { name: of, .. }) if of == "CUdeviceptr" => format!("ClaimedDevice::new({name})"),
        Kind::Value(Element::Scalar { .. } | Element::Device) => name.clone(),
        Kind::Value(Element::Handle { .. }) => format!("{name} as u64"),
        Kind::Value(element @ Element::Plain { .. }) => {
            format!("unsafe {{ bytes_at((&raw const {name}).cast(), {}) }}", size(element))
        }
        Kind::Out { element: Element::Handle { .. }, .. } if row.creates.as_ref() == Some(name) => {
            "created.0".to_owned()
        }
        Kind::In { element, optional: false } | Kind::InOut { element } => one(element),
        Kind::In { element, optional: true } => optional(one(element)),
        Kind::InArray { element, len, optional: is_optional } => {
            let inner = match element {
                Element::Handle { .. } => format!("unsafe {{ handles_at({name}.cast(), {len} as usize) }}"),
                _ => format!("unsafe {{ bytes_at({name}.cast(), {len} as usize * {}) }}", size(element)),
            };
            if *is_optional { optional(inner) } else { inner }
        }
        Kind::Str => format!("unsafe {{ CStr::from_ptr({name}) }}.to_bytes()"),
        Kind::Out { .. } | Kind::OutArray { .. } | Kind::Raw(_) => return None,
    };
    Some(text)
}

/// The closure that writes the reply's values where the caller wants them; it answers the result.
fn decoder(row: &Row) -> String {
    if reply(row).is_empty() {
        return "|_| Ok(CUDA_SUCCESS)".to_owned();
    }
    let mut out = format!("|r| {{\nlet a = calls::{}_reply::decode(r)?;\n", row.name);
    for param in &row.params {
        let name = &param.name;
        let (element, count, optional) = match &param.kind {
            Kind::Out { element: Element::Handle { .. }, .. } => continue,
            Kind::Out { element, optional } => (element, String::new(), *optional),
            Kind::InOut { element } => (element, String::new(), false),
            Kind::OutArray { element, len, optional } => (element, format!("{len} as usize * "), *optional),
            _ => continue,
        };
        let is_array = !count.is_empty();
        let store = match element {
            Element::Scalar { primitive, .. } if !is_array => {
                format!("unsafe {{ {name}.cast::<{primitive}>().write(a.{name}) }};")
            }
            _ => format!("unsafe {{ copy_out(a.{name}, {name}.cast(), {count}{}) }}?;", size(element)),
        };
        let store = format!("// SAFETY: not null, and the caller's to write.\n{store}\n");
        if optional {
            write!(out, "if !{name}.is_null() {{\n{store}}}\n").unwrap();
        } else {
            out.push_str(&store);
        }
    }
    out.push_str(if row.answers.is_empty() { "Ok(CUDA_SUCCESS)\n}" } else { "Ok(a.result)\n}" });
    out
}

const PLAIN: &str = "/// What the exports do.\nmod plain {\nuse super::*;\n\n";

const RECORDED: &str =
    "/// And while somebody looks.\nmod recorded {\nuse super::*;\nuse crate::activity::parameters::*;\n\n";

const PRELUDE: &str = "//! The exported functions.

// UNSAFETY: a C ABI. What each function asks of its caller is in NVIDIA's documentation of the driver API:
// pointers are null or valid for what the function reads or writes.

#![allow(non_snake_case, clippy::missing_safety_doc, clippy::too_many_arguments)]
#![allow(clippy::let_and_return, clippy::unnecessary_cast)]
// A refusal looks at no argument, and hand-written functions that need no promise may be safe.
#![allow(unused_variables, unused_unsafe, unused_imports, dead_code)]

use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void};

use orion_cuda::sys::*;
use orion_wire::generated::ops;
use orion_wire::message::address::ClaimedDevice;
use orion_wire::message::calls;
use orion_wire::{Handle, Kind};

use crate::activity::calls as activity;
use crate::objects::handles;
use crate::report::refuse;
use crate::session::arguments::{LEGACY, PER_THREAD, bytes_at, copy_out, handles_at, per_thread};
use crate::session::call::{call, give, post};
use crate::session::route::{self, Key};
use crate::state::process::{is_recorded, state};

";
