//! What `cuptiGetCallbackName` answers.

use std::fmt::Write;

use crate::table::Api;

pub fn module() -> String {
    "//! The numbers that CUPTI has for functions, from the table.\n\npub mod cbids;\n".to_owned()
}

pub fn emit(api: &Api) -> String {
    let mut out = String::from(
        "//! The functions that CUPTI has numbers for, by number; empty for a number without one.\n\n\
         use std::ffi::CStr;\n\n",
    );
    for (name, names) in [("DRIVER", &api.cbids.driver), ("RUNTIME", &api.cbids.runtime)] {
        writeln!(out, "#[rustfmt::skip]\npub static {name}: [&CStr; {}] = [", names.len()).unwrap();
        for name in names {
            writeln!(out, "    c\"{name}\",").unwrap();
        }
        out.push_str("];\n\n");
    }
    out
}
