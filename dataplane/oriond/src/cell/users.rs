//! One user for each worker, out of a range that nobody else on the machine uses.

// UNSAFETY: locks bytes of a file.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::str::FromStr;
use std::sync::{Arc, Mutex};

/// Where several orionds of one machine agree on who uses which. Only root writes here.
const FILE: &str = "/run/orion-users.lock";
const TRIES_MAX: usize = 1000;

/// `FIRST-LAST`, user and group ids alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub first: u32,
    pub last: u32,
}

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Range, String> {
        let parsed = text.split_once('-').and_then(|(a, b)| Some((a.trim().parse().ok()?, b.trim().parse().ok()?)));
        match parsed {
            Some((first, last)) if first > 0 && first <= last && last < u32::MAX - 1 => Ok(Range { first, last }),
            _ => Err(format!("{text:?} is no range of user ids, such as 1890000000-1890999999")),
        }
    }
}

/// Who may be had, and who is taken.
#[derive(Debug)]
pub struct Users {
    range: Range,
    taken: Mutex<HashSet<u32>>,
    /// Byte `i` is locked while user `i` has a worker. Without it only this oriond's own workers are apart for
    /// sure; the range is large and users are drawn at random.
    lock: Option<File>,
}

/// A user that no other worker has while this lives.
#[derive(Debug)]
pub struct User {
    pub id: u32,
    users: Arc<Users>,
}

impl Users {
    pub fn new(range: Range) -> Arc<Users> {
        let open = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(FILE);
        Arc::new(Users { range, taken: Mutex::default(), lock: open.ok() })
    }

    /// Draws one that is free.
    pub fn take(self: &Arc<Users>) -> io::Result<User> {
        let mut taken = self.taken.lock().expect("no panic happens under this lock");
        let count = u64::from(self.range.last - self.range.first) + 1;
        for _ in 0..TRIES_MAX {
            let id = self.range.first + (random()? % count) as u32;
            if !taken.contains(&id) && self.set_lock(id, libc::F_WRLCK as i16) {
                taken.insert(id);
                return Ok(User { id, users: self.clone() });
            }
        }
        let range = format!("{}-{}", self.range.first, self.range.last);
        Err(io::Error::other(format!("no user of --worker-uids {range} is free; give a larger range")))
    }

    fn set_lock(&self, id: u32, kind: i16) -> bool {
        let Some(file) = &self.lock else { return true };
        // SAFETY: all-zero is a valid value of this structure of integers.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = kind;
        lock.l_whence = libc::SEEK_SET as i16;
        lock.l_start = i64::from(id);
        lock.l_len = 1;
        // SAFETY: a descriptor of our own and a valid structure.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) == 0 }
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let mut taken = self.users.taken.lock().expect("no panic happens under this lock");
        taken.remove(&self.id);
        self.users.set_lock(self.id, libc::F_UNLCK as i16);
    }
}

fn random() -> io::Result<u64> {
    let mut word = 0u64;
    // SAFETY: eight bytes into a local; requests this small are never cut short.
    let n = unsafe { libc::getrandom((&raw mut word).cast(), 8, 0) };
    if n == 8 { Ok(word) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_taken_once_and_can_be_had_again() {
        let users = Users::new(Range { first: 1_890_000_000, last: 1_890_000_002 });
        let all: Vec<User> = (0..3).map(|_| users.take().expect("one is free")).collect();
        let distinct: HashSet<u32> = all.iter().map(|u| u.id).collect();
        assert_eq!(distinct.len(), 3);
        assert!(users.take().unwrap_err().to_string().contains("--worker-uids 1890000000-1890000002"));
        drop(all);
        users.take().expect("they are free again");
    }

    #[test]
    fn a_range_is_two_numbers_and_never_root() {
        assert_eq!("5-7".parse(), Ok(Range { first: 5, last: 7 }));
        for bad in ["", "5", "7-5", "0-5", "-", "a-b", "5-4294967295"] {
            assert!(bad.parse::<Range>().is_err(), "{bad}");
        }
    }
}
