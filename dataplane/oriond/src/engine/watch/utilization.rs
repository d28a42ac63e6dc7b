//! How busy processes keep GPUs, and what they have of their memory, of a driver that knows: a thread asks NVIDIA's
//! library for management while somebody looks, and nobody else waits for that library. A GPU that hangs holds up this
//! thread alone. While there are sessions with a limit it looks once a second, and holds their ledgers against what
//! is said.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::held::{Counted, Drifts, Held, Line};
use super::nvml::{Gpu, Nvml};

/// What was measured before is not of now.
const FRESH: Duration = Duration::from_millis(400);
/// Who looks waits no longer. The first look of all takes longest, for NVML looks for its GPUs then.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// Older numbers are not told any more.
const KEPT: Duration = Duration::from_secs(3);
/// When nobody has looked for so long NVML is closed.
const IDLE: Duration = Duration::from_secs(60);
/// And when it does not work it is tried again after this.
const RETRY: Duration = Duration::from_secs(60);
/// Between two looks at sessions with a limit.
const HELD_INTERVAL: Duration = Duration::from_secs(1);

/// Nobody measures where there is nothing in it.
#[derive(Clone, Default)]
pub struct Utilization(Option<Arc<Shared>>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Since when somebody wants to know.
    asked: Option<Instant>,
    /// Until when nobody has to ask again.
    fresh_until: Option<Instant>,
    measured: Option<(Instant, BTreeMap<String, Gpu>)>,
    /// Sessions whose ledgers are held against what NVML says, by number, and when that is due.
    held: BTreeMap<u64, Held>,
    due: Instant,
    /// NVML did not work the last time.
    is_broken: bool,
    has_told_of_unseen: bool,
}

impl Default for State {
    fn default() -> State {
        State {
            asked: None,
            fresh_until: None,
            measured: None,
            held: BTreeMap::new(),
            due: Instant::now(),
            is_broken: false,
            has_told_of_unseen: false,
        }
    }
}

/// What a look has come to.
struct Outcome {
    /// Somebody had asked for it.
    was_asked: bool,
    lines: Vec<Line>,
    /// A session whose process NVML does not know, the first time that there is one.
    unseen: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wake {
    Look,
    /// Nobody has looked for [`IDLE`].
    Idle,
}

impl Utilization {
    /// Starts the thread, which sleeps until somebody looks. `tell` is called after each time that it has looked.
    pub fn start(library: PathBuf, tell: impl Fn() + Send + 'static) -> std::io::Result<Utilization> {
        let shared = Arc::new(Shared::default());
        let its = Arc::clone(&shared);
        let run = move || measure(&its, &library, tell);
        std::thread::Builder::new().name("utilization".into()).spawn(run)?;
        Ok(Utilization(Some(shared)))
    }

    /// Has the thread look, and answers whether nobody needs to wait for it: what is known is of now, or it was asked
    /// long ago.
    pub fn look(&self) -> bool {
        self.0.as_ref().is_none_or(|shared| shared.ask(&mut shared.lock()).is_none())
    }

    /// As [`Self::look`], and waits. For threads that may.
    pub fn wait(&self) {
        let Some(shared) = &self.0 else { return };
        let mut state = shared.lock();
        while let Some(left) = shared.ask(&mut state) {
            state = shared.changed.wait_timeout(state, left).expect("as in `lock`").0;
        }
    }

    /// For what part of the last second a GPU worked for this process, where that is known.
    pub fn of(&self, gpu: &str, pid: u32) -> Option<u32> {
        let gpu = self.gpu(gpu)?;
        // One that worked for nobody did not for this process, which NVML may not see.
        gpu.processes.get(&pid).copied().or(gpu.busy_percent.filter(|percent| *percent == 0))
    }

    /// Bytes of a GPU's memory that the driver has given this process, its contexts included.
    pub fn memory_of(&self, gpu: &str, pid: u32) -> Option<u64> {
        self.gpu(gpu)?.memory.get(&pid).copied()
    }

    /// From now on a session's ledger is held against what NVML says, which is asked at once: what its worker had
    /// before is not the session's.
    pub fn holds(&self, session: u64, held: Held) {
        let Some(shared) = &self.0 else { return };
        let mut state = shared.lock();
        state.held.insert(session, held);
        if !state.is_broken {
            state.due = Instant::now();
        }
        shared.changed.notify_all();
    }

    /// It is over.
    pub fn lets_go(&self, session: u64) {
        self.0.as_ref().inspect(|shared| _ = shared.lock().held.remove(&session));
    }

    /// How a session's ledger compares, if it was compared lately.
    pub fn drifts(&self, session: u64) -> Option<Drifts> {
        let state = self.0.as_ref()?.lock();
        state.measured.as_ref().filter(|(at, _)| at.elapsed() < KEPT)?;
        state.held.get(&session)?.drifts()
    }

    pub fn gpu(&self, uuid: &str) -> Option<Gpu> {
        let state = self.0.as_ref()?.lock();
        let (_, gpus) = state.measured.as_ref().filter(|(at, _)| at.elapsed() < KEPT)?;
        gpus.get(uuid).cloned()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics under this lock")
    }

    /// How long somebody who has just asked may wait.
    fn ask(&self, state: &mut State) -> Option<Duration> {
        let now = Instant::now();
        if state.fresh_until.is_some_and(|until| now < until) {
            return None;
        }
        let asked = *state.asked.get_or_insert_with(|| {
            self.changed.notify_all();
            now
        });
        PATIENCE.checked_sub(now - asked).filter(|left| !left.is_zero())
    }

    /// Until somebody asks, or ledgers are due.
    fn wait(&self) -> Wake {
        let idle_at = Instant::now() + IDLE;
        let mut state = self.lock();
        while state.asked.is_none() {
            let (until, wake) = if state.held.is_empty() { (idle_at, Wake::Idle) } else { (state.due, Wake::Look) };
            let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) else {
                return wake;
            };
            state = self.changed.wait_timeout(state, left).expect("nothing panics under this lock").0;
        }
        Wake::Look
    }

    /// What ledgers count, ahead of a look.
    fn counted(&self) -> BTreeMap<u64, Counted> {
        let mut state = self.lock();
        state.due = Instant::now() + HELD_INTERVAL;
        state.held.iter().map(|(session, held)| (*session, held.counted())).collect()
    }

    fn told(&self, gpus: BTreeMap<String, Gpu>, counted: &BTreeMap<u64, Counted>) -> Outcome {
        let (mut state, now) = (self.lock(), Instant::now());
        // Whoever has begun meanwhile is next.
        let its = state.held.iter_mut().filter_map(|(session, held)| Some((held, counted.get(session)?)));
        let lines = its.flat_map(|(held, counted)| held.look(counted, &gpus, now)).collect();
        let unseen = state.held.iter().find(|(_, held)| held.is_unseen()).map(|(session, _)| *session);
        let is_news = unseen.is_some() && !std::mem::replace(&mut state.has_told_of_unseen, unseen.is_some());
        let was_asked = state.asked.take().is_some();
        (state.fresh_until, state.measured, state.is_broken) = (Some(now + FRESH), Some((now, gpus)), false);
        self.changed.notify_all();
        Outcome { was_asked, lines, unseen: unseen.filter(|_| is_news) }
    }

    /// NVML does not work. Answers whether somebody had asked.
    fn is_broken(&self) -> bool {
        let (mut state, now) = (self.lock(), Instant::now());
        let was_asked = state.asked.take().is_some();
        (state.fresh_until, state.measured) = (Some(now + RETRY), Some((now, BTreeMap::new())));
        (state.due, state.is_broken) = (now + RETRY, true);
        self.changed.notify_all();
        was_asked
    }
}

fn measure(shared: &Shared, library: &Path, tell: impl Fn()) {
    let mut nvml: Option<Nvml> = None;
    let (mut has_complained, mut has_told) = (false, false);
    loop {
        if shared.wait() == Wake::Idle {
            nvml = None;
            continue;
        }
        if nvml.is_none() {
            match Nvml::open(library) {
                Ok(opened) => nvml = Some(opened),
                Err(why) if !std::mem::replace(&mut has_complained, true) => warn!(
                    why,
                    "how busy GPUs are is not known where their time is not divided, and ledgers of sessions with a \
                     limit on memory are not held against what the driver says; see --nvml"
                ),
                Err(_) => {}
            }
        }
        let was_asked = match &nvml {
            Some(nvml) => {
                let counted = shared.counted();
                let outcome = shared.told(nvml.look(), &counted);
                if !std::mem::replace(&mut has_told, true) {
                    info!(
                        library = %library.display(),
                        "asking NVML how busy GPUs are, while somebody looks, and once a second what workers of \
                         sessions with a limit have, while there are any"
                    );
                }
                outcome.say()
            }
            None => shared.is_broken(),
        };
        if was_asked {
            tell();
        }
    }
}

impl Outcome {
    fn say(self) -> bool {
        for Line { session, gpu, driver_bytes, before_bytes, ledger_bytes, lacks_bytes, drifts } in self.lines {
            warn!(
                session,
                gpu,
                driver_bytes,
                before_bytes,
                ledger_bytes,
                lacks_bytes,
                drifts,
                "the driver has given a session's worker more memory than its ledger counts"
            );
        }
        if let Some(session) = self.unseen {
            info!(
                session,
                "NVML does not say what memory the worker's process has (it is in another pid namespace, say): ledgers \
                 of such sessions are not held against what the driver says, and of sessions without a limit the \
                 memory that all use of a GPU is told"
            );
        }
        self.was_asked
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::meter::Meter;

    const GPU: &str = "GPU-01020304-0506-0708-090a-0b0c0d0e0f10";

    /// A library of this test's, and what it says.
    struct Fake {
        folder: PathBuf,
    }

    impl Fake {
        fn new(name: &str, options: &[&str]) -> Fake {
            let folder = std::env::temp_dir().join(format!("orion-nvml-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).expect("the test's folder");
            let fake = Fake { folder };
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/nvml/fake_nvml.c");
            let mut cc = Command::new("cc");
            cc.args(["-shared", "-fPIC", "-o"]).arg(fake.library()).arg(source).args(options);
            let made = cc.output().expect("there is a C compiler");
            assert!(made.status.success(), "{made:?}");
            fake
        }

        fn library(&self) -> PathBuf {
            self.folder.join("libnvidia-ml.so.1")
        }

        /// In one step, for it may be read at any time.
        fn says(&self, text: &str) {
            let new = self.folder.join("new");
            std::fs::write(&new, text).expect("writing");
            std::fs::rename(new, self.folder.join("libnvidia-ml.so.1.says")).expect("renaming");
        }

        fn start(&self) -> Utilization {
            Utilization::start(self.library(), || ()).expect("a thread")
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    /// What is known a moment later is of the moment before.
    fn until(utilization: &Utilization, what: &str, is_so: impl Fn() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_secs(20), "{what}");
            utilization.wait();
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_nvml_says_of_a_process_is_known_and_what_it_does_not_say_is_not() {
        let fake = Fake::new("says", &[]);
        fake.says(&format!("gpu {GPU} 60 7 4096\nprocess 10\nprocess 11\nsample 10 22\nsample 10 55\nsample 12 300\n"));
        let utilization = fake.start();
        let of = |pid| utilization.of(GPU, pid);
        assert_eq!(of(10), None, "nobody has looked");
        utilization.wait();
        // Two samples, the newer one counts; none; not listed; a number that is none.
        assert_eq!([10, 11, 13, 12].map(of), [Some(55), Some(0), None, None]);
        assert_eq!(utilization.of("GPU-of-another-machine", 10), None);
        let gpu = utilization.gpu(GPU).expect("it is there");
        assert_eq!((gpu.busy_percent, gpu.memory_busy_percent, gpu.used_bytes), (Some(60), Some(7), Some(4096)));
        // Who is not seen from here, in another pid namespace say, has no part of a GPU that does nothing.
        fake.says(&format!("gpu {GPU} 0 0 4096\n"));
        until(&utilization, "an idle GPU works for nobody", || of(13) == Some(0));
        // Without parts of processes one that is alone has all of it, and of two nobody knows.
        fake.says(&format!("gpu {GPU} 60 0 4096\nsamples 3\nprocess 10\nprocess 11\n"));
        until(&utilization, "two, and no parts", || of(10).is_none() && of(11).is_none());
        fake.says(&format!("gpu {GPU} 60 0 4096\nsamples 3\nprocess 10\n"));
        until(&utilization, "one, and no parts", || of(10) == Some(60));
        // More than there is room for at first.
        let many: String = (1000..2000).map(|pid| format!("process {pid}\nsample {pid} 1\n")).collect();
        fake.says(&format!("gpu {GPU} 60 0 4096\n{many}"));
        until(&utilization, "many processes", || of(1000) == Some(1) && of(1999) == Some(1));
        // Bytes of memory, where they are said; one that is listed for two parts of a GPU has both.
        fake.says(&format!("gpu {GPU} 60 0 4096\nprocess 10 700\nprocess 11\nprocess 12 1\nprocess 12 2\n"));
        let memory_of = |pid| utilization.memory_of(GPU, pid);
        until(&utilization, "bytes of processes", || memory_of(10) == Some(700));
        assert_eq!([11, 12, 13].map(memory_of), [None, Some(3), None]);
        // The GPU is gone.
        fake.says("");
        until(&utilization, "no GPU", || of(11).is_none());
    }

    #[test]
    fn nobody_waits_for_a_library_that_hangs_for_long_or_twice() {
        let fake = Fake::new("hangs", &[]);
        fake.says("stuck\n");
        let utilization = fake.start();
        let began = Instant::now();
        assert!(!utilization.look(), "it is being asked");
        utilization.wait();
        assert!(began.elapsed() >= PATIENCE);
        assert!(utilization.look() && utilization.of(GPU, 1).is_none());
    }

    #[test]
    fn a_library_that_is_not_there_or_does_not_work_or_is_orions_own_says_nothing() {
        let [broken, ours] = [Fake::new("broken", &[]), Fake::new("ours", &["-DOURS"])];
        broken.says("init 9\n");
        ours.says(&format!("gpu {GPU} 60 0 0\nprocess 1\n"));
        let said = |library: &Path| Nvml::open(library).map(drop).expect_err("it cannot be used");
        assert!(said(&broken.library()).contains("answers 9 (Driver Not Loaded)"), "{}", said(&broken.library()));
        assert!(said(&ours.library()).contains("Orion's own"), "{}", said(&ours.library()));
        let missing = broken.folder.join("missing");
        assert!(said(&missing).contains("missing"), "{}", said(&missing));
        for library in [broken.library(), ours.library(), missing] {
            let utilization = Utilization::start(library, || ()).expect("a thread");
            utilization.wait();
            assert_eq!((utilization.of(GPU, 1), utilization.look()), (None, true));
        }
    }

    fn held(number: u64, pid: u32) -> (Arc<Meter>, Held) {
        let meter = Arc::new(Meter::create().expect("a page"));
        meter.begin(&[u64::MAX]);
        (Arc::clone(&meter), Held::new(number, pid, meter, &[GPU.to_owned()]))
    }

    /// Nobody asks: the thread looks by itself.
    fn by_itself(what: &str, is_so: impl Fn() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_secs(20), "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn ledgers_of_sessions_with_a_limit_are_compared_once_a_second_though_nobody_asks() {
        let fake = Fake::new("held", &[]);
        let says = |bytes: u64| fake.says(&format!("gpu {GPU} 60 7 4096\nprocess 10 {bytes}\nprocess 11\n"));
        says(500 << 20);
        let utilization = fake.start();
        let drifts = |session| utilization.drifts(session);
        let ((meter, of_10), (_, of_11)) = (held(1, 10), held(2, 11));
        utilization.holds(1, of_10);
        utilization.holds(2, of_11);
        let no_drift = Some(Drifts { drifts: 0, lacking_bytes: 0 });
        by_itself("it is compared", || drifts(1) == no_drift);
        meter.uses(0, 1 << 30);
        says((1 << 30) + (800 << 20));
        let drift = Some(Drifts { drifts: 1, lacking_bytes: 300 << 20 });
        by_itself("300 MiB are lacking", || drifts(1) == drift);
        assert_eq!((drifts(2), drifts(3)), (None, None), "NVML does not say what it has, and there is no such session");
        // A library that hangs: what was compared is soon not of now, and nobody waits.
        fake.says("stuck\n");
        by_itself("it is not compared any more", || drifts(1).is_none());
        utilization.lets_go(1);
        utilization.holds(4, held(4, 10).1);
        assert_eq!((drifts(1), drifts(4)), (None, None));
    }

    #[test]
    fn a_session_that_begins_is_looked_at_at_once_and_then_once_a_second() {
        let shared = Arc::new(Shared::default());
        let looks_soon = |shared: &Shared| shared.lock().held.is_empty() || Instant::now() >= shared.lock().due;
        let utilization = Utilization(Some(Arc::clone(&shared)));
        utilization.holds(1, held(1, 10).1);
        assert!(looks_soon(&shared), "what it had before is asked at once");
        assert_eq!(shared.wait(), Wake::Look);
        assert_eq!(shared.counted().len(), 1);
        let outcome = shared.told(BTreeMap::new(), &BTreeMap::new());
        assert!(!outcome.was_asked && outcome.lines.is_empty() && outcome.unseen.is_none());
        assert!(!looks_soon(&shared), "in a second");
        // One that begins meanwhile is not kept waiting, but where NVML does not work.
        utilization.holds(2, held(2, 10).1);
        assert!(looks_soon(&shared));
        assert!(!shared.is_broken());
        utilization.holds(3, held(3, 10).1);
        assert!(!looks_soon(&shared));
        (1..=3).for_each(|session| utilization.lets_go(session));
        assert!(shared.lock().held.is_empty());
    }

    #[test]
    fn that_nvml_does_not_know_a_worker_is_said_once() {
        let utilization = Utilization(Some(Arc::default()));
        let shared = utilization.0.as_ref().expect("it is there");
        utilization.holds(1, held(1, 10).1);
        utilization.holds(2, held(2, 10).1);
        let said: Vec<_> = (0..9).map(|_| shared.told(BTreeMap::new(), &shared.counted()).unseen).collect();
        assert_eq!(said.iter().flatten().collect::<Vec<_>>(), [&1]);
    }
}
