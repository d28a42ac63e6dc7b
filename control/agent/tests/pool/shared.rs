//! Two controllers that share a pool, and each of them killed while programs run.

use std::path::Path;
use std::process::Command;

use crate::cluster::Cluster;
use crate::scene::{Process, Scene, built, http, new_folder, wait_until};
use crate::{text, vgpus};

fn controller(folder: &Path, name: &str, port: u16, urls: &str, start: u32) -> (Process, u16) {
    let data = folder.join(name);
    std::fs::create_dir_all(&data).expect("a folder");
    let config = data.join("controller.yaml");
    let text = format!(
        "controller:\n  listen_port: {port}\ndatabase:\n  name: etcd\n  kv: {urls}\n  data-dir: {}\n",
        data.display()
    );
    std::fs::write(&config, text).expect("writing");
    let mut command = Command::new(built().join("orion-controller"));
    let log = folder.join(format!("{name}.{start}.log"));
    let process = Process::start(command.args(["start", "--config-file"]).arg(config), &log);
    let port = process.says("listening on 127.0.0.1:").parse().expect("a port");
    (process, port)
}

fn leads(port: u16) -> bool {
    http(port, "GET", "/metrics", "").is_some_and(|(_, body)| body.contains("orion_controller_leads 1\n"))
}

/// vGPUs that nobody has, as whoever leads says it.
fn free(ports: [u16; 2]) -> Option<usize> {
    let say = |port| http(port, "GET", "/devices?res=nvidia_cuda&used=true", "").filter(|(status, _)| *status == 200);
    ports.into_iter().find_map(say)?.1.strip_prefix("nvidia_cuda=")?.parse().ok()
}

#[test]
fn whichever_controller_is_killed_sessions_go_on_and_programs_find_the_other() {
    let folder = new_folder();
    let etcd = Cluster::new(&folder, 1);
    let (first, a) = controller(&folder, "a", orion_built::steady_port(), &etcd.urls(), 0);
    wait_until("a leader", || leads(a));
    std::fs::create_dir(folder.join("b")).expect("a new folder");
    std::fs::copy(folder.join("a/lease.key"), folder.join("b/lease.key")).expect("the first one has made it");
    let (mut second, b) = controller(&folder, "b", orion_built::steady_port(), &etcd.urls(), 0);
    let mut scene = Scene::around(folder, first, &[a, b], &["x"], false);
    let staying = scene.stay(&[("ORION_VGPU", "2")]);

    // The one that leads, and a program asks before anybody has noticed.
    scene.controller.kill();
    let (out, said) = text(&scene.run(&[]));
    assert_eq!(out, vgpus(1, 512), "{said}");
    assert!(leads(b) && said.lines().count() <= 1, "{said}");
    wait_until("its vGPU", || free([a, b]) == Some(2));

    // It comes back as the one that follows, and then both are gone, and nobody leads.
    let folder = scene.folder.clone();
    scene.controller = controller(&folder, "a", a, &etcd.urls(), 1).0;
    let follows = format!("ok; the controller at 127.0.0.1:{b} leads the pool\n");
    wait_until("a follower", || http(a, "GET", "/healthz", "") == Some((200, follows.clone())));
    second.kill();
    scene.controller.kill();
    let (mut again, _) = controller(&folder, "b", b, &etcd.urls(), 1);
    wait_until("a leader", || leads(b));
    wait_until("the node", || free([a, b]) == Some(2));
    let (out, said) = text(&scene.run(&[]));
    assert_eq!(out, vgpus(1, 512), "{said}");
    assert_eq!(staying.ask_again().0, "then 0");
    wait_until("all vGPUs", || free([a, b]) == Some(4));
    again.kill();
}
