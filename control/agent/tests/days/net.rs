//! Machines of a test: network namespaces on two bridges, of no name and so gone with the test's process.
//!
//! Everybody is on the `data` network, 10.77.0.N. Controller and nodes are on the `management` network too, 10.78.0.N,
//! where the agents talk to the controller: so either way can be cut alone.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::Command;

/// A network namespace.
struct Namespace(File);

impl Namespace {
    fn new() -> Namespace {
        let make = || {
            // SAFETY: a plain call; the thread ends afterwards.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "a network namespace takes root");
            Namespace(File::open("/proc/thread-self/ns/net").expect("its own namespace"))
        };
        std::thread::spawn(make).join().expect("no panic")
    }

    /// Does something on a thread that is in it; so are the processes that it starts.
    fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            // SAFETY: an open descriptor of a namespace; the thread ends afterwards.
            assert_eq!(unsafe { libc::setns(self.0.as_raw_fd(), libc::CLONE_NEWNET) }, 0, "entering a namespace");
            work()
        };
        std::thread::scope(|scope| match scope.spawn(inside).join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    /// As `ip` finds it.
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    fn ip(&self, line: &str) {
        let output = self.run(|| Command::new("ip").args(line.split(' ')).output());
        let output = output.expect("ip starts: it is in the package iproute2");
        assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Which of the two networks.
#[derive(Clone, Copy)]
pub enum Way {
    /// 10.77.0.N
    Data = 77,
    /// 10.78.0.N
    Management = 78,
}

pub struct Machine {
    namespace: Namespace,
    number: u8,
    switch: std::sync::Arc<Namespace>,
}

impl Machine {
    pub fn address(&self, way: Way) -> String {
        format!("10.{}.0.{}", way as u8, self.number)
    }

    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.namespace.run(work)
    }

    fn attach(&self, way: Way) {
        let (way, number, there) = (way as u8, self.number, self.namespace.path());
        self.switch.ip(&format!("link add p{way}-{number} type veth peer name eth{way} netns {there}"));
        self.switch.ip(&format!("link set p{way}-{number} master br{way} up"));
        self.namespace.ip(&format!("addr add 10.{way}.0.{number}/24 dev eth{way}"));
        self.namespace.ip(&format!("link set eth{way} up"));
    }

    /// As if somebody pulled the cable out of the switch.
    pub fn cut(&self, way: Way) {
        self.switch.ip(&format!("link set p{}-{} down", way as u8, self.number));
    }

    pub fn heal(&self, way: Way) {
        self.switch.ip(&format!("link set p{}-{} up", way as u8, self.number));
    }
}

/// The switch of both networks, and who is plugged into it.
pub struct Net {
    switch: std::sync::Arc<Namespace>,
    machines: u8,
}

impl Net {
    pub fn new() -> Net {
        let switch = Namespace::new();
        for way in [Way::Data, Way::Management] {
            switch.ip(&format!("link add br{} type bridge", way as u8));
            switch.ip(&format!("link set br{} up", way as u8));
        }
        Net { switch: std::sync::Arc::new(switch), machines: 0 }
    }

    pub fn machine(&mut self, ways: &[Way]) -> Machine {
        self.machines += 1;
        let machine = Machine { namespace: Namespace::new(), number: self.machines, switch: self.switch.clone() };
        machine.namespace.ip("link set lo up");
        ways.iter().for_each(|way| machine.attach(*way));
        machine
    }
}
