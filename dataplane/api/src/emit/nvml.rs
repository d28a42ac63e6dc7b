//! The exported functions of `libnvidia-ml.so.1`.

use std::fmt::Write;

use super::parameters::parameters;
use crate::nvml::{Answered, Row};

pub fn module() -> String {
    "//! NVML's exported functions, from the table.\n\npub mod exports;\n".to_owned()
}

pub fn emit(rows: &[Row]) -> String {
    let mut out = String::from(
        "//! What `libnvidia-ml.so.1` exports.\n\n\
         // UNSAFETY: a C ABI that is passed on as it is; what each function asks of its caller is in NVIDIA's\n\
         // documentation.\n\n\
         #[allow(unused_imports, reason = \"as the rows need them\")]\n\
         use std::ffi::{c_char, c_int, c_uint, c_ulong, c_ulonglong, c_void};\n\n\
         use crate::answers;\nuse crate::library::{not_permitted, not_supported};\nuse crate::types::*;\n\n",
    );
    for row in rows {
        let name = &row.name;
        if row.answered == Answered::Here {
            let arguments: Vec<&str> = row.params.iter().map(|(n, _)| n.as_str()).collect();
            // The one whose answer is no code.
            let returns = if name == "nvmlErrorString" { "*const c_char" } else { "nvmlReturn_t" };
            write!(
                out,
                "#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn {name}({}) -> {returns} {{\n\
                 // SAFETY: the caller's promises are the same.\nunsafe {{ answers::{name}({}) }}\n}}\n\n",
                parameters(&row.params),
                arguments.join(", ")
            )
            .unwrap();
        } else {
            let how = if row.answered == Answered::Setting { "not_permitted" } else { "not_supported" };
            write!(
                out,
                "#[unsafe(no_mangle)]\npub extern \"C\" fn {name}() -> nvmlReturn_t {{\n\
                 {how}(\"{name}\")\n}}\n\n"
            )
            .unwrap();
        }
    }
    out
}
