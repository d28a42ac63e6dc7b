//! A node's own reserve, with real processes: what is lent of it while the controller is away, and what becomes of
//! that.

use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output};

use orion_proto::pool_client::PoolClient;
use orion_proto::{Allocation, AllocationName, ListAllocationsRequest};
use orion_transport::carrier::welcome_of;
use orion_transport::client::{Caller, Server};
use orion_transport::fds;
use orion_transport::lease::SignedLease;
use orion_wire::reserve::{Answer, Ask, KIND, RESERVE_VERSION, Wanted};

use crate::scene::{PATIENCE, Scene, built, wait_until};
use crate::tools::listed;
use crate::{refused, text, vgpus};

/// One node of two GPUs, split into two vGPUs each, of which one is the node's own.
fn scene(is_local: bool) -> Scene {
    Scene::with_reserve("a", 1, is_local)
}

const NOW: (&str, &str) = ("ORION_WAIT", "0");
const TWO: (&str, &str) = ("ORION_VGPU", "2");

fn lose_controller(scene: &mut Scene) {
    scene.controller.kill();
    scene.nodes[0].agent.says("no controller is reached; programs on this node are lent its own reserve");
}

/// What the controller knows to be lent of reserves.
fn lent(scene: &Scene) -> Vec<Allocation> {
    call(scene, async |pool| {
        let all = pool.list_allocations(ListAllocationsRequest::default()).await.expect("a list").into_inner();
        all.allocations.into_iter().filter(|a| a.of_reserve).collect()
    })
}

fn call<T>(scene: &Scene, work: impl AsyncFnOnce(&mut PoolClient<tonic::transport::Channel>) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut pool = PoolClient::connect(format!("http://127.0.0.1:{}", scene.port)).await.expect("it listens");
        work(&mut pool).await
    })
}

fn tool(scene: &Scene, name: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(built().join(name));
    let output: Output =
        command.args(["--controller", &format!("127.0.0.1:{}", scene.port)]).args(arguments).output().expect("a tool");
    let (out, said) = text(&output);
    assert!(output.status.success(), "{said}");
    out
}

#[test]
fn while_the_controller_is_away_a_node_lends_its_reserve_and_nothing_is_lent_twice() {
    let mut scene = scene(true);
    // The controller lends the others, and while it is there the reserve is nobody's.
    let of_pool = scene.stay(&[TWO]);
    refused(&scene.run(&[NOW]), &["the pool has no room for 1 vGPU", "1 of them the node's own reserve"]);
    lose_controller(&mut scene);
    let of_reserve = scene.stay(&[("ORION_TENANT", "red"), ("ORION_VERBOSE", "1")]);
    let (out, said) = text(&scene.run(&[NOW]));
    assert_eq!(out, vgpus(1, 512));
    assert!(said.contains("is not reached") && said.contains("of the own reserve of this node, a"), "{said}");
    scene.nodes[0].agent.says("is back in this node's own reserve");
    // One of two is lent.
    refused(&scene.run(&[NOW, TWO]), &["is not reached", "the node's own reserve has no room for 2 vGPUs"]);
    refused(&scene.run(&[NOW, ("ORION_GMEM", "600")]), &["the node's own reserve has no room"]);
    refused(&scene.run(&[NOW, ("ORION_RATIO", "50")]), &["ORION_RATIO is 50", "leave it out"]);
    let group = [NOW, ("ORION_GROUP_ID", "g"), ("ORION_RES_GROUP", "BOX")];
    refused(&scene.run(&group), &["it knows no groups"]);
    scene.nodes[0].oriond.says("its vGPUs are of this node's own reserve");
    // Back, the controller knows what is lent, and by whom, and lends nothing of it.
    scene.restart_controller("");
    wait_until("the controller's hearing of the reserve", || lent(&scene).len() == 1);
    let known = &lent(&scene)[0];
    assert_eq!((known.tenant.as_str(), known.vgpus.len(), known.vgpus[0].vgpu), ("red", 1, 1));
    assert!(known.client.contains("show_vgpus"), "{known:?}");
    assert_eq!(scene.free(), 0);
    refused(&scene.run(&[NOW]), &["the pool has no room for 1 vGPU"]);
    scene.controller.says("host a has lent ");
    let table = tool(&scene, "orion-smi", &[]);
    assert!(table.contains("(reserve) ") && table.matches("Orion vGPU  ").count() == 3, "{table}");
    let table = tool(&scene, "orion-smi", &["--pool"]);
    assert!(table.contains("2 more vGPUs are nodes' own reserves, and 1 of those are lent"), "{table}");
    let table = tool(&scene, "orionctl", &["allocations"]);
    assert!(table.contains(" runs of its node's own reserve tenant=red"), "{table}");
    assert!(scene.http("GET", "/metrics", "").1.contains("orion_gpu_vgpus_reserve_lent{node=\"a\""));
    // Both sessions went on, and what they had is back with whom it was.
    assert_eq!(of_pool.ask_again().0, "then 0");
    scene.wait_for_free(2);
    assert_eq!(lent(&scene).len(), 1);
    assert_eq!(of_reserve.ask_again().0, "then 0");
    wait_until("the end of what was lent", || lent(&scene).is_empty());
    assert_eq!(scene.free(), 2);
    assert_eq!(text(&scene.run(&[TWO])), (vgpus(2, 512), String::new()));
}

#[test]
fn an_operator_ends_what_a_node_has_lent() {
    let mut scene = scene(false);
    lose_controller(&mut scene);
    let program = scene.stay(&[TWO]);
    scene.restart_controller("");
    wait_until("the controller's hearing of the reserve", || lent(&scene).len() == 1);
    let allocation = lent(&scene)[0].allocation.clone();
    let was_there = call(&scene, async |pool| pool.kill(AllocationName { allocation }).await);
    assert!(was_there.expect("an operator may").into_inner().was_there);
    scene.nodes[0].oriond.says("says that its lease is over");
    let (then, said) = program.ask_again();
    assert!(then != "then 0" && said.contains("orion: "), "{then} {said}");
    wait_until("the end of what was lent", || lent(&scene).is_empty());
}

#[test]
fn an_agent_that_is_started_again_knows_what_was_lent_and_needs_no_controller_for_it() {
    let mut scene = scene(true);
    lose_controller(&mut scene);
    let program = scene.stay(&[]);
    let address = scene.nodes[0].address.clone();
    scene.nodes[0].agent.kill();
    scene.nodes[0].agent = scene.start_agent("a", &address);
    scene.nodes[0].agent.says("this node has a reserve of its own vgpus_of_each_gpu=1 running=");
    scene.nodes[0].agent.says("no controller is reached");
    refused(&scene.run(&[NOW, TWO]), &["the node's own reserve has no room for 2 vGPUs"]);
    assert_eq!(text(&scene.run(&[NOW])).0, vgpus(1, 512));
    // Nor does an oriond that never heard of one.
    scene.nodes[0].oriond.kill();
    assert!(program.ask_again().0 != "then 0");
    scene.nodes[0].oriond = scene.start_oriond("a", "127.0.0.1:0");
    wait_until("the whole reserve", || text(&scene.run(&[NOW, TWO])).0 == vgpus(2, 512));
}

#[test]
fn a_node_without_a_reserve_any_more_has_what_was_lent_of_it_ended() {
    let mut scene = scene(true);
    lose_controller(&mut scene);
    let program = scene.stay(&[]);
    scene.nodes[0].agent.kill();
    scene.kept = 0;
    let address = scene.nodes[0].address.clone();
    scene.nodes[0].agent = scene.start_agent("a", &address);
    scene.restart_controller("");
    scene.nodes[0].agent.says("is over, ending its session");
    scene.nodes[0].oriond.says("says that its lease is over");
    assert!(program.ask_again().0 != "then 0");
    scene.wait_for_free(4);
}

#[test]
fn a_reserve_is_lent_by_the_carrier_that_is_asked_for_or_not_at_all() {
    let mut scene = scene(false);
    lose_controller(&mut scene);
    scene.nodes[0].agent.kill();
    let addresses = format!("{},unix:{}", scene.nodes[0].address, scene.path("a", "sock").display());
    scene.nodes[0].agent = scene.start_agent("a", &addresses);
    scene.nodes[0].agent.says("no controller is reached");
    let mut times = 0;
    for (name, address) in [("shm", "unix:"), ("tcp", "tcp:127.0.0.1:"), ("", "tcp:127.0.0.1:")] {
        let (out, said) = text(&scene.run(&[NOW, ("ORION_TRANSPORT", name), ("ORION_VERBOSE", "1")]));
        assert_eq!(out, vgpus(1, 512), "{said}");
        assert!(said.contains(address), "{said}");
        times += 1;
        scene.nodes[0].agent.lines("is back in this node's own reserve", times);
    }
    let lent = || scene.nodes[0].agent.lines("is lent of this node's own reserve", times);
    lent();
    let words = ["this node's own reserve", "the node is not reached by rdma"];
    refused(&scene.run(&[NOW, ("ORION_TRANSPORT", "rdma")]), &words);
    lent();
}

/// Before and after the last vGPU of the reserve is lent.
#[test]
fn a_tool_that_only_asks_sees_vgpus_of_the_reserve_and_is_lent_none() {
    let mut scene = scene(true);
    lose_controller(&mut scene);
    let env = Path::new("/usr/bin/env");
    let counts = |scene: &Scene| text(&listed(scene.with_nvml(env, &[NOW, TWO])).output().expect("it starts"));
    let two = ("2\n".to_owned(), String::new());
    assert_eq!(counts(&scene), two);
    let program = scene.stay(&[TWO]);
    assert_eq!(counts(&scene), two);
    scene.nodes[0].agent.lines("is lent of this node's own reserve", 1);
    let of_three = scene.with_nvml(env, &[NOW, ("ORION_VGPU", "3")]);
    let (_, said) = text(&listed(of_three).output().expect("it starts"));
    assert!(said.contains("this node's own reserve") && said.contains("3 vGPUs"), "{said}");
    assert_eq!(program.ask_again().0, "then 0");
}

/// The agent's socket.
pub fn agent(scene: &Scene) -> UnixStream {
    let socket = UnixStream::connect(scene.folder.join("orion/reserve.sock")).expect("it listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket
}

pub fn wanted(vgpus: u32, client_key: &str) -> Wanted {
    let (tenant, group, client) = (String::new(), String::new(), "a test".to_owned());
    let (client_key, carrier) = (client_key.to_owned(), String::new());
    Wanted { vgpus, memory_mib: None, ratio: None, tenant, group, client, client_key, carrier }
}

pub fn ask(socket: &UnixStream, wanted: Wanted) -> Result<SignedLease, String> {
    let ask = Ask::Want { version: RESERVE_VERSION, is_look: false, wanted };
    fds::send_frame(socket.as_fd(), KIND, &ask.encode(), &[]).expect("sending");
    let (_, body, _) = fds::recv_frame(socket.as_fd()).expect("an answer");
    match Answer::decode(&body).expect("an answer") {
        Answer::Lent { lease, signature, .. } => Ok(SignedLease { body: lease, signature }),
        Answer::No { reason } => Err(reason),
    }
}

#[test]
fn what_nobody_comes_for_is_back_at_once_and_a_lease_of_the_reserve_is_for_one_session() {
    let mut scene = scene(false);
    // An agent that has just been started does not know of a controller yet.
    let mut why = String::new();
    wait_until("its agent has found the controller", || {
        why = ask(&agent(&scene), wanted(1, "")).expect_err("a controller is there");
        !why.contains("has just been started")
    });
    assert!(why.contains("its agent reaches the controller at 127.0.0.1:"), "{why}");
    lose_controller(&mut scene);
    let first = agent(&scene);
    ask(&first, wanted(2, "")).expect("all of it");
    let second = agent(&scene);
    assert!(ask(&second, wanted(1, "")).expect_err("nothing is left").contains("no room"));
    drop(first);
    scene.nodes[0].agent.says("its program has gone before its session began");
    let third = agent(&scene);
    let lease = ask(&third, wanted(2, "")).expect("all of it");
    let server = Server::parse(&scene.nodes[0].address).expect("an address");
    let caller = Caller { lease: Some(lease), ..Caller::new("a test", None) };
    welcome_of(&server, &caller).expect("a session");
    let why = welcome_of(&server, &caller).expect_err("it had one").text;
    assert!(why.contains("was used before"), "{why}");
}

#[test]
fn another_user_s_programs_need_the_client_key_and_strange_words_harm_nobody() {
    let mut scene = scene(true);
    lose_controller(&mut scene);
    for words in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 4096], &orion_wire::hello::frame(KIND, &[7; 64])] {
        use std::io::{Read, Write};
        let mut socket = agent(&scene);
        let _ = socket.write_all(words);
        assert_eq!(socket.read(&mut [0; 64]).unwrap_or(0), 0, "an answer to {words:?}");
    }
    // SAFETY: a plain call.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("not root: nobody else's program can be played");
    }
    let everybody = std::fs::Permissions::from_mode(0o755);
    for folder in [scene.folder.clone(), scene.folder.join("orion")] {
        std::fs::set_permissions(folder, everybody.clone()).expect("chmod");
    }
    // The system call changes the thread, and no other one of this process.
    let as_nobody = |scene: &Scene, key: &str| {
        let work = move || {
            // SAFETY: a plain call; the thread ends afterwards.
            assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) }, 0);
            let socket = agent(scene);
            ask(&socket, wanted(1, key)).map(drop)
        };
        std::thread::scope(|scope| scope.spawn(work).join().expect("no panic"))
    };
    let why = as_nobody(&scene, "").expect_err("another user");
    assert!(why.contains("user 65534 is neither root"), "{why}");
    let key = scene.folder.join("client-key");
    std::fs::write(&key, "a key of sixteen characters\n").expect("writing");
    scene.agent_options = vec!["--client-key-file".into(), key.into()];
    let address = scene.nodes[0].address.clone();
    scene.nodes[0].agent.kill();
    scene.nodes[0].agent = scene.start_agent("a", &address);
    scene.nodes[0].agent.says("no controller is reached");
    assert!(as_nobody(&scene, "a key of sixteen charactors").expect_err("another key").contains("client-key"));
    as_nobody(&scene, "a key of sixteen characters").expect("the key");
}
