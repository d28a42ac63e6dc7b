//! Each cause is produced, and named.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::Value;

use crate::link::Link;
use crate::scene::{PATIENCE, Scene};

/// Causes and their parts of the time, the largest first.
fn causes(session: &Value) -> Vec<(String, f64)> {
    let interval = session["why"]["interval_ns"].as_f64().expect("a number");
    let causes = session["why"]["causes"].as_array().expect("a list").iter();
    causes.map(|c| (c[0].as_str().expect("a name").to_owned(), c[1].as_f64().expect("ns") / interval)).collect()
}

/// Looks until the first cause is this one, and it is a good part of the time. Who shares this machine with other tests
/// waits for cores too, so that may be named before it, unless it is what is looked for.
fn is_named(scene: &Scene, wanted: &str) {
    let start = Instant::now();
    loop {
        let session = scene.session();
        let mut causes = causes(&session);
        if wanted != "run_queue" {
            causes.retain(|(cause, _)| cause != "run_queue");
        }
        if causes.first().is_some_and(|(cause, part)| cause == wanted && *part > 0.1) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{wanted} is not named: {session:#}");
    }
}

#[test]
fn kernels_that_take_long_are_the_gpu() {
    let mut scene = Scene::begin(&[]);
    scene.run("gpu", None);
    is_named(&scene, "gpu");
}

#[test]
fn copying_is_copies() {
    let mut scene = Scene::begin(&[]);
    scene.run("copies", None);
    is_named(&scene, "copies");
}

#[test]
fn posting_more_than_is_executed_fills_the_ring() {
    let mut scene = Scene::begin(&[]);
    scene.run("floods", None);
    is_named(&scene, "ring_full");
}

/// A thread that has given the GPU all that its queue takes.
#[test]
fn launching_more_than_is_computed_is_the_gpu() {
    let mut scene = Scene::begin(&[]);
    scene.run("posts", None);
    is_named(&scene, "gpu");
}

#[test]
fn a_program_that_does_nothing_waits_for_nothing() {
    let mut scene = Scene::begin(&[]);
    scene.run("idle", None);
    scene.until("the session is idle", || {
        let session = scene.session();
        session["why_line"].as_str().is_some_and(|line| line.starts_with("not slow"))
    });
}

#[test]
fn a_limit_of_its_own_is_named() {
    let mut scene = Scene::begin(&["--share", "20", "--throttle-level", "0"]);
    scene.run("gpu", None);
    is_named(&scene, "own_cap");
    scene.until("the limit has held it back for more than a tenth of the time", || {
        scene.session()["throttled"].as_f64().is_some_and(|part| part > 0.1)
    });
}

#[test]
fn other_tenants_that_have_the_gpu_are_named() {
    let mut scene = Scene::begin(&["--share", "25"]);
    for _ in 0..4 {
        scene.run("posts", None);
    }
    is_named(&scene, "other_tenants");
}

#[test]
fn answers_from_afar_are_the_network() {
    let Some(link) = Link::open(20) else {
        return eprintln!("there is no /dev/net/tun that this user may use, so no link with a delay is tried");
    };
    let mut scene = Scene::begin(&["--listen", &format!("{}:7411", link.here), "--insecure"]);
    scene.run("calls", Some(&format!("tcp:{}:7411", link.there)));
    is_named(&scene, "network");
    let rtt_ns = scene.session()["rtt_ns"].as_u64().expect("it is known");
    assert!(rtt_ns > 30_000_000, "{rtt_ns}");
}

#[test]
fn a_core_that_others_have_is_the_run_queue() {
    let mut scene = Scene::begin(&[]);
    scene.run("calls", None);
    let worker = scene.session_pid();
    let is_over = Arc::new(AtomicBool::new(false));
    let hogs: Vec<_> = (0..8)
        .map(|_| {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || {
                pin(0);
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    for thread in std::fs::read_dir(format!("/proc/{worker}/task")).expect("its threads").flatten() {
        pin(thread.file_name().to_str().and_then(|name| name.parse().ok()).expect("a number"));
    }
    is_named(&scene, "run_queue");
    is_over.store(true, Ordering::Relaxed);
    hogs.into_iter().for_each(|hog| hog.join().expect("it ends"));
}

/// Onto the first core that this process may use; 0 is the calling thread.
fn pin(thread: i32) {
    // SAFETY: valid sets of the size that is passed.
    unsafe {
        let mut may: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(std::process::id() as i32, size_of::<libc::cpu_set_t>(), &raw mut may), 0);
        let first = (0..libc::CPU_SETSIZE as usize).find(|cpu| libc::CPU_ISSET(*cpu, &may)).expect("a core");
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(first, &mut set);
        let code = libc::sched_setaffinity(thread, size_of::<libc::cpu_set_t>(), &raw const set);
        assert_eq!(code, 0, "pinning {thread}: {}", std::io::Error::last_os_error());
    }
}

impl Scene {
    fn session_pid(&self) -> u64 {
        let mut pid = None;
        self.until("oriond tells of the session", || {
            let text = std::os::unix::net::UnixStream::connect(self.stats()).map(std::io::read_to_string);
            let report: Option<Value> =
                text.ok().and_then(Result::ok).and_then(|text| serde_json::from_str(&text).ok());
            pid = report.and_then(|report| report["sessions"][0]["worker_pid"].as_u64());
            pid.is_some()
        });
        pid.expect("just found")
    }
}
