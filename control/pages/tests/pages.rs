//! Every program has a man page and completions, which shells and groff take, and in which no option is missing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PROGRAMS: [(&str, &str); 10] = [
    ("orion-run", "orion-run"),
    ("oriond", "oriond"),
    ("orion-controller", "orion-controller"),
    ("orion-agent", "orion-agent"),
    ("orion-check", "orion-check"),
    ("orion-ctl", "orion-smi"),
    ("orion-ctl", "orionctl"),
    ("orion-ctl", "orion-shm"),
    ("orion-top", "orion-top"),
    ("orion-bpf", "orion-probe"),
];

fn built() -> PathBuf {
    let packages: BTreeSet<&str> = PROGRAMS.iter().map(|(package, _)| *package).collect();
    orion_built::packages(&packages.into_iter().collect::<Vec<_>>())
}

struct Pages(PathBuf);

impl Drop for Pages {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Pages {
    fn read(&self, path: &str) -> String {
        let path = self.0.join("share").join(path);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// The pages of a program and of each command that it has, without the marks for hyphens.
    fn manuals(&self, program: &str) -> String {
        let folders = ["man1", "man8"].map(|section| self.0.join("share/man").join(section));
        let pages = folders.iter().flat_map(|folder| std::fs::read_dir(folder).expect("a folder of pages")).flatten();
        let is_its = |path: &Path| {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            name == program || name.strip_prefix(program).is_some_and(|rest| rest.starts_with('-'))
        };
        let texts = pages.filter(|page| is_its(&page.path())).map(|page| std::fs::read_to_string(page.path()));
        texts.map(|text| text.expect("a page").replace("\\-", "-")).collect()
    }
}

fn said(program: &Path, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("it starts");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Every long option and command that the program's own help names.
fn words(program: &Path, above: &[&str], found: &mut BTreeSet<String>) {
    let help = said(program, &[above, &["--help"]].concat());
    let mut is_command = false;
    for line in help.lines() {
        is_command = if line.is_empty() { is_command } else { is_command && line.starts_with(' ') };
        is_command |= line == "Commands:";
        let word = line.trim_start();
        if is_command && line.starts_with("  ") && !line.starts_with("   ") {
            let name = word.split(' ').next().expect("a word");
            if name != "help" {
                found.insert(name.to_owned());
                words(program, &[above, &[name]].concat(), found);
            }
        } else if word.starts_with('-') {
            let names = word.split(", ").filter_map(|part| part.strip_prefix("--"));
            let name = |text: &str| text.split([' ', '=', '[', '<']).next().unwrap_or_default().to_owned();
            found.extend(names.map(|text| format!("--{}", name(text))));
        }
    }
}

#[test]
fn every_program_has_a_page_and_completions_with_every_option() {
    let built = built();
    let pages = Pages(std::env::temp_dir().join(format!("orion-pages-{}", std::process::id())));
    for (_, program) in PROGRAMS {
        let output = Command::new(built.join(program)).arg("--write-pages").arg(&pages.0).output().expect("it starts");
        assert!(output.status.success(), "{program}: {output:?}");
    }
    for (_, program) in PROGRAMS {
        let mut found = BTreeSet::new();
        words(&built.join(program), &[], &mut found);
        assert!(found.contains("--help"), "{program} names no option: {found:?}");
        let manuals = pages.manuals(program);
        let bash = pages.read(&format!("bash-completion/completions/{program}"));
        let zsh = pages.read(&format!("zsh/site-functions/_{program}"));
        let fish = pages.read(&format!("fish/vendor_completions.d/{program}.fish"));
        for word in &found {
            assert!(manuals.contains(word), "{word} is not in the man pages of {program}");
            assert!(bash.contains(word) && zsh.contains(word), "{word} is not in the completions of {program}");
            let in_fish = fish.contains(&format!("-l {}", word.trim_start_matches("--"))) || fish.contains(word);
            assert!(in_fish, "{word} is not in fish's completions of {program}");
        }
    }
    shells_take_them(&pages);
}

/// What is not on this machine is said to be passed over; the machines that run all tests have all of it.
fn shells_take_them(pages: &Pages) {
    for (_, program) in PROGRAMS {
        parsed("bash", &["-n"], &pages.0.join(format!("share/bash-completion/completions/{program}")));
        parsed("zsh", &["-n"], &pages.0.join(format!("share/zsh/site-functions/_{program}")));
        parsed("fish", &["--no-execute"], &pages.0.join(format!("share/fish/vendor_completions.d/{program}.fish")));
    }
    for section in ["man1", "man8"] {
        for page in std::fs::read_dir(pages.0.join("share/man").join(section)).expect("pages").flatten() {
            parsed("groff", &["-Kutf8", "-man", "-Tutf8", "-ww", "-z"], &page.path());
        }
    }
}

fn parsed(program: &str, arguments: &[&str], file: &Path) {
    let output: Output = match Command::new(program).args(arguments).arg(file).output() {
        Ok(output) => output,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && program != "bash" => {
            return eprintln!("there is no {program}, so {} is not tried", file.display());
        }
        Err(e) => panic!("starting {program} failed: {e}"),
    };
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaint.is_empty(), "{program} {}: {complaint}", file.display());
}

#[test]
fn without_a_folder_it_says_what_is_missing() {
    let output = Command::new(built().join("orion-shm")).arg("--write-pages").output().expect("it starts");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("--write-pages needs a folder"));
}
