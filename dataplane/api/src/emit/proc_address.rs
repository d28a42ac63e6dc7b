//! The shim's `cuGetProcAddress` table.

use std::fmt::Write;

use crate::rows::Answered;
use crate::table::Api;

pub struct Entry {
    pub public: String,
    pub since: u32,
    pub symbol: String,
    pub per_thread: bool,
    pub op: u16,
}

/// The per-thread default stream came with CUDA 7.0.
const PER_THREAD_SINCE: u32 = 7000;

/// The same rules as the driver's: of the versions of a function, the newest that is not newer than asked for.
pub fn entries(api: &Api) -> Vec<Entry> {
    let mut out = Vec::new();
    for row in api.rows.iter().filter(|r| r.answered != Answered::Absent) {
        let Some(since) = row.since else { continue };
        let op = api.op(row).unwrap_or(0);
        let public = row.public().to_owned();
        let entry = |since, symbol: String, per_thread| Entry { public: public.clone(), since, symbol, per_thread, op };
        out.push(entry(since, row.name.clone(), false));
        match row.per_thread_symbol() {
            Some(symbol) => out.push(entry(since.max(PER_THREAD_SINCE), symbol, true)),
            // A function whose later version knows the per-thread stream has no earlier one for such callers.
            None if api.rows.iter().any(|r| r.public() == public && r.per_thread.is_some()) => {}
            None => out.push(entry(since, row.name.clone(), true)),
        }
    }
    out.sort_by(|a, b| (&a.public, a.since).cmp(&(&b.public, b.since)));
    out
}

pub fn module() -> String {
    "//! What `cuGetProcAddress` answers, from the table.\n\npub mod proc_address;\n".to_owned()
}

pub fn emit(api: &Api) -> String {
    let mut out = String::from(
        "//! What `cuGetProcAddress` answers, by name and version.\n\n\
         // UNSAFETY: hands out addresses of this library's own exports, by their symbols; nothing is called here.\n\n\
         #![allow(non_snake_case)]\n\n\
         use std::ffi::c_void;\n\n\
         /// One version of one function.\n\
         struct Entry {\n\
         name: &'static str,\n\
         since: i32,\n\
         function: Function,\n\
         /// Id of the operation it needs in the worker; 0 for none.\n\
         op: u16,\n}\n\n\
         struct Function(*const c_void);\n\n\
         // SAFETY: the address of a function, valid in every thread.\n\
         unsafe impl Sync for Function {}\n\n\
         #[derive(Debug, Clone, Copy, PartialEq, Eq)]\n\
         pub enum Lookup {\n\
         /// The function, and the operation it needs in the worker (0: none).\n\
         Found(*const c_void, u16),\n\
         /// There is such a function, but not for so old a version.\n\
         VersionNotSufficient,\n\
         NotFound,\n}\n\n\
         /// The newest version of `name` that is not newer than `version`. `per_thread`: the caller means the \
         calling thread's stream\n\
         /// where it says the default stream.\n\
         pub fn lookup(name: &str, version: i32, per_thread: bool) -> Lookup {\n\
         let table = if per_thread { PER_THREAD } else { LEGACY };\n\
         let start = table.partition_point(|e| e.name < name);\n\
         let same = &table[start..];\n\
         let same = &same[..same.partition_point(|e| e.name == name)];\n\
         match (same.iter().rev().find(|e| e.since <= version), same.is_empty()) {\n\
         (Some(e), _) => Lookup::Found(e.function.0, e.op),\n\
         (None, false) => Lookup::VersionNotSufficient,\n\
         (None, true) => Lookup::NotFound,\n}\n}\n\n\
         const fn entry(name: &'static str, since: i32, function: *const c_void, op: u16) -> Entry {\n\
         Entry { name, since, function: Function(function), op }\n}\n\n",
    );
    let entries = entries(api);
    for (table, per_thread) in [("LEGACY", false), ("PER_THREAD", true)] {
        writeln!(out, "#[rustfmt::skip]\nstatic {table}: &[Entry] = &[").unwrap();
        for e in entries.iter().filter(|e| e.per_thread == per_thread) {
            writeln!(out, "    entry(\"{}\", {}, {} as *const c_void, {:#06x}),", e.public, e.since, e.symbol, e.op)
                .unwrap();
        }
        out.push_str("];\n\n");
    }
    let mut symbols: Vec<&str> = entries.iter().map(|e| e.symbol.as_str()).collect();
    symbols.sort();
    symbols.dedup();
    out.push_str("#[rustfmt::skip]\nunsafe extern \"C\" {\n");
    for symbol in symbols {
        writeln!(out, "    fn {symbol}();").unwrap();
    }
    out.push_str("}\n\n");
    out.push_str(
        "#[cfg(test)]\nmod tests {\nuse super::*;\n\n\
         #[test]\nfn tables_are_sorted() {\n\
         for table in [LEGACY, PER_THREAD] {\n\
         assert!(table.is_sorted_by_key(|e| (e.name, e.since)));\n}\n}\n\n\
         #[test]\nfn the_version_asked_for_decides() {\n\
         assert_eq!(lookup(\"cuMemAlloc\", 2000, false), Lookup::Found(cuMemAlloc as *const c_void, 0));\n\
         assert!(matches!(lookup(\"cuMemAlloc\", 13000, false), \
         Lookup::Found(f, _) if f == cuMemAlloc_v2 as *const c_void));\n\
         assert_eq!(lookup(\"cuGraphLaunch\", 9000, false), Lookup::VersionNotSufficient);\n\
         assert_eq!(lookup(\"cuNoSuchThing\", 13000, false), Lookup::NotFound);\n\
         assert_ne!(lookup(\"cuLaunchKernel\", 7000, false), lookup(\"cuLaunchKernel\", 7000, true));\n}\n}\n",
    );
    out
}
