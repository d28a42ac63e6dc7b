//! `cargo api` writes the generated files; `cargo api --check` only says whether they are stale.

use std::process::ExitCode;

fn main() -> ExitCode {
    let check_only = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--check") => true,
        Some(other) => {
            eprintln!("cargo api: unknown argument {other}; the only one is --check");
            return ExitCode::FAILURE;
        }
    };
    match run(check_only) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("cargo api: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(check_only: bool) -> Result<(), String> {
    let api = orion_api::load()?;
    let mut stale = Vec::new();
    for file in orion_api::emit::all(&api)? {
        let path = orion_api::root().join(file.path);
        if std::fs::read_to_string(&path).unwrap_or_default() == file.text {
            continue;
        }
        stale.push(file.path);
        if !check_only {
            let folder = path.parent().ok_or("a generated file has a folder")?;
            std::fs::create_dir_all(folder).map_err(|e| format!("creating {}: {e}", folder.display()))?;
            std::fs::write(&path, file.text).map_err(|e| format!("writing {}: {e}", file.path))?;
        }
    }
    if check_only && !stale.is_empty() {
        return Err(format!("stale, run `cargo api`: {}", stale.join(", ")));
    }
    if !check_only {
        println!("{} rows; {} files changed", api.rows.len(), stale.len());
    }
    Ok(())
}
