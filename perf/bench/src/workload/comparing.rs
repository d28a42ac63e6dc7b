//! What a launch over TCP looks at in vain: pinned memory that both ends keep in step, in which nothing has changed.

// UNSAFETY: writes to memory that nobody else has.

use std::time::Instant;

use orion_ring::Memory;
use orion_ring::memory::Layout;
use orion_transport::holes::{Holes, PAGE};
use orion_transport::mirror::{Mirror, Notice, Scope, Side};
use orion_wire::record::HeapRange;

use crate::report::Sample;
use crate::timing::Times;

const PINNED: HeapRange = HeapRange { offset: 0, bytes: 100 << 20 };
/// As many of its 25,600 pages as CatBoost has written to, about.
const SCATTERED: usize = 199;

pub fn measure(quick: bool) -> Result<Vec<Sample>, String> {
    let looks = if quick { 3 } else { 20 };
    let cases = [
        ("all pages written, not asking for holes", Some(1), false),
        ("all pages written", Some(1), true),
        ("129 scattered pages written", Some(SCATTERED), true),
        ("no page written", None, true),
    ];
    cases.map(|(case, every, asks)| looks_in_vain(case, every, asks, looks)).into_iter().collect()
}

/// `every` is how many pages apart those are that are written to; `asks` whether holes are told from pages where that
/// can be.
fn looks_in_vain(case: &str, every: Option<usize>, asks: bool, looks: u32) -> Result<Sample, String> {
    let memory =
        Memory::create(Layout { heap_bytes: PINNED.bytes }).map_err(|e| format!("making memory failed: {e}"))?;
    let heap = memory.map_heap(None).map_err(|e| format!("mapping memory failed: {e}"))?;
    for page in every.into_iter().flat_map(|every| (0..PINNED.bytes / PAGE).step_by(every)) {
        let at = heap.at(page * PAGE, PAGE).expect("inside of it");
        // SAFETY: a page of memory that only this thread has.
        unsafe { at.write_bytes(3, PAGE as usize) };
    }
    let mut mirror = Mirror::new(Side::Client);
    mirror.know_holes(Holes::of(&memory).filter(|_| asks));
    mirror.add(&heap, PINNED).map_err(|fault| fault.0.to_owned())?;
    let mut times = Times::new();
    for look in 0..looks + 1 {
        let start = Instant::now();
        let found = mirror.collect(&heap, Scope::All, Notice::default());
        if look > 0 {
            times.record(start.elapsed());
        }
        if !found.is_empty() {
            return Err("something has changed that nobody wrote".into());
        }
    }
    Ok(Sample::of_times(case, "ns", &times))
}
