//! Who is looked at: oriond, its workers, and the clients on this machine, and what each of their threads is for.
//!
//! What is known of them is what the system shows. A worker's thread `watch 7` says that its session is the seventh; a
//! program on this machine is a session's client if it has mapped the memory of that session.

use std::collections::{BTreeMap, BTreeSet};

use orion_wire::text::acts;
use serde::{Deserialize, Serialize};

use crate::numbers::{PROCESSES_MAX, SLOTS_MAX, THREADS_MAX};

/// What a session's memory is called where it is mapped.
const MEMORY: &str = "/memfd:orion-session";
/// Looks for a session's client, all processes through. One in another place is not found however long.
const CLIENT_LOOKS_MAX: u32 = 5;
/// Characters of a thread's name that the system keeps.
const NAME_CHARS_MAX: usize = 15;

/// What a thread is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// oriond's engines.
    Engine,
    /// What else there is of oriond.
    Oriond,
    /// The thread of a worker that calls the driver.
    Executor,
    /// What else there is of a worker, the driver's threads too.
    Worker,
    /// All threads of a program that uses a session.
    Client,
}

/// Threads of one role in one process; the programs in the kernel count for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    pub process: u32,
    pub role: Role,
    pub session: Option<u64>,
    /// As the system calls the process.
    pub name: String,
}

/// What the programs in the kernel are to be told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Process and slot.
    pub processes: Vec<(u32, u32)>,
    /// Thread and slot.
    pub threads: Vec<(u32, u32)>,
    pub gone_processes: Vec<u32>,
    pub gone_threads: Vec<u32>,
}

pub struct Processes {
    /// An oriond, or one program that is looked at alone.
    pub subject: u32,
    pub is_oriond: bool,
    pub slots: Vec<Slot>,
    known: BTreeMap<u32, Known>,
    /// Processes for which there was no slot.
    pub left_out: BTreeSet<u32>,
}

struct Known {
    /// A number is another process's once it begins to mean another start.
    started: String,
    /// For its other threads, and for those that are told apart.
    slot: u32,
    own: Option<u32>,
    threads: BTreeSet<u32>,
    client_looks: u32,
}

/// The oriond of this machine.
///
/// # Errors
///
/// There is none, or there are several.
pub fn oriond() -> Result<u32, String> {
    let serves = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(b"serve") && name(*pid) == "oriond"
    };
    match all().filter(serves).collect::<Vec<u32>>()[..] {
        [one] => Ok(one),
        [] => Err("no oriond runs here: start one, or name it by --pid".to_owned()),
        ref several => Err(format!("several orionds run here, {several:?}: name one by --pid")),
    }
}

impl Processes {
    pub fn of(oriond: u32) -> Result<Processes, String> {
        match name(oriond).as_str() {
            "oriond" => {}
            "" => return Err(format!("there is no process {oriond}")),
            other => return Err(format!("process {oriond} is no oriond but {other:?}")),
        }
        Ok(Processes::new(oriond, true))
    }

    /// A program by itself, such as a client whose oriond is on another machine.
    pub fn of_program(pid: u32) -> Result<Processes, String> {
        if name(pid).is_empty() {
            return Err(format!("there is no process {pid}"));
        }
        Ok(Processes::new(pid, false))
    }

    fn new(subject: u32, is_oriond: bool) -> Processes {
        Processes { subject, is_oriond, slots: Vec::new(), known: BTreeMap::new(), left_out: BTreeSet::new() }
    }

    pub fn is_over(&self) -> bool {
        !self.known.is_empty() && !self.known.contains_key(&self.subject)
    }

    /// Looks who is there now. `others` are clients that were found otherwise.
    pub fn look(&mut self, others: &BTreeSet<u32>) -> Changes {
        let mut changes = Changes::default();
        self.forget(&mut changes);
        if !self.is_oriond {
            self.enter(self.subject, Role::Client, None, &mut changes);
            return changes;
        }
        self.enter(self.subject, Role::Oriond, Some(Role::Engine), &mut changes);
        for pid in children(self.subject) {
            // Before it has a name it is a copy of oriond.
            if name(pid) == "oriond-worker" {
                self.enter(pid, Role::Worker, Some(Role::Executor), &mut changes);
            }
        }
        self.tell_threads_apart(&mut changes);
        self.find_clients(&mut changes);
        for pid in others {
            self.enter(*pid, Role::Client, None, &mut changes);
        }
        changes
    }

    pub fn has(&self, pid: u32) -> bool {
        self.known.contains_key(&pid)
    }

    /// One that was found otherwise turns out to be this session's client.
    pub fn is_of(&mut self, pid: u32, session: u64) {
        if let Some(known) = self.known.get(&pid)
            && self.slots[known.slot as usize].role == Role::Client
        {
            self.slots[known.slot as usize].session.get_or_insert(session);
        }
    }

    /// All that there are, for programs that are new.
    pub fn everybody(&self) -> Changes {
        let own = |known: &Known| known.own.map_or(Vec::new(), |own| known.threads.iter().map(|t| (*t, own)).collect());
        Changes {
            processes: self.known.iter().map(|(pid, known)| (*pid, known.slot)).collect(),
            threads: self.known.values().flat_map(own).collect(),
            ..Changes::default()
        }
    }

    fn forget(&mut self, changes: &mut Changes) {
        self.known.retain(|pid, known| {
            let is_there = started(*pid).is_some_and(|now| now == known.started);
            if !is_there {
                changes.gone_processes.push(*pid);
                changes.gone_threads.extend(&known.threads);
            }
            is_there
        });
    }

    /// `own` is the role of threads that are told apart from the others.
    fn enter(&mut self, pid: u32, role: Role, own: Option<Role>, changes: &mut Changes) {
        if self.known.contains_key(&pid) || self.left_out.contains(&pid) {
            return;
        }
        let Some(started) = started(pid) else { return };
        let wanted = 1 + usize::from(own.is_some());
        if self.slots.len() + wanted > SLOTS_MAX || self.known.len() >= PROCESSES_MAX {
            self.left_out.insert(pid);
            return;
        }
        let mut slot = |role| {
            self.slots.push(Slot { process: pid, role, session: None, name: name(pid) });
            self.slots.len() as u32 - 1
        };
        let own = own.map(&mut slot);
        let slot = slot(role);
        changes.processes.push((pid, slot));
        self.known.insert(pid, Known { started, slot, own, threads: BTreeSet::new(), client_looks: 0 });
    }

    fn tell_threads_apart(&mut self, changes: &mut Changes) {
        let mut room = THREADS_MAX.saturating_sub(self.known.values().map(|known| known.threads.len()).sum());
        for (pid, known) in &mut self.known {
            let Some(own) = known.own else { continue };
            let is_oriond = *pid == self.subject;
            // A worker's threads have nothing more to tell once its session is known.
            if !is_oriond && self.slots[own as usize].session.is_some() {
                continue;
            }
            for (thread, name) in threads(*pid) {
                if let Some(session) = session_of(&name).filter(|_| !is_oriond) {
                    self.slots[own as usize].session = Some(session);
                    self.slots[known.slot as usize].session = Some(session);
                }
                let is_told_apart = if is_oriond { name.starts_with("engine-") } else { thread == *pid };
                if is_told_apart && room > 0 && known.threads.insert(thread) {
                    room -= 1;
                    changes.threads.push((thread, own));
                }
            }
        }
    }

    /// Looks into the mappings of all processes, if a session has no client so far.
    fn find_clients(&mut self, changes: &mut Changes) {
        let mut wanted = BTreeMap::new();
        for (pid, known) in &mut self.known {
            let Some(session) = self.slots[known.slot as usize].session else { continue };
            if self.slots[known.slot as usize].role == Role::Worker && known.client_looks < CLIENT_LOOKS_MAX {
                known.client_looks += 1;
                wanted.extend(memory(*pid).map(|memory| (memory, (session, *pid))));
            }
        }
        if wanted.is_empty() {
            return;
        }
        for pid in all().filter(|pid| !self.known.contains_key(pid) && *pid != std::process::id()).collect::<Vec<_>>() {
            let Some((session, worker)) = memory(pid).and_then(|memory| wanted.get(&memory)) else { continue };
            self.enter(pid, Role::Client, None, changes);
            if let Some(known) = self.known.get(&pid) {
                self.slots[known.slot as usize].session = Some(*session);
            }
            if let Some(known) = self.known.get_mut(worker) {
                known.client_looks = CLIENT_LOOKS_MAX;
            }
        }
    }
}

/// Of a worker's thread that is called `watch 7`.
fn session_of(name: &str) -> Option<u64> {
    // One that fills the name may have been cut off.
    name.strip_prefix("watch ")?.parse().ok().filter(|_| name.len() < NAME_CHARS_MAX)
}

fn all() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Names of programs and of files may be any bytes.
fn text(path: impl AsRef<std::path::Path>) -> Option<String> {
    std::fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn children(pid: u32) -> Vec<u32> {
    let lists = threads(pid).map(|(thread, _)| std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/children")));
    lists.flatten().flat_map(|list| list.split_whitespace().flat_map(str::parse).collect::<Vec<u32>>()).collect()
}

fn threads(pid: u32) -> impl Iterator<Item = (u32, String)> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let name = text(entry.path().join("comm"))?;
        Some((entry.file_name().to_str()?.parse().ok()?, name.trim_end().to_owned()))
    })
}

/// What a program calls itself may be anything, and comes to an administrator's terminal.
pub fn shown(text: &str) -> String {
    text.chars().map(|c| if acts(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

fn name(pid: u32) -> String {
    shown(text(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end())
}

/// When it began, as the system counts.
fn started(pid: u32) -> Option<String> {
    let line = text(format!("/proc/{pid}/stat"))?;
    // Behind the name, which may be anything: the twentieth.
    line.rsplit_once(") ")?.1.split(' ').nth(19).map(str::to_owned)
}

/// Which session's memory it has mapped: device and inode.
fn memory(pid: u32) -> Option<(String, String)> {
    let maps = text(format!("/proc/{pid}/maps"))?;
    let line = maps.lines().find(|line| line.contains(MEMORY))?;
    let mut words = line.split_whitespace().skip(3);
    Some((words.next()?.to_owned(), words.next()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_whose_number_may_be_cut_off_is_not_known() {
        assert_eq!(session_of("watch 7"), Some(7));
        assert_eq!(session_of("watch 12345678"), Some(12_345_678));
        assert_eq!(session_of("watch 123456789"), None);
        assert_eq!(session_of("watcher"), None);
    }

    #[test]
    fn a_process_is_shown_by_its_name_without_what_a_terminal_would_do() {
        let escape = b"\x1b[2J\n\xe2\x80\xaeevil";
        let renamed = std::thread::spawn(move || {
            std::fs::write("/proc/thread-self/comm", escape).expect("a thread names itself");
            let tid = std::fs::read_link("/proc/thread-self").expect("its own");
            name(tid.file_name().and_then(|tid| tid.to_str()?.parse().ok()).expect("a number"))
        });
        assert_eq!(renamed.join().expect("no panic"), "\u{fffd}[2J\u{fffd}\u{fffd}evil");
    }

    #[test]
    fn what_is_no_oriond_is_refused_by_its_name() {
        let why = Processes::of(std::process::id()).err().expect("this is a test");
        assert!(why.contains("is no oriond"), "{why}");
        assert!(started(std::process::id()).is_some_and(|began| began.parse::<u64>().is_ok()));
    }
}
