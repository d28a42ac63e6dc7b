//! The worker on another machine, and devices on both that write into each other's memory: RDMA verbs, over InfiniBand
//! or RoCE.
//!
//! The handshake is as over TCP: the same challenges, the same encryption. Over its connection the ends then tell each
//! other their queue pairs' numbers and keys, and from there on it is silent: its end is the session's. Devices write
//! commands into the worker's ring, and replies into the application's: who waits there sees them come, and threads
//! only wake him. What goes with bytes of the heap, and events, are frames of [`crate::stream`], which devices write
//! into the other side's inbox; what follows them does so too, until they have been taken from there.
//!
//! ```text
//! orion-send      commands -> stage -> device -> the worker's ring; with bytes of the heap -> outbox -> its inbox
//! orion-receive   inbox -> reply and event ring, heap; wakes who sleeps at the reply ring
//!                 large ranges of the heap stay where they are, and the device of who is to have them reads them
//! placing  which records             showing  which ranges           ends     what the ends tell each other
//! works    what devices are asked    window   who may write, how much   pipe     how it is written
//! verbs    devices and queue pairs   limits   how much, how often    device   verbs, or none
//! choice   which port                areas    of a heap, for paging   paging   is a device's right
//! breaking in tests: what fails
//! ```
//! Nothing encrypts what devices write: whoever can listen between them reads it. Nor does a device reach anything but
//! the inbox, that ring and, to be read, what is shown: no range of the heap stays registered when it has been read, as
//! pages come and go with what the application allocates, and a device keeps those that it knows. One that finds pages
//! by itself (on-demand paging) keeps none: there an area of the heap is registered when something of it is used for
//! the first time, and stays so, to be read by the session's other side. Small ranges are copied into and out of the
//! inbox by the threads here and by oriond's engine.

// UNSAFETY: poll, recv, and copies into heap memory by address.

pub mod areas;
#[cfg(all(debug_assertions, feature = "rdma"))]
pub mod breaking;
pub mod choice;
mod device;
pub mod ends;
pub mod limits;
#[cfg(not(feature = "rdma"))]
mod missing;
#[cfg(feature = "rdma")]
mod paging;
pub mod pipe;
pub mod placing;
pub mod showing;
#[cfg(feature = "rdma")]
mod verbs;
pub mod window;
pub mod works;

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use orion_ring::bell::{Bell, Futex};
use orion_ring::futex::{self, Among};
use orion_ring::{Consumer, Producer};
use orion_wire::address::Server;
use orion_wire::hello::kind;
use orion_wire::{Fault, Pages};

use super::application_side::{ApplicationSide, Begun, begin, wake};
use super::contract::{Attached, Carrier, Death, Security, Way};
use super::tcp;
use crate::channel::Channel;
use crate::client::handshake::{Caller, NoSession, Tuning, answer_to, shutdown};
use crate::client::say;
use crate::gather::Gather;
use crate::lanes::LaneCounts;
use crate::scatter::{Blocked, Listener, Scatter};
use crate::socket;
use crate::stream::{Frame, TAKEN_BYTES_MIN};
use crate::thread::{LIMIT, spawn, with_signals_blocked};
use choice::VerbsPort;
pub use device::{Device, Pair};
use ends::End;
use pipe::Pipe;
use placing::place;
use showing::{Showing, read_shown};

/// How often a client that has nothing to say writes nothing, so that a way that is down is found out about: less than
/// 11 s with the above. The server hears of it by the TCP connection's end.
const BEAT: Duration = Duration::from_millis(1500);
/// Looks at a port, at beats, that find it down until a session is given up whose device does not notice by itself. A
/// port that is down for a moment is none of our business: devices send again.
const DOWN_MAX: u32 = 4;
/// For the other side's end of the queue pair.
const ENDS_SECONDS_MAX: i64 = 10;
const RECEIVE_BYTES: usize = 128 << 10;
/// Of what is received: as [`ApplicationSide::new`] has it.
const REPLIES: usize = 0;

pub struct Rdma;

impl Way for Rdma {
    fn name(&self) -> &'static str {
        "rdma"
    }

    /// The worker shares its own with the engine that serves us there, and rings that.
    fn pages(&self) -> Pages {
        Pages::Mirrored
    }

    fn reach(&self, server: &Server, caller: &Caller) -> Result<(Channel, bool), NoSession> {
        Ok((tcp::reach(server, &tcp::way(server, caller)?)?, false))
    }

    fn attach(
        &self,
        server: &Server,
        caller: &Caller,
        tuning: Tuning,
        listener: Listener,
    ) -> Result<Attached, NoSession> {
        let unavailable = |why: String| format!("{server} is reached by RDMA, and that is not to be had here: {why}");
        if caller.trust.always {
            return Err(unavailable(
                "ORION_TLS=1 wants everything encrypted, and nothing encrypts what RDMA devices write; unset it, or go \
                 over tcp"
                    .to_owned(),
            )
            .into());
        }
        // Before anybody is bothered.
        let device = VerbsPort::from_environment().and_then(|wanted| Device::open(&wanted)).map_err(unavailable)?;
        let pipe = Pipe::new(Pair::new(device).map_err(unavailable)?);
        let begun = begin(self, server, caller, tcp::reach(server, &tcp::way(server, caller)?)?)?;
        let Begun { mut main, welcome, memory, heap, is_proved, .. } = begun;
        let (side, commands, mut scatter) = ApplicationSide::new(&memory, heap, listener, tuning)?;
        // SAFETY: memory is not unmapped when it is dropped, and its rings and its heap stay what they are.
        unsafe {
            pipe.offer(scatter.ring(REPLIES).beside_device()).map_err(unavailable)?;
            pipe.find_pages_of(side.heap);
        }
        connect(server, &mut main, &pipe)?;
        if pipe.reads() {
            scatter.let_device_read();
        }
        let security = Security {
            is_proved,
            // The handshake was, where it crossed a network; what devices write is not.
            is_encrypted: Some(false),
        };
        let main = main.into_parts().0;

        let (down, room_waits) = (AtomicU32::new(0), AtomicU32::new(0));
        let link = Arc::new(Link { main, pipe, side, down, room_waits });
        start_pumps(&link, commands, scatter)
            .map_err(|e| format!("starting the connection's threads failed: {e}; {LIMIT}"))?;
        Ok(Attached::new(welcome, memory, heap, security, link))
    }
}

/// The ends tell each other where they are. The server has made its own ready when it answers.
fn connect(server: &Server, main: &mut Channel, pipe: &Pipe) -> Result<(), NoSession> {
    let failed = |e: io::Error| format!("telling {server} about a queue pair failed: {e}");
    socket::receive_timeout(main.as_fd(), ENDS_SECONDS_MAX).map_err(failed)?;
    main.send_frame(kind::ENDS, &pipe.own().encode(), &[]).map_err(failed)?;
    let (body, _) = answer_to(server, main, kind::ENDS, "where its queue pair is")
        .map_err(|no| NoSession { text: format!("{}; is that a port that oriond has --rdma for?", no.text), ..no })?;
    let peer = End::decode(&body).map_err(|f| format!("what {server} says of its queue pair is damaged: {f}"))?;
    pipe.connect(&peer)?;
    socket::receive_timeout(main.as_fd(), 0).map_err(failed)?;
    Ok(())
}

struct Link {
    /// Silent; its end is the session's.
    main: OwnedFd,
    pipe: Pipe,
    side: ApplicationSide,
    /// Beats, one after the other, at which the port was down.
    down: AtomicU32,
    /// 1 while the sending thread sleeps until there is room.
    room_waits: AtomicU32,
}

impl Link {
    fn lost(&self) -> bool {
        self.side.is_lost()
    }

    fn end(&self, death: Death) {
        if self.side.lost.set(death) {
            shutdown(self.main.as_fd());
            wake(&self.room_waits);
        }
    }

    fn finish(&self, end: Result<(), Death>) {
        self.end(self.side.end_of(end));
    }
}

impl Carrier for Link {
    fn pages(&self) -> Pages {
        Pages::Mirrored
    }

    /// The other side is the pump threads.
    fn bell(&self) -> Arc<dyn Bell> {
        Arc::new(Futex)
    }

    fn death(&self) -> Option<&Death> {
        self.side.lost.death()
    }

    fn close(&self) {
        self.end(Death::Closed);
    }

    fn sockets(&self) -> Vec<RawFd> {
        std::iter::once(self.main.as_raw_fd()).chain(self.pipe.descriptors()).collect()
    }
}

fn start_pumps(link: &Arc<Link>, commands: Consumer, scatter: Scatter) -> io::Result<()> {
    with_signals_blocked(|| {
        let l = link.clone();
        spawn("orion-send".into(), move || {
            let end = send_commands(&l, commands);
            l.finish(end);
        })?;
        let l = link.clone();
        spawn("orion-receive".into(), move || {
            let end = receive(&l, scatter);
            l.finish(end);
        })
    })
}

fn send_commands(link: &Link, commands: Consumer) -> Result<(), Death> {
    let place = |batch: &mut Gather, commands: &mut Consumer| {
        place(&link.pipe, batch, Frame::Command, commands).map_err(Death::from)
    };
    let send = |batch: &mut Gather| {
        // SAFETY: the parts point to memory that stays mapped for the life of the process.
        let sent = unsafe { link.pipe.send(batch.parts(), batch.is_ahead())? };
        batch.advance(sent);
        match sent {
            // All was sent, and what is next waits for others to be read.
            0 if batch.is_empty() => wait_room(link, || Ok(link.pipe.may_show())),
            0 => wait_room(link, || link.pipe.has_room()),
            _ => Ok(()),
        }
    };
    let mut showing = Showing { pipe: &link.pipe, heap: link.side.heap, holes: link.side.holes };
    link.side.send_commands(commands, &mut showing, place, send, || {})
}

fn wait_room(link: &Link, is_there: impl Fn() -> Result<bool, Death>) -> Result<(), Death> {
    let mut outcome = Ok(false);
    let mut found = || {
        outcome = is_there();
        !matches!(outcome, Ok(false))
    };
    if !link.side.spin.until(&mut found) && !link.lost() {
        // Set first, then one more look: whoever hears of credits looks at the word afterwards.
        link.room_waits.store(1, Ordering::SeqCst);
        if !found() {
            futex::wait(&link.room_waits, 1, Some(Duration::from_millis(100)), Among::Threads);
        }
    }
    outcome.map(drop)
}

fn receive(link: &Link, mut scatter: Scatter) -> Result<(), Death> {
    let mut buffer = vec![0u8; RECEIVE_BYTES];
    let mut has_said_why = false;
    while !link.lost() {
        if link.pipe.look()? {
            wake(&link.room_waits);
        }
        link.side.taken(link.pipe.peer_ring_taken());
        have_placed(link, scatter.ring(REPLIES))?;
        read_shown(&link.pipe, &mut scatter)?;
        if let Some(why) = link.pipe.objection().filter(|_| !std::mem::replace(&mut has_said_why, true)) {
            say::say(format_args!("bytes are copied that the RDMA device could read where they are: {why}"));
        }
        if let Some((to, len)) = scatter.in_place() {
            // SAFETY: `in_place` gave `len` writable bytes of the heap.
            let n = unsafe { link.pipe.copy(to, len) };
            if n > 0 {
                scatter.received_in_place(n);
                link.pipe.take(n)?;
                continue;
            }
        }
        // SAFETY: the buffer is ours.
        let n = unsafe { link.pipe.copy(buffer.as_mut_ptr(), buffer.len()) };
        if n == 0 {
            wait_news(link, || link.pipe.has_arrivals())?;
            continue;
        }
        link.side.deliver(&mut scatter, &buffer[..n], &LaneCounts::default(), |scatter, blocked| match blocked {
            Blocked::Device => wait_read(link, scatter),
            _ => Err(Fault("a barrier where there are no lanes").into()),
        })?;
        link.pipe.take(n)?;
    }
    Ok(())
}

/// Until something more of what is shown was read. What has come meanwhile waits, so only the way to it is looked at.
fn wait_read(link: &Link, scatter: &mut Scatter) -> Result<(), Death> {
    while !link.lost() && !read_shown(&link.pipe, scatter)? {
        wait_news(link, || false)?;
    }
    Ok(())
}

/// Wakes who waits for the replies that the other side's device has written, and tells of the room for more.
fn have_placed(link: &Link, replies: &mut Producer) -> Result<(), Death> {
    let impossible = |_| Fault("ring positions are impossible");
    let placed = link.pipe.take_placed();
    if placed > 0 && !replies.placed(placed).map_err(impossible)? {
        return Err(Fault("more replies were written than there is room for").into());
    }
    if replies.outstanding_seen() >= TAKEN_BYTES_MIN {
        replies.room().map_err(impossible)?;
    }
    link.pipe.ring_taken(replies.taken_seen())
}

/// Looks for a while, then sleeps until something has come, or the connection has ended.
fn wait_news(link: &Link, has_come: impl Fn() -> bool) -> Result<(), Death> {
    let mut outcome = Ok(false);
    link.side.spin.until(|| {
        outcome = link.pipe.look();
        !matches!(outcome, Ok(false)) || link.lost()
    });
    if outcome? {
        wake(&link.room_waits);
        return Ok(());
    }
    if link.lost() || has_come() || !link.pipe.may_sleep()? {
        // What made it stay awake may have been credits.
        wake(&link.room_waits);
        return Ok(());
    }
    let readable = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut entries = [readable(link.pipe.bell()), readable(link.main.as_raw_fd())];
    // SAFETY: as many valid entries.
    if unsafe { libc::poll(entries.as_mut_ptr(), 2, BEAT.as_millis() as i32) } == 0 {
        return beat(link);
    }
    if entries[0].revents != 0 {
        link.pipe.hear();
    }
    if entries[1].revents != 0 {
        return Err(end_of(&link.main));
    }
    Ok(())
}

fn beat(link: &Link) -> Result<(), Death> {
    if link.pipe.is_up() {
        link.down.store(0, Ordering::Relaxed);
    } else if link.down.fetch_add(1, Ordering::Relaxed) + 1 >= DOWN_MAX {
        return Err(Death::Cut(format!("here, {}", link.pipe.state())));
    }
    link.pipe.beat()
}

/// How a connection has ended on which nothing is said any more.
fn end_of(socket: &OwnedFd) -> Death {
    let mut byte = 0u8;
    // SAFETY: one byte into a local.
    match unsafe { libc::recv(socket.as_raw_fd(), (&raw mut byte).cast(), 1, libc::MSG_DONTWAIT) } {
        n if n < 0 => io::Error::last_os_error().into(),
        _ => Death::Gone,
    }
}
