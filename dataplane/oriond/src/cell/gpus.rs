//! The GPUs that a session is not for.
//!
//! Its worker's driver is told by its environment which GPUs it sees, and would heed no more than that. So before the
//! driver is loaded the worker gives up the files of all others: NVIDIA's driver then has no such GPU, as in a
//! container that was given one of several (driver 580.159 answers "no device" where Landlock leaves it no file of a
//! GPU).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use landlock::{
    AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr, make_bitflags,
};

/// A folder for each GPU that NVIDIA's kernel driver has.
const KNOWN: &str = "/proc/driver/nvidia/gpus";

/// This process, of one thread, opens no file of a GPU but of these, named `GPU-…`, from now on. Where no file is
/// known of another one, nothing is done.
pub fn keep_only(gpus: &BTreeSet<String>) -> Result<(), String> {
    match others(Path::new(KNOWN), gpus) {
        files if files.is_empty() => Ok(()),
        files => give_up(&files).map_err(|e| format!("giving up the files of other GPUs failed: {e}")),
    }
}

/// The files of the GPUs that are not among these.
fn others(known: &Path, gpus: &BTreeSet<String>) -> Vec<PathBuf> {
    let folders = fs::read_dir(known).into_iter().flatten().flatten();
    let told = folders.filter_map(|folder| fs::read_to_string(folder.path().join("information")).ok());
    let other = |told: String| {
        let of = |name: &str| told.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()));
        let minor = of("Device Minor:")?;
        (!of("GPU UUID:").is_some_and(|uuid| gpus.contains(&uuid)))
            .then(|| PathBuf::from(format!("/dev/nvidia{minor}")))
    };
    told.filter_map(other).collect()
}

/// Landlock has no rule that forbids, so all is allowed that lies beside: the other files of /dev, and what else is in
/// the root.
fn give_up(files: &[PathBuf]) -> Result<(), Box<dyn std::error::Error>> {
    let open = make_bitflags!(AccessFs::{ReadFile | WriteFile});
    let mut rules = Ruleset::default().set_compatibility(CompatLevel::BestEffort).handle_access(open)?.create()?;
    for (folder, leads_on) in [("/", Some("/dev")), ("/dev", None)] {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            // What a link leads to lies beside it, or is not to be opened.
            if entry.file_type()?.is_symlink() {
                continue;
            }
            let path = entry.path();
            if files.contains(&path) || leads_on.is_some_and(|on| path == Path::new(on)) {
                continue;
            }
            // What is gone again, or may not be looked into anyway, needs no rule.
            let Ok(file) = PathFd::new(&path) else { continue };
            rules = rules.add_rule(PathBeneath::new(file, open))?;
        }
    }
    rules.restrict_self()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_gpus_that_a_session_is_not_for_are_found() {
        let known = std::env::temp_dir().join(format!("orion-gpus-{}", std::process::id()));
        for (bus, uuid, minor) in [("0000:00:06.0", "GPU-a", 1), ("0000:00:07.0", "GPU-b", 0), ("0000:00:08.0", "?", 2)]
        {
            let folder = known.join(bus);
            fs::create_dir_all(&folder).expect("a temporary folder");
            let told = format!("Model: \t\t NVIDIA H200\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n");
            fs::write(folder.join("information"), told).expect("a file in it");
        }
        let of = |gpus: &[&str]| {
            let mut found = others(&known, &gpus.iter().map(|gpu| (*gpu).to_owned()).collect());
            found.sort();
            found.into_iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of(&["GPU-a"]), ["/dev/nvidia0", "/dev/nvidia2"]);
        assert_eq!(of(&["GPU-a", "GPU-b"]), ["/dev/nvidia2"]);
        fs::remove_dir_all(&known).expect("it was made here");
        assert!(of(&["GPU-a"]).is_empty());
    }

    #[test]
    fn files_that_are_given_up_are_not_opened_and_all_others_are() {
        if super::super::files::version() == 0 {
            return eprintln!("left out: this kernel has no Landlock");
        }
        // Landlock restricts the thread that asks for it.
        let tried = std::thread::spawn(|| {
            let here = std::env::temp_dir().join(format!("orion-given-up-{}", std::process::id()));
            give_up(&["/dev/zero".into(), "/dev/full".into()]).expect("this kernel has Landlock");
            let opened = ["/dev/zero", "/dev/full", "/dev/null", "/proc/self/stat", "/etc/passwd"]
                .map(|path| fs::File::open(path).map(drop).map_err(|e| e.kind()));
            let made = fs::write(&here, "").and_then(|()| fs::remove_file(&here));
            (opened, made.is_ok())
        });
        let denied = Err(std::io::ErrorKind::PermissionDenied);
        assert_eq!(tried.join().expect("no panic"), ([denied, denied, Ok(()), Ok(()), Ok(())], true));
    }
}
