//! The whole way of a pool, with real processes: nodes report, programs ask, and whoever of them is killed.

mod begins;
mod carriers;
mod circumstances;
#[path = "../../../controller/tests/etcd/cluster.rs"]
mod cluster;
mod nodes;
mod reserve;
mod rights;
mod scene;
mod shared;
mod tools;
mod trust;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use orion_built::root;
use orion_proto::pool_client::PoolClient;
use orion_proto::{AllocationName, ListAllocationsRequest};
use orion_transport::carrier::welcome_of;
use orion_transport::client::{Caller, NoSession, Server};
use orion_transport::lease::SignedLease;
use scene::{Process, Scene, Staying, built, soon, wait_until};

const MIB: u64 = 1 << 20;
/// How soon vGPUs of a program that was killed are free again.
const BACK: Duration = Duration::from_secs(2);

/// What it has printed, and what it has said; but that a server on a busy machine takes its time is none of it.
fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&output.stderr);
    let is_of_the_program = |line: &&str| !line.contains(" took the connection and has said nothing for 3 s; ");
    (text(&output.stdout), said.split_inclusive('\n').filter(is_of_the_program).collect())
}

/// What a program prints that has so many vGPUs of this size.
fn vgpus(count: u64, mib: u64) -> String {
    let size = mib * MIB;
    let device = |n| format!("device {n} size {size} free {size} total {size} all 0 more 2\n");
    format!("devices {count}\n") + &(0..count).map(device).collect::<String>()
}

/// A program that gets none: CUDA's answer is that there is no device, and one line says why.
fn refused(output: &Output, words: &[&str]) {
    let (out, said) = text(output);
    assert_eq!(out, "cuInit 100\n", "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
}

fn one_two_and_four_vgpus(is_local: bool) {
    let scene = Scene::new(&["a"], "", is_local);
    for count in [1, 2, 4] {
        let asked = [("ORION_VGPU", count.to_string()), ("ORION_GMEM", "300".to_owned())];
        let asked = asked.each_ref().map(|(name, value)| (*name, value.as_str()));
        soon(BACK, || {
            let (out, said) = text(&scene.run(&asked));
            assert_eq!((out, said), (vgpus(count, 300), String::new()));
            scene.wait_for_free(4)
        });
    }
    // Without a word one, with its part of a GPU.
    let (out, said) = text(&scene.run(&[("ORION_VERBOSE", "1")]));
    assert_eq!(out, vgpus(1, 512));
    assert!(said.contains("Using Orion resource () ") && said.contains(&scene.nodes[0].address), "{said}");
}

#[test]
fn a_program_has_the_vgpus_it_asked_for_over_tcp_and_they_come_back() {
    one_two_and_four_vgpus(false);
}

#[test]
fn a_program_has_the_vgpus_it_asked_for_over_shared_memory_and_they_come_back() {
    one_two_and_four_vgpus(true);
}

#[test]
fn what_a_program_asks_for_stands_in_its_environment_or_in_client_conf() {
    let scene = Scene::new(&["a"], "", true);
    let conf = scene.folder.join(".orion");
    std::fs::create_dir(&conf).expect("a new folder");
    let text_of = format!(
        "[log]\nlog_level = INFO\n[controller]\n controller_addr = 127.0.0.1:{} ; so\n[client]\nvgpu=2\ngmem=256\n",
        scene.port
    );
    std::fs::write(conf.join("client.conf"), text_of).expect("writing");
    let run = |environment: &[(&str, &str)]| {
        let mut command = scene.program(environment);
        command.env_remove("ORION_CONTROLLER").output().expect("the program starts")
    };
    assert_eq!(text(&run(&[])), (vgpus(2, 256), String::new()));
    scene.wait_for_free(4);
    assert_eq!(text(&run(&[("ORION_VGPU", "1")])), (vgpus(1, 256), String::new()));
    std::fs::remove_file(conf.join("client.conf")).expect("removing");
    refused(&run(&[("ORION_VGPU", "1")]), &["ORION_VGPU=1 is asked of a pool's controller, and none is named"]);
}

#[test]
fn a_full_pool_is_no_device_and_one_line() {
    let scene = Scene::new(&["a"], "", false);
    let first = scene.stay(&[("ORION_VGPU", "3")]);
    let words = ["the pool has no room for 2 vGPUs", "free: a GPU ", "held: ", "would fit: 1 vGPU"];
    refused(&scene.run(&[("ORION_VGPU", "2")]), &words);
    refused(&scene.run(&[("ORION_GMEM", "2048")]), &["no room for 1 vGPU with 2048 MiB", "would fit: "]);
    let (out, _) = text(&scene.run(&[]));
    assert_eq!(out, vgpus(1, 512));
    assert_eq!(first.ask_again().0, "then 0");
    scene.wait_for_free(4);
}

#[test]
fn who_waits_for_room_gets_it_and_who_waits_in_vain_is_told_what_there_is() {
    let scene = Scene::new(&["a"], "", true);
    let first = scene.stay(&[("ORION_VGPU", "4")]);
    refused(&scene.run(&[("ORION_WAIT", "1")]), &["no room for 1 vGPU", "held: "]);
    let environment = [("ORION_WAIT", "60"), ("ORION_VGPU", "2")];
    let waiting = scene.program(&environment).stdout(Stdio::piped()).spawn().expect("it starts");
    wait_until("somebody in the queue", || scene.http("GET", "/metrics", "").1.contains("orion_clients_waiting 1"));
    assert_eq!(first.ask_again().0, "then 0");
    assert_eq!(text(&waiting.wait_with_output().expect("it ends")).0, vgpus(2, 512));
    scene.wait_for_free(4);
    // Who is killed while he waits is in nobody's way.
    let first = scene.stay(&[("ORION_VGPU", "4")]);
    let mut waiting = scene.program(&environment).spawn().expect("it starts");
    wait_until("somebody in the queue", || scene.http("GET", "/metrics", "").1.contains("orion_clients_waiting 1"));
    waiting.kill().expect("it waits");
    waiting.wait().expect("it ends");
    wait_until("nobody in the queue", || scene.http("GET", "/metrics", "").1.contains("orion_clients_waiting 0"));
    assert_eq!(first.ask_again().0, "then 0");
    scene.wait_for_free(4);
}

/// A line of a script after the other: what the one before had comes back a moment after its end.
#[test]
fn programs_that_run_one_after_another_need_no_more_room_than_one_of_them() {
    let scene = Scene::new(&["a"], "", true);
    let controller = format!("127.0.0.1:{}", scene.port);
    let mut orionctl = Command::new(built().join("orionctl"));
    orionctl.args(["--controller", &controller, "quota", "red", "--vgpus", "1"]);
    assert!(orionctl.output().expect("it starts").status.success());
    for _ in 0..16 {
        assert_eq!(text(&scene.run(&[("ORION_VGPU", "4")])), (vgpus(4, 512), String::new()));
    }
    for _ in 0..16 {
        assert_eq!(text(&scene.run(&[("ORION_TENANT", "red")])), (vgpus(1, 512), String::new()));
    }
    // Who may wait is told so, and of what nobody gives back he is told at once.
    let asked = |body: &str| scene.http("POST", "/allocations", body);
    let holds = scene.stay(&[("ORION_TENANT", "red")]);
    for (body, may_pass) in [
        ("{\"vgpus\":4}", true),
        ("{\"vgpus\":5}", false),
        ("{\"tenant\":\"red\"}", true),
        ("{\"tenant\":\"red\",\"vgpus\":2}", false),
    ] {
        let (status, said) = asked(body);
        assert_eq!((status, said.contains("\"may_pass_ms\":2000")), (409, may_pass), "{body}: {said}");
    }
    // Who waits for what his own tenant has keeps nobody else from what is free.
    let mut patient = scene.program(&[("ORION_TENANT", "red"), ("ORION_WAIT", "60")]);
    let patient = patient.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    scene.controller.says(" waits for room");
    assert_eq!(text(&scene.run(&[("ORION_VGPU", "3")])), (vgpus(3, 512), String::new()));
    holds.kill();
    assert_eq!(text(&patient.wait_with_output().expect("it ends")), (vgpus(1, 512), String::new()));
    // And in vain he is told what his tenant may have.
    let holds = scene.stay(&[("ORION_TENANT", "red")]);
    refused(&scene.run(&[("ORION_TENANT", "red"), ("ORION_WAIT", "1")]), &["\"red\" may hold 1 vGPUs, has 1"]);
    holds.kill();
    scene.wait_for_free(4);
}

/// What a program does in the moment between its answer and its session, as it is killed or goes on.
#[test]
fn vgpus_whose_program_has_gone_before_it_came_for_them_are_back_at_once() {
    let scene = Scene::new(&["a"], "", false);
    for is_kept in [false, true] {
        let name = format!("{:032x}", 7 + u128::from(is_kept));
        let mut socket = TcpStream::connect(("127.0.0.1", scene.port)).expect("it listens");
        let body = format!("{{\"allocation\":\"{name}\",\"vgpus\":3}}");
        let head =
            |path: &str, bytes| format!("POST {path} HTTP/1.1\r\nHost: orion\r\nContent-Length: {bytes}\r\n\r\n");
        let claim = head(&format!("/allocations/{name}/session"), 1);
        write!(socket, "{}{body}{claim}", head("/allocations", body.len())).expect("sending");
        scene.wait_for_free(1);
        if is_kept {
            socket.write_all(b"1").expect("sending");
            wait_until("its word being heard", || scene.controller.log().contains("Confirm allocation"));
        }
        drop(socket);
        let back = match is_kept {
            false => scene.wait_for_free(4),
            true => {
                let (status, answer) = scene.http("DELETE", &format!("/allocations/{name}"), "");
                assert_eq!((status, answer.as_str()), (200, "{\"was_there\":true}"));
                Duration::ZERO
            }
        };
        assert!(back < BACK, "back after {back:?}");
    }
}

/// One that is let wait says only afterwards that it comes for them.
#[test]
fn vgpus_of_a_program_that_was_let_wait_and_has_gone_are_back_at_once() {
    let scene = Scene::new(&["a"], "", false);
    let ask = |number: u32, more: &str| {
        let mut socket = TcpStream::connect(("127.0.0.1", scene.port)).expect("it listens");
        let body = format!("{{\"allocation\":\"{number:032x}\",\"vgpus\":3,\"wait_ms\":60000}}");
        let length = body.len();
        let head = format!("POST /allocations HTTP/1.1\r\nHost: orion\r\nContent-Length: {length}\r\n{more}\r\n");
        write!(socket, "{head}{body}").expect("sending");
        socket
    };
    let claims = "Orion-Claims: 1\r\n";
    let given = ask(7, claims);
    scene.wait_for_free(1);
    // Another one waits, and is given them when the first has gone; then it has gone as well.
    let waits = ask(8, claims);
    wait_until("somebody in the queue", || scene.http("GET", "/metrics", "").1.contains("orion_clients_waiting 1"));
    drop(given);
    wait_until("the second being given them", || {
        scene.controller.log().matches("Return formated resource").count() == 2
    });
    drop(waits);
    let back = scene.wait_for_free(4);
    assert!(back < BACK, "back after {back:?}");
    // Who says nothing of it has them for as long as an offer stands.
    let given = ask(9, "");
    scene.wait_for_free(1);
    drop(given);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(scene.free(), 1);
}

#[test]
fn a_share_of_time_is_had_unless_the_operator_gives_none() {
    let scene = Scene::new(&["a"], "  places_by_ratio: false\n", true);
    let half = [("ORION_RATIO", "50"), ("ORION_VGPU", "2")];
    refused(&scene.run(&half), &["ORION_RATIO is 50", "gives no shares", "places_by_ratio: false"]);
    let (out, said) = text(&scene.run(&[("ORION_RATIO", "100"), ("ORION_VGPU", "2"), ("ORION_GMEM", "512")]));
    assert_eq!((out, said), (vgpus(2, 512), String::new()));
    drop(scene);
    let scene = Scene::new(&["a"], "", true);
    assert_eq!(text(&scene.run(&half)).0, vgpus(2, 512));
    scene.nodes[0].oriond.says("dividing the GPU's time");
    let (status, answer) = scene.http("POST", "/allocations", "{\"vgpus\":1,\"ratio\":50}");
    assert!(status == 200 && answer.contains("\"ratio_is_kept\":true"), "{status} {answer}");
    // Not come for, and given back by its name.
    let answer: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
    let name = answer["allocation"].as_str().expect("a name");
    assert_eq!(scene.http("DELETE", &format!("/allocations/{name}"), ""), (200, "{\"was_there\":true}".to_owned()));
    assert_eq!(scene.http("DELETE", &format!("/allocations/{name}"), ""), (200, "{\"was_there\":false}".to_owned()));
    let (status, answer) = scene.http("POST", "/allocations", "{\"vgpu\":1}");
    assert!(status == 400 && answer.contains("unknown field `vgpu`"), "{status} {answer}");
}

#[test]
fn a_group_has_its_gpus_together_and_others_those_of_two_nodes_if_they_may() {
    let scene = Scene::new(&["a", "b"], "", true);
    let group = [("ORION_GROUP_ID", "pod-7"), ("ORION_RES_GROUP", "BOX"), ("ORION_VERBOSE", "1")];
    let place = |output: &Output| {
        let (out, said) = text(output);
        assert!(out.starts_with("devices 1\n"), "{out} {said}");
        said.lines()
            .find_map(|line| line.split_once(" : "))
            .expect("a line about it")
            .1
            .rsplit_once('/')
            .unwrap()
            .0
            .to_owned()
    };
    let first = scene.stay(&[&group[..], &[("ORION_VGPU", "1")]].concat());
    // Nobody else is to be there, and then the pool would fill up other GPUs first.
    let others: Vec<_> = (0..2).map(|_| scene.stay(&[("ORION_VGPU", "2")])).collect();
    let beside = place(&scene.run(&group));
    scene.wait_for_free(3);
    assert_eq!(place(&scene.run(&group)), beside);
    scene.wait_for_free(3);
    let second = scene.stay(&group);
    refused(&scene.run(&group[..2]), &["no room for 1 vGPU on one node, on the GPUs of its group"]);
    assert_eq!(text(&scene.run(&[])).0, vgpus(1, 512));
    refused(&scene.run(&group[1..2]), &["ORION_RES_GROUP=BOX", "set ORION_GROUP_ID"]);
    refused(&scene.run(&[("ORION_RESERVED", "1")]), &["ORION_RESERVED=1", "nothing is kept for a group"]);
    for program in [first, second].into_iter().chain(others) {
        assert_eq!(program.ask_again().0, "then 0");
    }
    scene.wait_for_free(8);
    // Several nodes are allowed, and one has room; then both are needed.
    let across = [("ORION_CROSS_NODE", "1"), ("ORION_VGPU", "2"), ("ORION_GMEM", "1024"), ("ORION_RATIO", "100")];
    assert_eq!(text(&scene.run(&across)).0, vgpus(2, 1024));
    scene.wait_for_free(8);
    let four = [across[0], ("ORION_VGPU", "4"), across[2], across[3]];
    assert_eq!(text(&scene.run(&four)).0, vgpus(4, 1024));
    scene.wait_for_free(8);
    let five = [across[0], ("ORION_VGPU", "5"), across[2], across[3]];
    refused(&scene.run(&five), &["no room for 5 vGPUs"]);
    refused(&scene.run(&across[..3]), &["ORION_CROSS_NODE=1 needs ORION_RATIO=100"]);
}

#[test]
fn vgpus_of_a_killed_program_are_back_within_two_seconds() {
    for is_local in [false, true] {
        let scene = Scene::new(&["a"], "", is_local);
        soon(BACK, || {
            let program = scene.stay(&[("ORION_VGPU", "4")]);
            assert_eq!(scene.free(), 0);
            program.kill();
            scene.wait_for_free(4)
        });
    }
}

/// The GPUs that a worker is told to see; none where it sees all.
fn gpus_of(worker: &str) -> Vec<String> {
    let command = std::fs::read_to_string(format!("/proc/{worker}/cmdline")).expect("it lives");
    let words: Vec<&str> = command.split('\0').collect();
    words.windows(2).filter(|pair| pair[0] == "--gpus").map(|pair| pair[1].to_owned()).collect()
}

#[test]
fn a_sessions_worker_sees_the_gpus_of_its_lease_and_no_other() {
    for is_local in [false, true] {
        let scene = Scene::new(&["a"], "", is_local);
        let oriond = &scene.nodes[0].oriond;
        let told = |line: &str, word: &str, times: usize| {
            let lines = oriond.lines(line, times);
            let words = lines.iter().map(|line| line.split_once(word).expect(line).1.split(' ').next());
            words.map(|word| word.expect("a word").to_owned()).collect::<Vec<_>>()
        };
        // Each of a GPU's two vGPUs has half of it, and there are two GPUs.
        let programs: Vec<Staying> = (0..4).map(|_| scene.stay(&[("ORION_VGPU", "1")])).collect();
        let workers = told("session begins", "worker=", 4);
        let mut seen: Vec<Vec<String>> = workers.iter().map(|worker| gpus_of(worker)).collect();
        seen.sort();
        assert!(seen.iter().all(|gpus| gpus.len() == 1), "{seen:?}");
        assert!(seen[0] == seen[1] && seen[1] != seen[2] && seen[2] == seen[3], "{seen:?}");
        // They have the numbers of the node, although each worker sees one.
        let mut divided = told("dividing the GPU's time", "gpu=", 2);
        divided.sort();
        assert_eq!(divided, ["0", "1"]);
        programs.into_iter().for_each(Staying::kill);
        scene.wait_for_free(4);
        // One that has both sees both.
        let both = scene.stay(&[("ORION_VGPU", "2"), ("ORION_GMEM", "900")]);
        assert_eq!(gpus_of(&told("session begins", "worker=", 5)[4]), [] as [&str; 0]);
        both.kill();
    }
}

#[test]
fn vgpus_that_nobody_is_given_are_not_counted_as_free() {
    let scene = Scene::new(&["a"], "", true);
    let drain = |more: &[&str]| {
        let mut command = Command::new(built().join("orionctl"));
        command.args(["--controller", &format!("127.0.0.1:{}", scene.port), "drain", "a"]).args(more);
        assert!(command.output().expect("orionctl starts").status.success());
        (scene.free(), scene.http("GET", "/devices?res=nvidia_cuda", "").1)
    };
    assert_eq!(drain(&[]), (0, "nvidia_cuda=4".to_owned()));
    assert_eq!(drain(&["--undo"]), (4, "nvidia_cuda=4".to_owned()));
}

#[test]
fn a_killed_controller_ends_no_session_and_the_next_one_knows_it() {
    let mut scene = Scene::new(&["a"], "", false);
    let program = scene.stay(&[("ORION_VGPU", "2")]);
    scene.controller.kill();
    let words = ["the pool's controller at 127.0.0.1:", "is not reached", "ORION_CONTROLLER"];
    refused(&scene.run(&[("ORION_WAIT", "0")]), &words);
    // One that waits says so, and gets its vGPU when the next controller is there.
    let mut waiting = scene.program(&[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(waiting.stderr.as_mut().expect("a pipe")).read_line(&mut line).expect("text");
    assert!(line.contains("is not reached") && line.contains("waiting for it, 30 s at most (ORION_WAIT)"), "{line}");
    scene.restart_controller("");
    assert_eq!(text(&waiting.wait_with_output().expect("it ends")).0, vgpus(1, 512));
    // Two are held, by the session that went on.
    scene.wait_for_free(2);
    let (out, _) = text(&scene.run(&[]));
    assert_eq!(out, vgpus(1, 512));
    assert_eq!(program.ask_again().0, "then 0");
    scene.wait_for_free(4);
}

#[test]
fn a_killed_agent_ends_no_session_and_the_next_one_misses_nothing() {
    let mut scene = Scene::new(&["a"], "", true);
    let (one, other) = (scene.stay(&[("ORION_VGPU", "2")]), scene.stay(&[]));
    scene.nodes[0].agent.kill();
    // Ended while nobody could tell.
    assert_eq!(one.ask_again().0, "then 0");
    let address = scene.nodes[0].address.clone();
    scene.nodes[0].agent = scene.start_agent("a", &address);
    scene.wait_for_free(3);
    assert_eq!(other.ask_again().0, "then 0");
    scene.wait_for_free(4);
}

#[test]
fn a_killed_oriond_is_out_of_the_pool_until_it_comes_again() {
    let mut scene = Scene::new(&["a"], "", false);
    let program = scene.stay(&[("ORION_VGPU", "2")]);
    scene.nodes[0].oriond.kill();
    wait_until("a pool without vGPUs", || scene.http("GET", "/devices?res=nvidia_cuda", "").1 == "nvidia_cuda=0");
    refused(&scene.run(&[("ORION_WAIT", "0")]), &["no node with a GPU has reported"]);
    let (then, said) = program.ask_again();
    assert!(then != "then 0" && said.contains("orion: "), "{then} {said}");
    let listen = scene.nodes[0].address.strip_prefix("tcp:").expect("over TCP").to_owned();
    scene.nodes[0].oriond = scene.start_oriond("a", &listen);
    scene.wait_for_free(4);
    assert_eq!(text(&scene.run(&[])).0, vgpus(1, 512));
}

#[test]
fn what_an_operator_kills_loses_its_session() {
    let scene = Scene::new(&["a"], "", true);
    let (status, _) = scene.http("DELETE", "/allocations/none", "");
    assert_eq!(status, 400);
    let program = scene.stay(&[]);
    let begun = scene.nodes[0].oriond.says("lease=");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut pool = PoolClient::connect(format!("http://127.0.0.1:{}", scene.port)).await.expect("it listens");
        pool.kill(AllocationName { allocation: begun }).await.expect("an operator may");
    });
    scene.nodes[0].oriond.says("says that its lease is over");
    let (then, said) = program.ask_again();
    assert!(then != "then 0" && said.contains("orion: "), "{then} {said}");
    scene.wait_for_free(4);
}

#[test]
fn a_pool_tells_what_a_program_uses_to_the_byte() {
    let scene = Scene::new(&["a"], "", true);
    // The environment of a program of this pool, for another one.
    let of = scene.program(&[("ORION_VGPU", "2"), ("ORION_GMEM", "256")]);
    let mut command = Command::new("python3");
    for (name, value) in of.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.arg(root().join("dataplane/conformance/nvml/hold.py"));
    let mut program = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3 starts");
    let mut to = program.stdin.take().expect("a pipe");
    let mut from = BufReader::new(program.stdout.take().expect("a pipe"));
    let mut hear = || {
        let mut line = String::new();
        from.read_line(&mut line).expect("it answers");
        let used = line.split(' ').next().and_then(|used| used.parse::<u64>().ok());
        used.unwrap_or_else(|| panic!("{line:?}"))
    };
    assert_eq!(hear(), 0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut pool = runtime.block_on(PoolClient::connect(format!("http://127.0.0.1:{}", scene.port))).expect("a pool");
    let mut told = || {
        let list = runtime.block_on(pool.list_allocations(ListAllocationsRequest::default())).expect("a list");
        let list = list.into_inner().allocations;
        list.iter().flat_map(|a| &a.vgpus).map(|vgpu| vgpu.used_bytes).collect::<Vec<_>>()
    };
    for line in ["alloc 1 513 33333333", "free", "alloc 100000000"] {
        writeln!(to, "{line}").expect("it listens");
        let used = hear();
        wait_until("what the program says", || told() == [Some(used), Some(0)]);
    }
    drop(to);
    program.wait().expect("it ends");
    wait_until("the end of the allocation", || told().is_empty());
}

/// What a program gets by HTTP: where to go, and its lease.
fn allocate(scene: &Scene, asked: &str) -> (Server, SignedLease, String) {
    let (status, answer) = scene.http("POST", "/allocations", asked);
    let answer: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!(status, 200, "{answer}");
    let text = |name: &str| answer[name].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
    let bytes = |name: &str| -> Vec<u8> {
        let digits = text(name);
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hex")).collect()
    };
    let signature = bytes("signature").try_into().expect("32 bytes");
    let server = Server::parse(&text("address")).expect("an address");
    (server, SignedLease { body: bytes("lease"), signature }, text("node"))
}

fn show(server: &Server, lease: &SignedLease) -> Result<u64, String> {
    let caller = Caller { lease: Some(lease.clone()), ..Caller::new("a test", None) };
    welcome_of(server, &caller).map(|welcome| welcome.devices[0].total_memory).map_err(|no: NoSession| no.text)
}

#[test]
fn a_lease_is_for_one_session_on_one_node_of_one_pool() {
    let scene = Scene::new(&["a", "b"], "", false);
    let strangers = Scene::new(&["a"], "", false);
    // What is offered stands for seconds only.
    let (server, lease, node) = allocate(&scene, "{\"vgpus\":1,\"memory_mib\":256}");
    let other = scene.nodes.iter().find(|other| other.name != node).expect("two nodes");
    let elsewhere = Server::parse(&other.address).expect("an address");
    let why = show(&elsewhere, &lease).expect_err("another node's");
    assert!(why.contains(&format!("is for the node \"{node}\"")), "{why}");
    let forged = SignedLease { signature: [7; 32], ..lease.clone() };
    let why = show(&server, &forged).expect_err("forged");
    assert!(why.contains("was not given to this program by this pool's controller"), "{why}");
    let (_, foreign, _) = allocate(&strangers, "{\"vgpus\":1,\"memory_mib\":256}");
    let why = show(&Server::parse(&scene.nodes[0].address).expect("an address"), &foreign).expect_err("foreign");
    assert!(why.contains("this pool's controller"), "{why}");
    assert_eq!(show(&server, &lease), Ok(256 * MIB));
    let why = show(&server, &lease).expect_err("used");
    assert!(why.contains("was used before"), "{why}");
    let plain = Caller::new("a test", None);
    let why = welcome_of(&server, &plain).expect_err("no lease").text;
    assert!(why.contains("set ORION_CONTROLLER"), "{why}");
}

/// The lines of README.md's section about a pool, but for ports and folders, which are this test's.
#[test]
fn what_the_readme_says_about_a_pool_works() {
    let scene = Scene::new(&[], "", false);
    let readme = std::fs::read_to_string(root().join("README.md")).expect("README.md is there");
    let (_, section) = readme.split_once("### A pool").expect("the section");
    let lines: Vec<&str> = section.split("```").nth(1).expect("a block").lines().skip(1).collect();
    let [_, oriond, agent, asked, run] = lines[..] else { panic!("{lines:?} is not what this test knows") };
    let here = |line: &str| {
        let line = line.split(" #").next().unwrap_or_default().trim_end_matches(['&', ' ']);
        line.replace("target/release", &built().display().to_string())
            .replace("/tmp/orion-demo", &scene.folder.join("demo").display().to_string())
            .replace("--listen 127.0.0.1:7411", "--listen 127.0.0.1:0")
            .replace("127.0.0.1:9123", &format!("127.0.0.1:{}", scene.port))
            .replace("--controller 127.0.0.1", &format!("--controller 127.0.0.1:{}", scene.port))
            .replace("./program", &built().join("examples/show_vgpus").display().to_string())
    };
    let shell = |line: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec {line}")]).env("HOME", &scene.folder).env_remove("ORION_SERVER");
        command
    };
    let oriond = Process::start(&mut shell(&here(oriond)), &scene.folder.join("oriond.log"));
    let port = oriond.says("tcp:127.0.0.1:");
    // Where nothing is said the controller's port is the default one.
    let agent = here(agent).replace("127.0.0.1:7411", &format!("127.0.0.1:{port}"));
    let agent = format!("{agent} --controller 127.0.0.1:{}", scene.port);
    let _agent = Process::start(&mut shell(&agent), &scene.folder.join("agent.log"));
    scene.wait_for_free(4);
    let (out, said) = text(&shell(&here(asked)).output().expect("sh starts"));
    assert_eq!(out, "nvidia_cuda=4", "{said}");
    let (out, said) = text(&shell(&here(run)).output().expect("sh starts"));
    assert_eq!(out, vgpus(2, 512), "{said}");
}
