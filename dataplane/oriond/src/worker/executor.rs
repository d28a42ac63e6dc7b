//! The executor: pops commands, has them executed, and between them asks the device about parked calls.
//!
//! It cannot tell which carrier fills its rings.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use orion_ring::{Consumer, Spin, load, spin};
use orion_telemetry::recorder::Position;
use orion_wire::Fault;
use orion_wire::record::{Header, op};

use crate::fallen;
use crate::worker::dispatch::{abandon, dispatch};
use crate::worker::outcome::{Outcome, Stop};
use crate::worker::session::{Session, freeing, in_step};
use crate::worker::state::gate::stays_on_the_device;
use crate::worker::state::in_step::{Again, IDLE_SPIN};

/// Who waits for nothing but its turn on the GPU looks around so often.
const GATE_LOOK: Duration = Duration::from_millis(5);

/// So many commands are executed before those who wait are asked after: a client thread that keeps sending must not
/// starve one that waits, nor hold on to what another freed.
const ASK_AFTER: u32 = 32;

/// How often streams are asked how far they have come while there is nothing else to do. Who waits for it has hundreds
/// of kernels ahead in the stream, which last longer.
const MARK_LOOK: Duration = Duration::from_micros(200);

/// The executor: pops, executes, and between commands asks the device about parked calls.
pub fn run(s: &mut Session, mut commands: Consumer) -> Result<(), Fault> {
    let spin = Spin::adaptive(IDLE_SPIN);
    let mut asking = Asking::default();
    let (mut body, mut reply) = (Vec::new(), Vec::new());
    let mut since_asked = 0u32;
    loop {
        s.replies.publish();
        let is_full = s.is_full();
        let next = if is_full { None } else { commands.next()? };
        let is_held_back = next.is_some_and(|header| {
            s.is_held_back(&header, || {
                commands.body(&header, &mut body);
                stays_on_the_device(&body)
            })
        });
        let next = next.filter(|_| !is_held_back);
        if let Some(header) = next {
            take(s, &mut commands, &header, &mut body, &mut reply)?;
            since_asked += 1;
            let waits = s.has_parked() || s.has_lent() || s.in_step.wanted() || s.unasked.any();
            if since_asked < ASK_AFTER || !waits && !s.has_marks() && !freeing::has_freed(s) {
                continue;
            }
        }
        if s.holds() {
            continue;
        }
        since_asked = 0;
        s.captures.rest(s.driver);
        freeing::release_fenced(s);
        let again = in_step::look(s);
        s.poll_marks()?;
        if is_full {
            s.flush_ranges()?;
        }
        if is_full || is_held_back || s.has_parked() || s.has_lent() || s.gate_watches() {
            let held_up = HeldUp { is_full, is_held_back, again };
            ask(s, &mut commands, &mut asking, spin, &held_up)?;
            continue;
        }
        if freeing::has_freed(s) {
            freeing::release_freed(s);
        }
        // More commands may lie in the ring, and whoever waits for news would not count them as such.
        if next.is_none() {
            rest(s, &mut commands, spin, again)?;
        }
    }
}

/// Takes one command out of the ring and executes it.
// Twice in the code rather than called: this is the way of every command.
#[inline(always)]
fn take(
    s: &mut Session,
    commands: &mut Consumer,
    header: &Header,
    body: &mut Vec<u8>,
    reply: &mut Vec<u8>,
) -> Result<(), Fault> {
    commands.body(header, body);
    let at = Position { end: commands.passed() + u64::from(header.size), capacity: commands.capacity() };
    s.stats.takes(header, &at, || commands.published());
    // A patch can be seen in the ring until it is applied: who looks ahead for the end of a host function must
    // not pass by what the function wrote.
    let is_patch = header.op == op::HEAP_PATCH;
    if !is_patch {
        commands.consume(header.size as usize);
    }
    #[cfg(debug_assertions)]
    if header.op == crate::cell::takeover::OP && crate::cell::takeover::is_on() {
        let answer = crate::cell::takeover::run(body)?;
        return s.replies.send(header, orion_cuda::sys::CUDA_SUCCESS, 0, &answer);
    }
    execute(s, header, body, reply)?;
    s.has_passed(header, body);
    if is_patch {
        commands.consume(header.size as usize);
    }
    Ok(())
}

/// Why the next command is not taken, or who waits meanwhile.
struct HeldUp {
    is_full: bool,
    is_held_back: bool,
    again: Option<Again>,
}

/// Asks the device about calls that are parked and copies under way, and what the arbiter says.
fn ask(
    s: &mut Session,
    commands: &mut Consumer,
    asking: &mut Asking,
    spin: Spin,
    held_up: &HeldUp,
) -> Result<(), Fault> {
    let is_waiting = held_up.is_held_back && !s.has_parked() && !s.has_lent();
    s.look_at_gate(is_waiting.then(|| held_up.again.as_ref().map_or(GATE_LOOK, |a| a.within.min(GATE_LOOK))));
    s.poll_lent();
    match s.poll_parked()? {
        true => *asking = Asking::default(),
        false => asking.pause(spin.yields, |pause| match held_up.is_full {
            true => std::thread::sleep(pause),
            false => commands.sleep(pause),
        }),
    }
    Ok(())
}

/// Waits for news: nothing is to be done, unless what was freed, memory kept in step or a mark is to be looked at
/// again.
fn rest(s: &mut Session, commands: &mut Consumer, spin: Spin, again: Option<Again>) -> Result<(), Fault> {
    let spin_briefly = Spin { budget: Duration::from_micros(50), ..spin };
    let mut idle = Instant::now();
    if freeing::has_freed(s) {
        // The device is busy: look again in a moment, or when a command comes.
        if !spin_briefly.until(|| commands.has_news() != Ok(false)) {
            let moment = if s.has_marks() { MARK_LOOK } else { Duration::from_millis(1) };
            commands.sleep(again.map_or(moment, |a| a.within));
        }
        s.stats.idled(idle, 0, false);
        return Ok(());
    }
    if let Some(again) = again {
        let news = if again.may_sleep { spin_briefly } else { Spin { budget: again.within, ..spin_briefly } };
        if !news.until(|| commands.has_news() != Ok(false)) && (again.may_sleep || !load::core_is_free(Instant::now()))
        {
            commands.sleep(again.within);
        }
        s.stats.idled(idle, 0, false);
        return Ok(());
    }
    let quiet = idle;
    while s.has_marks() {
        // As without them, but in pieces. A thread of the client's that waits for one waits for the GPU.
        let (began, is_awaited) = (Instant::now(), s.holds_up_a_thread());
        if is_awaited {
            s.stats.asked_in_vain();
        }
        let piece = Spin { budget: MARK_LOOK, ..spin };
        let news = piece.until(|| commands.has_news() != Ok(false));
        if !news && (quiet.elapsed() > IDLE_SPIN || s.divides_time() || !load::core_is_free(Instant::now())) {
            commands.sleep(MARK_LOOK);
        }
        match is_awaited {
            true => _ = s.stats.asked_in_vain(),
            false => s.stats.idled(began, 0, false),
        }
        if news {
            return Ok(());
        }
        s.poll_marks()?;
        if s.divides_time() {
            // There is more to look at.
            return Ok(());
        }
        idle = Instant::now();
    }
    s.show_usage(idle);
    let (mut looks, mut slept) = (0, false);
    let has_news = || {
        looks += 1;
        commands.has_news() != Ok(false)
    };
    if !spin.until(has_news) {
        s.stats.sleeps(idle);
        // A sleep that ends because it is over is no reason to look for another 20 ms.
        while commands.has_news() == Ok(false) {
            commands.sleep(s.rests_at_gate());
            slept = true;
        }
    }
    s.stats.idled(idle, looks, slept);
    Ok(())
}

/// How the device is asked about what is waited for: again and again while a core is free for that, else ever more
/// rarely, and a command that comes meanwhile is taken at once.
#[derive(Default)]
struct Asking {
    /// Since when it was always "not yet".
    since: Option<Instant>,
}

impl Asking {
    /// A timer is not much finer than this.
    const PAUSE_MIN: Duration = Duration::from_micros(20);
    /// Far less than the time until the GPU is another program's turn again.
    const PAUSE_MAX: Duration = Duration::from_micros(500);

    fn pause(&mut self, yields: bool, sleep: impl FnOnce(Duration)) {
        let now = Instant::now();
        let waited = now - *self.since.get_or_insert(now);
        let always = if yields { spin::YIELDING } else { spin::ALWAYS };
        if waited >= always && !load::core_is_free(now) {
            sleep((waited / 4).clamp(Self::PAUSE_MIN, Self::PAUSE_MAX));
        } else if yields {
            std::thread::yield_now();
        }
    }
}

/// Executes one command whose body was copied out of the ring. `reply` is room for what it answers.
fn execute(s: &mut Session, header: &Header, body: &[u8], reply: &mut Vec<u8>) -> Result<(), Fault> {
    match s.is_recording() {
        false => execute_one(s, header, body, reply),
        true => execute_recorded(s, header, body, reply),
    }
}

/// As without a profiler, and what the command makes the driver do belongs to the call that its thread has named.
#[cold]
fn execute_recorded(s: &mut Session, header: &Header, body: &[u8], reply: &mut Vec<u8>) -> Result<(), Fault> {
    match header.op < op::HAND_FIRST {
        true => execute_one(s, header, body, reply),
        false => s.recorded(header.thread, |s| execute_one(s, header, body, reply)),
    }
}

// Twice in the code rather than called: this is the way of every command.
#[inline(always)]
fn execute_one(s: &mut Session, header: &Header, body: &[u8], reply: &mut Vec<u8>) -> Result<(), Fault> {
    let executed = s.executed.fetch_add(1, Ordering::Relaxed) + 1;
    fallen::executing(header);
    s.in_step.note(header, executed);
    // What the client's own thread changes in mapped memory is not another thread's work.
    if header.op != op::HEAP_PATCH {
        s.note_thread(header.thread);
    }
    if s.has_small_copy() && header.op >= op::HAND_FIRST && s.follows_small_copy(header, body)? {
        return Ok(());
    }
    reply.clear();
    // What concerns no context must not change the current one, nor fail because there is none.
    let concerns = header.op >= op::HAND_FIRST;
    if concerns {
        s.variables.give();
    }
    s.captures.prepare(s.driver, header.thread);
    let outcome = match if concerns { s.make_current(header.context) } else { Ok(()) } {
        Ok(()) => {
            if s.captures.open() {
                s.may_join_a_capture(header, body);
            }
            dispatch(s, header, body, reply)
        }
        Err(code) => {
            abandon(s, header, body)?;
            Err(Stop::Code(code))
        }
    };
    s.stats.handled(header, matches!(outcome, Ok(Outcome::Parked)));
    match outcome {
        Ok(Outcome::Done(result)) | Err(Stop::Code(result)) => s.answer(header, result, reply)?,
        Ok(Outcome::Parked) => {}
        Err(Stop::Fault(fault)) => return Err(fault),
    }
    s.stats.done();
    Ok(())
}
