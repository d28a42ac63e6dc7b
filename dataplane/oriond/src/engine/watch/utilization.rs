//! How busy processes keep GPUs, of a driver that knows: a thread asks NVIDIA's library for management while somebody
//! looks, and nobody else waits for that library. A GPU that hangs holds up this thread alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tracing::{info, warn};

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

/// Nobody measures where there is nothing in it.
#[derive(Clone, Default)]
pub struct Utilization(Option<Arc<Shared>>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Since when somebody wants to know.
    asked: Option<Instant>,
    /// Until when nobody has to ask again.
    fresh_until: Option<Instant>,
    measured: Option<(Instant, BTreeMap<String, Gpu>)>,
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

    /// Until somebody asks; false after [`IDLE`].
    fn is_asked(&self) -> bool {
        let waits = |state: &mut State| state.asked.is_none();
        let (_state, time) =
            self.changed.wait_timeout_while(self.lock(), IDLE, waits).expect("nothing panics under this lock");
        !time.timed_out()
    }

    fn told(&self, gpus: BTreeMap<String, Gpu>, stays: Duration) {
        let (mut state, now) = (self.lock(), Instant::now());
        *state = State { asked: None, fresh_until: Some(now + stays), measured: Some((now, gpus)) };
        self.changed.notify_all();
    }
}

fn measure(shared: &Shared, library: &Path, tell: impl Fn()) {
    let mut nvml: Option<Nvml> = None;
    let (mut has_complained, mut has_told) = (false, false);
    loop {
        if !shared.is_asked() {
            nvml = None;
            continue;
        }
        if nvml.is_none() {
            match Nvml::open(library) {
                Ok(opened) => nvml = Some(opened),
                Err(why) if !std::mem::replace(&mut has_complained, true) => {
                    warn!(why, "how busy GPUs are is not known where their time is not divided; see --nvml");
                }
                Err(_) => {}
            }
        }
        match &nvml {
            Some(nvml) => {
                shared.told(nvml.look(), FRESH);
                if !std::mem::replace(&mut has_told, true) {
                    info!(library = %library.display(), "asking NVML how busy GPUs are, while somebody looks");
                }
            }
            None => shared.told(BTreeMap::new(), RETRY),
        }
        tell();
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

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
        // The GPU is gone.
        fake.says("");
        until(&utilization, "no GPU", || of(1000).is_none());
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
}
