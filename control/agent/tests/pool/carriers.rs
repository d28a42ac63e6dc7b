//! By what a program reaches the node that it is given, where it asks for that.

use crate::scene::Scene;
use crate::{refused, text, vgpus};

/// A node that is reached over TCP, and over shared memory by who asks for it; and one over TCP alone.
fn scene() -> Scene {
    let mut scene = Scene::new(&[], "", false);
    for (name, has_both) in [("both", true), ("tcp", false)] {
        let node = scene.node_with(name, has_both.then(|| format!("unix:{}", scene.path(name, "sock").display())));
        scene.nodes.push(node);
    }
    scene.wait_for_free(8);
    scene
}

#[test]
fn a_program_has_a_node_that_is_reached_as_it_asks_and_goes_no_other_way() {
    let scene = scene();
    let shm = [("ORION_TRANSPORT", "shm"), ("ORION_VERBOSE", "1"), ("ORION_VGPU", "4")];
    let (out, said) = text(&scene.run(&shm));
    assert_eq!(out, vgpus(4, 512), "{said}");
    assert!(said.contains("transport shm") && said.contains("unix:") && !said.contains("tcp:"), "{said}");
    scene.wait_for_free(8);
    // Without a wish, and by the name of what all of them have, both nodes serve.
    for name in ["", "tcp"] {
        let (out, said) = text(&scene.run(&[("ORION_TRANSPORT", name), ("ORION_VERBOSE", "1")]));
        assert_eq!(out, vgpus(1, 512), "{said}");
        assert!(said.contains("transport tcp"), "{said}");
        scene.wait_for_free(8);
    }
    let words = ["no room for 1 vGPU on one node, reached by rdma", "no node of it is reached by rdma", "--rdma"];
    refused(&scene.run(&[("ORION_TRANSPORT", "rdma")]), &words);
    // The other node has room, and is not taken for it.
    let first = scene.stay(&shm);
    let words = ["tcp GPU 0 ", "not reached by shm", "would fit: 1 vGPU on one node, by another carrier"];
    refused(&scene.run(&[("ORION_TRANSPORT", "shm")]), &words);
    refused(&scene.run(&[("ORION_TRANSPORT", "pcie")]), &["ORION_TRANSPORT=pcie is none of shm, tcp, rdma"]);
    drop(first);
    scene.wait_for_free(8);
}

/// It was built without, or there is no device: the error names which, and the vGPUs are free again.
#[test]
fn a_node_that_offers_what_this_program_cannot_do_is_an_error_and_not_another_way() {
    let mut scene = Scene::new(&[], "", false);
    let node = scene.node_with("a", Some("rdma:127.0.0.1:9".to_owned()));
    scene.nodes.push(node);
    scene.wait_for_free(4);
    let asked = [("ORION_TRANSPORT", "rdma"), ("ORION_IB_NAME", "no_such_device")];
    refused(&scene.run(&asked), &["rdma", "on node a, which the controller at "]);
    scene.wait_for_free(4);
    // A device is named, and what it is for was not asked for: there is a line.
    let (out, said) = text(&scene.run(&[("ORION_IB_NAME", "no_such_device"), ("ORION_VERBOSE", "1")]));
    assert_eq!(out, vgpus(1, 512), "{said}");
    assert!(said.contains("ORION_IB_NAME has no meaning here"), "{said}");
}
