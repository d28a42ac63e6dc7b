//! Somebody is cut off, comes back as another one, or has another clock.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::field::{Answer, Carrier, Field, Got, Node};
use crate::net::Way;
use crate::scene::wait_until;

/// How soon after a cut is healed the pool is whole again.
const HEALED: Duration = Duration::from_secs(5);

#[test]
fn a_node_cut_off_from_the_controller_keeps_its_sessions_and_gets_no_new_ones_until_it_is_back() {
    let field = Field::new(&[("a", Carrier::Tcp), ("b", Carrier::Tcp)]);
    let mut whole = [field.attached(&[("ORION_VGPU", "4")]), field.attached(&[("ORION_VGPU", "2")])];
    let on = |name: &str| {
        let (books, _) = field.books().expect("it answers");
        books.allocations.iter().filter(|a| a.vgpus.iter().any(|vgpu| vgpu.node == name)).count()
    };
    // The one with room.
    let at = field.nodes.iter().position(|node| node.sessions().len() == 1 && on(node.name) == 1).expect("one a node");
    let cut = usize::from(field.nodes[at].sessions().keys().next() == Some(&whole[0].lease()));
    let (node, other) = (&field.nodes[cut], &field.nodes[1 - cut]);
    node.machine.cut(Way::Management);
    wait_until("the controller's giving up a node", || {
        field.books().is_some_and(|(_, devices)| devices.devices.iter().any(|gpu| gpu.standing == "lost"))
    });
    assert!(whole.iter_mut().all(|program| program.answer() == Answer::Works));
    // There would be room on it.
    let mut refused = field.start(&[("ORION_VGPU", "2"), ("ORION_WAIT", "0")]);
    assert_eq!(refused.look(HEALED), Got::Refused);
    assert!(refused.said().contains(&format!("{} GPU 0", node.name)) && refused.said().contains("not heard of"));
    assert!(other.agent.log().contains("Successfully connect"));
    node.machine.heal(Way::Management);
    let healed = wait_until("the node's being heard of", || {
        field.books().is_some_and(|(_, devices)| devices.devices.iter().all(|gpu| gpu.standing == "up"))
    });
    assert!(healed < HEALED, "the node was back {healed:?} after the cut was healed");
    assert!(whole.iter_mut().all(|program| program.answer() == Answer::Works));
    whole.iter_mut().for_each(|program| program.end());
    field.wait_for_free(8);
    field.end();
}

/// As long as leases stand, and longer than any timer of a connection that might still be waited for.
const MINUTE: Duration = Duration::from_secs(65);

/// The pool loses sight of a node for a minute: `away` and `back` say how it goes and comes.
fn is_heard_within_seconds(away: impl Fn(&Node), back: impl Fn(&Node)) {
    let field = Field::new(&[("a", Carrier::Tcp)]);
    let node = &field.nodes[0];
    let stands = |standing: &str| {
        let books = field.books();
        books.is_some_and(|(_, devices)| devices.devices.iter().all(|gpu| gpu.standing == standing))
    };
    away(node);
    std::thread::sleep(MINUTE);
    wait_until("the controller's giving up a node", || stands("lost"));
    back(node);
    let heard = wait_until("the node's being heard of", || stands("up"));
    assert!(heard < HEALED, "heard of after {heard:?}");
    field.end();
}

#[test]
fn an_agent_that_was_cut_off_for_a_minute_is_heard_within_seconds() {
    is_heard_within_seconds(|node| node.machine.cut(Way::Management), |node| node.machine.heal(Way::Management));
}

#[test]
fn an_agent_that_was_stopped_for_a_minute_is_heard_within_seconds() {
    is_heard_within_seconds(|node| node.agent.signal(libc::SIGSTOP), |node| node.agent.signal(libc::SIGCONT));
}

#[test]
fn a_program_cut_off_from_its_node_goes_on_after_a_moment_and_is_told_after_a_while() {
    let field = Field::new(&[("a", Carrier::Tcp)]);
    let mut program = field.attached(&[("ORION_VGPU", "2")]);
    field.nodes[0].machine.cut(Way::Data);
    std::thread::sleep(Duration::from_secs(2));
    field.nodes[0].machine.heal(Way::Data);
    assert_eq!(program.answer(), Answer::Works);
    field.nodes[0].machine.cut(Way::Data);
    wait_until("its being told", || matches!(program.answer(), Answer::Lost(_)));
    wait_until("a line that says so", || program.said().contains("the session is lost"));
    // The node has seen it too, and says so though nobody reaches it any more but the controller.
    field.wait_for_free(4);
    assert!(field.nodes[0].sessions().is_empty());
    let mut refused = field.start(&[]);
    assert_eq!(refused.look(Duration::from_secs(30)), Got::Refused);
    assert!(refused.said().contains("did not answer within 5 s"), "{}", refused.said());
    field.wait_for_free(4);
    field.nodes[0].machine.heal(Way::Data);
    field.wait_for_way_to(0);
    let mut again = field.attached(&[("ORION_VGPU", "4")]);
    again.end();
    field.wait_for_free(4);
    field.end();
}

/// A library that sets the clock of the processes that load it ahead, or back.
const OTHER_CLOCK: &str = "
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, \"clock_gettime\");
    int code = real(clock, time);
    const char *ahead = getenv(\"ORION_DAYS_CLOCK\");
    if (ahead && clock == CLOCK_REALTIME) time->tv_sec += atol(ahead);
    return code;
}
";

fn other_clock() -> PathBuf {
    let library = std::env::temp_dir().join(format!("orion-days-clock-{}.so", std::process::id()));
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-x", "c", "-", "-o"]).arg(&library).arg("-ldl").stdin(Stdio::piped());
    let mut cc = cc.spawn().expect("cc starts");
    cc.stdin.take().expect("a pipe").write_all(OTHER_CLOCK.as_bytes()).expect("it reads");
    assert!(cc.wait().expect("it ends").success());
    library
}

#[test]
fn a_node_whose_clock_is_wrong_serves_as_well_and_its_agent_says_so() {
    let library = other_clock();
    for seconds in ["3600", "-3600"] {
        let field = Field::with(&[("a", Carrier::Tcp)], "", |command| {
            command.env("LD_PRELOAD", &library).env("ORION_DAYS_CLOCK", seconds);
        });
        let differ = field.nodes[0].agent.says("this node's clock and the controller's differ by ");
        let ms: u64 = differ.parse().expect("a number");
        assert!(ms.abs_diff(3_600_000) < 10_000, "{}", field.nodes[0].agent.log());
        let mut program = field.attached(&[("ORION_VGPU", "2")]);
        assert_eq!(program.answer(), Answer::Works);
        program.end();
        field.wait_for_free(4);
        field.end();
    }
    std::fs::remove_file(library).expect("removing");
}

#[test]
fn a_node_that_comes_back_with_other_gpus_has_what_it_says() {
    let mut field = Field::new(&[("a", Carrier::Tcp)]);
    let mut program = field.attached(&[("ORION_VGPU", "4")]);
    field.nodes[0].oriond.kill();
    wait_until("its end", || matches!(program.answer(), Answer::Lost(_)));
    field.restart_oriond(0, 1);
    field.wait_for_free(2);
    let mut refused = field.start(&[("ORION_VGPU", "4")]);
    assert_eq!(refused.look(Duration::from_secs(30)), Got::Refused);
    assert!(refused.said().contains("no room for 4 vGPUs"), "{}", refused.said());
    let mut two = field.attached(&[("ORION_VGPU", "2")]);
    assert_eq!(two.devices, 2);
    two.end();
    field.nodes[0].oriond.kill();
    field.restart_oriond(0, 3);
    field.wait_for_free(6);
    field.end();
}
