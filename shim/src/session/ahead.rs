//! How much a thread has ahead in a stream.
//!
//! A GPU's queue holds about a thousand launches, and the next one waits in the driver: natively that thread alone. The
//! worker executes the commands of all threads, and would wait there with all of them, although another thread's may
//! be what the GPU is waiting for (a stream's write that a wait in another stream is for; the word that opens a host
//! function). So a thread has the worker tell it how far a stream has come, and waits here, a little before the queue
//! is full: natively it would wait a little later.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;

use orion_cuda::sys::*;
use orion_transport::thread::Uncancelled;
use orion_wire::message::field::Existing;
use orion_wire::message::stream::{MARKS_AHEAD, StreamMark};

use crate::session::attached::session;
use crate::session::call::start;
use crate::session::reply::{answered, wait_for_reply};
use crate::session::thread::THREAD;
use crate::state::ahead::{Ahead, Key, OfStream};
use crate::state::context;
use crate::state::process::state;

/// So many commands lie between two marks, and [`MARKS_AHEAD`] marks ahead of what a stream has done. Nobody waits for
/// 828 commands, and none goes with more than 920 and their marks ahead, which a queue of 1024 holds beside the marks
/// of a session with a share.
const COMMANDS: u32 = 92;
/// What counts is how much of the queue a command takes: almost always a place, so many of these.
const PLACE: u32 = 16;
const STEP: u32 = COMMANDS * PLACE;
/// An H200's queue of a stream holds 1021 launches with up to 1 KiB of parameters, or 717 with 4,000 bytes: as if it
/// had 4 MiB, and each launch took 1,850 bytes besides.
const QUEUE_BYTES: usize = 4 << 20;
const LAUNCH_BYTES: usize = 1850;
const PLACE_BYTES: usize = QUEUE_BYTES / 1021;
/// A thread with work under way in more streams has that in the others uncounted.
const STREAMS: usize = 128;

#[inline]
fn count(ahead: &Ahead, key: Key, stream: CUstream, takes: u32) {
    let count = ahead.since_mark.get() + takes;
    if ahead.last.get() == key && count < STEP {
        ahead.since_mark.set(count);
        return;
    }
    count_rarely(ahead, key, stream, takes);
}

#[cold]
#[inline(never)]
fn count_rarely(ahead: &Ahead, key: Key, stream: CUstream, takes: u32) {
    let mut streams = ManuallyDrop::into_inner(ahead.streams.take());
    let last = ahead.last.get();
    if let Some(one) = streams.iter_mut().find(|one| one.key == last) {
        one.since_mark = ahead.since_mark.get();
    }
    let at = streams.iter().position(|one| one.key == key).or_else(|| add(&mut streams, key));
    if let Some(at) = at {
        let one = &mut streams[at];
        one.since_mark += takes;
        if one.since_mark >= STEP {
            one.since_mark -= STEP;
            mark(one, stream);
        }
        ahead.last.set(key);
        ahead.since_mark.set(one.since_mark);
    }
    ahead.streams.set(ManuallyDrop::new(streams));
}

/// In place of one that has nothing ahead, if there are many.
fn add(streams: &mut Vec<OfStream>, key: Key) -> Option<usize> {
    if streams.len() >= STREAMS {
        streams.iter_mut().for_each(forget_what_is_passed);
        let idle = streams.iter().position(|one| one.marks.is_empty())?;
        streams.swap_remove(idle);
    }
    streams.push(OfStream { key, since_mark: 0, marks: VecDeque::new() });
    Some(streams.len() - 1)
}

fn mark(of: &mut OfStream, stream: CUstream) {
    let Ok(s) = session() else { return };
    let _whole = Uncancelled::hold();
    if of.marks.len() >= MARKS_AHEAD
        && let Some((s, oldest)) = of.marks.pop_front()
    {
        // What is wrong with the stream or the session is told by the calls that are about it.
        let _ = wait_for_reply(s, StreamMark::OP, oldest);
        forget_what_is_passed(of);
    }
    if let Ok(ticket) = start(s, StreamMark::OP, |w| StreamMark { stream: Existing(stream as u64) }.encode(w)) {
        of.marks.push_back((s, ticket.sequence));
    }
}

fn forget_what_is_passed(of: &mut OfStream) {
    while of.marks.front().is_some_and(|(s, oldest)| answered(s, *oldest)) {
        of.marks.pop_front();
    }
}

/// The calling thread has given a stream something to do. Waits while that stream has about as much ahead as the GPU's
/// queue holds.
#[inline]
pub fn queued(stream: CUstream) {
    takes(stream, PLACE);
}

/// As [`queued`], of a launch with so many bytes of parameters.
#[inline]
pub fn launched(stream: CUstream, bytes: usize) {
    // Almost always a constant: this is the way of every launch.
    takes(
        stream,
        match bytes <= PLACE_BYTES - LAUNCH_BYTES {
            true => PLACE,
            false => ((LAUNCH_BYTES + bytes) * PLACE as usize).div_ceil(PLACE_BYTES) as u32,
        },
    );
}

/// Besides the copy itself, where host memory is another machine's: what is copied there is followed by a word and an
/// event that tell the worker, what is copied from there by an event.
pub fn carried(stream: CUstream, to_host: bool, from_host: bool) {
    let places = if to_host { 2 } else { u32::from(from_host) };
    if places > 0 {
        takes(stream, places * PLACE);
    }
}

#[inline]
fn takes(stream: CUstream, takes: u32) {
    // What is captured does not run, and a mark in a stream that joins would be part of the graph.
    if state().captures.any_open() {
        return;
    }
    let key = match stream as u64 {
        0 | 1 => (0, context::current()),
        2 => (2, context::current()),
        handle => (handle, 0),
    };
    THREAD.with(|t| count(&t.ahead, key, stream, takes));
}
