//! The controller's secret, of which the keys of leases are made.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use orion_transport::lease::MasterKey;
use orion_transport::proof::fresh_nonce;

/// Of it the keys of all nodes are made, so it outlives the process: a node goes on with the key that it has.
const KEY_FILE: &str = "lease.key";

/// Where a controller's secret is, in its data-dir. Controllers that share a pool have the same one, each in a file of
/// its own: it is in no etcd, so who reads or hears that cannot sign leases.
pub struct KeyFile(PathBuf);

impl KeyFile {
    pub fn in_folder(folder: &Path) -> KeyFile {
        KeyFile(folder.join(KEY_FILE))
    }

    /// That of before, or a new one.
    pub fn own(&self) -> Result<MasterKey, String> {
        match self.read()? {
            Some(master) => Ok(master),
            None => self.make(),
        }
    }

    /// The one that all controllers of the pool have, if there were others before; `fingerprint` is its.
    pub fn shared(&self, fingerprint: Option<&str>) -> Result<MasterKey, String> {
        let path = self.0.display();
        let Some(theirs) = fingerprint else { return self.own() };
        let advice = format!("copy {KEY_FILE} from data-dir of one of them to {path}, with mode 0600");
        match self.read()? {
            Some(master) if self::fingerprint(&master) == theirs => Ok(master),
            Some(_) => {
                Err(format!("the key of leases {path} is not the one that this pool's controllers have; {advice}"))
            }
            None => Err(format!("the key of leases {path} is missing, and this pool's controllers have one; {advice}")),
        }
    }

    fn failed(&self, e: &std::io::Error) -> String {
        format!("the key of leases {}: {e}", self.0.display())
    }

    fn read(&self) -> Result<Option<MasterKey>, String> {
        let path = self.0.display();
        let mut file = match std::fs::File::open(&self.0) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(self.failed(&e)),
        };
        let mode = file.metadata().map_err(|e| self.failed(&e))?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(format!(
                "the key of leases {path} has mode {:04o}: others can read or change it; remove it, and a new one is \
                 made",
                mode & 0o7777
            ));
        }
        let mut secret = Vec::new();
        file.read_to_end(&mut secret).map_err(|e| self.failed(&e))?;
        let secret = secret
            .try_into()
            .map_err(|_| format!("the key of leases {path} is damaged; remove it, and a new one is made"))?;
        Ok(Some(MasterKey::new(secret)))
    }

    fn make(&self) -> Result<MasterKey, String> {
        let secret = fresh_nonce().map_err(|e| self.failed(&e))?;
        let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.0);
        let written = file.and_then(|mut file| file.write_all(&secret).and_then(|()| file.sync_all()));
        written.map_err(|e| self.failed(&e))?;
        Ok(MasterKey::new(secret))
    }
}

/// Tells one secret from another, and nothing of it: the key of a node that cannot be, as names have no `/`.
pub fn fingerprint(master: &MasterKey) -> String {
    master.key_of("/fingerprint", &[0; 16]).bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_stays_and_one_that_others_read_is_refused() {
        let folder = std::env::temp_dir().join(format!("orion-lease-key-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a new folder");
        let file = KeyFile::in_folder(&folder);
        let first = fingerprint(&file.own().expect("a new key"));
        assert_eq!(fingerprint(&file.own().expect("the same key")), first);
        std::fs::set_permissions(&file.0, std::fs::Permissions::from_mode(0o640)).expect("chmod");
        let why = file.own().map(drop).expect_err("others read it");
        assert!(why.contains("0640"), "{why}");
        std::fs::remove_file(&file.0).expect("removing");
        assert_ne!(fingerprint(&file.own().expect("a new key")), first);
        std::fs::remove_dir_all(&folder).expect("removing");
    }

    #[test]
    fn a_pools_second_controller_needs_the_key_of_the_first() {
        let folder = std::env::temp_dir().join(format!("orion-shared-key-{}", std::process::id()));
        let files = ["a", "b"].map(|name| {
            std::fs::create_dir_all(folder.join(name)).expect("a new folder");
            KeyFile::in_folder(&folder.join(name))
        });
        let ours = fingerprint(&files[0].shared(None).expect("the first one makes it"));
        let why = files[1].shared(Some(&ours)).map(drop).expect_err("it has none");
        assert!(why.contains("is missing") && why.contains("copy lease.key"), "{why}");
        files[1].own().expect("a key of its own");
        let why = files[1].shared(Some(&ours)).map(drop).expect_err("it has another");
        assert!(why.contains("is not the one"), "{why}");
        std::fs::copy(&files[0].0, &files[1].0).expect("copying");
        assert_eq!(fingerprint(&files[1].shared(Some(&ours)).expect("the same")), ours);
        std::fs::remove_dir_all(&folder).expect("removing");
    }
}
