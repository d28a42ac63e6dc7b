//! Leases: what an allocation allows one session, signed so that the node's oriond needs to ask nobody.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use orion_pool::{AllocationId, Pool, Time};
use orion_transport::lease::{Instance, MasterKey, SignedLease};
use orion_transport::proof::fresh_nonce;
use orion_wire::lease::{Lease, LeaseId, Vgpu};

/// Beside the store. Of it the keys of all nodes are made, so it outlives the process: a node goes on with the key that
/// it has.
const KEY_FILE: &str = "lease.key";

/// The controller's secret: that of before, or a new one.
pub fn master_key(folder: &Path) -> Result<MasterKey, String> {
    let path = folder.join(KEY_FILE);
    let failed = |e: std::io::Error| format!("the key of leases {}: {e}", path.display());
    match std::fs::File::open(&path) {
        Ok(mut file) => {
            let mode = file.metadata().map_err(failed)?.permissions().mode();
            if mode & 0o077 != 0 {
                return Err(format!(
                    "the key of leases {} has mode {:04o}: others can read or change it; remove it, and a new one \
                     is made",
                    path.display(),
                    mode & 0o7777
                ));
            }
            let mut secret = Vec::new();
            file.read_to_end(&mut secret).map_err(failed)?;
            let secret = secret.try_into().map_err(|_| {
                format!("the key of leases {} is damaged; remove it, and a new one is made", path.display())
            })?;
            Ok(MasterKey::new(secret))
        }
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let secret = fresh_nonce().map_err(failed)?;
            let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
            file.and_then(|mut file| file.write_all(&secret).and_then(|()| file.sync_all())).map_err(failed)?;
            Ok(MasterKey::new(secret))
        }
        Err(e) => Err(failed(e)),
    }
}

/// As a node has reported it.
pub fn instance(text: &str) -> Option<Instance> {
    text.parse().ok().map(|LeaseId(bytes)| bytes)
}

pub fn now_unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// A session's lease; the error says why there is none, and what to try.
pub fn sign(master: &MasterKey, pool: &Pool, id: AllocationId, now: Time) -> Result<SignedLease, String> {
    let allocation = pool.allocation(id).ok_or_else(|| format!("allocation {id} is over"))?;
    let node = &allocation.places[0].node;
    if allocation.places.iter().any(|place| place.node != *node) {
        return Err("vGPUs of several nodes cannot be used by one program yet; ask for those of one".to_owned());
    }
    let report = pool.nodes().find(|n| n.report.name == *node).map(|n| &n.report);
    let Some(instance) = report.and_then(|report| instance(&report.oriond)) else {
        return Err(format!(
            "node {node} has reported GPUs and no oriond that knows leases; is orion-agent running there?"
        ));
    };
    let vgpus = allocation.places.iter().map(|place| Vgpu {
        gpu: place.gpu.clone(),
        memory_bytes: place.memory,
        ratio: place.ratio,
    });
    let lease = Lease {
        id: LeaseId(id.0.to_be_bytes()),
        node: node.clone(),
        tenant: allocation.ask.tenant.clone(),
        begins_before_unix_ms: now_unix_ms() + allocation.until.saturating_sub(now),
        vgpus: vgpus.collect(),
    };
    Ok(master.key_of(node, &instance).sign(&lease))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_stays_and_one_that_others_read_is_refused() {
        let folder = std::env::temp_dir().join(format!("orion-lease-key-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a new folder");
        let of = |master: MasterKey| *master.key_of("a", &[1; 16]).bytes();
        let first = of(master_key(&folder).expect("a new key"));
        assert_eq!(of(master_key(&folder).expect("the same key")), first);
        let path = folder.join(KEY_FILE);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("chmod");
        let why = master_key(&folder).map(drop).expect_err("others read it");
        assert!(why.contains("0640"), "{why}");
        std::fs::remove_file(&path).expect("removing");
        assert_ne!(of(master_key(&folder).expect("a new key")), first);
        std::fs::remove_dir_all(&folder).expect("removing");
    }
}
