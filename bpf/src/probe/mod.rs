//! A look that is under way: programs that are attached, and who they count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Instant;

use crate::ports::{Ends, Sockets};
use crate::processes::Processes;
use crate::question::{Question, Refusal};
use crate::report::{Asleep, Report, Threads};
use crate::sessions::Sessions;
use crate::{histogram, ports, usdt};

#[cfg(feature = "libbpf")]
mod attached;
#[cfg(feature = "libbpf")]
use attached::{Attached, Stats};

#[cfg(not(feature = "libbpf"))]
mod without;
#[cfg(not(feature = "libbpf"))]
use without::{Attached, Stats};

/// Programs in the kernel, attached until this is dropped.
pub struct Probe {
    processes: Processes,
    ports: BTreeSet<u16>,
    namespace: u32,
    /// Connections whose owners were looked for.
    connections_seen: BTreeSet<String>,
    /// Programs by their connections, as long as it is not known which session's those are.
    clients: BTreeMap<Ends, u32>,
    sessions: Sessions,
    attached: Vec<Attached>,
    /// The kernel measures programs while this is held.
    stats: Result<Stats, Refusal>,
    began: Instant,
}

impl Probe {
    /// Asks all of these of an oriond, its workers and their clients on this machine.
    ///
    /// # Errors
    ///
    /// The first that cannot be asked, and why.
    pub fn attach(oriond: u32, questions: &[Question]) -> Result<Probe, Refusal> {
        let mut probe = Probe::of(oriond)?;
        questions.iter().try_for_each(|question| probe.ask(*question))?;
        Ok(probe)
    }

    /// Looks at an oriond, and asks nothing so far.
    ///
    /// # Errors
    ///
    /// There is none of this number.
    pub fn of(oriond: u32) -> Result<Probe, Refusal> {
        Processes::of(oriond).map(Probe::new).map_err(Refusal)
    }

    /// Looks at one program alone, such as a client whose oriond is on another machine.
    ///
    /// # Errors
    ///
    /// There is none of this number.
    pub fn of_program(pid: u32) -> Result<Probe, Refusal> {
        Processes::of_program(pid).map(Probe::new).map_err(Refusal)
    }

    fn new(processes: Processes) -> Probe {
        let ports = ports::listening(processes.subject);
        let namespace = ports::namespace(processes.subject).unwrap_or(0);
        let sessions = match processes.is_oriond && !ports.is_empty() {
            true => Sessions::of_oriond(processes.subject),
            false => Sessions::default(),
        };
        Probe {
            processes,
            ports,
            namespace,
            connections_seen: BTreeSet::new(),
            clients: BTreeMap::new(),
            sessions,
            attached: Vec::new(),
            stats: Stats::on(),
            began: Instant::now(),
        }
    }

    /// It is asked there whose a connection is: the path of `oriond serve --stats`.
    pub fn ask_at(&mut self, socket: PathBuf) {
        self.sessions.ask_at(socket);
    }

    /// Attaches what answers one more question.
    ///
    /// # Errors
    ///
    /// What is missing, and what to do about it; what is attached already stays.
    pub fn ask(&mut self, question: Question) -> Result<(), Refusal> {
        question.check()?;
        let usdt = match question {
            Question::Usdt => self.usdt()?,
            _ => Vec::new(),
        };
        let mut attached = Attached::load(question)?;
        attached.open_ports(self.namespace, &self.ports)?;
        self.attached.push(attached);
        // Before anything is attached, so that nothing is counted of others.
        let (exe, told) = (self.exe(), self.tell_all());
        let result = told.and_then(|()| self.attached.last_mut().expect("pushed above").attach(exe, &usdt));
        if result.is_err() {
            self.attached.pop();
        }
        result
    }

    fn exe(&self) -> std::path::PathBuf {
        format!("/proc/{}/exe", self.processes.subject).into()
    }

    fn usdt(&self) -> Result<Vec<usdt::Usdt>, Refusal> {
        let mut probes = usdt::probes(&self.exe()).map_err(Refusal)?;
        probes.truncate(crate::numbers::PROBES_MAX);
        match probes.is_empty() {
            true => Err(Refusal(format!(
                "usdt cannot be looked at: process {} has no probes of provider {:?}; `readelf -n` shows what a \
                 program has",
                self.processes.subject,
                usdt::PROVIDER
            ))),
            false => Ok(probes),
        }
    }

    /// Looks who is there now, and counts them from here on. To be called now and then while a probe is attached.
    ///
    /// # Errors
    ///
    /// What the kernel answers.
    pub fn follow(&mut self) -> Result<(), Refusal> {
        let sockets = Sockets::around(self.processes.subject);
        let clients = sockets.local_clients(self.processes.subject, &self.ports, &mut self.connections_seen);
        let pids: BTreeSet<u32> = clients.iter().map(|(_, pid)| *pid).collect();
        let changes = self.processes.look(&pids);
        self.clients.extend(clients);
        self.sessions.look(sockets.served(&self.ports));
        self.clients.retain(|ends, pid| {
            let of = self.sessions.of(*ends);
            of.iter().for_each(|of| self.processes.is_of(*pid, of.session));
            of.is_none() && self.processes.has(*pid)
        });
        self.attached.iter_mut().try_for_each(|attached| attached.tell(&changes))
    }

    fn tell_all(&mut self) -> Result<(), Refusal> {
        self.follow()?;
        let everybody = self.processes.everybody();
        self.attached.last_mut().expect("pushed before").tell(&everybody)
    }

    /// Whether whom this looks at has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.processes.is_over()
    }

    /// What was seen so far.
    ///
    /// # Errors
    ///
    /// What the kernel answers.
    pub fn read(&self) -> Result<Report, Refusal> {
        let mut report = Report {
            subject: self.processes.subject,
            seconds: self.began.elapsed().as_secs_f64(),
            left_out: self.processes.left_out.len() as u64,
            ..Report::default()
        };
        for (number, slot) in self.processes.slots.iter().enumerate() {
            report.threads.push(Threads {
                process: slot.process,
                name: slot.name.clone(),
                session: slot.session,
                role: slot.role,
                run_queue: self.times(Question::RunQueue, number)?,
                asleep: self.times(Question::OffCpu, number)?.map(Asleep),
            });
        }
        for attached in &self.attached {
            attached.read(&mut report)?;
        }
        self.read_connections(&mut report)?;
        match &self.stats {
            Ok(_) => report.cost_is_known = true,
            Err(why) => report.notes.push(format!("what the probes themselves cost is not known: {why}")),
        }
        Ok(report)
    }

    fn read_connections(&self, report: &mut Report) -> Result<(), Refusal> {
        let Some(attached) = self.attached.iter().find(|attached| attached.question == Question::Tcp) else {
            return Ok(());
        };
        (report.connections, report.sessions) = self.sessions.join(attached.connections()?);
        report.notes.extend(self.sessions.refusal());
        Ok(())
    }

    fn times(&self, question: Question, slot: usize) -> Result<Option<histogram::Times>, Refusal> {
        let Some(attached) = self.attached.iter().find(|attached| attached.question == question) else {
            return Ok(None);
        };
        attached.histogram(slot as u32).map(|counts| counts.map(|counts| counts.times()))
    }
}
