//! What the kernel says about processes that did what they may not: a crash is there even if nobody else tells.

// UNSAFETY: moves to the end of a file, which the standard library does only for files that have one.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

pub struct Watch(Result<File, String>);

impl Watch {
    /// From here on. Only root may look.
    pub fn start() -> Watch {
        let open = || {
            let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg")?;
            // SAFETY: a plain call on a descriptor of ours.
            match unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_END) } {
                0.. => Ok(file),
                _ => Err(std::io::Error::last_os_error()),
            }
        };
        let cannot = |e: std::io::Error| format!("the kernel's log, where crashes are too, cannot be read here: {e}");
        Watch(open().map_err(cannot))
    }

    /// What was said since about threads with these numbers, or about an oriond whose threads these are not.
    pub fn crashes(&self, threads: &BTreeSet<u32>) -> Result<(Vec<String>, Vec<String>), &str> {
        let mut file = self.0.as_ref().map_err(String::as_str)?;
        let (mut ours, mut others) = (Vec::new(), Vec::new());
        let mut record = [0; 8192];
        loop {
            // A record at a time.
            let n = match file.read(&mut record) {
                Ok(n) if n > 0 => n,
                // Some were overwritten before they were read; the next read goes on behind them.
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::BrokenPipe) => continue,
                _ => return Ok((ours, others)),
            };
            let text = String::from_utf8_lossy(&record[..n]);
            let line = text.split_once(';').map_or(&*text, |(_, said)| said).lines().next().unwrap_or("");
            let Some((name, number)) = crashed(line) else { continue };
            if threads.contains(&number) {
                ours.push(line.to_owned());
            } else if name.starts_with("oriond") || line.contains(" in oriond[") {
                others.push(line.to_owned());
            }
        }
    }
}

/// Name and number of the thread that a line is about, if that has crashed.
fn crashed(line: &str) -> Option<(&str, u32)> {
    let line = line.strip_prefix("traps: ").unwrap_or(line);
    let (name, rest) = line.split_once('[')?;
    let (number, what) = rest.split_once(']')?;
    let kinds = [": segfault at ", " general protection", " trap ", " bad frame in ", " stack segment"];
    let is_crash = kinds.iter().any(|kind| what.starts_with(kind));
    Some((name, number.parse().ok()?)).filter(|_| is_crash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crashes_are_told_from_other_lines() {
        let segfault =
            "soft-stream-3[9447]: segfault at 16 ip 000055f18c830b6e sp 00002ad871a0a650 error 6 in oriond[2]";
        assert_eq!(crashed(segfault), Some(("soft-stream-3", 9447)));
        let protection = "traps: oriond-worker[337] general protection fault ip:2b8d08ebd8a2 sp:7ffe743cdfe8 error:0";
        assert_eq!(crashed(protection), Some(("oriond-worker", 337)));
        let opcode = "traps: oriond-worker[12] trap invalid opcode ip:55 sp:7f error:0 in oriond[1,2+3]";
        assert_eq!(crashed(opcode), Some(("oriond-worker", 12)));
        for other in ["hrtimer: interrupt took 13965364 ns", "Code: 48 [0f] 84", "process[1]: said segfault at"] {
            assert_eq!(crashed(other), None, "{other}");
        }
    }
}
