//! Programs in circumstances that nobody chose.

use std::path::Path;
use std::process::Output;

use orion_built::root;

use crate::scene::Scene;
use crate::text;

/// What the program says in its file, and how it ended.
fn unlucky(scene: &Scene, way: &str) -> (String, Output) {
    let (script, out) = (root().join("dataplane/conformance/circumstances/unlucky.py"), scene.folder.join(way));
    let mut command = scene.other_program("/usr/bin/env", &[]);
    let output = command.arg("python3").args([&script, &out]).arg(way).output().expect("it starts");
    let said = std::fs::read_to_string(&out).unwrap_or_default();
    scene.wait_for_free(4);
    (said, output)
}

fn each_is_right(is_local: bool) {
    let scene = Scene::new(&["a"], "", is_local);
    let closed = "cuInit 0, Bad file descriptor, Bad file descriptor, right, right";
    for (way, expected) in [("interrupted", "cuInit 0, right, right"), ("closed", closed)] {
        let (said, output) = unlucky(&scene, way);
        assert_eq!(said, expected, "{way}: {}", text(&output).1);
        assert!(output.status.success(), "{way}: {output:?}");
    }
    let (said, output) = unlucky(&scene, "debugged");
    assert_eq!(said, "cuInit 0, right, right", "{}", text(&output).1);
    // What waits for a thread that cannot be made would wait forever.
    let limit = "is there a limit on threads (ulimit -u, the pids of a container)?";
    for (way, expected) in [("threadless", "cuInit 100"), ("crowded", "cuInit 0, right, cuLaunchHostFunc 304, right")] {
        let (said, output) = unlucky(&scene, way);
        assert_eq!(said, expected, "{way}: {}", text(&output).1);
        assert!(output.status.success() && text(&output).1.contains(limit), "{way}: {output:?}");
    }
    // Over a network the session's memory is a file of the program's own.
    let (said, output) = unlucky(&scene, "small");
    assert!(output.status.success(), "{output:?}");
    match is_local {
        true => assert_eq!(said, "cuInit 0, right, right"),
        false => {
            let why = text(&output).1;
            assert!(said == "cuInit 100" && why.contains("is there a limit (ulimit -f)?"), "{said} {why}");
        }
    }
}

#[test]
fn a_program_in_circumstances_that_nobody_chose_has_its_vgpu_or_is_told_why_not_over_shared_memory() {
    each_is_right(true);
}

#[test]
fn a_program_in_circumstances_that_nobody_chose_has_its_vgpu_or_is_told_why_not_over_tcp() {
    each_is_right(false);
}

/// Where the log's folder is not to be made nothing is, and a client.conf that is no file keeps nobody waiting.
#[test]
fn a_strange_home_is_no_reason_to_wait_or_to_write_elsewhere() {
    let scene = Scene::new(&["a"], "", true);
    let mut command = scene.program(&[("HOME", "relative")]);
    let output = command.current_dir(&scene.folder).output().expect("it starts");
    assert!(output.status.success() && !scene.folder.join("relative").exists(), "{output:?}");
    let conf = scene.folder.join(".orion/client.conf");
    std::fs::create_dir_all(conf.parent().expect("a folder")).expect("making it");
    let made = std::process::Command::new("mkfifo").arg(&conf).status().expect("mkfifo starts");
    assert!(made.success());
    let (out, said) = text(&scene.run(&[]));
    assert_eq!(out, "cuInit 100\n");
    assert!(said.contains(&format!("reading {} failed: it is no file", Path::new(&conf).display())), "{said}");
}
