//! A node's first moments, and those in which its oriond is another one than its controller knows.

use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Stdio;

use orion_transport::fds;
use orion_wire::agent::{Answer, Ask, Gpu, KIND};

use crate::reserve::{agent, ask, wanted};
use crate::scene::{Scene, wait_until};
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
