//! A link with a delay, in a network namespace of the calling thread and of what it starts: a tun device that gives
//! each packet back a moment later, with its two addresses exchanged. So an address beyond it is this machine as well,
//! and the kernel's TCP finds out about the delay by itself.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const PACKET_BYTES_MAX: usize = 2048;

pub struct Link {
    pub here: &'static str,
    pub there: &'static str,
}

impl Link {
    /// `None` where a user may not have one.
    pub fn open(delay_ms: u64) -> Option<Link> {
        // SAFETY: a plain call, about this thread alone.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return None;
        }
        let tun = OpenOptions::new().read(true).write(true).open("/dev/net/tun").ok()?;
        // SAFETY: all-zero is valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(b"delay0") {
            *to = *from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
        // SAFETY: a valid request.
        if unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETIFF, &raw const request) } != 0 {
            return None;
        }
        for what in [&["link", "set", "lo", "up"][..], &["addr", "add", "10.213.7.1/24", "dev", "delay0"]] {
            assert!(Command::new("ip").args(what).status().expect("iproute2 is there").success(), "ip {what:?}");
        }
        let up = Command::new("ip").args(["link", "set", "delay0", "up"]).status().expect("iproute2 is there");
        assert!(up.success());
        reflect(tun, Duration::from_millis(delay_ms));
        Some(Link { here: "10.213.7.1", there: "10.213.7.2" })
    }
}

fn reflect(tun: File, delay: Duration) {
    let mut back = tun.try_clone().expect("a descriptor more");
    let (later, packets) = channel::<(Instant, Vec<u8>)>();
    std::thread::spawn(move || {
        let mut tun = tun;
        let mut packet = [0; PACKET_BYTES_MAX];
        while let Ok(n) = tun.read(&mut packet) {
            let mut packet = packet[..n].to_vec();
            // IPv4 only. Sums stay right, for they do not depend on the order.
            if n >= 20 && packet[0] >> 4 == 4 {
                let (from, to) = packet[12..20].split_at_mut(4);
                from.swap_with_slice(to);
                let _ = later.send((Instant::now() + delay, packet));
            }
        }
    });
    std::thread::spawn(move || {
        for (at, packet) in packets {
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            let _ = back.write(&packet);
        }
    });
}
