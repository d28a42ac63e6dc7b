//! The sessions that there are, as far as somebody may ask about them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use orion_telemetry::events::of_session;
use orion_telemetry::report::{self, Client, Memory, Report, SESSIONS_MAX, Session, VERSION, Vgpu};
use orion_telemetry::{Page, probe};
use orion_wire::agent::Gpu;
use orion_wire::lease::gpu_name;

use super::held::Held;
use super::system;
use super::utilization::Utilization;
use crate::engine::carrier::contract;
use crate::engine::peer::Source;
use crate::engine::time::arbiters::{Seats, Told};
use crate::meter::{Meter, Reading};

/// Characters of what a client says of itself: it becomes a label.
const PROGRAM_CHARS_MAX: usize = 64;

pub struct Directory {
    node: String,
    begun: Instant,
    sessions: Mutex<BTreeMap<u64, Arc<Watched>>>,
    /// The node's, once a worker has found them.
    gpus: OnceLock<Vec<Gpu>>,
    /// What the driver says of them, where somebody asks it.
    pub utilization: Utilization,
    is_software: bool,
}

/// A session, from when it has a worker.
pub struct Watched {
    pub source: Source,
    /// Where its program says it is from.
    pub from: String,
    pub program: String,
    pub pid: u32,
    /// The program's, by the system's word and as we see it; 0 for one elsewhere.
    pub local_pid: i32,
    pub transport: &'static str,
    pub tenant: Option<String>,
    pub lease: Option<String>,
    /// Percent of each GPU's time.
    pub ratio: Option<u32>,
    pub worker_pid: i32,
    pub begun: Instant,
    pub page: Page,
    pub meter: Arc<Meter>,
    /// Whether it has a limit on memory, and so a ledger.
    pub is_limited: bool,
    pub carried: OnceLock<Weak<dyn contract::Session>>,
    pub place: OnceLock<system::Place>,
    /// Where the time of its GPUs is divided.
    pub seats: Option<Seats>,
    /// Of each of its vGPUs, once they are known.
    pub vgpus: OnceLock<Vec<OnGpu>>,
}

/// Where a vGPU lies.
#[derive(Debug, Clone)]
pub struct OnGpu {
    pub gpu: u64,
    pub uuid: [u8; 16],
    /// Of its session on that GPU.
    pub seat: Option<usize>,
}

/// Whose sessions somebody sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sees {
    All,
    Of(Source),
}

impl Directory {
    pub fn new(utilization: Utilization, is_software: bool) -> Directory {
        Directory {
            node: system::host_name(),
            begun: Instant::now(),
            sessions: Mutex::default(),
            gpus: OnceLock::new(),
            utilization,
            is_software,
        }
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Watched>>> {
        self.sessions.lock().expect("nothing panics under this lock")
    }

    pub fn begins(&self, session: u64, watched: Watched) {
        probe::session_begin(session, watched.worker_pid as u64);
        if watched.is_limited {
            // It may have to be loaded, which takes longer than the worker does.
            self.utilization.look();
        }
        self.sessions().insert(session, Arc::new(watched));
    }

    /// An engine carries it.
    pub fn is_carried(&self, session: u64, by: Weak<dyn contract::Session>) {
        if let Some(watched) = self.sessions().get(&session) {
            let _ = watched.carried.set(by);
        }
    }

    pub fn has_gpus(&self, gpus: &[Gpu]) {
        self.gpus.get_or_init(|| gpus.to_vec());
    }

    /// Its worker has said on which GPUs its vGPUs lie.
    pub fn has_vgpus(&self, session: u64, vgpus: Vec<OnGpu>) {
        let Some(watched) = self.sessions().get(&session).map(Arc::clone) else { return };
        let gpus: Vec<String> = vgpus.iter().map(|on| gpu_name(&on.uuid)).collect();
        if watched.vgpus.set(vgpus).is_ok() && watched.is_limited {
            let meter = Arc::clone(&watched.meter);
            self.utilization.holds(session, Held::new(session, watched.worker_pid as u32, meter, &gpus));
        }
    }

    pub fn ends(&self, session: u64) {
        if self.sessions().remove(&session).is_some() {
            self.utilization.lets_go(session);
            probe::session_end(session);
        }
    }

    /// How busy a session keeps the GPUs of its vGPUs, as far as that is known now.
    pub fn busy_percents(&self, session: u64) -> Vec<Option<u32>> {
        let watched = self.sessions().get(&session).map(Arc::clone);
        watched.map_or_else(Vec::new, |watched| watched.busy_percents(&watched.meter.read(), &self.utilization))
    }

    /// Waits for what is measured when somebody asks.
    pub fn report(&self, sees: Sees) -> Report {
        self.utilization.wait();
        // Read without the lock, for an engine may want it.
        let is_seen = |watched: &Watched| sees == Sees::All || sees == Sees::Of(watched.source);
        let mut seen: Vec<(u64, Arc<Watched>)> =
            self.sessions().iter().filter(|(_, w)| is_seen(w)).map(|(n, w)| (*n, Arc::clone(w))).collect();
        let left_out = seen.len().saturating_sub(SESSIONS_MAX) as u64;
        seen.truncate(SESSIONS_MAX);
        let report =
            |(number, watched): (u64, Arc<Watched>)| watched.report(number, &self.utilization, self.is_software);
        let sessions: Vec<Session> = seen.into_iter().map(report).collect();
        Report {
            version: VERSION,
            node: self.node.clone(),
            unix_ms: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64),
            monotonic_ns: self.begun.elapsed().as_nanos() as u64,
            gpus: self.report_gpus(sees, &sessions),
            sessions,
            left_out,
        }
    }

    /// Who sees all is told of a GPU what the driver says of the whole, and others what is known of their own. The
    /// software GPU has no work, and memory in use, but that of sessions.
    fn report_gpus(&self, sees: Sees, sessions: &[Session]) -> Vec<report::Gpu> {
        let all = self.gpus.get().map_or(&[][..], Vec::as_slice);
        let gpu = |(number, gpu): (u64, &Gpu)| {
            let uuid = gpu_name(&gpu.uuid);
            let whole = self.utilization.gpu(&uuid).filter(|_| sees == Sees::All).unwrap_or_default();
            let uses = sessions.iter().flat_map(|session| session.vgpus.iter().zip(&session.memory));
            let uses: Vec<u64> = uses.filter(|(vgpu, _)| vgpu.gpu == number).map(|(_, memory)| memory.used).collect();
            let is_told = self.is_software || sees != Sees::All || !uses.is_empty();
            report::Gpu {
                gpu: number,
                uuid,
                name: gpu.name.clone(),
                memory_bytes: gpu.memory_bytes,
                busy_percent: whole
                    .busy_percent
                    .or_else(|| report::busy_percent_of(number, sessions).filter(|_| is_told)),
                memory_busy_percent: whole.memory_busy_percent,
                used_bytes: whole
                    .used_bytes
                    .or_else(|| self.is_software.then(|| uses.into_iter().fold(0, u64::saturating_add))),
            }
        };
        (0..).zip(all).map(gpu).collect()
    }
}

impl Watched {
    fn report(&self, number: u64, utilization: &Utilization, is_software: bool) -> Session {
        let metered = self.meter.read();
        let used = self.used(&metered, utilization);
        let place = self.place.get_or_init(|| system::place(self.local_pid));
        let carried = self.carried.get().and_then(Weak::upgrade);
        let mut session = Session {
            session: number,
            client: Client {
                program: self.program.chars().take(PROGRAM_CHARS_MAX).collect(),
                pid: self.pid,
                from: self.from.clone(),
                container: place.container.clone(),
                pod: place.pod.clone(),
            },
            transport: self.transport.to_owned(),
            tenant: self.tenant.clone(),
            lease: self.lease.clone(),
            age_ms: self.begun.elapsed().as_millis() as u64,
            worker_pid: self.worker_pid,
            entitled_percent: self.ratio,
            memory: metered.iter().zip(used).map(|(r, used)| Memory { used, limit: r.total }).collect(),
            cores: system::cores(self.worker_pid),
            wire: carried.as_ref().and_then(|carried| carried.wire()),
            connections: carried.map_or_else(Vec::new, |carried| carried.connections()),
            ..Session::default()
        };
        session.has(&self.page.read());
        let vgpus = self.vgpus.get().map_or(&[][..], Vec::as_slice);
        let busy = self.busy_percents(&metered, utilization);
        session.vgpus = vgpus.iter().zip(busy).map(|(on, busy_percent)| Vgpu { gpu: on.gpu, busy_percent }).collect();
        self.tell_of_time(&mut session);
        self.tell_of_drift(number, &mut session, utilization, is_software);
        session
    }

    /// What a ledger counts; where there is none, what the driver says of the worker's process; else what the worker
    /// has said of the whole GPU.
    fn used(&self, metered: &[Reading], utilization: &Utilization) -> Vec<u64> {
        let vgpus = self.vgpus.get().map_or(&[][..], Vec::as_slice);
        let of_process = |vgpu: usize| {
            let on = vgpus.get(vgpu).filter(|_| !self.is_limited)?;
            utilization.memory_of(&gpu_name(&on.uuid), self.worker_pid as u32)
        };
        metered.iter().enumerate().map(|(vgpu, reading)| of_process(vgpu).unwrap_or(reading.used)).collect()
    }

    /// The software GPU's worker compares by itself, and with another driver oriond does. What nobody compares is not
    /// told.
    fn tell_of_drift(&self, number: u64, session: &mut Session, utilization: &Utilization, is_software: bool) {
        if self.is_limited && is_software {
            return;
        }
        let drifts = utilization.drifts(number);
        let words = [
            (of_session::MEMORY_DRIFTS, drifts.map(|its| its.drifts)),
            (of_session::MEMORY_LACKING, drifts.map(|its| its.lacking_bytes)),
        ];
        for (event, word) in words {
            match word {
                Some(word) => session.counters.insert(event.name.to_owned(), word),
                None => session.counters.remove(event.name),
            };
        }
    }

    /// What an arbiter counts where it divides a GPU's time; else what the driver says of the worker's process; else
    /// what the worker says, whose GPU is a software one.
    fn busy_percents(&self, metered: &[Reading], utilization: &Utilization) -> Vec<Option<u32>> {
        // Its worker has said how many there are a moment before it says where.
        let vgpus = self.vgpus.get().map_or(&[][..], Vec::as_slice);
        let busy = |vgpu: usize| {
            let (on, reading) = (vgpus.get(vgpu), metered.get(vgpu));
            let counted = || Some(self.told(on?.seat)?.busy_percent.load(Ordering::Relaxed));
            let measured = || utilization.of(&gpu_name(&on?.uuid), self.worker_pid as u32);
            counted().or_else(measured).or_else(|| reading?.busy_percent)
        };
        (0..vgpus.len().max(metered.len())).map(busy).collect()
    }

    fn told(&self, seat: Option<usize>) -> Option<&Told> {
        Some(&self.seats.as_ref()?.told[seat?])
    }

    /// What the arbiters count, and nobody else: what the session's own page says of it is its worker's word.
    fn tell_of_time(&self, session: &mut Session) {
        let vgpus = self.vgpus.get().map_or(&[][..], Vec::as_slice);
        // Several vGPUs on one GPU have one seat there.
        let seats: BTreeSet<Option<usize>> = vgpus.iter().map(|on| on.seat).collect();
        let words = [
            (of_session::GPU_TIME, (|seat| &seat.used_ns) as fn(&Told) -> &AtomicU64),
            (of_session::LEASES, |seat| &seat.leases),
            (of_session::LEASE_OVERRUN, |seat| &seat.overrun_ns),
        ];
        for (event, of) in words {
            let told = seats.iter().filter_map(|seat| self.told(*seat)).map(|seat| of(seat).load(Ordering::Relaxed));
            let sum = told.reduce(u64::saturating_add);
            session.is_divided |= sum.is_some();
            session.counters.insert(event.name.to_owned(), sum.unwrap_or(0));
        }
    }
}

#[cfg(test)]
pub mod tests {
    use orion_arbiter::Ledger;
    use orion_telemetry::OwnPage;

    use super::*;
    use crate::engine::time::policy::Shares;

    pub fn watched(source: Source) -> Watched {
        Watched {
            source,
            from: "uid 7".into(),
            program: "train.py".into(),
            pid: 4711,
            local_pid: 0,
            transport: "a carrier",
            tenant: Some("team".into()),
            lease: None,
            ratio: Some(50),
            worker_pid: std::process::id() as i32,
            begun: Instant::now(),
            page: Page::create().expect("a page"),
            meter: Arc::new(Meter::create().expect("a page")),
            is_limited: false,
            carried: OnceLock::new(),
            place: OnceLock::new(),
            seats: None,
            vgpus: OnceLock::new(),
        }
    }

    /// A vGPU on a GPU.
    pub fn on(gpu: u64, seat: Option<usize>) -> OnGpu {
        OnGpu { gpu, uuid: [gpu as u8; 16], seat }
    }

    #[test]
    fn what_nobody_measures_is_not_told_and_two_vgpus_of_one_gpu_have_one_seat() {
        let directory = Directory::new(Utilization::default(), true);
        directory.begins(1, watched(Source::User(7)));
        let lies = OwnPage::map(directory.sessions()[&1].page.fd()).expect("the worker's end");
        lies.set(of_session::LEASES, 7);
        directory.has_vgpus(1, vec![on(3, None)]);
        let session = directory.report(Sees::All).sessions.remove(0);
        assert_eq!(session.vgpus, [Vgpu { gpu: 3, busy_percent: None }]);
        assert!(!session.gpu_time_is_known());
        let seats = Seats::create(Shares::Each(50)).expect("a page");
        seats.told[0].used_ns.store(700, Ordering::Relaxed);
        seats.told[0].busy_percent.store(41, Ordering::Relaxed);
        // The worker's to write, whoever has it.
        let lies = Ledger { used_ns: 3, leases: u64::MAX, ..Ledger::default() };
        seats.page.seat(0).show_ledger(&lies);
        directory.begins(2, Watched { seats: Some(seats), ..watched(Source::User(7)) });
        directory.has_vgpus(2, vec![on(3, Some(0)), on(3, Some(0))]);
        let session = directory.report(Sees::All).sessions.remove(1);
        assert_eq!(session.vgpus, [Vgpu { gpu: 3, busy_percent: Some(41) }; 2]);
        assert!(session.gpu_time_is_known());
        assert_eq!((session.counter(of_session::GPU_TIME), session.counter(of_session::LEASES)), (700, 0));
    }

    #[test]
    fn drift_is_told_of_sessions_that_somebody_compares() {
        let told = |is_software: bool, is_limited: bool| {
            let directory = Directory::new(Utilization::default(), is_software);
            directory.begins(1, Watched { is_limited, ..watched(Source::User(7)) });
            let page = OwnPage::map(directory.sessions()[&1].page.fd()).expect("the worker's end");
            page.set(of_session::MEMORY_DRIFTS, 2);
            page.set(of_session::MEMORY_LACKING, 9);
            directory.has_vgpus(1, vec![on(3, None)]);
            let session = directory.report(Sees::All).sessions.remove(0);
            [of_session::MEMORY_DRIFTS, of_session::MEMORY_LACKING].map(|event| session.told(event))
        };
        assert_eq!(told(true, true), [Some(2), Some(9)]);
        assert_eq!([told(true, false), told(false, true), told(false, false)], [[None; 2]; 3]);
    }

    #[test]
    fn everybody_sees_his_own_sessions_and_its_owner_all() {
        let directory = Directory::new(Utilization::default(), true);
        directory.begins(1, watched(Source::User(7)));
        directory.begins(2, watched(Source::User(8)));
        directory.begins(3, watched(Source::V4([10, 0, 0, 7])));
        let seen = |sees| directory.report(sees).sessions.iter().map(|s| s.session).collect::<Vec<_>>();
        assert_eq!(seen(Sees::All), [1, 2, 3]);
        assert_eq!(seen(Sees::Of(Source::User(8))), [2]);
        assert!(seen(Sees::Of(Source::User(9))).is_empty());
        directory.ends(2);
        assert_eq!(seen(Sees::All), [1, 3]);
        let report = directory.report(Sees::All);
        let session = &report.sessions[0];
        assert_eq!((session.client.pid, session.entitled_percent), (4711, Some(50)));
        assert!(session.cores.expect("this process").run_ns > 0);
    }
}
