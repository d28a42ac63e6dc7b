//! `orion_wire::calls`: requests and replies of the rows whose parameters say everything.

use std::fmt::Write;

use crate::rows::{Element, Kind, Row};
use crate::table::Api;

/// One field of a request or a reply.
pub struct Field {
    pub name: String,
    pub shape: Shape,
    pub optional: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Word(&'static str),
    Bytes,
    Handles,
}

impl Field {
    fn ty(&self) -> String {
        let ty = match self.shape {
            Shape::Word(primitive) => primitive.to_owned(),
            Shape::Bytes => "&'a [u8]".to_owned(),
            Shape::Handles => "Vec<u64>".to_owned(),
        };
        if self.optional { format!("Option<{ty}>") } else { ty }
    }

    fn encode(&self) -> String {
        let name = &self.name;
        let one = |value: &str| match self.shape {
            Shape::Word("u64") => format!("w.word({value});"),
            Shape::Word("f32" | "f64") => format!("w.word(u64::from({value}.to_bits()));"),
            // Signed numbers as the unsigned one of their width, so that the upper half is always zero.
            Shape::Word("i32") => format!("w.word(u64::from({value} as u32));"),
            Shape::Word("usize") => format!("w.word({value} as u64);"),
            Shape::Word(_) => format!("w.word(u64::from({value}));"),
            Shape::Bytes => format!("w.bytes({value});"),
            Shape::Handles => format!("put_words(w, {value});"),
        };
        if self.optional {
            let value = if matches!(self.shape, Shape::Word(_)) { "*value" } else { "value" };
            format!("match &self.{name} {{\nNone => w.word(0),\nSome(value) => {{\nw.word(1);\n{}\n}}\n}}", one(value))
        } else if self.shape == Shape::Handles {
            one(&format!("&self.{name}"))
        } else {
            one(&format!("self.{name}"))
        }
    }

    fn decode(&self) -> String {
        let one = match self.shape {
            Shape::Word("u64") => "r.word()?".to_owned(),
            Shape::Word("i32") => "narrow_u32(r)? as i32".to_owned(),
            Shape::Word("f32") => "f32::from_bits(narrow_u32(r)?)".to_owned(),
            Shape::Word("f64") => "f64::from_bits(r.word()?)".to_owned(),
            Shape::Word(primitive) => format!("narrow_{primitive}(r)?"),
            Shape::Bytes => "r.bytes()?".to_owned(),
            Shape::Handles => "words(r)?".to_owned(),
        };
        if self.optional { format!("if present(r)? {{ Some({one}) }} else {{ None }}") } else { one }
    }
}

fn element(name: &str, element: &Element, optional: bool) -> Field {
    let shape = match element {
        Element::Scalar { primitive, .. } => Shape::Word(primitive),
        Element::Plain { .. } => Shape::Bytes,
        Element::Device => Shape::Word("i32"),
        Element::Handle { .. } => Shape::Word("u64"),
    };
    Field { name: name.to_owned(), shape, optional }
}

pub fn request(row: &Row) -> Vec<Field> {
    let mut fields = Vec::new();
    for param in &row.params {
        let name = param.name.as_str();
        match &param.kind {
            Kind::Value(e) | Kind::InOut { element: e } => fields.push(element(name, e, false)),
            Kind::In { element: e, optional } => fields.push(element(name, e, *optional)),
            // The handle that the client chose for what this call creates.
            Kind::Out { element: e @ Element::Handle { .. }, .. } => fields.push(element(name, e, false)),
            Kind::InArray { element: Element::Handle { .. }, optional, .. } => {
                fields.push(Field { name: name.to_owned(), shape: Shape::Handles, optional: *optional });
            }
            Kind::InArray { optional, .. } => {
                fields.push(Field { name: name.to_owned(), shape: Shape::Bytes, optional: *optional });
            }
            Kind::Str => fields.push(Field { name: name.to_owned(), shape: Shape::Bytes, optional: false }),
            Kind::Out { .. } | Kind::OutArray { .. } | Kind::Raw(_) => {}
        }
    }
    fields
}

/// Empty if the reply has no body.
pub fn reply(row: &Row) -> Vec<Field> {
    let mut fields = Vec::new();
    if !row.answers.is_empty() {
        fields.push(Field { name: "result".to_owned(), shape: Shape::Word("u32"), optional: false });
    }
    for param in &row.params {
        match &param.kind {
            Kind::Out { element: Element::Handle { .. }, .. } => {}
            Kind::Out { element: e, .. } | Kind::InOut { element: e } => fields.push(element(&param.name, e, false)),
            Kind::OutArray { .. } => {
                fields.push(Field { name: param.name.clone(), shape: Shape::Bytes, optional: false });
            }
            _ => {}
        }
    }
    fields
}

pub fn emit(api: &Api) -> String {
    let mut out = String::from(
        "//! Requests and replies. A struct has the name of the driver's function; what it lacks crosses as \
         nothing.\n\n\
         #![allow(non_camel_case_types, non_snake_case)]\n\n\
         use crate::{Fault, Reader, Writer};\n\n",
    );
    let mut rows: Vec<&Row> = api.rows.iter().filter(|r| r.has_wire()).collect();
    rows.sort_by_key(|r| r.id);
    for row in rows {
        one(&mut out, &row.name, &request(row));
        let reply = reply(row);
        if !reply.is_empty() {
            one(&mut out, &format!("{}_reply", row.name), &reply);
        }
    }
    out.push_str(HELPERS);
    out
}

fn one(out: &mut String, name: &str, fields: &[Field]) {
    let lifetime = if fields.iter().any(|f| f.shape == Shape::Bytes) { "<'a>" } else { "" };
    writeln!(out, "#[derive(Debug, Clone, PartialEq)]\npub struct {name}{lifetime} {{").unwrap();
    for f in fields {
        writeln!(out, "pub {}: {},", f.name, f.ty()).unwrap();
    }
    let reader = if lifetime.is_empty() { "Reader<'_>" } else { "Reader<'a>" };
    let (w, r) = if fields.is_empty() { ("_w", "_r") } else { ("w", "r") };
    writeln!(out, "}}\n\nimpl{lifetime} {name}{lifetime} {{\npub fn encode(&self, {w}: &mut impl Writer) {{").unwrap();
    for f in fields {
        writeln!(out, "{}", f.encode()).unwrap();
    }
    writeln!(out, "}}\n\npub fn decode({r}: &mut {reader}) -> Result<Self, Fault> {{\nOk({name} {{").unwrap();
    for f in fields {
        writeln!(out, "{}: {},", f.name, f.decode()).unwrap();
    }
    out.push_str("})\n}\n}\n\n");
}

const HELPERS: &str = r#"
fn present(r: &mut Reader<'_>) -> Result<bool, Fault> {
    match r.word()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Fault("presence is neither 0 nor 1")),
    }
}

fn put_words(w: &mut impl Writer, values: &[u64]) {
    w.word(values.len() as u64);
    for value in values {
        w.word(*value);
    }
}

fn words(r: &mut Reader<'_>) -> Result<Vec<u64>, Fault> {
    let count = r.word()?;
    // Checked before anything is allocated: the words have to be there.
    if count > r.rest().len() as u64 / 8 {
        return Err(Fault("more handles than the record holds"));
    }
    (0..count).map(|_| r.word()).collect()
}

macro_rules! narrow {
    ($($name:ident $ty:ty;)*) => { $(
        #[allow(dead_code)]
        fn $name(r: &mut Reader<'_>) -> Result<$ty, Fault> {
            let word = r.word()?;
            let value = word as $ty;
            if value as u64 == word { Ok(value) } else { Err(Fault("number out of its type's range")) }
        }
    )* };
}

narrow! {
    narrow_u8 u8;
    narrow_u16 u16;
    narrow_u32 u32;
    narrow_usize usize;
}
"#;
