//! `orion_wire::ops`: ids and names, and the hash both sides compare.

use std::fmt::Write;

use crate::rows::{Answered, Row};
use crate::table::Api;

pub fn module() -> String {
    "//! What the table of the driver API says about the wire.\n\npub mod format;\npub mod ops;\n".to_owned()
}

pub fn emit(api: &Api) -> String {
    let mut rows: Vec<(u16, &Row)> = api.rows.iter().filter_map(|r| Some((r.id?, r))).collect();
    rows.sort_by_key(|(id, _)| *id);
    let mut out = String::from(
        "//! Operations: the rows of the API table that reach the worker.\n\n\
         /// What both sides know about an operation.\n\
         #[derive(Debug, Clone, Copy, PartialEq, Eq)]\n\
         pub struct Op {\n\
         pub id: u16,\n\
         /// The driver's function, which is also the row's name.\n\
         pub name: &'static str,\n\
         /// Sent without waiting for an answer.\n\
         pub posted: bool,\n\
         /// Runs in the calling thread's current context.\n\
         pub needs_context: bool,\n}\n\n",
    );
    writeln!(
        out,
        "/// Changes with every row, and what it says of the other side.\n\
         pub const ROWS_HASH: u64 = super::format::with({:#018x});\n",
        hash(&rows)
    )
    .unwrap();
    for (id, row) in &rows {
        writeln!(out, "pub const {}: u16 = {id:#06x};", row.op_const()).unwrap();
    }
    out.push_str("\n/// In the order of their ids.\npub static OPS: &[Op] = &[\n");
    for (_, row) in &rows {
        writeln!(
            out,
            "Op {{ id: {}, name: \"{}\", posted: {}, needs_context: {} }},",
            row.op_const(),
            row.name,
            row.answered == Answered::Post,
            row.needs_context
        )
        .unwrap();
    }
    out.push_str(
        "];\n\npub fn find(id: u16) -> Option<&'static Op> {\n\
         OPS.binary_search_by_key(&id, |op| op.id).ok().map(|i| &OPS[i])\n}\n\n\
         /// For logs: the function's name, or nothing for an id that no row has.\n\
         pub fn name(id: u16) -> Option<&'static str> {\nfind(id).map(|op| op.name)\n}\n",
    );
    out
}

/// What messages are written with and carried by. A line for each file, apart from the next one's, so that changes of
/// two files go together.
pub fn format() -> Result<String, String> {
    let mut out = String::from(
        "//! What messages are written with and carried by.\n\n\
         /// Hashes of the files that are the format itself.\n\
         const FILES: &[u64] = &[\n",
    );
    for (name, hash) in crate::format::hashes()? {
        writeln!(out, "// {name}\n{hash:#018x},\n").unwrap();
    }
    out.push_str(
        "];\n\n/// The hash of the table's rows, with these.\n\
         pub const fn with(rows: u64) -> u64 {\n\
         let (mut all, mut i) = (rows, 0);\n\
         while i < FILES.len() {\n\
         all = (all ^ FILES[i]).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);\n\
         i += 1;\n}\nall\n}\n",
    );
    Ok(out)
}

/// FNV-1a over what the two sides have to agree on. Documentation and `since` are not part of it.
fn hash(rows: &[(u16, &Row)]) -> u64 {
    let mut h: u64 = 0xcbf2_9ce4_8422_2325;
    let mut eat = |text: &str| {
        for byte in text.bytes() {
            h = (h ^ byte as u64).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    for (id, row) in rows {
        eat(&format!(
            "{id} {} {} {:?} {:?} {:?} {} {}\n",
            row.name,
            row.class(),
            row.creates,
            row.destroys,
            row.answers,
            row.needs_context,
            row.limit
        ));
        for param in &row.params {
            eat(&format!("{} {:?}\n", param.name, param.kind));
        }
    }
    h
}
