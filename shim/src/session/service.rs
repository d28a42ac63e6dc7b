//! The service thread: what the worker sends without being asked.

use std::sync::atomic::Ordering;
use std::time::Duration;

use orion_ring::Consumer;
use orion_wire::Reader;
use orion_wire::message::address::ClaimedRange;
use orion_wire::message::carrier::{HeapReleased, Output};
use orion_wire::record::{Header, HeapRange, op};

use crate::report::{complaint, output};
use crate::state::session::Session;
use crate::system::threads::spawn;

/// Who acts on what the worker sends, beyond showing it.
#[derive(Clone, Copy)]
pub struct Handlers {
    /// The worker is done with ranges of the heap.
    pub heap_released: fn(&'static Session, &[HeapRange]),
    /// A function of the application's is to be run.
    pub run_callback: fn(&'static Session, &Header, Reader<'_>),
}

/// Starts the one thread that every session has. Without it nothing that waits for the device could ever return.
pub fn start_service(s: &'static Session, handlers: Handlers) -> std::io::Result<()> {
    let Some(consumer) = s.service.consumer.lock().take() else { return Ok(()) };
    spawn("orion-events", 1 << 20, move || serve(s, consumer, handlers))
}

fn serve(s: &'static Session, consumer: Consumer, handlers: Handlers) {
    let _ = s.service.service.set(std::thread::current().id());
    handle_events(s, consumer, handlers);
    s.service.stopped.store(true, Ordering::Release);
}

fn handle_events(s: &'static Session, mut consumer: Consumer, handlers: Handlers) {
    let mut body = Vec::new();
    while !crate::session::carrier::lost(s) {
        complaint::print_some();
        let is_all_printed = output::print_some();
        match consumer.next() {
            Ok(Some(header)) => {
                consumer.body(&header, &mut body);
                consumer.consume(header.size as usize);
                handle(s, handlers, &header, &body);
                // Release pairs with the Acquire in `wait_for`: what the event did is visible. Announcements are not
                // counted: a carrier may have consumed them.
                if header.op != op::HEAP_WRITTEN {
                    s.events_handled.fetch_add(1, Ordering::Release);
                }
            }
            Ok(None) => consumer.sleep(Duration::from_millis(if is_all_printed { 500 } else { 1 })),
            Err(fault) => {
                crate::session::lost::broken(fault.0);
                return;
            }
        }
    }
    output::print_all();
    complaint::print_all();
}

fn handle(s: &'static Session, handlers: Handlers, header: &Header, body: &[u8]) {
    let mut r = Reader::new(body);
    match header.op {
        op::OUTPUT => {
            let Ok(q) = Output::decode(&mut r) else { return };
            let bytes = q.text.get();
            if header.context == 2 {
                complaint::keep(bytes);
            } else {
                output::keep(bytes);
            }
        }
        op::HEAP_RELEASED => {
            let check = |range: &ClaimedRange| range.check(s.welcome.heap_bytes);
            let checked = |q: HeapReleased| q.ranges.iter().map(check).collect::<Result<Vec<_>, _>>();
            match HeapReleased::decode(&mut r).and_then(checked) {
                Ok(ranges) => (handlers.heap_released)(s, &ranges),
                Err(fault) => _ = crate::session::lost::broken(fault.0),
            }
        }
        op::RUN_CALLBACK => (handlers.run_callback)(s, header, r),
        _ => {}
    }
}
