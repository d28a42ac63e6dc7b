//! Certificates that are not taken any more, as a file lists them: a fingerprint on each line, and what stands behind a
//! `#` is for people. The file is read anew when it changes.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::Fingerprint;

/// How soon a change counts, at the latest.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(1);

pub struct Revoked {
    path: PathBuf,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    fingerprints: BTreeSet<Fingerprint>,
    stamp: Stamp,
}

/// By which a file is seen to be another one: time, size and number.
type Stamp = (i64, i64, u64, u64);

impl Revoked {
    pub fn read(path: &Path) -> Result<Revoked, String> {
        let revoked = Revoked { path: path.to_owned(), list: Mutex::default() };
        revoked.look().map(|_| revoked)
    }

    /// Asks no disk.
    #[must_use]
    pub fn has(&self, fingerprint: &Fingerprint) -> bool {
        self.list.lock().expect("nothing panics under this lock").fingerprints.contains(fingerprint)
    }

    /// Reads the file if it has changed: how many it lists, where it has. If it cannot be read the list stays as it
    /// was.
    pub fn look(&self) -> Result<Option<usize>, String> {
        let name = self.path.display();
        let failed = |e: std::io::Error| format!("reading the list of revoked certificates {name} failed: {e}");
        let found = std::fs::metadata(&self.path).map_err(failed)?;
        let stamp = (found.mtime(), found.mtime_nsec(), found.size(), found.ino());
        if self.list.lock().expect("nothing panics under this lock").stamp == stamp {
            return Ok(None);
        }
        let text = std::fs::read_to_string(&self.path).map_err(failed)?;
        let fingerprints = parse(&text).map_err(|why| format!("{name}:{why}"))?;
        let count = fingerprints.len();
        *self.list.lock().expect("nothing panics under this lock") = List { fingerprints, stamp };
        Ok(Some(count))
    }

    /// Looks again and again, in a thread of its own, and tells each change and each new failure.
    pub fn watch(self: Arc<Self>, told: impl Fn(Result<usize, String>) + Send + 'static) -> Result<(), std::io::Error> {
        let look = move || {
            let mut failure = None;
            loop {
                std::thread::sleep(LOOK_INTERVAL);
                match self.look() {
                    Ok(None) => {}
                    Ok(Some(count)) => {
                        failure = None;
                        told(Ok(count));
                    }
                    Err(why) if failure.as_ref() == Some(&why) => {}
                    Err(why) => {
                        failure = Some(why.clone());
                        told(Err(why));
                    }
                }
            }
        };
        std::thread::Builder::new().name("revoked".into()).spawn(look).map(drop)
    }
}

/// The fingerprints of a list. An error begins with its line.
///
/// # Errors
///
/// In words.
pub fn parse(text: &str) -> Result<BTreeSet<Fingerprint>, String> {
    let lines = text.lines().enumerate().map(|(i, line)| (i + 1, line.split('#').next().unwrap_or_default().trim()));
    lines
        .filter(|(_, line)| !line.is_empty())
        .map(|(number, line)| line.parse().map_err(|why| format!("{number}: {why}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_anew_and_a_damaged_one_changes_nothing() {
        let path = std::env::temp_dir().join(format!("orion-revoked-{}", std::process::id()));
        let (one, other) = (Fingerprint([1; 32]), Fingerprint([2; 32]));
        std::fs::write(&path, format!("# nobody\n\n{one} # orion://client/red\n")).unwrap();
        let revoked = Revoked::read(&path).expect("a list");
        assert!(revoked.has(&one) && !revoked.has(&other));
        assert_eq!(revoked.look(), Ok(None));
        std::fs::write(&path, format!("{one}\n{other}\n")).unwrap();
        assert_eq!(revoked.look(), Ok(Some(2)));
        assert!(revoked.has(&other));
        std::fs::write(&path, "red\n").unwrap();
        let why = revoked.look().expect_err("no fingerprint");
        assert!(why.contains(":1: \"red\" is no fingerprint"), "{why}");
        assert!(revoked.has(&one) && revoked.has(&other));
        std::fs::remove_file(&path).unwrap();
        assert!(revoked.look().is_err() && revoked.has(&one));
        assert!(Revoked::read(&path).is_err());
    }
}
