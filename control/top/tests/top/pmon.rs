//! `orion-smi pmon` beside programs that run.

use std::process::{Command, Output};

use crate::scene::{Scene, built};

fn pmon(scene: &Scene, arguments: &[&str]) -> Output {
    let mut smi = Command::new(built().join("orion-smi"));
    smi.args(["pmon", "--stats"]).arg(scene.stats()).args(arguments).output().expect("it starts")
}

/// The words of the line of the program, by its pid.
fn line(output: &Output, pid: u32) -> Option<Vec<String>> {
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let words = text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    words.into_iter().find(|words| words.get(1) == Some(&pid.to_string()))
}

#[test]
fn pmon_says_how_busy_a_program_keeps_its_gpu_where_that_is_measured_and_else_that_nobody_knows() {
    let mut scene = Scene::begin(&["--share", "50", "--throttle-level", "0"]);
    scene.run("gpu", None);
    let pid = scene.pid();
    scene.until("the program has kept the GPU busy", || {
        let words = line(&pmon(&scene, &["-c", "1", "-s", "um"]), pid).unwrap_or_default();
        // Until its worker has said where its vGPUs lie there is no line.
        let Some(sm) = words.get(3).and_then(|sm| sm.parse::<u32>().ok()) else { return false };
        assert_eq!((&*words[0], &*words[2], &*words[4], &*words[10]), ("0", "C", "-", "-"), "{words:?}");
        (20..=60).contains(&sm)
    });
    drop(scene);
    let mut scene = Scene::begin(&[]);
    scene.run("gpu", None);
    let pid = scene.pid();
    let mut words = Vec::new();
    scene.until("the program is there", || {
        words = line(&pmon(&scene, &["-c", "1", "-i", "0"]), pid).unwrap_or_default();
        !words.is_empty()
    });
    assert_eq!(words[2..], ["C", "-", "-", "-", "-", "-", "-", "load"]);
    assert_eq!(scene.session()["gpu_used"], serde_json::Value::Null, "nor does orion-top make it up");
}

#[test]
fn pmon_ends_after_its_count_and_refuses_what_it_does_not_have() {
    let scene = Scene::begin(&[]);
    let output = pmon(&scene, &["-c", "2", "-d", "1", "-o", "DT"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.lines().count() == 4, "{output:?}");
    assert!(text.starts_with("#Date     Time       gpu"), "{text}");
    for arguments in [["-s", "p"], ["-i", "x"], ["-o", "d"], ["-c", "0"], ["--controller", "10.0.0.1"]] {
        let output = pmon(&scene, &arguments);
        assert!(!output.status.success() && !output.stderr.is_empty(), "{arguments:?}: {output:?}");
    }
}
