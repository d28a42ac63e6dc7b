//! Somebody is killed, again and again, at a moment that the seed chooses; then the books have to balance.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use orion_proto::Allocations;

use crate::field::{Answer, Carrier, Field, Got, Program};
use crate::scene::{PATIENCE, wait_until};

const KILLS: usize = 16;
/// Of an etcd that keeps the pool.
const MEMBERS: usize = 3;
/// How soon vGPUs of a program that was killed are free again.
const BACK: Duration = Duration::from_secs(2);
const PROGRAMS: usize = 6;

/// A small generator: the same seed, the same day.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }

    /// Moments differ, that is what they are for.
    fn moment(&mut self, millis: usize) {
        std::thread::sleep(Duration::from_micros(self.below(millis * 1000) as u64));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Victim {
    Program,
    Worker,
    Oriond,
    Agent,
    Controller,
    /// One member, which the others do without.
    Etcd,
    /// Two of three: nothing can be written until one of them is back.
    Quorum,
}

use Victim::{Agent, Controller, Etcd, Oriond, Quorum, Worker};

const VICTIMS: [Victim; 5] = [Victim::Program, Worker, Oriond, Agent, Controller];
const VICTIMS_WITH_ETCD: [Victim; 8] = [Victim::Program, Worker, Oriond, Agent, Controller, Controller, Etcd, Quorum];

/// What the report is made of.
#[derive(Default)]
struct Counts {
    killed: BTreeMap<Victim, usize>,
    /// Programs that had vGPUs when somebody was killed and had to go on.
    survived: usize,
    lost: usize,
    /// Programs that were killed before they had their vGPUs.
    came: usize,
    refused: BTreeMap<&'static str, usize>,
    /// From the kill of a program to its vGPUs being back.
    back: Vec<Duration>,
    settled: Vec<Duration>,
}

struct Day {
    field: Field,
    victims: &'static [Victim],
    random: Random,
    programs: Vec<Program>,
    /// Leases of sessions that were ended. A program may have had one for a moment, and not have been heard of yet.
    lost: BTreeSet<String>,
    counts: Counts,
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

const NODES: [(&str, Carrier); 3] = [("a", Carrier::Tcp), ("b", Carrier::Tcp), ("c", Carrier::Shm)];

#[test]
fn whoever_is_killed_and_whenever_the_books_balance_and_what_runs_goes_on() {
    a_day(Field::new(&NODES), &VICTIMS);
}

#[test]
fn whoever_is_killed_of_a_pool_in_an_etcd_the_books_balance_and_what_runs_goes_on() {
    a_day(Field::with_etcd(&NODES, MEMBERS), &VICTIMS_WITH_ETCD);
}

fn a_day(field: Field, victims: &'static [Victim]) {
    let kills = number("ORION_DAYS_KILLS", KILLS);
    let seed = number("ORION_DAYS_SEED", std::process::id() as usize);
    println!("ORION_DAYS_SEED={seed} ORION_DAYS_KILLS={kills}");
    let random = Random((seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (programs, lost, counts) = (Vec::new(), BTreeSet::new(), Counts::default());
    let mut day = Day { field, victims, random, programs, lost, counts };
    for kill in 0..kills {
        day.populate();
        let victim = day.victims[day.random.below(day.victims.len())];
        day.kill(kill, victim);
        day.settle();
    }
    for mut program in std::mem::take(&mut day.programs) {
        program.end();
    }
    day.field.wait_for_free(day.field.vgpus());
    day.report();
    day.field.end();
}

impl Day {
    /// Some end, and others come.
    fn populate(&mut self) {
        if self.programs.len() > 2 && self.random.below(3) == 0 {
            let at = self.random.below(self.programs.len());
            self.programs.swap_remove(at).end();
        }
        while self.programs.len() < PROGRAMS {
            let vgpus = [1, 1, 2, 4][self.random.below(4)];
            let memory = [128, 256, 512][self.random.below(3)];
            let environment = [("ORION_VGPU", vgpus.to_string()), ("ORION_GMEM", memory.to_string())];
            let environment = environment.each_ref().map(|(name, value)| (*name, value.as_str()));
            let mut program = self.field.start(&environment);
            program.wanted = format!("{vgpus} vGPUs of {memory} MiB");
            self.programs.push(program);
            self.random.moment(30);
        }
    }

    /// Kills somebody at some moment, sees what had to go on, and starts who has to be there.
    fn kill(&mut self, number: usize, victim: Victim) {
        // Most programs have their vGPUs a tenth of a second after their start: half of the kills meet one that comes.
        let moment = if self.random.below(2) == 0 { 600 } else { 120 };
        self.random.moment(moment);
        *self.counts.killed.entry(victim).or_default() += 1;
        println!("{number}: {victim:?}");
        match victim {
            Victim::Program => self.kill_program(),
            Victim::Worker => self.kill_worker(),
            Victim::Oriond => self.kill_oriond(),
            Victim::Agent => {
                let node = self.random.below(self.field.nodes.len());
                self.field.nodes[node].agent.kill();
                self.meanwhile();
                self.field.restart_agent(node);
            }
            Victim::Controller => {
                self.field.controller.kill();
                self.meanwhile();
                self.field.restart_controller();
            }
            Victim::Etcd | Victim::Quorum => {
                let (first, count) = (self.random.below(MEMBERS), if victim == Victim::Etcd { 1 } else { 2 });
                let members = (first..first + count).map(|member| member % MEMBERS);
                members.clone().for_each(|member| self.field.kill_etcd(member));
                self.meanwhile();
                members.for_each(|member| self.field.restart_etcd(member));
            }
        }
    }

    /// Nobody is there whom a session would need: they go on, and some end and others come.
    fn meanwhile(&mut self) {
        self.goes_on(&BTreeSet::new());
        if self.random.below(2) == 0 {
            self.populate();
        }
        if self.random.below(4) == 0 {
            let at = self.random.below(self.programs.len());
            self.programs.swap_remove(at).kill();
        }
        self.random.moment(300);
    }

    fn kill_program(&mut self) {
        // One of those that there are, or one that has just come.
        if self.random.below(2) == 0 {
            self.programs.push(self.field.start(&[]));
            self.random.moment(60);
        } else {
            let (at, last) = (self.random.below(self.programs.len()), self.programs.len() - 1);
            self.programs.swap(at, last);
        }
        let mut program = self.programs.pop().expect("there are some");
        let pid = program.pid();
        self.counts.came += usize::from(program.look(Duration::ZERO) == Got::NothingYet);
        program.kill();
        let back = wait_until("the killed program's vGPUs", || {
            self.field.books().is_some_and(|(books, _)| of_program(&books, pid).is_none())
        });
        assert!(back < BACK, "{} of a killed program were back after {back:?}", program.wanted);
        self.counts.back.push(back);
        self.goes_on(&BTreeSet::new());
    }

    fn kill_worker(&mut self) {
        let sessions: Vec<(String, u32)> = self.field.nodes.iter().flat_map(|node| node.sessions()).collect();
        if sessions.is_empty() {
            return;
        }
        let (lease, worker) = &sessions[self.random.below(sessions.len())];
        // SAFETY: a plain call; oriond has not said that this worker has ended.
        unsafe { libc::kill(*worker as i32, libc::SIGKILL) };
        self.goes_on(&BTreeSet::from([lease.clone()]));
    }

    fn kill_oriond(&mut self) {
        let node = self.random.below(self.field.nodes.len());
        self.field.nodes[node].oriond.kill();
        let lost = self.field.nodes[node].sessions().into_keys().collect();
        self.goes_on(&lost);
        self.random.moment(300);
        self.field.restart_oriond(node, 2);
    }

    /// Who has vGPUs works on, but for sessions with these leases, which are told of their end.
    fn goes_on(&mut self, lost: &BTreeSet<String>) {
        self.lost.extend(lost.iter().cloned());
        let mut stay = Vec::new();
        for mut program in std::mem::take(&mut self.programs) {
            if program.look(Duration::ZERO) != Got::Vgpus {
                stay.push(program);
                continue;
            }
            let lease = program.lease();
            match (lost.contains(&lease), program.answer()) {
                (false, Answer::Works) => {
                    self.counts.survived += 1;
                    stay.push(program);
                }
                (true, _) => self.is_told(program),
                (false, Answer::Lost(code)) => panic!("{lease} was lost ({code}): {}", program.said()),
            }
        }
        self.programs = stay;
    }

    /// In words, not only by a code.
    fn is_told(&mut self, mut program: Program) {
        self.counts.lost += 1;
        // It may just not have been told yet.
        wait_until("the end of a session", || matches!(program.answer(), Answer::Lost(_)));
        wait_until("a line that says so", || program.said().contains("orion: the session is lost"));
        program.kill();
    }

    /// Everybody who asked has got something or words, and all agree who has what.
    fn settle(&mut self) {
        let began = Instant::now();
        let mut stay = Vec::new();
        for mut program in std::mem::take(&mut self.programs) {
            match program.look(PATIENCE) {
                Got::Vgpus if self.lost.contains(&program.lease()) => self.is_told(program),
                Got::Vgpus => stay.push(program),
                Got::Refused => {
                    *self.counts.refused.entry(why(&program.said())).or_default() += 1;
                    program.kill();
                }
                Got::NothingYet => panic!("a program waits without end: {}", program.said()),
            }
        }
        self.programs = stay;
        let mut last = String::new();
        let until = Instant::now() + PATIENCE;
        while let Err(differ) = self.balances() {
            assert!(Instant::now() < until, "the books do not balance: {differ}");
            last = differ;
            std::thread::sleep(Duration::from_millis(10));
        }
        let settled = began.elapsed();
        if settled > Duration::from_secs(5) {
            println!("  settled after {settled:?}; before: {last}");
        }
        self.counts.settled.push(settled);
    }

    /// Controller, orionds and programs agree, and what is free and what is held are all there is.
    fn balances(&mut self) -> Result<(), String> {
        let (books, devices) = self.field.books().ok_or("the controller does not answer")?;
        let theirs: BTreeSet<String> = books.allocations.iter().map(|a| a.allocation.clone()).collect();
        let mut sessions = BTreeSet::new();
        for node in &self.field.nodes {
            let of_node: BTreeSet<String> = node.sessions().into_keys().collect();
            let placed = books.allocations.iter().filter(|a| a.vgpus.iter().any(|vgpu| vgpu.node == node.name));
            let placed: BTreeSet<String> = placed.map(|a| a.allocation.clone()).collect();
            if placed != of_node {
                return Err(format!("the controller has on {} {placed:?}, and it has {of_node:?}", node.name));
            }
            sessions.extend(of_node);
        }
        let ours: BTreeSet<String> = self.programs.iter_mut().map(|program| program.lease()).collect();
        if theirs != sessions || theirs != ours {
            return Err(format!("the controller has {theirs:?}, the orionds {sessions:?}, the programs {ours:?}"));
        }
        if let Some(a) = books.allocations.iter().find(|a| !a.confirmed) {
            return Err(format!("{} has a session and is not confirmed", a.allocation));
        }
        let held: usize = books.allocations.iter().map(|a| a.vgpus.len()).sum();
        let free: usize = devices.devices.iter().map(|device| device.free_vgpus as usize).sum();
        let had: usize = self.programs.iter().map(|program| program.devices).sum();
        if held + free != self.field.vgpus() || held != had {
            return Err(format!("{held} vGPUs are held and {free} are free, and programs see {had}"));
        }
        let memory = |gpu: &orion_proto::Device| {
            let vgpus = books.allocations.iter().flat_map(|a| &a.vgpus);
            vgpus.filter(|v| v.gpu_uuid == gpu.uuid && v.node == gpu.node).map(|v| v.memory_bytes).sum::<u64>()
        };
        match devices
            .devices
            .iter()
            .find(|gpu| gpu.free_bytes + memory(gpu) != gpu.memory_bytes || gpu.standing != "up")
        {
            Some(gpu) => Err(format!("{gpu:?} does not add up")),
            None => Ok(()),
        }
    }

    fn report(&mut self) {
        let c = &mut self.counts;
        c.back.sort();
        c.settled.sort();
        let of = |times: &[Duration], part: usize| times.get(times.len() * part / 100).copied().unwrap_or_default();
        let last = |times: &[Duration]| times.last().copied().unwrap_or_default();
        println!("killed: {:?}", c.killed);
        println!("went on: {}; lost with a word: {}; refused: {:?}", c.survived, c.lost, c.refused);
        println!("programs killed before they had their vGPUs: {}", c.came);
        println!("a killed program's vGPUs were back after {:?} (median), {:?} (most)", of(&c.back, 50), last(&c.back));
        println!("the books balanced after {:?} (median), {:?} (most)", of(&c.settled, 50), last(&c.settled));
    }
}

/// The allocation that a program has or is about to have; the controller knows programs by host and number.
fn of_program(books: &Allocations, pid: u32) -> Option<String> {
    let its = |a: &&orion_proto::Allocation| a.client.split(' ').nth(1) == Some(pid.to_string().as_str());
    books.allocations.iter().find(its).map(|a| a.allocation.clone())
}

/// Of what kind a refusal is; there is no other one.
fn why(said: &str) -> &'static str {
    let kinds = [
        "the pool has no room for",
        "others wait for vGPUs of this pool",
        "no node with a GPU has reported",
        "is not reached",
        "connecting to",
        "the server is ending",
        "is from before oriond was started again",
        "no agent has told this server yet",
        "closed the connection",
        "no oriond listens on",
        "did not answer within",
        "its worker ended before it was ready",
        "its worker did not get ready in time",
    ];
    kinds.into_iter().find(|kind| said.contains(kind)).unwrap_or_else(|| panic!("refused without a reason: {said:?}"))
}
