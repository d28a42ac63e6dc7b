//! orion-ptxas: stands in for NVIDIA's ptxas where a compiler in the program insists on one (Triton, XLA) and the
//! software GPU is to run what it compiled. Nothing is assembled: the PTX itself is the output.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// In the form that is looked for: compilers choose by the release what PTX they write, and Triton keeps what it
/// compiled under the whole text, so what an assembler of NVIDIA's made is never taken for what this one did.
const VERSION: &str = "\
ptxas: Orion's stand-in for the Ptx optimizing assembler, which passes PTX on
Cuda compilation tools, release 13.0, V13.0.88
";

/// Options of ptxas 13.0 that are followed by their value, in both spellings.
const VALUED: [&str; 38] = [
    "Ofast-compile",
    "Ofc",
    "allow-expensive-optimizations",
    "def-load-cache",
    "dlcm",
    "def-store-cache",
    "dscm",
    "device-function-maxrregcount",
    "func-maxrregcount",
    "device-stack-protector",
    "entry",
    "e",
    "fmad",
    "force-load-cache",
    "flcm",
    "force-store-cache",
    "fscm",
    "gpu-name",
    "arch",
    "machine",
    "m",
    "maxntid",
    "maxrregcount",
    "minnctapersm",
    "opt-level",
    "O",
    "output-file",
    "o",
    "position-independent-code",
    "pic",
    "register-usage-level",
    "regUsageLevel",
    "split-compile",
    "sanitize",
    "input-as-string",
    "ias",
    "options-file",
    "optf",
];

/// What changes more than how fast the result runs, with the reason why it is not there.
const REFUSED: [(&[&str], &str); 5] = [
    (&["c", "compile-only"], "it makes no objects for a linker"),
    (&["ewp", "extensible-whole-program"], "it makes no objects for a linker"),
    (&["sanitize"], "it puts nothing into the code"),
    (&["ias", "input-as-string"], "it reads a file"),
    (&["optf", "options-file"], "it takes its options from the command line"),
];

fn main() {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Err(reason) = run(&arguments) {
        eprintln!("orion-ptxas: {reason}");
        std::process::exit(255);
    }
}

fn run(arguments: &[OsString]) -> Result<(), String> {
    let Job::PassOn { input, output } = understand(arguments)? else {
        print!("{VERSION}");
        return Ok(());
    };
    let mut text = std::fs::read(&input).map_err(|e| format!("reading {} failed: {e}", input.display()))?;
    check(&input, &mut text)?;
    // Drivers take PTX up to its first zero, and XLA hands over what is in the file.
    text.push(0);
    std::fs::write(&output, text).map_err(|e| format!("writing {} failed: {e}", output.display()))
}

#[derive(Debug, PartialEq, Eq)]
enum Job {
    Version,
    PassOn { input: PathBuf, output: PathBuf },
}

/// Options that change only how fast the result runs change nothing here.
fn understand(arguments: &[OsString]) -> Result<Job, String> {
    let (mut inputs, mut output) = (Vec::new(), None);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let Some((name, value)) = option(argument) else {
            inputs.push(PathBuf::from(argument));
            continue;
        };
        if matches!(name, "version" | "V") {
            return Ok(Job::Version);
        }
        if let Some((_, why)) = REFUSED.iter().find(|(names, _)| names.contains(&name)) {
            return Err(format!("{} is for NVIDIA's ptxas: {why}", argument.display()));
        }
        let value = match value {
            None if VALUED.contains(&name) => {
                rest.next().cloned().ok_or_else(|| format!("{} needs a value", argument.display()))?
            }
            given => given.unwrap_or_default().into(),
        };
        if matches!(name, "o" | "output-file") {
            output = Some(PathBuf::from(value));
        }
    }
    let input = match inputs.as_slice() {
        [input] => input.clone(),
        [] => return Err("there is no input; name one file of PTX".to_owned()),
        several => return Err(format!("it takes one file of PTX, not {}: {several:?}", several.len())),
    };
    let output = output.ok_or_else(|| format!("there is no output for {}; name it by -o FILE", input.display()))?;
    Ok(Job::PassOn { input, output })
}

/// `--name`, `--name=value`, `-name`, `-name=value` and `-O3`. Files have no leading hyphen.
fn option(argument: &OsStr) -> Option<(&str, Option<&str>)> {
    let text = argument.to_str()?;
    let name = text.strip_prefix("--").or_else(|| text.strip_prefix('-')).filter(|name| !name.is_empty())?;
    if let Some((name, value)) = name.split_once('=') {
        return Some((name, Some(value)));
    }
    match name.strip_prefix('O') {
        Some(level) if level.len() == 1 && level.bytes().all(|b| b.is_ascii_digit()) => Some(("O", Some(level))),
        _ => Some((name, None)),
    }
}

fn check(input: &Path, text: &mut Vec<u8>) -> Result<(), String> {
    while text.last() == Some(&0) {
        text.pop();
    }
    let no_ptx = |why: &str| Err(format!("{} is not PTX: {why}", input.display()));
    match std::str::from_utf8(text) {
        _ if text.starts_with(b"\x7fELF") => no_ptx("it is an ELF file, which holds machine code"),
        Err(_) => no_ptx("it is not text"),
        Ok(text) if text.contains('\0') => no_ptx("it has a zero byte within"),
        Ok(text) if !text.contains(".version") => no_ptx("it has no .version line"),
        Ok(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn understood(line: &str) -> Result<Job, String> {
        understand(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    fn passes_on(line: &str) {
        let wanted = Job::PassOn { input: "/tmp/in".into(), output: "out.cubin".into() };
        assert_eq!(understood(line), Ok(wanted), "{line}");
    }

    #[test]
    fn what_compilers_say_is_understood() {
        passes_on("-lineinfo -v --gpu-name=sm_90a /tmp/in -o out.cubin");
        passes_on("-o out.cubin -arch=sm_90 --warn-on-spills -O3 /tmp/in");
        passes_on("/tmp/in -o out.cubin -arch sm_120 --maxrregcount 64 --opt-level 0 -m 64 --fmad=false");
        passes_on("--output-file=out.cubin -w /tmp/in");
        assert_eq!(understood("--version"), Ok(Job::Version));
        assert_eq!(understood("-V"), Ok(Job::Version));
    }

    #[test]
    fn what_it_cannot_do_is_refused_with_the_reason() {
        let refused = |line: &str, word: &str| {
            let said = understood(line).expect_err(line);
            assert!(said.contains(word), "{line}: {said}");
        };
        refused("-o out.cubin", "no input");
        refused("/tmp/in", "no output for /tmp/in");
        refused("/tmp/in -o", "-o needs a value");
        refused("a.ptx b.ptx -o out.cubin", "one file of PTX, not 2");
        refused("-c /tmp/in -o out.o", "objects for a linker");
        refused("--compile-only /tmp/in -o out.o", "objects for a linker");
        refused("--sanitize=memcheck /tmp/in -o out", "--sanitize=memcheck");
    }

    #[test]
    fn only_text_of_ptx_is_passed_on() {
        let checked = |bytes: &[u8]| check(Path::new("in"), &mut bytes.to_vec());
        assert_eq!(checked(b".version 8.0\n.target sm_90\n\0"), Ok(()));
        let refused = |bytes: &[u8], word: &str| {
            let said = checked(bytes).expect_err(word);
            assert!(said.contains(word), "{said}");
        };
        refused(b"\x7fELF\x02.version", "machine code");
        refused(b".version \xff\xfe", "not text");
        refused(b".version 8.0\0.target", "zero byte");
        refused(b"", "no .version");
    }
}
