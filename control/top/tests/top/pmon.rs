//! `orion-smi pmon` and `orion-smi dmon` beside programs that run, and what else says how busy they keep their GPU.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output};

use crate::scene::{Scene, built};

fn smi(scene: &Scene, action: &str, arguments: &[&str]) -> Output {
    let mut smi = Command::new(built().join("orion-smi"));
    smi.args([action, "--stats"]).arg(scene.stats()).args(arguments).output().expect("it starts")
}

/// The words of each line.
fn words(output: &Output) -> Vec<Vec<String>> {
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

/// The words of the line of the program, by its pid.
fn line(scene: &Scene, arguments: &[&str], pid: u32) -> Option<Vec<String>> {
    words(&smi(scene, "pmon", arguments)).into_iter().find(|words| words.get(1) == Some(&pid.to_string()))
}

/// What is said of the only program, and of its GPU, comes to be in this range, wherever it is said.
fn is_told(scene: &Scene, range: std::ops::RangeInclusive<u32>) {
    let pid = scene.pid();
    scene.until("pmon says how busy the program keeps its GPU", || {
        let words = line(scene, &["-c", "1", "-s", "um"], pid).unwrap_or_default();
        // Until its worker has said where its vGPUs lie there is no line.
        let Some(sm) = words.get(3).and_then(|sm| sm.parse::<u32>().ok()) else { return false };
        assert_eq!((&*words[0], &*words[2], &*words[4], &*words[10]), ("0", "C", "-", "-"), "{words:?}");
        range.contains(&sm)
    });
    scene.until("dmon says how busy the GPU is", || {
        let words = words(&smi(scene, "dmon", &["-c", "1", "-s", "um"])).remove(2);
        assert_eq!(
            (&*words[0], &*words[2..7].join(" "), &*words[8..].join(" ")),
            ("0", "- - - - -", "- -"),
            "{words:?}"
        );
        // The load holds 8 MiB. A worker without a limit that has nothing to do does not look what it has.
        let is_enough = |fb: u32| fb >= 8 || range == (0..=0);
        words[1].parse().is_ok_and(|sm| range.contains(&sm)) && words[7].parse().is_ok_and(is_enough)
    });
    scene.until("orion-top says it", || {
        scene.session()["gpu_used"].as_f64().is_some_and(|part| range.contains(&((100.0 * part).round() as u32)))
    });
    let log = scene.log();
    let address = log.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("it says where");
    scene.until("metrics say it", || {
        let mut connection = TcpStream::connect(address).expect("it listens");
        write!(connection, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("it takes it");
        let mut text = String::new();
        connection.read_to_string(&mut text).expect("an answer");
        let line = text.lines().find(|line| line.starts_with("orion_vgpu_busy_ratio{"));
        let ratio = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        ratio.is_some_and(|ratio| range.contains(&((100.0 * ratio).round() as u32)))
    });
}

#[test]
fn it_is_told_how_busy_a_program_keeps_its_gpu() {
    let mut scene = Scene::begin(&["--share", "50", "--throttle-level", "0", "--metrics", "0"]);
    scene.run("gpu", None);
    is_told(&scene, 20..=60);
    drop(scene);
    // Where nobody divides the GPU's time too.
    let mut scene = Scene::begin(&["--metrics", "0"]);
    scene.run("gpu", None);
    is_told(&scene, 80..=100);
    drop(scene);
    let mut scene = Scene::begin(&["--metrics", "0"]);
    scene.run("idle", None);
    is_told(&scene, 0..=0);
}

/// The software GPU's library stands in for a driver's, which does not say itself when it works.
#[test]
fn how_busy_a_program_keeps_its_gpu_is_unknown_and_not_0_where_nobody_measures_it() {
    let driver = orion_built::build(&["-p", "orion-soft"]).join("liborion_soft.so");
    let driver = driver.to_str().expect("a path in letters");
    let mut scene = Scene::begin(&["--driver", driver, "--nvml", "none"]);
    scene.run("gpu", None);
    let pid = scene.pid();
    let mut words_of = Vec::new();
    scene.until("the program is there", || {
        words_of = line(&scene, &["-c", "1", "-i", "0"], pid).unwrap_or_default();
        !words_of.is_empty()
    });
    assert_eq!(words_of[2..], ["C", "-", "-", "-", "-", "-", "-", "load"]);
    assert_eq!(words(&smi(&scene, "dmon", &["-c", "1", "-s", "um"]))[2].join(" "), "0 - - - - - - - - -");
    assert_eq!(scene.session()["gpu_used"], serde_json::Value::Null, "nor does orion-top make it up");
}

#[test]
fn they_end_after_their_count_and_refuse_what_they_do_not_have() {
    let scene = Scene::begin(&[]);
    for action in ["pmon", "dmon"] {
        let output = smi(&scene, action, &["-c", "2", "-d", "1", "-o", "DT"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.lines().count() == 4, "{output:?}");
        assert!(text.starts_with("#Date     Time       gpu"), "{text}");
        for arguments in [["-s", "p"], ["-i", "x"], ["-o", "d"], ["-c", "0"], ["--controller", "10.0.0.1"]] {
            let output = smi(&scene, action, &arguments);
            assert!(!output.status.success() && !output.stderr.is_empty(), "{arguments:?}: {output:?}");
        }
    }
    scene.until("a worker has found the GPU", || words(&smi(&scene, "dmon", &["-c", "1"]))[2][0] == "0");
    let output = smi(&scene, "dmon", &["-c", "1", "-i", "7"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("there is no GPU 7"), "{output:?}");
}
