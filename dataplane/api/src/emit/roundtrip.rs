//! Tests of the wire structs.

use std::fmt::Write;

use super::calls::{Field, Shape, reply, request};
use crate::table::Api;

pub fn emit(api: &Api) -> String {
    let mut out = String::from(PRELUDE);
    let mut rows: Vec<_> = api.rows.iter().filter(|r| r.has_wire()).collect();
    rows.sort_by_key(|r| r.id);
    out.push_str("fn every_struct(visit: &mut impl FnMut(&str, fn(&mut Random, &mut Vec<u8>), Decode)) {\n");
    for row in rows {
        one(&mut out, &row.name, &request(row));
        let reply = reply(row);
        if !reply.is_empty() {
            one(&mut out, &format!("{}_reply", row.name), &reply);
        }
    }
    out.push_str("}\n");
    out
}

fn one(out: &mut String, name: &str, fields: &[Field]) {
    let g = if fields.is_empty() { "_g" } else { "g" };
    writeln!(out, "visit(\"{name}\", |{g}, out| {{").unwrap();
    for (i, f) in fields.iter().enumerate() {
        match (f.shape, f.optional) {
            (Shape::Bytes, _) => writeln!(out, "let b{i} = g.bytes();").unwrap(),
            (Shape::Handles, _) => writeln!(out, "let b{i} = g.handles();").unwrap(),
            (Shape::Word(_), _) => {}
        }
    }
    writeln!(out, "calls::{name} {{").unwrap();
    for (i, f) in fields.iter().enumerate() {
        let value = match f.shape {
            Shape::Word("f32") => "f32::from_bits(g.word() as u32)".to_owned(),
            Shape::Word("f64") => "f64::from_bits(g.word())".to_owned(),
            Shape::Word("u64") => "g.word()".to_owned(),
            Shape::Word(p) => format!("g.word() as {p}"),
            Shape::Bytes => format!("&b{i}"),
            Shape::Handles => format!("b{i}"),
        };
        if f.optional {
            writeln!(out, "{}: if g.chance() {{ Some({value}) }} else {{ None }},", f.name).unwrap();
        } else {
            writeln!(out, "{}: {value},", f.name).unwrap();
        }
    }
    writeln!(
        out,
        "}}.encode(out);\n}}, |r| {{\nlet value = calls::{name}::decode(r)?;\nr.finish()?;\n\
         let mut again = Vec::new();\nvalue.encode(&mut again);\nOk(again)\n}});"
    )
    .unwrap();
}

const PRELUDE: &str = r#"//! Every request and reply comes back as it was sent, and no bytes make a decoder panic.

#![allow(clippy::unnecessary_cast)]

use orion_wire::generated::calls;
use orion_wire::{Fault, Reader, Writer};

/// Decodes a whole record and encodes it again.
type Decode = fn(&mut Reader<'_>) -> Result<Vec<u8>, Fault>;

/// xorshift64*: the same values in every run.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let word = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d);
        // Small numbers and the extremes find more than uniform ones.
        match word >> 61 {
            0 => 0,
            1 => u64::MAX,
            2 => word & 0xff,
            _ => word,
        }
    }

    fn chance(&mut self) -> bool {
        self.word() & 1 == 1
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = self.word() as usize % 67;
        (0..len).map(|_| self.word() as u8).collect()
    }

    fn handles(&mut self) -> Vec<u64> {
        let len = self.word() as usize % 9;
        (0..len).map(|_| self.word()).collect()
    }
}

#[test]
fn what_was_sent_comes_back() {
    let mut random = Random(0x0123_4567_89ab_cdef);
    every_struct(&mut |name, encode, decode| {
        for _ in 0..20 {
            let mut sent = Vec::new();
            encode(&mut random, &mut sent);
            assert!(sent.len().is_multiple_of(8), "{name}");
            assert_eq!(decode(&mut Reader::new(&sent)).as_ref(), Ok(&sent), "{name}");
        }
    });
}

#[test]
fn a_truncated_or_longer_record_is_a_fault() {
    let mut random = Random(0xfeed_beef_0bad_cafe);
    every_struct(&mut |name, encode, decode| {
        let mut sent = Vec::new();
        encode(&mut random, &mut sent);
        for cut in 0..sent.len() {
            assert!(decode(&mut Reader::new(&sent[..cut])).is_err(), "{name} cut to {cut} of {}", sent.len());
        }
        sent.word(0);
        assert!(decode(&mut Reader::new(&sent)).is_err(), "{name} with a word too many");
    });
}

#[test]
fn random_bytes_do_not_panic() {
    let mut random = Random(0x5eed_5eed_5eed_5eed);
    every_struct(&mut |_, _, decode| {
        for _ in 0..300 {
            let words = random.word() as usize % 12;
            let mut bytes = Vec::new();
            for _ in 0..words {
                bytes.word(random.word());
            }
            // Faults are fine; a panic is not.
            let _ = decode(&mut Reader::new(&bytes));
        }
    });
}

"#;
