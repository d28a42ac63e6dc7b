//! `orion_cuda::names`: what `cuGetErrorName` and `cuGetErrorString` answer.

use std::fmt::Write;

use crate::table::Api;

/// Taken from driver 580 by asking it about every code.
const DESCRIPTIONS: &str = include_str!("../../data/error-strings-580.txt");

pub fn emit(api: &Api) -> Result<String, String> {
    let mut out = String::from(
        "//! Names and descriptions of results, as driver 580 words them.\n\n\
         use std::ffi::CStr;\n\n\
         use crate::sys::*;\n\n\
         /// `CUDA_ERROR_…`; nothing for a code that driver 580 does not know.\n\
         pub const fn name(result: CUresult) -> Option<&'static CStr> {\nSome(match result {\n",
    );
    for name in api.header.results.values() {
        writeln!(out, "{name} => c\"{name}\",").unwrap();
    }
    out.push_str(
        "_ => return None,\n})\n}\n\n\
         pub const fn description(result: CUresult) -> Option<&'static CStr> {\nSome(match result {\n",
    );
    for (value, name) in &api.header.results {
        let text = DESCRIPTIONS
            .lines()
            .find_map(|l| l.split_once('|').filter(|(v, _)| *v == value.to_string()).map(|(_, text)| text))
            .ok_or_else(|| format!("data/error-strings-580.txt has nothing for {value} {name}"))?;
        writeln!(out, "{name} => c\"{text}\",").unwrap();
    }
    out.push_str("_ => return None,\n})\n}\n");
    Ok(out)
}
