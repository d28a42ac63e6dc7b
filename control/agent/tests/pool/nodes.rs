//! One program with vGPUs of several nodes.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::scene::{Scene, Staying, soon, wait_until};
use crate::{BACK, text};

/// All there is of two nodes.
const ALL: [(&str, &str); 4] =
    [("ORION_CROSS_NODE", "1"), ("ORION_VGPU", "4"), ("ORION_GMEM", "900"), ("ORION_RATIO", "100")];

/// Kernels, events, and copies between all of them.
fn devices_of_two_nodes_are_used(scene: &Scene) {
    soon(BACK, || {
        let output = scene.other_program("examples/several_nodes", &ALL).arg("2").output().expect("it starts");
        let (out, said) = text(&output);
        assert_eq!(out, "devices 4, 2 a node\n", "{said}");
        // What is refused in words is said once.
        let refused = "refused: what it names lies on two nodes, which do not reach each other's";
        for (line, what) in said.lines().zip(["cuMemsetD8Async", "a copy of rows"]) {
            assert_eq!(line, format!("orion: {what} {refused}"));
        }
        assert_eq!(said.lines().count(), 2, "{said}");
        scene.wait_for_free(8)
    });
}

#[test]
fn devices_of_two_nodes_are_used_over_tcp() {
    devices_of_two_nodes_are_used(&Scene::new(&["a", "b"], "", false));
}

#[test]
fn devices_of_two_nodes_are_used_over_shared_memory_and_tcp() {
    devices_of_two_nodes_are_used(&Scene::mixed(&["a", "b"], &["a"]));
}

#[test]
fn devices_of_a_node_that_is_killed_are_lost_and_those_of_another_go_on() {
    for (killed, codes) in [("a", "46 46 0 0"), ("b", "0 0 46 46")] {
        let mut scene = Scene::mixed(&["a", "b"], &["a"]);
        let mut command = scene.other_program("examples/several_nodes", &ALL);
        command.args(["2", "stay"]);
        let mut program = Staying::begin(command);
        assert_eq!(program.answer(), "0 0 0 0");
        let node = scene.nodes.iter_mut().find(|node| node.name == killed).expect("it is there");
        node.oriond.kill();
        wait_until("the end of a session", || program.answer() == codes);
        // For longer than it takes a node to say what lives there.
        let until = Instant::now() + Duration::from_secs(4);
        while Instant::now() < until {
            assert_eq!(program.answer(), codes);
            std::thread::sleep(Duration::from_millis(200));
        }
        program.kill();
        wait_until("the vGPUs of the node that is left", || scene.free() == 4);
    }
}

/// The facts about one device hold on each of several nodes: the first one of the program is the other node's.
#[test]
fn facts_hold_on_the_second_node() {
    let scene = Scene::mixed(&["a", "b"], &["a"]);
    let two = [ALL[0], ("ORION_VGPU", "3"), ALL[2], ALL[3], ("CUDA_VISIBLE_DEVICES", "2,0"), ("ORION_WAIT", "60")];
    let mut facts = scene.other_program("orion-facts", &two);
    // That one's child would need vGPUs too, and there are no more; files are mapped by programs of one machine.
    facts.args(["--quiet", "--skip", "a_child_process_starts_afresh,shared_file"]).stdin(Stdio::null());
    let (out, said) = text(&facts.output().expect("it starts"));
    assert!(out.contains(" passed, 0 failed"), "{out}\n{said}");
}
