//! What can be created and destroyed, for `orion-rounds`.

use std::fmt::Write;

use crate::rows::{Answered, Row};
use crate::table::Api;

pub fn emit(api: &Api) -> String {
    let mut out =
        "//! Rows that create something and rows that destroy it. `rounds/pairs.rs` has a round for each.\n\n"
            .to_owned();
    let mut list = |name: &str, doc: &str, of: fn(&Row) -> bool| {
        writeln!(out, "/// {doc}\npub const {name}: &[&str] = &[").unwrap();
        for row in api.rows.iter().filter(|row| is_served(row) && of(row)) {
            writeln!(out, "\"{}\",", row.name).unwrap();
        }
        out.push_str("];\n\n");
    };
    list("CREATES", "Make something that is destroyed later.", |row| row.creates.is_some());
    list("DESTROYS", "Destroy it.", |row| row.destroys.is_some());
    out
}

/// An alias is asked under the other name.
fn is_served(row: &Row) -> bool {
    !matches!(row.answered, Answered::Refuse(_) | Answered::Absent | Answered::Alias(_))
}
