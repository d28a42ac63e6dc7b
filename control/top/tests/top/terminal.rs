//! In a real terminal; and what is recorded, and read by programs.

use std::process::Command;

use serde_json::Value;

use crate::scene::Scene;

/// A terminal of tmux's.
struct Tmux(String);

impl Tmux {
    fn run(&self, arguments: &[&str]) -> Option<String> {
        let output = Command::new("tmux").args(["-L", &self.0, "-f", "/dev/null"]).args(arguments).output();
        let output = output.expect("tmux was looked for");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn seen(&self) -> String {
        self.run(&["capture-pane", "-p"]).unwrap_or_default()
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}

#[test]
fn keys_work_in_a_real_terminal() {
    if Command::new("tmux").arg("-V").output().is_err() {
        return eprintln!("there is no tmux, so no real terminal is tried");
    }
    let mut scene = Scene::begin(&[]);
    scene.run("calls", None);
    let tmux = Tmux(format!("orion-top-{}", std::process::id()));
    let top = format!("{} --stats {} -i 0.2", env!("CARGO_BIN_EXE_orion-top"), scene.stats().display());
    tmux.run(&["new-session", "-d", "-x", "170", "-y", "30", &top]).expect("tmux starts it");
    let shows = |what: &str| {
        let mut seen = String::new();
        scene.until(&format!("the terminal shows {what:?}"), || {
            seen = tmux.seen();
            seen.contains(what)
        });
        seen
    };
    let table = shows("why:");
    assert!(table.contains("load") && table.contains("1 sessions, by waited"), "{table}");
    tmux.run(&["send-keys", "s"]);
    shows("1 sessions, by calls");
    tmux.run(&["send-keys", "/", "nobody"]);
    shows("no sessions");
    tmux.run(&["send-keys", "Escape"]);
    shows("why:");
    tmux.run(&["send-keys", "Enter"]);
    let in_depth = shows("why am I slow");
    assert!(in_depth.contains("P99.9 TREND") && in_depth.contains("session 1 on "), "{in_depth}");
    tmux.run(&["send-keys", "q"]);
    // With its last window the server ends.
    scene.until("it has ended", || tmux.run(&["has-session"]).is_none());
}

#[test]
fn what_is_recorded_says_the_same_when_it_is_replayed() {
    let mut scene = Scene::begin(&[]);
    scene.run("calls", None);
    let file = scene.folder.join("record");
    let file = file.to_str().expect("plain letters");
    let json = |text: &[u8]| serde_json::from_slice::<Value>(text).expect("JSON");
    let mut live = None;
    // While it had no core it has called nothing.
    scene.until("it is seen to call", || {
        let _ = std::fs::remove_file(file);
        let look = scene.top(&["--once", "--json", "--record", file]);
        assert!(look.status.success(), "{look:?}");
        let calls = json(&look.stdout)["sessions"][0]["calls_per_s"].as_f64();
        live = Some(look);
        calls.is_some_and(|calls| calls > 0.0)
    });
    let live = live.expect("just seen");
    let replayed = Command::new(env!("CARGO_BIN_EXE_orion-top")).args(["--once", "--json", "--replay", file]).output();
    let replayed = replayed.expect("it starts");
    assert_eq!(json(&replayed.stdout), json(&live.stdout));
    let session = &json(&live.stdout)["sessions"][0];
    assert_eq!(session["client"]["program"], "load");
    let table = scene.top(&["--once"]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(table.contains("load") && table.contains("why: "), "{table}");
    // And as a picture, of all sessions and of one.
    let svg = scene.folder.join("picture.svg");
    let of_one: [&[&str]; 2] = [&[], &["--session", "1"]];
    for (arguments, word) in of_one.into_iter().zip(["P99 TREND", "why am I slow"]) {
        let mut top = Command::new(env!("CARGO_BIN_EXE_orion-top"));
        let drawn = top.args(["--once", "--replay", file, "--svg"]).arg(&svg).args(arguments).output();
        let drawn = drawn.expect("it starts");
        let text = std::fs::read_to_string(&svg).unwrap_or_default();
        assert!(drawn.status.success() && drawn.stdout.is_empty(), "{drawn:?}");
        assert!(text.starts_with("<svg ") && text.contains("load") && text.contains(word), "{text}");
    }
}

#[test]
fn what_cannot_be_is_said() {
    let top = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_orion-top")).args(arguments).output().expect("it starts");
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(top(&["--once", "--stats", "/nowhere"]).contains("asking oriond at /nowhere failed"));
    assert!(top(&["--json"]).contains("--once"));
    assert!(top(&["--replay", "/nowhere"]).contains("opening --replay /nowhere"));
    assert!(top(&["--interval", "0"]).contains("between 0.1 and 3600"));
    assert!(top(&["--svg", "/nowhere"]).contains("--once"));
}
