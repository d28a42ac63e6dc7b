//! How large the C structs are that messages name.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::check::element_name;
use crate::rows::Kind;
use crate::table::Api;

pub fn emit(api: &Api) -> String {
    let mut names = BTreeSet::new();
    for param in api.rows.iter().filter(|r| r.has_wire()).flat_map(|r| &r.params) {
        match &param.kind {
            Kind::Value(e) | Kind::InOut { element: e } => _ = names.insert(element_name(e)),
            Kind::In { element: e, .. } | Kind::InArray { element: e, .. } => _ = names.insert(element_name(e)),
            _ => {}
        }
    }
    let mut out = String::from(
        "//! How large the C structs are that messages name.\n\n\
         #![allow(clippy::match_same_arms)]\n\nuse orion_cuda::sys::*;\n\n\
         pub fn plain_bytes(name: &str) -> usize {\nmatch name {\n",
    );
    for name in names {
        writeln!(out, "\"{name}\" => size_of::<{name}>(),").unwrap();
    }
    out.push_str("_ => panic!(\"no message has a {name}\"),\n}\n}\n");
    out
}
