//! What the hostile client knows of each operation whose request follows from the kinds of its parameters.

use std::fmt::Write;

use crate::check::element_name;
use crate::rows::{Element, Kind, Row};
use crate::table::Api;

pub fn emit(api: &Api) -> String {
    let mut out = String::from(
        "//! Operations of the table, and what their requests consist of.\n\n\
         #![allow(unused_imports)]\n\n\
         use orion_cuda::sys::*;\nuse orion_wire::Kind;\nuse orion_wire::generated::ops;\n\n\
         use crate::field::Field::{self, *};\n\npub static ROWS: &[(u16, &[Field])] = &[\n",
    );
    let mut rows: Vec<&Row> = api.rows.iter().filter(|r| r.has_wire() && r.id.is_some()).collect();
    rows.sort_by_key(|r| r.id);
    for row in rows {
        let fields: Vec<String> = row.params.iter().filter_map(|p| field(row, &p.name, &p.kind)).collect();
        writeln!(out, "(ops::{}, &[{}]),", row.op_const(), fields.join(", ")).unwrap();
    }
    out.push_str("];\n");
    out
}

fn field(row: &Row, name: &str, kind: &Kind) -> Option<String> {
    let maybe = |field: String, optional: bool| if optional { format!("Maybe(&{field})") } else { field };
    Some(match kind {
        Kind::Value(e) | Kind::InOut { element: e } => one(row, name, e),
        Kind::In { element, optional } => maybe(one(row, name, element), *optional),
        Kind::Out { element: Element::Handle { kind, .. }, .. } => format!("New(Kind::{kind})"),
        Kind::InArray { element: Element::Handle { kind, .. }, optional, .. } => {
            maybe(format!("Handles(Kind::{kind})"), *optional)
        }
        Kind::InArray { element, optional, .. } => {
            maybe(format!("Plains(size_of::<{}>())", element_name(element)), *optional)
        }
        Kind::Str => "Text".to_owned(),
        Kind::Out { .. } | Kind::OutArray { .. } | Kind::Raw(_) => return None,
    })
}

fn one(row: &Row, name: &str, element: &Element) -> String {
    let counts = row.params.iter().any(|p| match &p.kind {
        Kind::InArray { len, .. } | Kind::OutArray { len, .. } => len == name,
        _ => false,
    });
    match element {
        Element::Scalar { .. } if counts => "Count".to_owned(),
        Element::Scalar { name, .. } if name == "CUdeviceptr" => "Address".to_owned(),
        Element::Scalar { primitive: "usize", .. } => "Size".to_owned(),
        Element::Scalar { primitive, .. } => format!("Word({})", primitive[1..].parse::<u32>().unwrap_or(64)),
        Element::Plain { name } => format!("Plain(size_of::<{name}>())"),
        Element::Device => "Device".to_owned(),
        Element::Handle { kind, .. } => format!("Handle(Kind::{kind})"),
    }
}
