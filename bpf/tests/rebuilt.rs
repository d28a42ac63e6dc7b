//! The objects in objects/ are what clang makes of the programs that stand here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSection, ObjectSymbol, SectionKind};

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn stems(folder: &Path, end: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder of this crate").flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut stems: Vec<String> = names.filter_map(|name| name.strip_suffix(end).map(str::to_owned)).collect();
    stems.sort();
    stems
}

#[test]
fn every_program_has_an_object_and_a_question() {
    let sources = stems(here(), ".bpf.c");
    assert_eq!(sources, stems(&here().join("objects"), ".bpf.o"));
    let mut asked: Vec<&str> = orion_bpf::Question::ALL.iter().map(|question| question.file()).collect();
    asked.sort_unstable();
    assert_eq!(sources, asked);
}

/// Instructions, maps, places that are filled in when a program is loaded. Types are compared by what they decide
/// there; the rest of them is clang's own.
fn parts(object: &Path) -> BTreeMap<String, Vec<u8>> {
    let bytes = std::fs::read(object).unwrap_or_else(|e| panic!("{}: {e}", object.display()));
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let mut parts = BTreeMap::new();
    for section in file.sections() {
        let name = section.name().expect("a name").to_owned();
        let is_compared = section.kind() == SectionKind::Text || [".maps", "license", ".rodata"].contains(&&*name);
        if is_compared && section.size() > 0 {
            let places = section.relocations().map(|(at, relocation)| {
                let object::RelocationTarget::Symbol(symbol) = relocation.target() else { return format!("{at}") };
                format!("{at} {}", file.symbol_by_index(symbol).and_then(|s| s.name()).unwrap_or("?"))
            });
            parts.insert(format!("{name} places"), places.collect::<Vec<_>>().join(", ").into_bytes());
            parts.insert(name, section.data().expect("its bytes").to_vec());
        }
    }
    assert!(parts.len() > 4, "{}: {:?}", object.display(), parts.keys());
    parts
}

struct Built(PathBuf);

impl Drop for Built {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_objects_are_what_clang_makes() {
    let clang = std::env::var("CLANG").unwrap_or("clang-19".to_owned());
    if Command::new(&clang).arg("--version").output().is_err() {
        return eprintln!("not tried: there is no {clang}; the objects that are committed are used as they are");
    }
    let built = Built(std::env::temp_dir().join(format!("orion-bpf-objects-{}", std::process::id())));
    let output = Command::new(here().join("build.sh")).arg(&built.0).output().expect("build.sh starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let version = |folder: &Path| std::fs::read_to_string(folder.join("clang-version")).expect("which clang");
    let (committed, own) = (version(&here().join("objects")), version(&built.0));
    for stem in stems(here(), ".bpf.c") {
        let file = format!("{stem}.bpf.o");
        let (theirs, ours) = (parts(&here().join("objects").join(&file)), parts(&built.0.join(&file)));
        // Another clang may choose other instructions, but not other programs and maps.
        assert!(theirs.keys().eq(ours.keys()), "{file}: {:?} and {:?}", theirs.keys(), ours.keys());
        if committed == own {
            let differs: Vec<_> = theirs.keys().filter(|part| theirs[*part] != ours[*part]).collect();
            assert!(differs.is_empty(), "{file} is stale in {differs:?}; run bpf/build.sh");
        }
    }
    if committed != own {
        eprintln!("instructions are not compared: clang {} made the objects, here is {own}", committed.trim());
    }
}
