//! Lists the kernels of PTX files that the software GPU refuses, and why.
//!
//! `cargo run -p orion-soft --example coverage -- a.ptx b.ptx`

use orion_soft::ptx::{decode, parse};

fn main() {
    for file in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("reading {file}: {e}"));
        let module = match parse::parse(&text) {
            Ok(m) => m,
            Err(e) => {
                println!("{file}: {e}");
                continue;
            }
        };
        let globals = module.variables.iter().map(|v| (v.name.clone(), 4096)).collect();
        let program = decode::decode(&module, &globals);
        let entries: Vec<_> = program.funcs.iter().filter(|f| f.is_entry).collect();
        let refused = entries.iter().filter(|f| f.unsupported.is_some()).count();
        println!("{file}: {} kernels, {refused} refused", entries.len());
        for f in entries {
            if let Some(why) = &f.unsupported {
                println!("  {}: {why}", f.name);
            }
        }
    }
}
