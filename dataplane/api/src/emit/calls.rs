//! `orion_wire::message::calls`: requests and replies of the rows whose parameters say everything.

use std::fmt::Write;

use crate::check::element_name;
use crate::rows::{Element, Kind, Row};
use crate::table::Api;

/// One field of a request or a reply.
pub struct Field {
    pub name: String,
    pub shape: Shape,
    /// The shape that hash, tests and the hostile client are told.
    told: Option<String>,
    pub optional: bool,
}

#[derive(Clone, PartialEq, Eq)]
pub enum Shape {
    Word(&'static str),
    /// A device address, of which nobody has decided yet whether it is one.
    Address,
    Bytes,
    Handles,
}

impl Field {
    fn ty(&self) -> String {
        let ty = match self.shape {
            Shape::Word(primitive) => primitive.to_owned(),
            Shape::Address => "ClaimedDevice".to_owned(),
            Shape::Bytes => "&'a [u8]".to_owned(),
            Shape::Handles => "Vec<u64>".to_owned(),
        };
        if self.optional { format!("Option<{ty}>") } else { ty }
    }

    /// What it is, where the type does not say.
    fn shape(&self) -> String {
        match &self.told {
            None => String::new(),
            Some(told) if self.optional => format!(" as Shape::Maybe(&Shape::{told})"),
            Some(told) => format!(" as Shape::{told}"),
        }
    }
}

fn element(name: &str, element: &Element, optional: bool) -> Field {
    let (shape, told) = match element {
        Element::Scalar { primitive, .. } => (Shape::Word(primitive), None),
        Element::Plain { name } => (Shape::Bytes, Some(format!("Plain(\"{name}\")"))),
        Element::Device => (Shape::Word("i32"), Some("Ordinal".to_owned())),
        Element::Handle { kind, .. } => (Shape::Word("u64"), Some(format!("Existing(Kind::{kind})"))),
    };
    Field { name: name.to_owned(), shape, told, optional }
}

/// A parameter that says how many elements others have.
fn counts(row: &Row, name: &str) -> bool {
    row.params.iter().any(|p| match &p.kind {
        Kind::InArray { len, .. } | Kind::OutArray { len, .. } => len == name,
        _ => false,
    })
}

pub fn request(row: &Row) -> Vec<Field> {
    let mut fields = Vec::new();
    for param in &row.params {
        let name = param.name.as_str();
        match &param.kind {
            Kind::Value(Element::Scalar { name: of, .. }) if of == "CUdeviceptr" => {
                fields.push(Field { name: name.to_owned(), shape: Shape::Address, told: None, optional: false });
            }
            Kind::Value(e) | Kind::InOut { element: e } => {
                let mut field = element(name, e, false);
                if counts(row, name) {
                    field.told = Some("Count".to_owned());
                }
                fields.push(field);
            }
            Kind::In { element: e, optional } => fields.push(element(name, e, *optional)),
            // The handle that the client chose for what this call creates.
            Kind::Out { element: Element::Handle { kind, .. }, .. } => {
                let told = Some(format!("New(Kind::{kind})"));
                fields.push(Field { name: name.to_owned(), shape: Shape::Word("u64"), told, optional: false });
            }
            Kind::InArray { element: Element::Handle { kind, .. }, optional, .. } => {
                let told = Some(format!("Handles(Kind::{kind}, {})", row.limit));
                fields.push(Field { name: name.to_owned(), shape: Shape::Handles, told, optional: *optional });
            }
            Kind::InArray { element, optional, .. } => {
                let told = Some(format!("Plains(\"{}\", {})", element_name(element), row.limit));
                fields.push(Field { name: name.to_owned(), shape: Shape::Bytes, told, optional: *optional });
            }
            Kind::Str => {
                let told = Some("Text(crate::record::RECORD_BYTES_MAX)".to_owned());
                fields.push(Field { name: name.to_owned(), shape: Shape::Bytes, told, optional: false });
            }
            Kind::Out { .. } | Kind::OutArray { .. } | Kind::Raw(_) => {}
        }
    }
    fields
}

/// Empty if the reply has no body.
pub fn reply(row: &Row) -> Vec<Field> {
    let mut fields = Vec::new();
    if !row.answers.is_empty() {
        fields.push(Field { name: "result".to_owned(), shape: Shape::Word("u32"), told: None, optional: false });
    }
    for param in &row.params {
        match &param.kind {
            Kind::Out { element: Element::Handle { .. }, .. } => {}
            Kind::Out { element: e, .. } | Kind::InOut { element: e } => fields.push(element(&param.name, e, false)),
            Kind::OutArray { element, .. } => {
                let told = Some(format!("Plains(\"{}\", {})", element_name(element), row.limit));
                fields.push(Field { name: param.name.clone(), shape: Shape::Bytes, told, optional: false });
            }
            _ => {}
        }
    }
    fields
}

pub fn emit(api: &Api) -> String {
    let mut out = String::from(
        "//! Requests and replies of the rows whose parameters say everything. A struct has the name of the driver's\n\
         //! function; what it lacks crosses as nothing.\n\n\
         #![allow(non_camel_case_types, non_snake_case)]\n\n\
         use crate::generated::ops;\nuse crate::handle::Kind;\nuse crate::message::address::ClaimedDevice;\n\
         use crate::message::declare::messages;\nuse crate::message::layout::Shape;\n\nmessages! {\n",
    );
    let mut rows: Vec<&Row> = api.rows.iter().filter(|r| r.has_wire()).collect();
    rows.sort_by_key(|r| r.id);
    for row in rows {
        one(&mut out, "command", &row.name, &row.op_const(), &request(row));
        let reply = reply(row);
        if !reply.is_empty() {
            one(&mut out, "reply", &format!("{}_reply", row.name), &row.op_const(), &reply);
        }
    }
    out.push_str("}\n");
    out
}

/// No formatter looks into a macro, so it is written as it is to look.
fn one(out: &mut String, direction: &str, name: &str, op: &str, fields: &[Field]) {
    let lifetime = if fields.iter().any(|f| f.shape == Shape::Bytes) { "<'a>" } else { "" };
    writeln!(out, "    {direction} {name}{lifetime}(ops::{op}) {{").unwrap();
    for f in fields {
        writeln!(out, "        {}: {}{},", f.name, f.ty(), f.shape()).unwrap();
    }
    out.push_str("    }\n\n");
}
