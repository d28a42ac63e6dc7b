//! What a program that has vGPUs of a pool leaves for tools that run beside it, such as `nvidia-smi`: where its vGPUs
//! are, and what to show there to be told what they use. A tool that takes vGPUs of its own would see those, and empty.
//!
//! It lies in a memfd that the program keeps open. So it is there as long as the program is, only the same user can
//! open it, and only who sees the program under its own number, which who is in another container does not.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use orion_tls::Fingerprint;
use orion_transport::client::wanted::Wanted;
use orion_transport::lease::SignedLease;
use orion_wire::Fault;
use orion_wire::address::Server;
use orion_wire::left::{Asked, LEFT_BYTES_MAX, Left, Part};

use super::granted::{self, Granted};

/// More generations than any job has.
const ANCESTORS_MAX: usize = 256;

/// What a program's words are about which job it belongs to.
fn asked(wanted: &Wanted) -> Asked {
    Asked {
        controllers: wanted.controllers.clone(),
        vgpus: wanted.vgpus,
        memory_mib: wanted.memory_mib,
        ratio: wanted.ratio,
        tenant: wanted.tenant.clone(),
        group: wanted.group.clone(),
    }
}

/// Whether a tool that would ask for this means a program that has asked for `other`: in what it does not say it may be
/// any. It has as many vGPUs as a program started in the tool's place would have.
fn may_mean(tool: &Asked, other: &Asked) -> bool {
    tool.controllers.iter().any(|controller| other.controllers.contains(controller))
        && tool.vgpus == other.vgpus
        && tool.memory_mib.is_none_or(|mib| other.memory_mib == Some(mib))
        && tool.ratio.is_none_or(|ratio| other.ratio == Some(ratio))
        && (tool.tenant.is_empty() || tool.tenant == other.tenant)
        && (tool.group.is_empty() || tool.group == other.group)
}

/// The session of this program has begun. What is left here goes with the program.
pub fn leave(wanted: &Wanted, granted: Granted, pid: u32, home: [u8; 16]) -> io::Result<()> {
    let is_of_reserve = granted.is_of_reserve();
    let part = |part: granted::Part| Part {
        node: part.node,
        address: part.server.to_string(),
        places: part.places,
        lease: part.lease.body,
        signature: part.lease.signature,
        certificate: part.certificate.map(|fingerprint| fingerprint.0),
    };
    let parts = granted.parts.into_iter().map(part).collect();
    let left = Left { pid, home, asked: asked(wanted), is_of_reserve, parts }.encode();
    let mut file = File::from(orion_ring::sealed(c"orion-lease", left.len() as u64)?);
    file.write_all(&left)?;
    let _ = file.into_raw_fd();
    Ok(())
}

/// Where the vGPUs of such a program are. Nothing if it names no server.
pub fn parts(left: &Left) -> Option<Vec<granted::Part>> {
    let part = |part: &Part| {
        let Part { node, address, places, lease, signature, certificate } = part.clone();
        let (server, lease) = (Server::parse(&address).ok()?, SignedLease { body: lease, signature });
        Some(granted::Part { node, server, places, lease, certificate: certificate.map(Fingerprint) })
    };
    left.parts.iter().map(part).collect()
}

/// What programs of the job that this process is in have left.
pub fn find(wanted: &Wanted, home: [u8; 16]) -> Vec<Left> {
    // Where the system does not tell whose numbers these are, nobody's mean anything.
    if home == [0; 16] {
        return Vec::new();
    }
    let processes = own_processes();
    let all = processes.keys().filter(|pid| **pid != std::process::id()).flat_map(|pid| left_by(*pid));
    let all = all.filter(|left| left.home == home).collect();
    of_the_job(&asked(wanted), all, std::process::id(), &processes)
}

/// Parent and session of a process, in the kernel's sense of the words.
#[derive(Clone, Copy)]
struct Kin {
    parent: u32,
    session: u32,
}

/// Of the program that has started this one, if one did; else of those that were started from the same terminal or
/// script; else of all that were asked for in the same words.
fn of_the_job(asked: &Asked, all: Vec<Left>, own_pid: u32, processes: &HashMap<u32, Kin>) -> Vec<Left> {
    let mut all: Vec<Left> = all.into_iter().filter(|left| may_mean(asked, &left.asked)).collect();
    let parent = |pid: &u32| processes.get(pid).map(|kin| kin.parent);
    let ancestors = std::iter::successors(parent(&own_pid), parent).take(ANCESTORS_MAX);
    if let Some(nearest) = ancestors.filter_map(|pid| all.iter().position(|left| left.pid == pid)).next() {
        return vec![all.swap_remove(nearest)];
    }
    // 0 is a session that began outside of this container.
    let session = |pid: u32| processes.get(&pid).map(|kin| kin.session).filter(|session| *session != 0);
    let own = session(own_pid);
    let is_beside = |left: &Left| own.is_some() && session(left.pid) == own;
    if all.iter().any(is_beside) {
        all.retain(is_beside);
    }
    all.sort_by_key(|left| left.pid);
    all
}

/// All of this user's.
fn own_processes() -> HashMap<u32, Kin> {
    let own = |path: &Path| Some(path.metadata().ok()?.uid());
    let uid = own(Path::new("/proc/self"));
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbered = entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())));
    let ours = numbered.filter(|(_, path)| uid.is_some() && own(path) == uid);
    let stat = |path: PathBuf| std::fs::read(path.join("stat")).ok();
    ours.filter_map(|(pid, path)| Some((pid, kin(&String::from_utf8_lossy(&stat(path)?))?))).collect()
}

/// From the line that `/proc/PID/stat` is. The program's name, in parentheses, may have any bytes.
fn kin(stat: &str) -> Option<Kin> {
    let mut words = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().skip(1);
    let parent = words.next()?.parse().ok()?;
    Some(Kin { parent, session: words.nth(1)?.parse().ok()? })
}

/// A process that was forked from one that has left something has its descriptors, and nothing of its own.
fn left_by(pid: u32) -> Option<Left> {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    let is_it = |path: &Path| path.read_link().is_ok_and(|to| to.as_os_str() == "/memfd:orion-lease (deleted)");
    let mut found = descriptors.map(|entry| entry.path()).filter(|path| is_it(path));
    found.find_map(|path| read(&path).ok()).filter(|left| left.pid == pid)
}

fn read(path: &Path) -> Result<Left, Fault> {
    let unreadable = |_| Fault("it cannot be read");
    let mut body = Vec::new();
    File::open(path).map_err(unreadable)?.take(LEFT_BYTES_MAX as u64).read_to_end(&mut body).map_err(unreadable)?;
    Left::decode(&body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(memory_mib: Option<u64>) -> Asked {
        let (tenant, group) = (String::new(), String::new());
        Asked { controllers: vec!["a:1".into(), "b:1".into()], vgpus: 1, memory_mib, ratio: None, tenant, group }
    }

    fn left(pid: u32, memory_mib: u64) -> Left {
        Left { pid, home: [7; 16], asked: asked(Some(memory_mib)), is_of_reserve: false, parts: Vec::new() }
    }

    /// 1 starts two terminals, 10 and 20; each runs a program, 11 and 21. 12 was started by 11, 13 from its terminal,
    /// and 30 elsewhere.
    fn seen_by(pid: u32, memory_mib: Option<u64>) -> Vec<u32> {
        let kin = |parent, session| Kin { parent, session };
        let processes = HashMap::from([
            (10, kin(1, 10)),
            (11, kin(10, 10)),
            (12, kin(11, 99)),
            (13, kin(10, 10)),
            (20, kin(1, 20)),
            (21, kin(20, 20)),
            (22, kin(20, 20)),
            (30, kin(0, 0)),
            (31, kin(0, 0)),
        ]);
        let all = vec![left(31, 8), left(22, 8), left(21, 8), left(11, 4)];
        of_the_job(&asked(memory_mib), all, pid, &processes).iter().map(|left| left.pid).collect()
    }

    #[test]
    fn a_tool_sees_the_program_that_it_runs_in_or_beside() {
        assert_eq!(seen_by(12, Some(4)), [11]);
        assert_eq!(seen_by(12, None), [11]);
        assert_eq!(seen_by(13, None), [11]);
        assert_eq!(seen_by(20, None), [21, 22]);
        assert_eq!(seen_by(30, None), [11, 21, 22, 31]);
        // Of two jobs side by side each sees its own, whoever started them.
        assert_eq!(seen_by(30, Some(4)), [11]);
        assert_eq!(seen_by(30, Some(8)), [21, 22, 31]);
        assert_eq!(seen_by(13, Some(5)), []);
        let elsewhere = Asked { controllers: vec!["c:1".into()], ..asked(None) };
        assert!(!may_mean(&elsewhere, &asked(None)));
        assert!(!may_mean(&Asked { vgpus: 2, ..asked(None) }, &asked(None)));
        assert!(!may_mean(&Asked { group: "g".into(), ..asked(None) }, &asked(None)));
    }

    #[test]
    fn a_line_of_a_process_with_a_strange_name_is_read() {
        let kin = kin("77 (a) b (c)) S 5 77 3 0 -1").expect("a line");
        assert_eq!((kin.parent, kin.session), (5, 3));
        assert!(super::kin("77 (cut").is_none());
    }
}
