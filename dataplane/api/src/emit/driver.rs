//! `orion_cuda::driver`: a driver's functions behind one struct.

use std::fmt::Write;

use super::parameters::parameters;
use crate::header::Function;
use crate::table::Api;

pub fn emit(api: &Api) -> String {
    let functions: Vec<&Function> =
        api.header.functions.iter().filter(|f| !f.name.ends_with("_ptsz") && !f.name.ends_with("_ptds")).collect();
    let mut out = String::from(
        "//! A driver's functions, found by name: the real `libcuda.so.1`, or the software GPU.\n\n\
         // UNSAFETY: calls through C function pointers; each method passes on what `cuda.h` asks of its caller.\n\n\
         #![allow(non_snake_case, clippy::too_many_arguments, clippy::type_complexity, clippy::missing_safety_doc)]\n\n\
         use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void};\n\n\
         use crate::sys::*;\n\n\
         /// Every function of CUDA 13.0's `cuda.h`; absent ones answer `CUDA_ERROR_NOT_SUPPORTED`.\n\
         pub struct Driver {\n",
    );
    for f in &functions {
        let types: String = f.params.iter().map(|(_, t)| format!("{t}, ")).collect();
        writeln!(out, "{}: Option<unsafe extern \"C\" fn({types}) -> CUresult>,", f.name).unwrap();
    }
    out.push_str(
        "}\n\nimpl Driver {\n\
         /// Looks every function up; null means that the driver does not have it.\n///\n\
         /// # Safety\n\
         /// What `lookup` answers is null or a function with the signature that `cuda.h` gives to that name, and \
         stays callable.\n\
         pub unsafe fn load(lookup: &mut dyn FnMut(&str) -> *const c_void) -> Driver {\n\
         // SAFETY: the caller's promise; a null pointer is `None`.\n\
         unsafe { Driver {\n",
    );
    for f in &functions {
        writeln!(
            out,
            "{0}: std::mem::transmute::<*const c_void, Option<unsafe extern \"C\" fn({1}) -> CUresult>>\
             (lookup(\"{0}\")),",
            f.name,
            f.params.iter().map(|(_, t)| format!("{t}, ")).collect::<String>()
        )
        .unwrap();
    }
    out.push_str(
        "} }\n}\n\n\
         /// Names of the functions this driver does not have.\n\
         pub fn missing(&self) -> Vec<&'static str> {\n\
         let all: [(&'static str, bool); ",
    );
    writeln!(out, "{}] = [", functions.len()).unwrap();
    for f in &functions {
        writeln!(out, "(\"{0}\", self.{0}.is_none()),", f.name).unwrap();
    }
    out.push_str("];\nall.into_iter().filter(|(_, missing)| *missing).map(|(name, _)| name).collect()\n}\n\n");
    for f in &functions {
        let names: String = f.params.iter().map(|(n, _)| format!("{n}, ")).collect();
        writeln!(
            out,
            "pub unsafe fn {0}(&self, {1}) -> CUresult {{\nmatch self.{0} {{\n\
             // SAFETY: the caller's promise is the function's own.\n\
             Some(entry) => unsafe {{ entry({names}) }},\nNone => CUDA_ERROR_NOT_SUPPORTED,\n}}\n}}\n",
            f.name,
            parameters(&f.params)
        )
        .unwrap();
    }
    out.push_str("}\n");
    out
}
