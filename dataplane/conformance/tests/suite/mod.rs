//! The GPU suite's CUDA programs on the software GPU: over both carriers they answer there what they answer on an H200.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{built_programs, orion};

/// What an H200 answers about managed memory was not recorded; `jit` loads machine code, which the software GPU cannot
/// run.
const LEFT_OUT: [&str; 2] = ["jit", "managed"];

/// Answers that say what a device is, or what its compiler made of a kernel.
const A_DEVICES_OWN: [(&str, &[&str]); 7] = [
    ("clusters", &["max_active_clusters"]),
    ("cooperative", &["blocks"]),
    ("device_query", &["attributes", "l2_bytes", "limit_1", "multiprocessors", "name"]),
    (
        "occupancy",
        &[
            "small",
            "small_potential",
            "with_shared",
            "with_shared_potential",
            // Bounded by its registers.
            "with_local",
            "with_local_blocks",
            "with_local_potential",
            "with_dynamic",
            "with_dynamic_potential",
            // The software GPU has no L1 cache to divide.
            "with_carveout",
            "with_carveout_blocks",
            "with_carveout_potential",
            "prefer_l1",
            "prefer_l1_blocks",
            "prefer_l1_potential",
        ],
    ),
    // A pool of the software GPU keeps nothing back.
    ("pools", &["kept"]),
    ("printf", &["fifo_bytes"]),
    // rsqrt.approx is more accurate than hardware.
    ("warps", &["doubles"]),
];

#[test]
fn the_suites_programs_answer_as_on_an_h200_over_shared_memory() {
    answer_as_on_an_h200("shm");
}

#[test]
fn the_suites_programs_answer_as_on_an_h200_over_tcp() {
    answer_as_on_an_h200("tcp");
}

fn answer_as_on_an_h200(transport: &str) {
    let folder = orion_built::root().join("perf/suite/cuda");
    let recorded = std::fs::read_to_string(folder.join("h200.json")).expect("what the H200 answered");
    let recorded: Value = serde_json::from_str(&recorded).expect("JSON");
    let natively = recorded["programs"].as_object().expect("answers by program");

    let sources = std::fs::read_dir(&folder).expect("the suite's programs").map(|e| e.expect("readable").path());
    let programs: BTreeSet<String> = sources
        .filter(|path| path.extension().is_some_and(|extension| extension == "cu"))
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
        .filter(|name| !LEFT_OUT.contains(&name.as_str()))
        .collect();
    let recorded_programs = natively.keys().map(|run| run.split(' ').next().expect("a name").to_owned()).collect();
    assert_eq!(programs, recorded_programs, "what h200.json has, and what there is to run");

    let built = built_programs();
    let mut failures = Vec::new();
    for (run, expected) in natively {
        let mut words = run.split(' ');
        let name = words.next().expect("a name");
        let arguments: Vec<&str> = words.collect();
        let mut command = orion::command(transport, &built.join(format!("{name}.suite")), &arguments);
        // What the H200s answered that were two.
        if name == "devices" {
            command.env("ORION_SOFT_DEVICES", "2");
        }
        let output = command.output().expect("orion-run starts");
        let text = String::from_utf8_lossy(&output.stdout);
        let report = text.lines().rev().find_map(|line| serde_json::from_str::<Value>(line).ok());
        let Some(checks) = report.filter(|_| output.status.success()).map(|report| report["checks"].clone()) else {
            failures.push(format!("{run} over {transport}: {text}{}", orion::complaint(&output)));
            continue;
        };
        let own = A_DEVICES_OWN.iter().find(|(program, _)| *program == name).map_or(&[][..], |(_, own)| own);
        let expected = expected.as_object().expect("answers by name");
        for (check, natively) in expected.iter().filter(|(check, _)| !own.contains(&check.as_str())) {
            if checks[check]["v"] != *natively {
                let here = &checks[check]["v"];
                failures.push(format!("{run} over {transport}: {check} is {here}, on an H200 {natively}"));
            }
        }
    }
    println!("{} passed, {} failed", natively.len().saturating_sub(failures.len()), failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
