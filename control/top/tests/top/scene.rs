//! An oriond, programs of its, and what `orion-top` says of them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Nothing here takes so long unless something is broken.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The folder of the programs, built as this test is.
pub fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        orion_built::packages(&["oriond", "orion-shim", "orion-controller", "orion-agent", "orion-ctl"]);
        orion_built::build(&["-p", "orion-top", "--example", "load"])
    })
}

/// Times are what is tested here, so these tests have the machine one after the other.
static ALONE: Mutex<()> = Mutex::new(());

pub struct Scene {
    oriond: Child,
    pub folder: PathBuf,
    programs: Vec<Child>,
    _alone: MutexGuard<'static, ()>,
}

impl Scene {
    pub fn begin(options: &[&str]) -> Scene {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("orion-top-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the test's folder");
        std::os::unix::fs::symlink(built().join("libcuda.so"), folder.join("libcuda.so.1")).expect("a link");
        let oriond = Command::new(built().join("oriond"))
            .args(["serve", "--heap", "1 GiB", "--warm", "1", "--socket"])
            .arg(folder.join("oriond.sock"))
            .args(options)
            .stderr(std::fs::File::create(folder.join("log")).expect("a log"))
            .spawn()
            .expect("oriond starts");
        let scene = Scene { oriond, folder, programs: Vec::new(), _alone: alone };
        scene.until("oriond serves", || scene.log().contains("serving addresses"));
        scene
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    pub fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < PATIENCE, "waited in vain until {what}; oriond says:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts a program that does this, over the local socket or at an address.
    pub fn run(&mut self, what: &str, server: Option<&str>) {
        let local = format!("unix:{}", self.folder.join("oriond.sock").display());
        self.run_with(what, "ORION_SERVER", server.unwrap_or(&local));
    }

    /// Likewise, by a lease of this controller's.
    pub fn run_leased(&mut self, what: &str, controller: &str) {
        self.run_with(what, "ORION_CONTROLLER", controller);
    }

    fn run_with(&mut self, what: &str, name: &str, value: &str) {
        // Over a network in the clear, as oriond was told there.
        let insecure = if value.starts_with("tcp:") { "1" } else { "0" };
        let mut program = Command::new(built().join("examples/load"))
            .arg(what)
            .env("ORION_INSECURE", insecure)
            .env("LD_LIBRARY_PATH", &self.folder)
            .env("HOME", &self.folder)
            .env(name, value)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the load starts");
        let mut line = String::new();
        let said = program.stdout.take().expect("it is piped");
        BufReader::new(said).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n", "{what}; oriond says:\n{}", self.log());
        self.programs.push(program);
    }

    /// Of the program that was started last.
    pub fn pid(&self) -> u32 {
        self.programs.last().expect("one was started").id()
    }

    pub fn stats(&self) -> PathBuf {
        self.folder.join("oriond.stats.sock")
    }

    pub fn top(&self, arguments: &[&str]) -> Output {
        let mut top = Command::new(env!("CARGO_BIN_EXE_orion-top"));
        top.arg("--stats").arg(self.stats()).args(arguments).output().expect("it starts")
    }

    /// The first session, as `--json` has it.
    pub fn session(&self) -> Value {
        let output = self.top(&["--once", "--json", "--sort", "session"]);
        assert!(output.status.success(), "{output:?}");
        let view: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        view["sessions"][0].clone()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for child in self.programs.iter_mut().chain([&mut self.oriond]) {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
