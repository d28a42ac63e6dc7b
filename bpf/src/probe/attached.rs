//! One question's programs by libbpf: loaded, attached, told whom to count, and read.

// UNSAFETY: asks the kernel for what a program has cost, and to measure that.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Mutex;

use libbpf_rs::{Link, Map, MapCore, MapFlags, Object, ObjectBuilder, PrintLevel, UsdtOpts, libbpf_sys};

use crate::histogram::{self, Counts, words};
use crate::processes::Changes;
use crate::question::{Question, Refusal};
use crate::report::{Completions, Connection, Cost, Ioctls, Pair, Report, Usdt as Fired, device_name};
use crate::usdt::Usdt;

/// Of libbpf's lines those at the end are why.
const LINES_MAX: usize = 8;

/// What libbpf has said lately.
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

pub struct Attached {
    pub question: Question,
    object: Object,
    links: Vec<Link>,
    /// Of [`Question::Usdt`].
    usdt: Vec<Usdt>,
}

impl Attached {
    pub fn load(question: Question) -> Result<Attached, Refusal> {
        libbpf_rs::set_print(Some((PrintLevel::Warn, keep)));
        said();
        let failed = |e: libbpf_rs::Error| because(question, "loading its programs", &e);
        let mut builder = ObjectBuilder::default();
        builder.name(question.file()).map_err(failed)?;
        let object = builder.open_memory(question.object()).map_err(failed)?.load().map_err(failed)?;
        Ok(Attached { question, object, links: Vec::new(), usdt: Vec::new() })
    }

    pub fn attach(&mut self, program: PathBuf, usdt: &[Usdt]) -> Result<(), Refusal> {
        let failed = |e: libbpf_rs::Error| because(self.question, "attaching its programs", &e);
        for loaded in self.object.progs_mut() {
            if self.question != Question::Usdt {
                self.links.push(loaded.attach().map_err(failed)?);
                continue;
            }
            for probe in usdt.iter().filter(|probe| !probe.is_dead) {
                let options = UsdtOpts { cookie: probe.cookie, ..UsdtOpts::default() };
                // All processes of the program, for there will be new workers.
                let link = loaded.attach_usdt_with_opts(-1, &program, crate::usdt::PROVIDER, &probe.name, options);
                self.links.push(link.map_err(failed)?);
            }
        }
        usdt.clone_into(&mut self.usdt);
        Ok(())
    }

    pub fn open_ports(&mut self, namespace: u32, ports: &BTreeSet<u16>) -> Result<(), Refusal> {
        if self.question != Question::Tcp {
            return Ok(());
        }
        if ports.is_empty() {
            return Err(Refusal(
                "tcp cannot be looked at: whom you look at listens at no TCP port; `oriond serve --listen` has one"
                    .to_owned(),
            ));
        }
        let map = self.map("ports")?;
        ports.iter().try_for_each(|port| {
            let key = [namespace.to_ne_bytes(), u32::from(*port).to_ne_bytes()].concat();
            self.update(&map, &key, 1)
        })
    }

    pub fn tell(&mut self, changes: &Changes) -> Result<(), Refusal> {
        if self.question == Question::Tcp {
            return Ok(());
        }
        for (name, gone, new) in [
            ("threads", &changes.gone_threads, &changes.threads),
            ("processes", &changes.gone_processes, &changes.processes),
        ] {
            let map = self.map(name)?;
            for id in gone {
                // It may have been left out when it came.
                let _ = map.delete(&id.to_ne_bytes());
            }
            new.iter().try_for_each(|(id, slot)| self.update(&map, &id.to_ne_bytes(), *slot))?;
        }
        Ok(())
    }

    pub fn histogram(&self, slot: u32) -> Result<Option<Counts>, Refusal> {
        Ok(self.lookup("histograms", &slot.to_ne_bytes())?.and_then(|bytes| Counts::from_bytes(&bytes)))
    }

    pub fn read(&self, report: &mut Report) -> Result<(), Refusal> {
        report.questions.push(self.question);
        match self.question {
            Question::RunQueue | Question::OffCpu | Question::Tcp => {}
            Question::IoUring => self.all("completions", |key, value| {
                let (key, value) = (halves(key), words(value).collect::<Vec<_>>());
                if let (Some(threads), [count, failures, results]) = (report.threads.get(key[0] as usize), &value[..]) {
                    report.completions.push(Completions {
                        process: threads.process,
                        session: threads.session,
                        role: threads.role,
                        opcode: key[1],
                        count: *count,
                        failures: *failures,
                        bytes: *results,
                    });
                }
            })?,
            Question::Ioctl => self.all("ioctls", |key, value| {
                let (key, split) = (halves(key), value.split_at(16));
                let (head, times) = (words(split.0).collect::<Vec<_>>(), Counts::from_bytes(split.1));
                if let (Some(threads), Some(times)) = (report.threads.get(key[0] as usize), times) {
                    let device = (key[1] >> 20, key[1] & 0xf_ffff);
                    report.ioctls.push(Ioctls {
                        process: threads.process,
                        session: threads.session,
                        role: threads.role,
                        device: device_name(device),
                        command: key[2],
                        count: head[0],
                        failures: head[1],
                        times: times.times(),
                    });
                }
            })?,
            Question::Usdt => self.read_usdt(report)?,
        }
        if let Some(lost) = self.lookup("lost", &0u32.to_ne_bytes())? {
            report.lost += words(&lost).next().unwrap_or(0);
        }
        for program in self.object.progs() {
            let name = format!("{}/{}", self.question.file(), program.name().to_string_lossy());
            let (runs, ns) = cost(program.as_fd().as_raw_fd())
                .map_err(|e| because(self.question, "asking what a program has cost", &e))?;
            report.cost.push(Cost { program: name, runs, ns });
        }
        Ok(())
    }

    /// Of [`Question::Tcp`], with the counts of their round trips.
    pub fn connections(&self) -> Result<Vec<(Connection, Counts)>, Refusal> {
        let mut connections = Vec::new();
        self.all("connections", |key, value| connections.extend(connection(key, value)))?;
        Ok(connections)
    }

    fn read_usdt(&self, report: &mut Report) -> Result<(), Refusal> {
        for (number, probe) in self.usdt.iter().enumerate() {
            if probe.is_dead {
                let why = "a place of it was thrown away when the program was linked, and its note was not";
                report.notes.push(format!("USDT probe {} is not looked at: {why}", probe.name));
                continue;
            }
            let count = self.lookup("hits", &(number as u32).to_ne_bytes())?;
            let count = count.and_then(|bytes| words(&bytes).next()).unwrap_or(0);
            report.usdt.push(Fired { probe: probe.name.clone(), count });
        }
        self.all("pairs", |key, value| {
            let (pair, session) = (halves(key)[0], words(&key[8..]).next());
            let name = self.usdt.get(pair as usize).map(|begin| begin.name.trim_end_matches("_begin").to_owned());
            if let (Some(name), Some(session), Some(times)) = (name, session, Counts::from_bytes(value)) {
                report.pairs.push(Pair { pair: name, session, times: times.times() });
            }
        })
    }

    fn map(&self, name: &str) -> Result<Map<'_>, Refusal> {
        let found = self.object.maps().find(|map| map.name() == name);
        found.ok_or_else(|| Refusal(format!("the programs of {} have no map {name:?}", self.question.file())))
    }

    fn update(&self, map: &Map<'_>, key: &[u8], value: u32) -> Result<(), Refusal> {
        let what = || format!("telling its programs whom to count, in {:?}", map.name());
        map.update(key, &value.to_ne_bytes(), MapFlags::ANY).map_err(|e| because(self.question, &what(), &e))
    }

    fn lookup(&self, map: &str, key: &[u8]) -> Result<Option<Vec<u8>>, Refusal> {
        self.map(map)?.lookup(key, MapFlags::ANY).map_err(|e| because(self.question, &format!("reading {map:?}"), &e))
    }

    fn all(&self, map: &str, mut each: impl FnMut(&[u8], &[u8])) -> Result<(), Refusal> {
        let map_there = self.map(map)?;
        for key in map_there.keys() {
            if let Some(value) = self.lookup(map, &key)? {
                each(&key, &value);
            }
        }
        Ok(())
    }
}

/// As `struct peer` and `struct connection` in tcp.bpf.c.
fn connection(key: &[u8], value: &[u8]) -> Option<(Connection, Counts)> {
    let (head, times) = value.split_at_checked(value.len().checked_sub(histogram::BYTES)?)?;
    let head: [u64; 10] = words(head).collect::<Vec<_>>().try_into().ok()?;
    let number = |at: usize| Some(u16::from_ne_bytes(key.get(at..at + 2)?.try_into().ok()?));
    let address: [u8; 16] = key.get(..16)?.try_into().ok()?;
    let peer = match key.get(20)? {
        2 => IpAddr::V4(Ipv4Addr::new(address[0], address[1], address[2], address[3])),
        // IPv4 comes in at a socket for both as this.
        _ => Ipv6Addr::from(address).to_canonical(),
    };
    let counts = Counts::from_bytes(times)?;
    let connection = Connection {
        session: None,
        lane: None,
        peer: std::net::SocketAddr::new(peer, number(16)?),
        port: number(18)?,
        received: head[0],
        retransmits: head[1],
        smoothed_ns: head[2],
        unacked_bytes: head[3],
        unsent_bytes: head[4],
        unread_bytes: head[5],
        unacked_bytes_max: head[6],
        unsent_bytes_max: head[7],
        unread_bytes_max: head[8],
        round_trips: counts.times(),
    };
    Some((connection, counts))
}

fn halves(key: &[u8]) -> Vec<u32> {
    key.chunks_exact(4).map(|half| u32::from_ne_bytes(half.try_into().expect("four bytes"))).collect()
}

fn keep(_: PrintLevel, line: String) {
    let mut said = SAID.lock().expect("nobody panics with it");
    if said.len() == LINES_MAX {
        said.remove(0);
    }
    said.push(line.trim().to_owned());
}

fn said() -> Vec<String> {
    std::mem::take(&mut SAID.lock().expect("nobody panics with it"))
}

fn because(question: Question, what: &str, why: &dyn std::fmt::Display) -> Refusal {
    let said = said();
    let more = if said.is_empty() { String::new() } else { format!("; libbpf says: {}", said.join(" | ")) };
    Refusal(format!("{} cannot be looked at: {what} failed: {why}{more}", question.file()))
}

/// Programs are measured while somebody holds this.
pub struct Stats(#[expect(dead_code, reason = "closed when dropped")] OwnedFd);

impl Stats {
    pub fn on() -> Result<Stats, Refusal> {
        // SAFETY: no pointers.
        let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        if fd < 0 {
            let why = std::io::Error::from_raw_os_error(-fd);
            return Err(Refusal(format!("measuring BPF programs needs CAP_SYS_ADMIN: {why}")));
        }
        // SAFETY: a new descriptor that nobody else owns.
        Ok(Stats(unsafe { OwnedFd::from_raw_fd(fd) }))
    }
}

/// How often a program has run, and for how many nanoseconds, while it was measured.
fn cost(program: i32) -> std::io::Result<(u64, u64)> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut len = size_of_val(&info) as u32;
    // SAFETY: `info` is valid for writes of `len` bytes, and asks for no arrays.
    let rc = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program, &raw mut info, &raw mut len) };
    if rc != 0 {
        return Err(std::io::Error::from_raw_os_error(-rc));
    }
    Ok((info.run_cnt, info.run_time_ns))
}
