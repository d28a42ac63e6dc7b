//! A node's first moments, and those in which its oriond is another one than its controller knows.

use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use orion_transport::fds;
use orion_wire::agent::{Answer, Ask, Gpu, KIND};

use crate::reserve::{agent, ask, wanted};
use crate::scene::{Process, Scene, Staying, wait_until};
use crate::tools::listed;
use crate::{text, vgpus};

/// An oriond of two GPUs, as its agent sees it, that runs nothing.
struct Pretended(UnixStream);

impl Pretended {
    /// Hears what the agent asks, and answers it, up to a message of which this says something.
    fn talk_until<T>(&self, is_it: impl Fn(&Ask) -> Option<T>) -> T {
        loop {
            let (_, body, _) = fds::recv_frame(self.0.as_fd()).expect("the agent asks");
            let ask = Ask::decode(&body).expect("a sound message");
            let found = is_it(&ask);
            let answer = match ask {
                Ask::Who { .. } => {
                    let gpu = |n| Gpu { uuid: [n; 16], name: "GPU".to_owned(), memory_bytes: 1 << 30 };
                    let (instance, gpus) = ([7; 16], vec![gpu(1), gpu(2)]);
                    Answer::Server { instance, is_software: true, certificate: None, gpus }
                }
                Ask::Belong { .. } | Ask::Keep { .. } => Answer::Done,
                Ask::Look { .. } => {
                    let (live, ended, used, reserve) = Default::default();
                    Answer::State { version: 0, live, ended, used, reserve }
                }
            };
            fds::send_frame(self.0.as_fd(), KIND, &answer.encode(), &[]).expect("the agent listens");
            if let Some(found) = found {
                return found;
            }
        }
    }
}

/// Whoever waits for vGPUs comes for them the moment that there are some.
#[test]
fn nobody_is_sent_to_an_oriond_that_does_not_know_yet_to_which_pool_it_belongs() {
    let scene = Scene::new(&[], "", true);
    let listener = UnixListener::bind(scene.path("a", "pool")).expect("a new folder");
    let _agent = scene.start_agent("a", &format!("unix:{}", scene.path("a", "sock").display()));
    let oriond = Pretended(listener.accept().expect("the agent comes").0);
    let free = oriond.talk_until(|ask| matches!(ask, Ask::Belong { .. }).then(|| scene.free()));
    assert_eq!(free, 0, "they are given to programs before oriond knows their leases");
    std::thread::scope(|scope| {
        scope.spawn(|| oriond.talk_until(|_| (scene.free() == 4).then_some(())));
        scene.wait_for_free(4);
    });
}

/// The same of what the agent lends by itself, when oriond has been started again while it does.
#[test]
fn nobody_is_lent_of_a_reserve_that_oriond_does_not_know_yet() {
    let mut scene = Scene::new(&[], "", true);
    scene.kept = 1;
    scene.controller.kill();
    let listener = UnixListener::bind(scene.path("a", "pool")).expect("a new folder");
    let _agent = scene.start_agent("a", &format!("unix:{}", scene.path("a", "sock").display()));
    let oriond = Pretended(listener.accept().expect("the agent comes").0);
    oriond.talk_until(|_| ask(&agent(&scene), wanted(1, "")).is_ok().then_some(()));
    drop(oriond);
    let oriond = Pretended(listener.accept().expect("the agent comes again").0);
    let lent = oriond.talk_until(|of| matches!(of, Ask::Keep { .. }).then(|| ask(&agent(&scene), wanted(1, ""))));
    assert!(lent.is_err(), "it is lent before oriond knows its key");
    oriond.talk_until(|_| ask(&agent(&scene), wanted(1, "")).is_ok().then_some(()));
}

/// For longer than it takes an agent to tell the controller and to hear from it.
fn goes_on(scene: &Scene, program: Staying) {
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        assert_eq!(scene.free(), 3, "{}", scene.controller.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(program.ask_again().0, "then 0");
    scene.wait_for_free(4);
}

/// By accident: started by hand beside the one that systemd has started, with the same name, as the machine's is the
/// default, and the same address. One of them finds no oriond, and one an oriond that talks to the first.
#[test]
fn a_second_agent_of_a_node_takes_nothing_from_the_first() {
    let scene = Scene::new(&["a"], "", false);
    let program = scene.stay(&[]);
    let address = scene.nodes[0].address.clone();
    let second = |pool: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_orion-agent"));
        command.args(["--controller", &format!("127.0.0.1:{}", scene.port), "--node", "a", "--vgpu-count", "2"]);
        command.args(["--address", &address]).arg("--pool").arg(scene.path("a", pool));
        Process::start(&mut command, &scene.path("second", pool))
    };
    let (lost, silent) = (second("nowhere"), second("pool"));
    lost.says("no oriond at ");
    silent.says("it talks to one agent at a time");
    goes_on(&scene, program);
    assert!(!scene.controller.log().contains("is not there any more"));
}

/// It was stopped for longer than its agent waits, as a machine may be that swaps. What ran there still runs.
#[test]
fn sessions_of_an_oriond_that_was_silent_for_a_while_go_on() {
    let scene = Scene::new(&["a"], "", true);
    let program = scene.stay(&[]);
    scene.nodes[0].oriond.signal(libc::SIGSTOP);
    scene.nodes[0].agent.says("it talks to one agent at a time, so is there another orion-agent beside it, or was it");
    scene.nodes[0].oriond.signal(libc::SIGCONT);
    wait_until("the agent's talking to it again", || {
        scene.nodes[0].agent.log().matches("Successfully connect to Orion Controller.").count() == 2
    });
    scene.wait_for_free(3);
    goes_on(&scene, program);
}

/// Its agent, which is stopped, has told nobody: the controller sends programs there, with leases of the one before.
#[test]
fn a_program_that_is_sent_to_an_oriond_of_which_the_controller_does_not_know_yet_asks_again() {
    let mut scene = Scene::new(&["a"], "", false);
    let port = scene.nodes[0].address.strip_prefix("tcp:").expect("over TCP").to_owned();
    scene.nodes[0].agent.signal(libc::SIGSTOP);
    scene.nodes[0].oriond.kill();
    // What a process had in its kernel's rings is let go of a moment after its end.
    wait_until("the end of its socket", || std::net::TcpStream::connect(&port).is_err());
    let said = scene.path("program", "said");
    let program = |scene: &Scene| {
        let said = std::fs::File::create(&said).expect("creating it");
        scene.program(&[]).stdout(Stdio::piped()).stderr(said).spawn().expect("it starts")
    };
    let asks_again = |why: &str| {
        let said = || std::fs::read_to_string(&said).unwrap_or_default();
        wait_until("a program's asking again", || said().contains("; asking the controller again, for 15 s at most"));
        assert!(said().contains(why) && said().lines().count() == 1, "{}", said());
    };
    // Nobody is there, then somebody of whom nobody knows.
    let first = program(&scene);
    asks_again("no oriond listens on tcp:");
    scene.nodes[0].oriond = scene.start_oriond("a", &port);
    scene.nodes[0].oriond.says("worker warm");
    let second = program(&scene);
    asks_again("no agent has told this server yet which pool it belongs to");
    scene.nodes[0].agent.signal(libc::SIGCONT);
    for program in [first, second] {
        let output = program.wait_with_output().expect("it ends");
        assert_eq!(text(&output).0, vgpus(1, 512));
    }
    scene.wait_for_free(4);
}

/// Asks again, since there is no node, and says so in one line.
struct Asking {
    child: std::process::Child,
    said: std::path::PathBuf,
}

impl Asking {
    fn begin(scene: &Scene, name: &str, mut command: Command) -> Asking {
        let said = scene.path(name, "said");
        let file = std::fs::File::create(&said).expect("creating it");
        let child = command.stdout(Stdio::piped()).stderr(file).spawn().expect("it starts");
        let asking = Asking { child, said };
        wait_until("its asking again", || {
            asking.said().contains("no node with a GPU has reported")
                && asking.said().contains("; a node may be there soon, asking for 15 s at most (ORION_WAIT)")
        });
        asking
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.said).unwrap_or_default()
    }

    /// What it has printed.
    fn ends(self) -> String {
        assert_eq!(self.said().lines().count(), 1, "{}", self.said());
        text(&self.child.wait_with_output().expect("it ends")).0
    }
}

/// All of a pool is started at once, and of it the controller is the first that listens.
#[test]
fn who_asks_before_any_node_has_reported_is_served_when_one_has() {
    let mut scene = Scene::new(&[], "", false);
    let program = Asking::begin(&scene, "program", scene.program(&[]));
    let tool = listed(scene.with_nvml(Path::new("/usr/bin/env"), &[]));
    let tool = Asking::begin(&scene, "tool", tool);
    let node = scene.node_with("a", None);
    scene.nodes.push(node);
    assert_eq!((program.ends(), tool.ends()), (vgpus(1, 512), "1\n".to_owned()));
    scene.wait_for_free(4);
}

/// The controller has heard that it is gone, and there is no other node.
#[test]
fn who_asks_while_an_oriond_is_started_again_is_served_a_moment_later() {
    let mut scene = Scene::new(&["a"], "", false);
    let port = scene.nodes[0].address.strip_prefix("tcp:").expect("over TCP").to_owned();
    scene.nodes[0].oriond.kill();
    let all = |scene: &Scene| scene.http("GET", "/devices?res=nvidia_cuda", "").1;
    wait_until("the controller's hearing that it is gone", || all(&scene) == "nvidia_cuda=0");
    let program = Asking::begin(&scene, "program", scene.program(&[]));
    let tool = listed(scene.with_nvml(Path::new("/usr/bin/env"), &[]));
    let tool = Asking::begin(&scene, "tool", tool);
    scene.nodes[0].oriond = scene.start_oriond("a", &port);
    assert_eq!((program.ends(), tool.ends()), (vgpus(1, 512), "1\n".to_owned()));
    scene.wait_for_free(4);
}
