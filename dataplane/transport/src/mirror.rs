//! Host memory of which client and worker each have pages of their own, kept in step by sending what changed.
//!
//! Each side compares its pages with what the other side is known to have and sends the bytes that differ, in
//! patches that carry them: what was compared is what is sent, and what is known afterwards.
//!
//! What a patch consists of: [`HeapPatch`]. Words of eight bytes are read and written whole, so
//! nobody sees half of one.
//!
//! **Order.** A program writes data, then a flag. A scan that passed the data before it was written may see the flag,
//! so what a scan finds is sent only after a further scan has found no other place changed: then everything that was
//! written before the flag is among it. Words that changed from one scan to the next were still being written; they
//! go last, as the scan before saw them. Of what was found together the order is not known: see [`in_order`]. But of
//! a word that a stream writes or waits for it is known that it tells of others: it goes behind all that is found with
//! it, see [`Mirror::name_flag`].
//!
//! Of much memory no two scans are alike while a program streams through it. Flags lie apart from the bulk of the data,
//! in lines of which only a part changes, and such *sparse* lines are few. They are read before the rest is scanned,
//! and sent behind what that finds, as they were read then: see [`Mirror::collect_much`].
//!
//! **Echo and conflict.** What arrives becomes known in the same step, so it is no change of this side's. Where the
//! client has changed a byte and the worker has not got that yet, the client's byte stays: the worker will get it, and
//! both have the same in the end. A program in which that happens has host and device write to one byte at a time.

// UNSAFETY: reads and writes heap memory that the application or the device uses at the same time, word by word.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use orion_ring::{Heap, once};
use orion_wire::message::carrier::{HeapPatch, PatchHead, PatchRun};
use orion_wire::message::field::{Field, Rest};
use orion_wire::record::HeapRange;
use orion_wire::{Fault, Reader, Writer};

use crate::holes::{Holes, PAGE};

/// What is kept in step at launches and completions; each of them compares all of it.
pub const MIRRORED_BYTES_MAX: u64 = 256 << 20;
/// What every look compares while the device works. The rest is compared before anything that was found is sent, and as
/// often as that costs little: see [`Mirror::is_rest_due`].
pub const LIVE_BYTES_MAX: u64 = 1 << 20;
/// The rest is not looked at for so long: a short kernel's completion brings what it wrote.
const REST_QUIET_MIN: Duration = Duration::from_millis(2);
/// So many times as long as it takes to look at the rest in vain passes before the next time.
const REST_IN_VAIN: u32 = 16;
/// A line of which fewer words than that have changed may hold a flag.
const DENSE_WORDS: usize = 12;
/// How often a line is found to be sparse and all is looked at anew, before the next look has to do.
const ROUNDS_MAX: usize = 4;
/// Looks that found lines in the middle of being written and nothing else, until these are sent all the same.
const WRITING_MAX: u32 = 4;
/// Reads of a line until it is taken as it is: it holds something that counts as quickly as it is read.
const READS_MAX: usize = 32;
/// Scans behind the first one until what one found is sent although others found other values, and although the last
/// one found words that had not changed before. Each of these may be a flag whose data no scan has seen, so they are
/// waited for longer; a machine that is short of cores writes something between any two scans.
const SCANS_MAX: usize = 4;
const SCANS_OF_NEW_MAX: usize = 16;
/// Words known as flags at a time. Whoever names more has forgotten the ones that were named first.
const FLAGS_MAX: usize = 1024;
/// Of runs in one patch, a quarter of the longest record. A word that changed alone takes 32 bytes of it.
const PATCH_BYTES_MAX: u64 = 64 << 10;
const WORD: u64 = 8;
/// Of a run, beside its words and their masks.
const RUN_BYTES: u64 = 2 * WORD;
/// Compared at once: 128 bytes. A flag in the middle of much data, such as NCCL's, tells of its own line.
const LINE_WORDS: usize = 16;
const LINE: u64 = WORD * LINE_WORDS as u64;
/// Looked at as a whole first: a page, or the rest of a range.
const PAGE_WORDS: usize = (PAGE / WORD) as usize;
const PAGE_LINES: usize = PAGE_WORDS / LINE_WORDS;
/// Less than that is compared in less time than it takes to ask where its holes are.
const HOLES_BYTES_MIN: u64 = 64 << 10;

/// Which end of the session this is. Conflicts are the client's to win.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Client,
    Worker,
}

/// What to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    All,
    /// While the device works: what is quickly compared, and all of it if something is found or if it is time to.
    Live,
}

/// What a patch says besides the bytes in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Notice {
    /// The device was idle after this many commands.
    pub idle_after: u64,
    /// Found while the device works, not because of a launch or a completion.
    pub live: bool,
}

struct Mirrored {
    bytes: u64,
    live: bool,
    /// What the other side has.
    known: Vec<u64>,
    /// A bit for each line of which only a part has changed at some time.
    sparse: Vec<u64>,
    /// A bit for each page that has been seen to be there. Of the others it is asked whether they are holes; what the
    /// other side has there is zeros.
    pages: Vec<AtomicU64>,
}

impl Mirrored {
    /// Pages of the range, with what is left at its end.
    fn page_count(&self) -> usize {
        self.known.len().div_ceil(PAGE_WORDS)
    }

    fn is_page(&self, page: usize) -> bool {
        // Relaxed: who compares has the mirror's lock, or the mirror to himself.
        self.pages[page / 64].load(Ordering::Relaxed) >> (page % 64) & 1 != 0
    }

    fn note_page(&self, page: usize) {
        self.pages[page / 64].fetch_or(1 << (page % 64), Ordering::Relaxed);
    }

    /// The first page from `page` on that has been seen to be there, or how many there are.
    fn next_page(&self, page: usize) -> usize {
        let count = self.page_count();
        let (first, mut mask) = (page / 64, u64::MAX << (page % 64));
        for (i, word) in self.pages.iter().enumerate().skip(first) {
            let bits = word.load(Ordering::Relaxed) & mask;
            if bits != 0 {
                return (i * 64 + bits.trailing_zeros() as usize).min(count);
            }
            mask = u64::MAX;
        }
        count
    }

    /// Each page of the range at `base` that is there, in order. One that is a hole when it is asked for holds zeros
    /// then, which is what the other side has: as if each of its words had been read at that moment.
    fn each_page(&self, base: u64, holes: Option<&Holes>, mut page_is_there: impl FnMut(usize)) {
        let (count, mut page) = (self.page_count(), 0);
        while page < count {
            if !self.is_page(page) {
                let (at, end) = (base + page as u64 * PAGE, base + self.bytes);
                let until = (holes.map_or(at, |holes| holes.end(at, end)) - base).div_ceil(PAGE) as usize;
                let next = self.next_page(page);
                if until < next {
                    self.note_page(until);
                }
                page = until.min(next);
                continue;
            }
            page_is_there(page);
            page += 1;
        }
    }

    fn is_sparse(&self, line: usize) -> bool {
        self.sparse[line / 64] >> (line % 64) & 1 != 0
    }

    /// The sparse lines, in order.
    fn sparse_lines(&self) -> impl Iterator<Item = usize> {
        let words = self.sparse.iter().enumerate().filter(|(_, word)| **word != 0);
        words.flat_map(|(i, word)| (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| i * 64 + bit))
    }
}

/// Some bytes of one word of the heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Change {
    offset: u64,
    value: u64,
    /// `0xff` for each byte that is meant.
    mask: u64,
}

/// Bytes that the worker may not have got yet.
struct Unacknowledged {
    number: u64,
    /// In order of address.
    changes: Vec<(u64, u64)>,
}

/// What a scan has found, by the lines in which it lies; each in order of address.
#[derive(Default)]
struct Found {
    /// Of most words of a line.
    dense: Vec<Change>,
    /// Of fewer.
    sparse: Vec<Change>,
    /// Of a line that has changed since.
    unfinished: Vec<Change>,
}

/// The mirrored ranges of one session, at one of its ends.
pub struct Mirror {
    side: Side,
    /// Where it can be known which pages nobody has written to.
    holes: Option<Holes>,
    ranges: BTreeMap<u64, Mirrored>,
    /// Ranges that a carrier is writing.
    arriving: Vec<HeapRange>,
    /// Ranges that copies are writing, at the worker.
    left_out: Vec<HeapRange>,
    /// Patches with bytes in them sent so far.
    sent: u64,
    /// The other side's last patch that was applied, and the last one that it was told so of.
    applied: u64,
    acknowledged: u64,
    unacknowledged: VecDeque<Unacknowledged>,
    /// When all was last compared, how long that took while the device worked, and whether it found anything then.
    compared: Option<Instant>,
    took: Duration,
    in_vain: bool,
    /// Looks in a row that found nothing but lines in the middle of being written.
    writing: u32,
    flags: Flags,
}

/// Words that tell of others, by address, and in the order in which they were last named.
#[derive(Default)]
struct Flags {
    named: BTreeMap<u64, u64>,
    in_order: BTreeMap<u64, u64>,
    count: u64,
}

impl Flags {
    const NONE: Flags = Flags { named: BTreeMap::new(), in_order: BTreeMap::new(), count: 0 };

    fn name(&mut self, offset: u64) {
        self.count += 1;
        if let Some(before) = self.named.insert(offset, self.count) {
            self.in_order.remove(&before);
        }
        self.in_order.insert(self.count, offset);
        if self.named.len() > FLAGS_MAX
            && let Some((_, offset)) = self.in_order.pop_first()
        {
            self.named.remove(&offset);
        }
    }

    fn forget(&mut self, first: u64, end: u64) {
        let gone: Vec<(u64, u64)> = self.named.range(first..end).map(|(offset, count)| (*offset, *count)).collect();
        for (offset, count) in gone {
            self.named.remove(&offset);
            self.in_order.remove(&count);
        }
    }
}

impl Mirror {
    pub const fn new(side: Side) -> Mirror {
        Mirror {
            side,
            holes: None,
            ranges: BTreeMap::new(),
            arriving: Vec::new(),
            left_out: Vec::new(),
            sent: 0,
            applied: 0,
            acknowledged: 0,
            unacknowledged: VecDeque::new(),
            compared: None,
            took: Duration::ZERO,
            in_vain: true,
            writing: 0,
            flags: Flags::NONE,
        }
    }

    /// Of ranges that are added from now on pages that nobody has written to are not compared.
    pub fn know_holes(&mut self, holes: Option<Holes>) {
        self.holes = holes;
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there is more than what every look compares.
    fn has_rest(&self) -> bool {
        self.ranges.values().any(|m| !m.live)
    }

    pub fn bytes(&self) -> u64 {
        self.ranges.values().map(|m| m.bytes).sum()
    }

    pub fn has(&self, range: HeapRange) -> bool {
        self.ranges.get(&range.offset).is_some_and(|m| m.bytes == range.bytes)
    }

    /// Whether all of `range` is kept in step.
    pub fn covers(&self, range: HeapRange) -> bool {
        let before = self.ranges.range(..=range.offset).next_back();
        before.is_some_and(|(base, m)| range.offset + range.bytes <= base + m.bytes)
    }

    /// Keeps a range of whole lines in step from now on, if it is not kept so already. What lies there now is what the
    /// other side has, or will have before anything else arrives there.
    pub fn add(&mut self, heap: &Heap, range: HeapRange) -> Result<(), Fault> {
        if range.bytes == 0 || !range.offset.is_multiple_of(LINE) || !range.bytes.is_multiple_of(LINE) {
            return Err(Fault("mirrored range is not made of lines"));
        }
        if self.has(range) {
            return Ok(());
        }
        if self.bytes() + range.bytes > MIRRORED_BYTES_MAX {
            return Err(Fault("more mirrored memory than allowed"));
        }
        let words = Words::of(heap, range).ok_or(Fault("range outside the session's host heap"))?;
        let live =
            self.ranges.values().filter(|m| m.live).map(|m| m.bytes).sum::<u64>() + range.bytes <= LIVE_BYTES_MAX;
        let sparse = vec![0; (range.bytes / WORD) as usize / LINE_WORDS / 64 + 1];
        let known = vec![0; words.count as usize];
        let asks = self.holes.is_some() && range.bytes >= HOLES_BYTES_MIN && range.offset.is_multiple_of(PAGE);
        let none_seen = if asks { 0 } else { u64::MAX };
        let pages = (0..known.len().div_ceil(PAGE_WORDS).div_ceil(64)).map(|_| AtomicU64::new(none_seen)).collect();
        let mut m = Mirrored { bytes: range.bytes, live, known, sparse, pages };
        let mut there = Vec::new();
        m.each_page(range.offset, self.holes.as_ref(), |page| there.push(page));
        for page in there {
            let last = ((page + 1) * PAGE_WORDS).min(m.known.len());
            for i in page * PAGE_WORDS..last {
                // Not written where it is zero already: memory that is cleared costs nothing until then.
                let now = words.load(i as u64);
                if now != 0 {
                    m.known[i] = now;
                }
            }
        }
        self.ranges.insert(range.offset, m);
        Ok(())
    }

    pub fn remove(&mut self, offset: u64) {
        if let Some(m) = self.ranges.remove(&offset) {
            self.flags.forget(offset, offset + m.bytes);
        }
    }

    /// These bytes, of at most two words, tell of what was written before them: a stream writes them or waits for them.
    /// When they have changed they go behind everything that is found with them; of several such words, the one that
    /// was named last goes last. Bytes that are not kept in step are passed over.
    pub fn name_flag(&mut self, range: HeapRange) {
        let first = range.offset / WORD * WORD;
        for offset in (first..range.offset + range.bytes).step_by(WORD as usize).take(2) {
            let Some((base, m)) = self.ranges.range_mut(..=offset).next_back() else { continue };
            if offset < base + m.bytes {
                let line = ((offset - base) / LINE) as usize;
                m.sparse[line / 64] |= 1 << (line % 64);
                self.flags.name(offset);
            }
        }
    }

    /// As [`in_order`], and behind it the words that are known to tell of others.
    fn in_order(&self, mut changes: Vec<Change>) -> Vec<Change> {
        if self.flags.named.is_empty() {
            return in_order(changes);
        }
        let named = |change: &Change| self.flags.named.get(&change.offset).copied();
        let mut flags: Vec<Change> = changes.extract_if(.., |change| named(change).is_some()).collect();
        flags.sort_by_key(named);
        let mut all = in_order(changes);
        all.extend(flags);
        all
    }

    /// A carrier begins to write a range: until it has arrived, what differs there is no change of this side's.
    pub fn arriving(&mut self, range: HeapRange) {
        if self.overlaps(range) {
            self.arriving.push(range);
        }
    }

    /// The first part of what was arriving, or all of it, is there.
    fn no_more_arrives(&mut self, range: HeapRange) {
        let end = range.offset + range.bytes;
        if let Some(i) = self.arriving.iter().position(|a| a.offset == range.offset) {
            let last = self.arriving[i].offset + self.arriving[i].bytes;
            self.arriving[i] = HeapRange { offset: end, bytes: last.saturating_sub(end) };
            if end >= last {
                self.arriving.swap_remove(i);
            }
        }
    }

    /// The other side has what is in the words of this range: `word_at` answers them by their place in the heap.
    fn learn_all(&mut self, heap: &Heap, range: HeapRange, word_at: impl Fn(&Words, u64, u64) -> u64) {
        let end = range.offset + range.bytes;
        for (base, m) in self.ranges.range_mut(..end) {
            let (first, last) = (range.offset.max(*base), end.min(base + m.bytes));
            if first >= last {
                continue;
            }
            let Some(words) = Words::of(heap, HeapRange { offset: *base, bytes: m.bytes }) else { continue };
            for i in (first - base) / WORD..(last - base).div_ceil(WORD) {
                let here = base + i * WORD;
                let mask = bytes_between(first.saturating_sub(here), (last - here).min(WORD));
                let known = &mut m.known[i as usize];
                *known = *known & !mask | word_at(&words, i, here) & mask;
            }
            for page in (first - base) / PAGE..(last - base).div_ceil(PAGE) {
                m.note_page(page as usize);
            }
        }
    }

    /// A carrier has written a range, or the first part of one that was arriving.
    pub fn arrived(&mut self, heap: &Heap, range: HeapRange) {
        self.no_more_arrives(range);
        self.learn_all(heap, range, |words, i, _| words.load(i));
    }

    /// As [`Self::arrived`], of bytes that are written only now: whoever sees them in memory and changes them there
    /// changes what the other side is known to have.
    pub fn write(&mut self, heap: &Heap, offset: u64, from: &[u8]) -> Result<(), Fault> {
        let range = HeapRange { offset, bytes: from.len() as u64 };
        let to = heap.at(offset, range.bytes).ok_or(Fault("range outside the session's host heap"))?;
        self.no_more_arrives(range);
        self.learn_all(heap, range, |_, _, here| {
            let byte = |i: u64| (here + i).checked_sub(offset).and_then(|at| from.get(at as usize)).copied();
            u64::from_le_bytes(std::array::from_fn(|i| byte(i as u64).unwrap_or(0)))
        });
        // SAFETY: `at` gave as many writable bytes, and the source is a slice of this process's own.
        unsafe { once::copy(from.as_ptr(), to, from.len()) };
        Ok(())
    }

    /// Copies are writing these ranges, and nothing else: what differs there is brought over when they are done. Said
    /// anew whenever that changes.
    pub fn leave_out(&mut self, ranges: Vec<HeapRange>) {
        self.left_out = ranges.into_iter().filter(|range| self.overlaps(*range)).collect();
    }

    /// The parts of a range that is kept in step that were seen to be there. The rest holds zeros, or will be found to
    /// have changed.
    pub fn seen(&self, range: HeapRange) -> Vec<HeapRange> {
        let Some(m) = self.ranges.get(&range.offset) else { return vec![range] };
        let (mut parts, mut first) = (Vec::new(), m.next_page(0));
        while first < m.page_count() {
            let end = (first..m.page_count()).find(|page| !m.is_page(*page)).unwrap_or(m.page_count());
            let offset = range.offset + first as u64 * PAGE;
            parts.push(HeapRange { offset, bytes: ((end - first) as u64 * PAGE).min(range.offset + m.bytes - offset) });
            first = m.next_page(end);
        }
        parts
    }

    /// Whether some of `range` is kept in step.
    pub fn overlaps(&self, range: HeapRange) -> bool {
        let before = self.ranges.range(..range.offset + range.bytes).next_back();
        before.is_some_and(|(base, m)| base + m.bytes > range.offset)
    }

    /// Patches with everything that this side has changed since the last time, to be sent in this order. They count
    /// as sent.
    pub fn collect(&mut self, heap: &Heap, scope: Scope, notice: Notice) -> Vec<Vec<u8>> {
        let mut patches = Vec::new();
        if self.has_rest() {
            if scope == Scope::All || self.is_rest_due() || self.has_quick_changes(heap) {
                self.collect_much(heap, scope, notice, &mut patches);
            }
            return patches;
        }
        let (first, then) = self.cut(|m| m.scan(heap, |_| true));
        self.encode(self.in_order(first), notice, &mut patches);
        self.encode(self.in_order(then), notice, &mut patches);
        patches
    }

    /// Whether something has changed where that is quickly seen.
    fn has_quick_changes(&self, heap: &Heap) -> bool {
        !self.scan(heap, |m| m.live).is_empty() || !self.scan_sparse(heap).is_empty()
    }

    /// Flags are read first: all that they tell of has been written when the scan of the rest begins, and lies either
    /// in sparse lines, which were read together with them, or in others, of which it is found. So those go first, but
    /// for lines that differ when they are read again: these are being written, and no flag has told of them. Where a
    /// line turns out to be sparse, it may hold a flag of its own, so all wait until it was read with the others.
    ///
    /// A launch and a completion bring whatever was written before them, if need be as it is.
    fn collect_much(&mut self, heap: &Heap, scope: Scope, notice: Notice, patches: &mut Vec<Vec<u8>>) {
        let (mut began, mut flags, mut writing) = (Instant::now(), Default::default(), Vec::new());
        for left in (0..ROUNDS_MAX).rev() {
            began = Instant::now();
            flags = self.cut(|m| m.scan_sparse(heap));
            fence(Ordering::SeqCst);
            let found = self.scan(heap, |_| true);
            fence(Ordering::SeqCst);
            let Found { dense, sparse, unfinished } = self.tell_apart(heap, found);
            let is_new = !sparse.is_empty();
            if is_new && left > 0 {
                continue;
            }
            self.encode(self.in_order(dense), notice, patches);
            match scope {
                // The next look reads the new ones with the others.
                Scope::Live if is_new => flags = Default::default(),
                _ => self.encode(self.in_order(sparse), notice, patches),
            }
            writing = unfinished;
            break;
        }
        let (first, then) = flags;
        self.encode(self.in_order(first), notice, patches);
        self.encode(self.in_order(then), notice, patches);
        self.writing = if patches.is_empty() && !writing.is_empty() { self.writing + 1 } else { 0 };
        if scope == Scope::All || self.writing > WRITING_MAX {
            self.writing = 0;
            self.encode(writing, notice, patches);
        }
        let now = Instant::now();
        (self.compared, self.took) = (Some(now), now - began);
        self.in_vain = patches.is_empty();
    }

    /// What has changed in sparse lines.
    fn scan_sparse(&self, heap: &Heap) -> Vec<Change> {
        let mut found = Vec::new();
        for (base, m) in &self.ranges {
            if let Some(words) = Words::of(heap, HeapRange { offset: *base, bytes: m.bytes }) {
                m.sparse_lines().for_each(|line| self.scan_line(&words, *base, m, line, &mut found));
            }
        }
        found
    }

    /// Sorts what a scan has found in lines that were not sparse; which are now, is noted.
    fn tell_apart(&mut self, heap: &Heap, changes: Vec<Change>) -> Found {
        let mut found = Found::default();
        let mut now = Vec::with_capacity(LINE_WORDS);
        for here in changes.chunk_by(is_one_line) {
            let Some((base, m)) = self.ranges.range(..=here[0].offset).next_back() else { continue };
            let line = ((here[0].offset - base) / LINE) as usize;
            let Some(words) = Words::of(heap, HeapRange { offset: *base, bytes: m.bytes }) else { continue };
            if m.is_sparse(line) {
                continue;
            }
            now.clear();
            self.scan_line(&words, *base, m, line, &mut now);
            let sort = match () {
                () if now != here => &mut found.unfinished,
                () if here.len() >= DENSE_WORDS => &mut found.dense,
                () => &mut found.sparse,
            };
            sort.extend_from_slice(here);
        }
        for change in &found.sparse {
            if let Some((base, m)) = self.ranges.range_mut(..=change.offset).next_back() {
                let line = ((change.offset - base) / LINE) as usize;
                m.sparse[line / 64] |= 1 << (line % 64);
            }
        }
        found
    }

    /// Whether to look at more than what every look compares: as long after the last time as that took if it found
    /// something, else many times as long.
    fn is_rest_due(&self) -> bool {
        let pause = if self.in_vain { self.took * REST_IN_VAIN } else { self.took };
        self.compared.is_none_or(|compared| compared.elapsed() >= pause.max(REST_QUIET_MIN))
    }

    /// As [`Self::collect`], of the allocations that these ranges lie in and that are not looked at all the time.
    pub fn collect_within(&mut self, heap: &Heap, ranges: &[HeapRange], notice: Notice) -> Vec<Vec<u8>> {
        let mut patches = Vec::new();
        let within =
            |base: u64, m: &Mirrored| ranges.iter().any(|r| r.overlaps(HeapRange { offset: base, bytes: m.bytes }));
        let large: Vec<u64> =
            self.ranges.iter().filter(|(base, m)| !m.live && within(**base, m)).map(|(base, _)| *base).collect();
        for base in large {
            let mut found = Vec::new();
            self.scan_range(heap, base, &mut found);
            self.encode(self.in_order(found), notice, &mut patches);
        }
        patches
    }

    /// A patch without bytes: for what it acknowledges and notices.
    pub fn bare(&mut self, notice: Notice) -> Vec<u8> {
        let mut body = Vec::new();
        self.head(notice, &mut body);
        body
    }

    /// Whether the other side waits to hear that a patch was applied.
    pub fn owes_acknowledgement(&self) -> bool {
        self.applied > self.acknowledged
    }

    /// Scans until two scans in a row find the same: a picture of one moment. Where something keeps changing, such as
    /// a counter, that is given up after [`SCANS_MAX`], and after [`SCANS_OF_NEW_MAX`] where ever more words change.
    /// Then the answer has two parts: the words in which the last
    /// two scans agree, and, to be sent behind them, those in which they do not, with the earlier scan's values. What
    /// was written before such a value was there when the later scan began, so it is in the first part.
    ///
    /// It is not given up sooner, because this can be wrong. Example: a kernel writes 7 beside a counter into one
    /// word, then sets a flag elsewhere. The word differs in every scan. The flag, which only the later scan has
    /// seen, is sent; the word goes with the earlier scan's value, in which the 7 may be missing. A word that is known
    /// as a flag goes as the scan before those two has seen it, if it has: what it tells of is in both of them.
    fn cut(&self, mut scan: impl FnMut(&Mirror) -> Vec<Change>) -> (Vec<Change>, Vec<Change>) {
        let (mut earlier, mut before) = (Vec::new(), scan(self));
        if before.is_empty() {
            return Default::default();
        }
        for scanned in 1..=SCANS_OF_NEW_MAX {
            // No load of the next scan may be earlier than one of this.
            fence(Ordering::SeqCst);
            let now = scan(self);
            if now == before {
                return (now, Vec::new());
            }
            if scanned < SCANS_MAX || scanned < SCANS_OF_NEW_MAX && has_new_words(&now, &before) {
                earlier = std::mem::replace(&mut before, now);
                continue;
            }
            let (mut same, mut moving) = (Vec::new(), Vec::new());
            let seen_by = |scan: &[Change], change: &Change| {
                scan.binary_search_by_key(&change.offset, |seen| seen.offset).ok().map(|i| scan[i])
            };
            for change in now {
                if self.flags.named.contains_key(&change.offset) {
                    moving.extend(seen_by(&earlier, &change));
                    continue;
                }
                match seen_by(&before, &change) {
                    Some(seen) if seen != change => moving.push(seen),
                    // Also what is new to the last scan of all.
                    _ => same.push(change),
                }
            }
            return (same, moving);
        }
        unreachable!("the last scan always answers")
    }

    /// What has changed in the ranges that `which` names, in order of address.
    fn scan(&self, heap: &Heap, which: impl Fn(&Mirrored) -> bool) -> Vec<Change> {
        let mut found = Vec::new();
        for (base, _) in self.ranges.iter().filter(|(_, m)| which(m)) {
            self.scan_range(heap, *base, &mut found);
        }
        found
    }

    fn scan_range(&self, heap: &Heap, base: u64, found: &mut Vec<Change>) {
        let Some(m) = self.ranges.get(&base) else { return };
        let Some(words) = Words::of(heap, HeapRange { offset: base, bytes: m.bytes }) else { return };
        let compare = Compare::best();
        m.each_page(base, self.holes.as_ref(), |page| {
            let first = page * PAGE_WORDS;
            let known = &m.known[first..(first + PAGE_WORDS).min(m.known.len())];
            if words.differ(first as u64, known, compare) {
                let lines = page * PAGE_LINES..page * PAGE_LINES + known.len() / LINE_WORDS;
                lines.for_each(|line| self.scan_line(&words, base, m, line, found));
            }
        });
    }

    #[inline(always)]
    fn scan_line(&self, words: &Words, base: u64, m: &Mirrored, line: usize, found: &mut Vec<Change>) {
        let first = line * LINE_WORDS;
        let known = &m.known[first..first + LINE_WORDS];
        // Not `==`, which calls a function for every line.
        let differs = words.line(first as u64).iter().zip(known).fold(0, |all, (now, known)| all | now ^ known);
        if differs != 0 {
            self.scan_words(words, base, known, first as u64, found);
        }
    }

    /// The words of a line that has changed, all of one moment: what is read twice alike was so in between. A flag in a
    /// line may tell of that line alone, as NCCL's does.
    #[inline(never)]
    fn scan_words(&self, words: &Words, base: u64, known: &[u64], first: u64, found: &mut Vec<Change>) {
        let read = || {
            let now: [u64; LINE_WORDS] = std::array::from_fn(|i| words.load(first + i as u64));
            fence(Ordering::SeqCst);
            now
        };
        let mut now = read();
        for _ in 0..READS_MAX {
            let then = std::mem::replace(&mut now, read());
            if then == now {
                break;
            }
        }
        for ((known, value), i) in known.iter().zip(now).zip(first..) {
            let offset = base + i * WORD;
            if value != *known && !self.arriving.iter().any(|a| offset + WORD > a.offset && offset < a.offset + a.bytes)
            {
                // A copy's neighbours in its first and last word are not the copy's.
                let mask = self.left_out.iter().fold(changed_bytes(value ^ known), |mask, range| {
                    let (first, last) = (range.offset.max(offset), (range.offset + range.bytes).min(offset + WORD));
                    if first < last { mask & !bytes_between(first - offset, last - offset) } else { mask }
                });
                if mask != 0 {
                    found.push(Change { offset, value, mask });
                }
            }
        }
    }

    fn encode(&mut self, changes: Vec<Change>, notice: Notice, patches: &mut Vec<Vec<u8>>) {
        let mut rest = &changes[..];
        while !rest.is_empty() {
            let some;
            (some, rest) = rest.split_at(how_many_fit(rest));
            self.sent += 1;
            let mut body = Vec::with_capacity(64 + some.len() * 10);
            self.head(notice, &mut body);
            let head_bytes = body.len() as u64;
            for run in some.chunk_by(|a, b| a.offset + WORD == b.offset) {
                PatchRun { offset: run[0].offset, words: run.len() as u64 }.encode(&mut body);
                for masks in run.chunks(8) {
                    body.word(masks.iter().rev().fold(0, |word, c| word << 8 | narrow(c.mask)));
                }
                for change in run {
                    body.word(change.value);
                }
            }
            debug_assert!(body.len() as u64 - head_bytes <= PATCH_BYTES_MAX);
            patches.push(body);
            for change in some {
                self.learn(*change);
            }
            if self.side == Side::Client {
                let mut changes: Vec<(u64, u64)> = some.iter().map(|c| (c.offset, c.mask)).collect();
                changes.sort_unstable();
                self.unacknowledged.push_back(Unacknowledged { number: self.sent, changes });
            }
        }
    }

    fn head(&mut self, notice: Notice, body: &mut Vec<u8>) {
        let Notice { idle_after, live } = notice;
        PatchHead { number: self.sent, acknowledged: self.applied, idle_after, live }.encode(body);
        self.acknowledged = self.applied;
    }

    /// The other side has these bytes.
    fn learn(&mut self, change: Change) {
        if let Some((base, m)) = self.ranges.range_mut(..=change.offset).next_back()
            && let Some(known) = m.known.get_mut(((change.offset - base) / WORD) as usize)
        {
            // It was found there: its page has been seen.
            *known = *known & !change.mask | change.value & change.mask;
        }
    }

    /// Takes a patch of the other side's; one of the client's that was taken before changes nothing. Bytes of ranges
    /// that are no longer kept in step are dropped.
    pub fn apply(&mut self, heap: &Heap, body: &[u8]) -> Result<Notice, Fault> {
        let HeapPatch { head, runs: Rest(runs) } = HeapPatch::decode(&mut Reader::new(body))?;
        let PatchHead { number, acknowledged, idle_after, live } = head;
        let (notice, mut r) = (Notice { idle_after, live }, Reader::new(runs));
        while self.unacknowledged.front().is_some_and(|u| u.number <= acknowledged) {
            self.unacknowledged.pop_front();
        }
        // The client numbers its patches in the order in which they come.
        if self.side == Side::Worker && number <= self.applied {
            return Ok(notice);
        }
        while !r.is_empty() {
            let PatchRun { offset, words } = PatchRun::get(&mut r)?;
            if words > PATCH_BYTES_MAX / WORD || !offset.is_multiple_of(WORD) {
                return Err(Fault("run of a patch is impossible"));
            }
            let range = HeapRange { offset, bytes: words * WORD }.check(heap.bytes())?;
            let mut masks = Vec::with_capacity(words as usize);
            for _ in 0..words.div_ceil(8) {
                masks.extend(r.word()?.to_le_bytes());
            }
            let mut run = Vec::with_capacity(words as usize);
            for (mask, i) in masks.into_iter().zip(0..words) {
                run.push(Change { offset: range.offset + i * WORD, value: r.word()?, mask: widen(mask) });
            }
            self.put(heap, &run);
        }
        self.applied = self.applied.max(number);
        Ok(notice)
    }

    /// Writes a run of words, which may cross from one range to the next.
    fn put(&mut self, heap: &Heap, mut run: &[Change]) {
        let Mirror { side, ranges, unacknowledged, .. } = self;
        let ours = |change: &Change| {
            unacknowledged.iter().fold(0, |mask, u| {
                let found = u.changes.binary_search_by_key(&change.offset, |(offset, _)| *offset);
                mask | found.map_or(0, |i| u.changes[i].1)
            })
        };
        while let Some(first) = run.first() {
            let Some((base, m)) = ranges.range_mut(..=first.offset).next_back() else { return };
            let index = (first.offset - base) / WORD;
            let here = m.known.iter_mut().skip(index as usize).zip(run).zip(index..);
            let Some(words) = Words::of(heap, HeapRange { offset: *base, bytes: m.bytes }) else { return };
            let mut done = 0;
            for ((known, change), i) in here {
                let mask = change.mask & !ours(change);
                words.update(i, |now| {
                    // What the application has changed since it was last compared is about to be sent.
                    let unsent = if *side == Side::Client { changed_bytes(now ^ *known) } else { 0 };
                    let mask = mask & !unsent;
                    now & !mask | change.value & mask
                });
                *known = *known & !mask | change.value & mask;
                done += 1;
            }
            if done > 0 {
                let (first, last) = (index as usize / PAGE_WORDS, (index as usize + done - 1) / PAGE_WORDS);
                (first..=last).for_each(|page| m.note_page(page));
            }
            // A word of no range is passed over.
            run = &run[done.max(1)..];
        }
    }
}

/// Ranges consist of whole lines: see [`Mirror::add`].
/// Whether a scan has found words that the one before had not. Both are in order of address.
fn has_new_words(now: &[Change], before: &[Change]) -> bool {
    let mut known = before.iter().map(|change| change.offset).peekable();
    now.iter().any(|change| {
        while known.next_if(|offset| *offset < change.offset).is_some() {}
        known.next_if_eq(&change.offset).is_none()
    })
}

fn is_one_line(a: &Change, b: &Change) -> bool {
    a.offset / LINE == b.offset / LINE
}

/// How many of the changes one patch has room for: at least one.
fn how_many_fit(changes: &[Change]) -> usize {
    let (mut bytes, mut in_run) = (0, 0);
    for (i, change) in changes.iter().enumerate() {
        in_run = if i > 0 && changes[i - 1].offset + WORD == change.offset { in_run + 1 } else { 0 };
        let of_run = if in_run == 0 { RUN_BYTES } else { 0 };
        // A word of masks is for eight.
        let of_masks = if in_run % 8 == 0 { WORD } else { 0 };
        bytes += of_run + of_masks + WORD;
        if bytes > PATCH_BYTES_MAX {
            return i;
        }
    }
    changes.len()
}

/// The order in which the other side gets to see what was found together. Data comes in runs; a flag stands alone or at
/// an end, and counts in small steps. So what lies inside a run of changed words goes first, then the ends of runs and
/// words alone, and of these the ones with the fewest changed bytes last.
///
/// Of a line that was written anew the words go together, in order: its flag is the last one, and gaps between the
/// others are data that stayed as it was. Only a first word that counts while the last one does not is taken for a
/// flag.
fn in_order(mut changes: Vec<Change>) -> Vec<Change> {
    changes.sort_unstable_by_key(|c| c.offset);
    let is_one_run = |a: &Change, b: &Change| a.offset + WORD == b.offset;
    let (mut inside, mut edges, mut at) = (Vec::new(), Vec::new(), 0usize);
    for line in changes.chunk_by(is_one_line) {
        let last = line.len() - 1;
        let (is_dense, begins_with_flag) = (line.len() >= DENSE_WORDS, changed_by(&line[0]) < changed_by(&line[last]));
        // Of a line of which little has changed the flag may be the end although the next line has changed, too.
        let (before, after) = match is_dense {
            true => (at.checked_sub(1).map(|i| &changes[i]), changes.get(at + line.len())),
            false => (None, None),
        };
        for (i, change) in line.iter().enumerate() {
            let before = if i > 0 { line.get(i - 1) } else { before };
            let is_end = !before.is_some_and(|before| is_one_run(before, change))
                || !line.get(i + 1).or(after).is_some_and(|after| is_one_run(change, after));
            let may_be_flag = !is_dense || i == last || i == 0 && begins_with_flag;
            if may_be_flag && is_end { edges.push(*change) } else { inside.push(*change) }
        }
        at += line.len();
    }
    edges.sort_by_key(|c| std::cmp::Reverse(changed_by(c)));
    inside.extend(edges);
    inside
}

/// How many bytes have changed, two at least: a count changes one, and two once in 256 steps.
fn changed_by(change: &Change) -> u32 {
    (change.mask.count_ones() / 8).max(2)
}

/// The words of a range of the heap.
struct Words {
    first: *mut u64,
    count: u64,
}

impl Words {
    fn of(heap: &Heap, range: HeapRange) -> Option<Words> {
        let first = heap.at(range.offset, range.bytes)?;
        (first.addr().is_multiple_of(WORD as usize)).then_some(Words { first: first.cast(), count: range.bytes / WORD })
    }

    fn word(&self, i: u64) -> &AtomicU64 {
        assert!(i < self.count, "word {i} of {}", self.count);
        // SAFETY: aligned and inside the heap, which stays mapped; everybody else's accesses are of this process's
        // threads by plain machine instructions, of another process's, or the device's.
        unsafe { AtomicU64::from_ptr(self.first.add(i as usize)) }
    }

    fn load(&self, i: u64) -> u64 {
        self.word(i).load(Ordering::Relaxed)
    }

    /// Whether anything differs in up to a page of words, whole lines of them, from `first` on.
    ///
    /// Others may write meanwhile, and words are read in no order, more than one at a time. Equal means that each word
    /// was equal at some moment of this scan, for it is loaded once and whole: a vector's lanes are aligned words,
    /// which no processor with such vectors reads in halves. No rule needs more of words that have not changed: a
    /// flag's data is looked for by a scan that begins after the flag was read, whatever the order within that scan.
    /// Where something differs its line is read again, and what is sent is what was read then, word by word.
    fn differ(&self, first: u64, known: &[u64], compare: Compare) -> bool {
        assert!(first + known.len() as u64 <= self.count, "{} words at {first} of {}", known.len(), self.count);
        // SAFETY: inside the heap, as was just checked; the processor is one that `best` has asked.
        unsafe { (compare.differ)(self.first.add(first as usize), known) }
    }

    /// A line at once, to see whether anything in it has changed: four times as fast as word by word.
    fn line(&self, first: u64) -> [u64; LINE_WORDS] {
        assert!(first + LINE_WORDS as u64 <= self.count, "line at word {first} of {}", self.count);
        let mut line = [0; LINE_WORDS];
        // SAFETY: inside the heap; others may write to it, so it is copied before it is looked at, and whoever uses a
        // word loads it again.
        unsafe { std::ptr::copy_nonoverlapping(self.first.add(first as usize), line.as_mut_ptr(), LINE_WORDS) };
        line
    }

    /// Leaves alone what others write to the word meanwhile. SeqCst keeps the order of one patch's words.
    fn update(&self, i: u64, change: impl Fn(u64) -> u64) {
        let word = self.word(i);
        let mut now = word.load(Ordering::SeqCst);
        loop {
            let then = change(now);
            if then == now {
                return;
            }
            match word.compare_exchange_weak(now, then, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return,
                Err(other) => now = other,
            }
        }
    }
}

/// How pages are compared.
#[derive(Clone, Copy)]
struct Compare {
    /// Whether words differ that can be read from the pointer on, as many as are known: whole lines.
    differ: unsafe fn(*const u64, &[u64]) -> bool,
}

impl Compare {
    fn best() -> Compare {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            return Compare { differ: differ_avx2 };
        }
        Compare { differ }
    }
}

/// # Safety
/// As many words as are known, whole lines, can be read.
unsafe fn differ(now: *const u64, known: &[u64]) -> bool {
    let lines = known.chunks_exact(LINE_WORDS).enumerate();
    let difference = lines.fold(0, |all, (i, known)| {
        let mut line = [0; LINE_WORDS];
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(now.add(i * LINE_WORDS), line.as_mut_ptr(), LINE_WORDS) };
        (0..LINE_WORDS).fold(all, |all, j| all | line[j] ^ known[j])
    });
    difference != 0
}

/// As [`differ`]. What comes a kilobyte later is asked for early: of 100 MiB that takes 13 ms in place of 20.
///
/// # Safety
/// As of [`differ`], on a processor with AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn differ_avx2(now: *const u64, known: &[u64]) -> bool {
    use std::arch::x86_64::*;
    const AHEAD: usize = LINE_WORDS * 8;
    let mut all = _mm256_setzero_si256();
    for (i, known) in known.chunks_exact(LINE_WORDS).enumerate() {
        let now = now.wrapping_add(i * LINE_WORDS);
        // Of addresses that nobody looks at: one that leads nowhere has no effect.
        for half in [0, LINE_WORDS / 2] {
            _mm_prefetch::<_MM_HINT_T0>(now.wrapping_add(AHEAD + half).cast());
            _mm_prefetch::<_MM_HINT_T0>(known.as_ptr().wrapping_add(AHEAD + half).cast());
        }
        let (now, known) = (now.cast::<__m256i>(), known.as_ptr().cast::<__m256i>());
        for j in 0..LINE_WORDS / 4 {
            // SAFETY: the caller's promise: so many words are there.
            let (now, known) = unsafe { (_mm256_loadu_si256(now.add(j)), _mm256_loadu_si256(known.add(j))) };
            all = _mm256_or_si256(all, _mm256_xor_si256(now, known));
        }
    }
    _mm256_testz_si256(all, all) == 0
}

/// `0xff` for every byte that is not zero.
fn changed_bytes(difference: u64) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let tops = (((difference & LOW) + LOW) | difference) & !LOW;
    (tops >> 7) * 0xff
}

/// One bit for a byte.
fn narrow(mask: u64) -> u64 {
    (0..8).fold(0, |bits, i| bits | (mask >> (8 * i) & 1) << i)
}

fn widen(bits: u8) -> u64 {
    (0..8).fold(0, |mask, i| mask | ((u64::from(bits) >> i & 1) * 0xff) << (8 * i))
}

/// The bytes of a word from `first` up to `last`, at most 8.
fn bytes_between(first: u64, last: u64) -> u64 {
    let below = |n: u64| if n >= 8 { u64::MAX } else { (1 << (8 * n)) - 1 };
    below(last) & !below(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use orion_ring::memory::{Layout, Memory};
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;

    const HEAP: u64 = 64 << 10;
    const RANGE: HeapRange = HeapRange { offset: 4096, bytes: 4096 };

    /// One end of a session: its pages and what it knows.
    struct End {
        _memory: Memory,
        heap: Heap,
        mirror: Mirror,
    }

    fn end(side: Side) -> End {
        let memory = Memory::create(Layout { heap_bytes: HEAP }).unwrap();
        let heap = memory.map_heap(None).unwrap();
        let mut mirror = Mirror::new(side);
        mirror.add(&heap, RANGE).unwrap();
        End { _memory: memory, heap, mirror }
    }

    impl End {
        fn byte(&self, i: u64) -> &std::sync::atomic::AtomicU8 {
            // SAFETY: inside the heap; all of a test's accesses are atomic.
            unsafe { std::sync::atomic::AtomicU8::from_ptr(self.heap.at(RANGE.offset + i, 1).unwrap()) }
        }

        fn set(&self, i: u64, value: u8) {
            self.byte(i).store(value, Ordering::SeqCst);
        }

        fn get(&self, i: u64) -> u8 {
            self.byte(i).load(Ordering::SeqCst)
        }

        fn collect(&mut self) -> Vec<Vec<u8>> {
            self.mirror.collect(&self.heap, Scope::All, Notice::default())
        }

        fn apply(&mut self, patches: &[Vec<u8>]) {
            for patch in patches {
                self.mirror.apply(&self.heap, patch).unwrap();
            }
        }
    }

    fn change(offset: u64, value: u64) -> Change {
        Change { offset, value, mask: changed_bytes(value) }
    }

    #[test]
    fn a_patch_fits_into_a_record_whatever_has_changed() {
        use orion_wire::record::{HEADER_BYTES, RECORD_BYTES_MAX};
        const LARGE: HeapRange = HeapRange { offset: 0, bytes: 4 << 20 };
        let large = |side| {
            let memory = Memory::create(Layout { heap_bytes: LARGE.bytes }).unwrap();
            let heap = memory.map_heap(None).unwrap();
            let mut mirror = Mirror::new(side);
            mirror.add(&heap, LARGE).unwrap();
            End { _memory: memory, heap, mirror }
        };
        type Changes = fn(u64) -> bool;
        let ways: [(&str, Changes); 4] = [
            ("every second word", |i| i % 2 == 0),
            ("the ends of lines", |i| i % 16 < 2),
            ("runs of three", |i| i % 4 != 0),
            ("all", |_| true),
        ];
        for (name, changes) in ways {
            let (mut here, mut there) = (large(Side::Worker), large(Side::Client));
            let words = Words::of(&here.heap, LARGE).unwrap();
            (0..words.count).filter(|i| changes(*i)).for_each(|i| words.word(i).store(i + 1, Ordering::SeqCst));
            let patches = here.collect();
            let longest = patches.iter().map(|body| HEADER_BYTES + body.len()).max().unwrap();
            assert!(longest <= RECORD_BYTES_MAX, "{name}: a record of {longest} bytes");
            there.apply(&patches);
            let words = Words::of(&there.heap, LARGE).unwrap();
            for i in 0..words.count {
                assert_eq!(words.load(i), if changes(i) { i + 1 } else { 0 }, "{name}: word {i}");
            }
        }
    }

    #[test]
    fn neighbours_in_one_word_do_not_undo_each_other() {
        let (mut client, mut worker) = (end(Side::Client), end(Side::Worker));
        client.set(0, 1);
        worker.set(1, 2);
        let (to_worker, to_client) = (client.collect(), worker.collect());
        client.apply(&to_client);
        worker.apply(&to_worker);
        for e in [&mut client, &mut worker] {
            assert_eq!((e.get(0), e.get(1)), (1, 2));
            assert!(e.collect().is_empty(), "what arrived is sent back");
        }
    }

    #[test]
    fn of_two_writes_to_one_byte_the_clients_stays_on_both_sides() {
        for sent in [true, false] {
            let (mut client, mut worker) = (end(Side::Client), end(Side::Worker));
            client.set(0, 1);
            worker.set(0, 2);
            let mut to_worker = if sent { client.collect() } else { Vec::new() };
            let to_client = worker.collect();
            client.apply(&to_client);
            to_worker.extend(client.collect());
            worker.apply(&to_worker);
            assert_eq!((client.get(0), worker.get(0)), (1, 1));
        }
    }

    #[test]
    fn a_patch_that_comes_again_undoes_nothing() {
        let (mut client, mut worker) = (end(Side::Client), end(Side::Worker));
        client.set(0, 1);
        let patches = client.collect();
        worker.apply(&patches);
        worker.set(0, 2);
        worker.mirror.add(&worker.heap, RANGE).unwrap();
        worker.apply(&patches);
        assert_eq!((worker.get(0), worker.collect().len()), (2, 1));
    }

    #[test]
    fn an_answer_to_what_was_received_is_kept() {
        let (mut client, mut worker) = (end(Side::Client), end(Side::Worker));
        for i in 1..100 {
            client.set(0, 2 * i);
            let to_worker = client.collect();
            worker.apply(&to_worker);
            assert_eq!(worker.get(0), 2 * i);
            worker.set(0, 2 * i + 1);
            let to_client = worker.collect();
            client.apply(&to_client);
            assert_eq!(client.get(0), 2 * i + 1);
        }
        assert!(client.mirror.unacknowledged.is_empty());
    }

    #[test]
    fn what_a_carrier_is_writing_is_no_change() {
        let mut client = end(Side::Client);
        let range = HeapRange { offset: RANGE.offset + 3, bytes: 600 };
        client.mirror.arriving(range);
        (3..603).for_each(|i| client.set(i, 7));
        assert!(client.collect().is_empty());
        for (at, bytes) in [(3, 100), (103, 500)] {
            let part = HeapRange { offset: RANGE.offset + at, bytes };
            client.mirror.arrived(&client.heap, part);
        }
        assert!(client.mirror.arriving.is_empty());
        assert!(client.collect().is_empty());
        client.set(2, 1);
        client.set(602, 1);
        assert_eq!(client.collect().len(), 1);
    }

    /// Whoever sees it may change it at once.
    #[test]
    fn what_is_written_is_known_before_it_is_seen() {
        let mut client = end(Side::Client);
        client.set(2, 9);
        let range = HeapRange { offset: RANGE.offset + 3, bytes: 20 };
        client.mirror.arriving(range);
        client.mirror.write(&client.heap, range.offset, &[5; 12]).unwrap();
        client.mirror.write(&client.heap, range.offset + 12, &[6; 8]).unwrap();
        assert!(client.mirror.arriving.is_empty());
        assert_eq!([2, 3, 14, 15, 22, 23].map(|i| client.get(i)), [9, 5, 5, 6, 6, 0]);
        client.set(4, 7);
        let mut worker = end(Side::Worker);
        worker.apply(&client.collect());
        assert_eq!([2, 3, 4, 5].map(|i| worker.get(i)), [9, 0, 7, 0]);
        // Across the end of the range, and outside of it.
        client.mirror.write(&client.heap, RANGE.offset + RANGE.bytes - 4, &[1; 8]).unwrap();
        assert!(client.collect().is_empty());
        assert!(client.mirror.write(&client.heap, HEAP - 4, &[1; 8]).is_err());
    }

    #[test]
    fn a_difference_in_any_word_is_seen_by_each_way_to_compare() {
        let known: Vec<u64> = (0..PAGE_WORDS as u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        for way in [Compare { differ }, Compare::best()] {
            for words in [LINE_WORDS, 5 * LINE_WORDS, PAGE_WORDS] {
                let mut now = known.clone();
                // SAFETY: so many words are there.
                assert!(!unsafe { (way.differ)(now.as_ptr(), &known[..words]) });
                for i in 0..PAGE_WORDS {
                    now[i] ^= 1 << (i % 64);
                    // SAFETY: as above.
                    assert_eq!(
                        unsafe { (way.differ)(now.as_ptr(), &known[..words]) },
                        i < words,
                        "word {i} of {words}"
                    );
                    now[i] = known[i];
                }
            }
        }
    }

    /// The same writes by everyone who may write, into pages and holes, at an end that asks for holes and one that
    /// compares all: both find the same, and the other side gets it.
    #[test]
    fn what_is_found_among_holes_is_what_is_found_by_comparing_all() {
        const PAGES: u64 = 200;
        // The last page of one is no whole one.
        let ranges = [
            HeapRange { offset: 4 * PAGE, bytes: PAGES * PAGE },
            HeapRange { offset: 220 * PAGE, bytes: 70 * PAGE - 3 * LINE },
        ];
        let (mut pages_made, mut found) = (0, 0);
        for seed in 0..20 {
            let mut random = Random(seed);
            let new = |side, asks: bool| {
                let memory = Memory::create(Layout { heap_bytes: 2 << 20 }).unwrap();
                let (heap, again) = (memory.map_heap(None).unwrap(), memory.map_heap(None).unwrap());
                let mut mirror = Mirror::new(side);
                mirror.know_holes(if asks { Holes::of(&memory) } else { None });
                (End { _memory: memory, heap, mirror }, again)
            };
            let sides = [(Side::Client, true), (Side::Client, false), (Side::Worker, false)];
            let (mut ends, others): (Vec<End>, Vec<Heap>) =
                sides.map(|(side, asks)| new(side, asks)).into_iter().unzip();
            // What was there before it is kept in step.
            for _ in 0..random.below(20) {
                let at = ranges[0].offset + random.below(ranges[0].bytes / WORD) * WORD;
                for end in &ends {
                    // SAFETY: inside the heap; nobody else has it.
                    unsafe { end.heap.at(at, WORD).unwrap().cast::<u64>().write(7) };
                }
            }
            for end in &mut ends {
                ranges.iter().for_each(|range| end.mirror.add(&end.heap, *range).unwrap());
            }
            for step in 0..120 {
                let range = ranges[random.below(2) as usize];
                let bytes = [1, WORD, LINE, 3 * PAGE][random.below(4) as usize];
                let at = range.offset + random.below(range.bytes - bytes);
                let (way, value) = (random.below(6), random.below(3) as u8);
                for (end, again) in ends.iter().zip(&others).take(2) {
                    let here = end.heap.at(at, bytes).unwrap();
                    // SAFETY: inside the heap, which only this test has.
                    unsafe {
                        match way {
                            // The application, by the heap or by the address at which it registered the memory.
                            0 => here.write_bytes(value, bytes as usize),
                            1 => again.at(at, bytes).unwrap().write_bytes(value, bytes as usize),
                            // The system, as in read(2).
                            2 => {
                                let from = vec![value; bytes as usize];
                                let (local, remote) = (
                                    libc::iovec { iov_base: here.cast(), iov_len: bytes as usize },
                                    libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: bytes as usize },
                                );
                                let n = libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0);
                                assert_eq!(n, bytes as isize);
                            }
                            // Who gives the pages back: zeros from then on.
                            3 => {
                                let first = at.next_multiple_of(PAGE);
                                if let Some(len) = (at + bytes).checked_sub(first).map(|len| len / PAGE * PAGE)
                                    && len > 0
                                {
                                    let here = end.heap.at(first, len).unwrap();
                                    assert_eq!(libc::madvise(here.cast(), len as usize, libc::MADV_REMOVE), 0);
                                }
                            }
                            // A forked child.
                            4 if step % 8 == 0 => match libc::fork() {
                                0 => {
                                    here.write_bytes(value, bytes as usize);
                                    libc::_exit(0)
                                }
                                child => assert_eq!(libc::waitpid(child, std::ptr::null_mut(), 0), child),
                            },
                            _ => {}
                        }
                    }
                }
                // The other side writes, too, and a carrier does.
                if way == 5 {
                    let to = &ends[2];
                    // SAFETY: as above.
                    unsafe { to.heap.at(at, bytes).unwrap().write_bytes(value, bytes as usize) };
                    let patches = ends[2].collect();
                    ends[0].apply(&patches);
                    ends[1].apply(&patches);
                }
                if random.below(3) == 0 {
                    let (by_holes, by_comparing) = (ends[0].collect(), ends[1].collect());
                    assert!(by_holes == by_comparing, "seed {seed}, step {step}");
                    found += by_holes.len();
                    ends[2].apply(&by_holes);
                }
            }
            for _ in 0..2 {
                let patches = ends[0].collect();
                ends[2].apply(&patches);
            }
            for range in ranges {
                let bytes = |end: &End| {
                    let at = end.heap.at(range.offset, range.bytes).unwrap();
                    // SAFETY: inside the heap; nobody writes now.
                    unsafe { std::slice::from_raw_parts(at, range.bytes as usize).to_vec() }
                };
                let seen = ends[0].mirror.seen(range);
                pages_made += seen.iter().map(|part| part.bytes.div_ceil(PAGE)).sum::<u64>();
                assert!(bytes(&ends[0]) == bytes(&ends[2]), "seed {seed}");
            }
        }
        assert!(found > 100, "{found} patches");
        let memory = Memory::create(Layout { heap_bytes: HEAP }).unwrap();
        if Holes::of(&memory).is_some() {
            assert!(pages_made < 20 * 270 * 9 / 10, "{pages_made} pages of {} were looked at", 20 * 270);
        }
    }

    #[test]
    fn a_flag_waits_for_the_data_that_a_scan_had_passed() {
        // The first scan passed word 0 before it was written, and then saw the flag in word 8.
        let scans = [vec![change(8, 1)], vec![change(0, 5), change(8, 1)], vec![change(0, 5), change(8, 1)]];
        let mut left = scans.iter();
        let (same, moving) = end(Side::Worker).mirror.cut(|_| left.next().unwrap().clone());
        assert_eq!((same, moving), (vec![change(0, 5), change(8, 1)], vec![]));
    }

    #[test]
    fn what_is_being_written_goes_last_and_as_it_was_before_the_rest_was_seen() {
        let mut count = 0;
        let (same, moving) = end(Side::Worker).mirror.cut(|_| {
            count += 1;
            vec![change(0, 5), change(8, count)]
        });
        assert_eq!(count, 1 + SCANS_MAX as u64);
        assert_eq!((same, moving), (vec![change(0, 5)], vec![change(8, count - 1)]));
    }

    /// The first scan read the data's word when only half of it was written, and the flag when all of it was.
    #[test]
    fn data_is_as_new_as_the_flag_that_tells_of_it() {
        let (half, whole, flag) = (change(0, 0x0c0d), change(0, 0x0d0d), change(64, 13));
        let scans = [vec![half, flag], vec![whole, flag], vec![whole, flag]];
        let mut left = scans.iter();
        let (same, moving) = end(Side::Worker).mirror.cut(|_| left.next().unwrap().clone());
        assert_eq!((same, moving), (vec![whole, flag], vec![]));
    }

    /// Between any two of seven scans a thread writes data that the later one has passed, and a flag that it has not.
    #[test]
    fn flags_that_come_with_every_scan_are_waited_for() {
        let (data, flag) = (|i: u64| change(8 * i, 7), |i: u64| change(1024 + 8 * i, 1));
        let mut scans = 0;
        let (same, moving) = end(Side::Worker).mirror.cut(|_| {
            scans += 1;
            let written = 7.min(scans);
            (0..written.min(scans - 1)).map(data).chain((0..written).map(flag)).collect()
        });
        assert!(same == (0..7).map(data).chain((0..7).map(flag)).collect::<Vec<_>>(), "{same:?}");
        assert!(moving.is_empty() && scans == 9);
    }

    #[test]
    fn changes_without_end_are_sent_all_the_same() {
        let mut count = 0;
        let (same, moving) = end(Side::Worker).mirror.cut(|_| {
            count += 1;
            (0..count).map(|i| change(8 * i, 1)).collect()
        });
        assert_eq!((count, same.len(), moving.len()), (1 + SCANS_OF_NEW_MAX as u64, 17, 0));
    }

    #[test]
    fn a_single_word_comes_after_a_run_and_the_smallest_change_last() {
        let order = |changes: Vec<Change>| in_order(changes).iter().map(|c| c.offset).collect::<Vec<_>>();
        let wide = u64::MAX;
        assert_eq!(
            order((0..5).map(|i| change(64 + 8 * i, wide)).chain([change(0, 1)]).collect()),
            [72, 80, 88, 64, 96, 0]
        );
        assert_eq!(order(vec![change(0, 1), change(8, wide), change(16, wide)]), [8, 16, 0]);
    }

    /// A flag may lie before its data and change in as many bytes.
    #[test]
    fn a_word_that_is_known_as_a_flag_comes_behind_all_else_and_the_last_one_named_last() {
        let order = |mirror: &Mirror, changes: Vec<Change>| {
            mirror.in_order(changes).iter().map(|c| c.offset - RANGE.offset).collect::<Vec<_>>()
        };
        let at = |i: u64, value| change(RANGE.offset + i, value);
        let flag = |i: u64| HeapRange { offset: RANGE.offset + i, bytes: 4 };
        let changes = || vec![at(0, 1), at(256, 1), at(512, 1), at(1024, u64::MAX)];
        let mut mirror = end(Side::Worker).mirror;
        assert_eq!(order(&mirror, changes()), [1024, 0, 256, 512]);
        mirror.name_flag(flag(0));
        assert_eq!(order(&mirror, changes()), [1024, 256, 512, 0]);
        mirror.name_flag(flag(512));
        assert_eq!(order(&mirror, changes()), [1024, 256, 0, 512]);
        // The other half of a word is the word.
        mirror.name_flag(flag(4));
        assert_eq!(order(&mirror, changes()), [1024, 256, 512, 0]);
        // What is not kept in step is none, nor what is kept so no more.
        mirror.name_flag(HeapRange { offset: RANGE.offset + RANGE.bytes, bytes: 4 });
        assert_eq!(mirror.flags.named.len(), 2);
        mirror.remove(RANGE.offset);
        assert!(mirror.flags.named.is_empty() && mirror.flags.in_order.is_empty());
    }

    #[test]
    fn of_flags_without_end_the_newest_are_known() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
        let heap = memory.map_heap(None).unwrap();
        let mut mirror = Mirror::new(Side::Client);
        mirror.add(&heap, HeapRange { offset: 0, bytes: 1 << 20 }).unwrap();
        (0..2 * FLAGS_MAX as u64).for_each(|i| mirror.name_flag(HeapRange { offset: 8 * i, bytes: 8 }));
        assert_eq!((mirror.flags.named.len(), mirror.flags.in_order.len()), (FLAGS_MAX, FLAGS_MAX));
        assert_eq!(mirror.flags.named.first_key_value().map(|(offset, _)| *offset), Some(8 * FLAGS_MAX as u64));
    }

    /// Something counts meanwhile and ever more words change, so that no two scans agree. The flag's data is written
    /// between the last two.
    #[test]
    fn a_known_flag_goes_as_it_was_when_all_that_it_tells_of_was_there() {
        let mut end = end(Side::Worker);
        let (data, count, flag) = (RANGE.offset + 64, RANGE.offset + 128, RANGE.offset + 8);
        end.mirror.name_flag(HeapRange { offset: flag, bytes: 8 });
        let cut = |mirror: &Mirror, flag_in: &[u64], data_in: &[u64]| {
            let mut scans = 0;
            let (mut same, moving) = mirror.cut(|_| {
                scans += 1;
                let seen = |values: &[u64], offset| {
                    let from = SCANS_OF_NEW_MAX + 1 - values.len();
                    (scans as usize > from).then(|| change(offset, values[scans as usize - 1 - from]))
                };
                let more = (1..scans).map(|i| change(count + WORD * i, 1));
                let here = seen(flag_in, flag).into_iter().chain(seen(data_in, data)).chain([change(count, scans)]);
                here.chain(more).collect()
            });
            same.retain(|change| change.offset < count);
            (same, moving)
        };
        let counted = change(count, SCANS_OF_NEW_MAX as u64);
        // New to the last scan, or the last two: another look finds it.
        assert_eq!(cut(&end.mirror, &[1], &[7]), (vec![change(data, 7)], vec![counted]));
        assert_eq!(cut(&end.mirror, &[1, 1], &[7]), (vec![change(data, 7)], vec![counted]));
        // Seen by the scan before those, so its data is in both.
        assert_eq!(cut(&end.mirror, &[1, 1, 2], &[7, 7]), (vec![change(data, 7)], vec![change(flag, 1), counted]));
    }

    #[test]
    fn masks_and_bytes() {
        for bits in 0..=255u8 {
            assert_eq!(narrow(widen(bits)), u64::from(bits));
            assert_eq!(changed_bytes(widen(bits) & 0x1020_4080_0102_0408), widen(bits));
        }
        assert_eq!(bytes_between(1, 3), 0xff_ff00);
        assert_eq!(bytes_between(0, 8), u64::MAX);
    }

    #[test]
    fn nonsense_is_a_fault() {
        let mut worker = end(Side::Worker);
        let head = [1, 0, 0, 0];
        for run in
            [vec![4096], vec![4097, 1, 1, 1], vec![HEAP, 1, 1, 1], vec![4096, 1 << 40], vec![u64::MAX - 7, 1, 1, 1]]
        {
            let body: Vec<u8> = head.iter().chain(&run).flat_map(|w| u64::to_le_bytes(*w)).collect();
            assert!(worker.mirror.apply(&worker.heap, &body).is_err(), "{run:?}");
        }
        assert!(worker.mirror.apply(&worker.heap, &[0; 16]).is_err());
        // A range that is gone: dropped.
        let body: Vec<u8> = [1, 0, 0, 0, 16384, 1, 1, 9].iter().flat_map(|w| u64::to_le_bytes(*w)).collect();
        worker.mirror.apply(&worker.heap, &body).unwrap();
    }

    /// Numbers that are good enough for tests, the same in every run.
    struct Random(u64);

    impl Random {
        fn below(&mut self, n: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) % n
        }
    }

    #[test]
    fn whatever_happens_when_nothing_is_lost_and_both_sides_agree() {
        for seed in 0..300 {
            let mut random = Random(seed);
            let mut ends = [end(Side::Client), end(Side::Worker)];
            // On their way from each end.
            let mut links = [VecDeque::new(), VecDeque::new()];
            // Bytes 0, 3, 6 … are written by the client alone, 1, 4, 7 … by the worker, the rest by both.
            let mut last = [[0u8; 48]; 2];
            for step in 0..2000 {
                let quiet = step >= 1900;
                let who = random.below(2) as usize;
                match random.below(4) {
                    0 | 1 if !quiet => {
                        let i = random.below(48);
                        if i % 3 == 2 || i % 3 == who as u64 {
                            let value = random.below(256) as u8;
                            ends[who].set(i, value);
                            last[who][i as usize] = value;
                        }
                    }
                    2 => links[who].extend(ends[who].collect()),
                    _ => {
                        if let Some(patch) = links[who].pop_front() {
                            ends[1 - who].apply(&[patch]);
                        } else if who == 1 && ends[1].mirror.owes_acknowledgement() {
                            let patch = ends[1].mirror.bare(Notice::default());
                            links[1].push_back(patch);
                        }
                    }
                }
            }
            for who in [0, 1, 0, 1] {
                links[who].extend(ends[who].collect());
                let patches: Vec<_> = links[who].drain(..).collect();
                ends[1 - who].apply(&patches);
            }
            for i in 0..48 {
                let (a, b) = (ends[0].get(i), ends[1].get(i));
                assert_eq!(a, b, "byte {i} in seed {seed}");
                if i % 3 != 2 {
                    assert_eq!(a, last[i as usize % 3][i as usize], "byte {i} in seed {seed}");
                }
            }
        }
    }

    /// Writers and readers at both ends, and a thread at each that compares, sends and applies: each message is four
    /// words of data and then a flag, and whoever sees the flag has to see the data.
    #[test]
    fn a_flag_is_never_seen_before_its_data() {
        // A scan comes past the flag before or after the data.
        converse(8);
        converse(500);
    }

    fn converse(flags: u64) {
        let messages = 5000u64;
        let (client, worker) = (end(Side::Client), end(Side::Worker));
        let heaps = [client.heap, worker.heap];
        let ends = [Mutex::new(client), Mutex::new(worker)];
        let links = [Mutex::new(VecDeque::new()), Mutex::new(VecDeque::new())];
        let (over, torn) = (AtomicBool::new(false), AtomicU64::new(0));
        let word = |who: usize, i: u64| Words::of(&heaps[who], RANGE).unwrap().word(i) as *const AtomicU64 as usize;
        let at = |who, i| {
            // SAFETY: the heap stays mapped for as long as the test runs.
            unsafe { &*(word(who, i) as *const AtomicU64) }
        };
        // Data in words 16 to 19, the client's flag in the lower half of a word, the worker's in the upper half.
        let flag = |who: usize, from: usize| at(who, flags).load(Ordering::SeqCst) >> (32 * from) & 0xffff_ffff;
        let raise = |who: usize, value: u64| {
            // SAFETY: half of a word of the heap, as a program would write it.
            let half = unsafe { std::sync::atomic::AtomicU32::from_ptr((word(who, flags) as *mut u32).add(who)) };
            half.store(value as u32, Ordering::SeqCst);
        };
        std::thread::scope(|scope| {
            for who in [0, 1] {
                let (ends, links, over) = (&ends, &links, &over);
                scope.spawn(move || {
                    while !over.load(Ordering::SeqCst) {
                        let mut end = ends[who].lock().unwrap();
                        let mut patches = end.collect();
                        if patches.is_empty() && end.mirror.owes_acknowledgement() {
                            patches.push(end.mirror.bare(Notice::default()));
                        }
                        links[who].lock().unwrap().extend(patches);
                        let arrived: Vec<_> = links[1 - who].lock().unwrap().drain(..).collect();
                        end.apply(&arrived);
                        drop(end);
                        std::thread::yield_now();
                    }
                });
                let torn = &torn;
                scope.spawn(move || {
                    let pattern = |i: u64| i.wrapping_mul(0x0101_0101_0101_0101);
                    for i in 1..=messages {
                        // The client speaks in odd rounds, the worker in even ones, through the same words.
                        if i % 2 == 1 - who as u64 {
                            (16..20).for_each(|w| at(who, w).store(pattern(i), Ordering::SeqCst));
                            raise(who, i);
                            continue;
                        }
                        while flag(who, 1 - who) != i && !over.load(Ordering::SeqCst) {
                            std::thread::yield_now();
                        }
                        if (16..20).any(|w| at(who, w).load(Ordering::SeqCst) != pattern(i)) {
                            torn.fetch_add(1, Ordering::SeqCst);
                        }
                        // Who hears the last one, or saw something wrong, ends it for all.
                        if i == messages || torn.load(Ordering::SeqCst) > 0 {
                            over.store(true, Ordering::SeqCst);
                            return;
                        }
                    }
                });
            }
        });
        assert_eq!(torn.load(Ordering::SeqCst), 0);
    }

    type Links = [Mutex<VecDeque<Vec<u8>>>; 2];

    /// A thread at each end that looks for changes, as launches, waits and running kernels have it done, and takes
    /// what the other has sent.
    fn carry<'s>(
        scope: &'s std::thread::Scope<'s, '_>,
        ends: &'s [Mutex<End>; 2],
        links: &'s Links,
        over: &'s AtomicBool,
    ) {
        for who in [0, 1] {
            scope.spawn(move || {
                let mut random = Random(who as u64);
                while !over.load(Ordering::SeqCst) {
                    let mut end = ends[who].lock().unwrap();
                    let End { heap, mirror, .. } = &mut *end;
                    let all = random.below(3) == 0;
                    let scope = if all { Scope::All } else { Scope::Live };
                    let mut patches = mirror.collect(heap, scope, Notice::default());
                    if patches.is_empty() && mirror.owes_acknowledgement() {
                        patches.push(mirror.bare(Notice::default()));
                    }
                    links[who].lock().unwrap().extend(patches);
                    let arrived: Vec<_> = links[1 - who].lock().unwrap().drain(..).collect();
                    end.apply(&arrived);
                    drop(end);
                    std::thread::yield_now();
                }
            });
        }
    }

    /// As NCCL's: chunks of a ring of slots are filled while others are under way, and counters far from the data tell
    /// how many are full and how many were used up. All lies in one range, and other threads launch and wait
    /// meanwhile.
    #[test]
    fn counters_do_not_overtake_the_chunks_that_stream_by() {
        const SLOT: u64 = 32 << 10;
        const SLOTS: u64 = 96;
        const CHUNKS: u64 = 3000;
        // The sizes of chunks stand by themselves, as data of few words does; who uses a chunk up clears its size.
        let range = HeapRange { offset: 4096, bytes: SLOTS * SLOT + 8192 };
        let (full, used, size) = (0, 4096 - 128, |slot: u64| 512 + slot * 32);
        let end = |side| {
            let memory = Memory::create(Layout { heap_bytes: 4 << 20 }).unwrap();
            let heap = memory.map_heap(None).unwrap();
            for slot in 0..SLOTS {
                let at = heap.at(range.offset + size(slot), 8).unwrap().cast::<u64>();
                // SAFETY: nobody else has it yet.
                unsafe { at.write(u64::MAX) };
            }
            let mut mirror = Mirror::new(side);
            mirror.add(&heap, range).unwrap();
            End { _memory: memory, heap, mirror }
        };
        // The worker's device fills, the client's application uses up, and the other way round.
        for filler in [0, 1] {
            let (client, worker) = (end(Side::Client), end(Side::Worker));
            let heaps = [client.heap, worker.heap];
            let ends = [Mutex::new(client), Mutex::new(worker)];
            let links = [Mutex::new(VecDeque::new()), Mutex::new(VecDeque::new())];
            let (over, wrong) = (AtomicBool::new(false), AtomicU64::new(0));
            let word = |who: usize, offset: u64| {
                let at = heaps[who].at(range.offset + offset, 8).unwrap();
                // SAFETY: the heap stays mapped for as long as the test runs.
                unsafe { AtomicU64::from_ptr(at.cast()) }
            };
            let data = |slot: u64, i: u64| 4096 + slot * SLOT + i * 8;
            let pattern = |chunk: u64, i: u64| (chunk + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ i;
            let words = |chunk: u64| SLOT / 8 - chunk % 5 * 100;
            std::thread::scope(|scope| {
                carry(scope, &ends, &links, &over);
                let (over, wrong) = (&over, &wrong);
                scope.spawn(move || {
                    for chunk in 0..CHUNKS {
                        while chunk - word(filler, used).load(Ordering::SeqCst) >= SLOTS && !over.load(Ordering::SeqCst)
                        {
                            std::thread::yield_now();
                        }
                        let slot = chunk % SLOTS;
                        for i in 0..words(chunk) {
                            word(filler, data(slot, i)).store(pattern(chunk, i), Ordering::SeqCst);
                        }
                        word(filler, size(slot)).store(words(chunk), Ordering::SeqCst);
                        word(filler, full).store(chunk + 1, Ordering::SeqCst);
                        // A link is slower than memory: no two scans are alike.
                        let done = Instant::now();
                        while done.elapsed() < Duration::from_micros(30) {
                            std::hint::spin_loop();
                        }
                    }
                });
                let user = 1 - filler;
                for chunk in 0..CHUNKS {
                    while word(user, full).load(Ordering::SeqCst) <= chunk {
                        std::thread::yield_now();
                    }
                    let slot = chunk % SLOTS;
                    let told = word(user, size(slot)).load(Ordering::SeqCst);
                    let is_right = |i| word(user, data(slot, i)).load(Ordering::SeqCst) == pattern(chunk, i);
                    if told != words(chunk) || !(0..told).all(is_right) {
                        wrong.fetch_add(1, Ordering::SeqCst);
                    }
                    word(user, size(slot)).store(u64::MAX, Ordering::SeqCst);
                    word(user, used).store(chunk + 1, Ordering::SeqCst);
                }
                over.store(true, Ordering::SeqCst);
            });
            assert_eq!(wrong.load(Ordering::SeqCst), 0, "of {CHUNKS} chunks that {filler} filled");
        }
    }

    /// As NCCL's LL128: whoever finds the flag at the end of a line takes the rest of it. A step goes out when the
    /// one before has been used up. The data is of few bytes, of many, or mostly what it was before.
    #[test]
    fn whoever_finds_the_flag_at_the_end_of_a_line_finds_the_line() {
        const LINES: u64 = 16 << 10;
        const STEPS: u64 = 40;
        let range = HeapRange { offset: 4096, bytes: LINES * LINE };
        type Data = fn(u64, u64, u64) -> u64;
        let kinds: [(&str, Data); 4] = [
            ("of many bytes", |step, line, i| (step << 40 ^ line << 8 ^ i).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            ("of few bytes", |step, line, i| (step * 31 + line * 15 + i) % 97),
            ("with gaps", |step, line, i| if (line + i) % 5 == 0 { 3 } else { step.wrapping_mul(line + 7 * i) }),
            ("mostly the same", |step, line, i| if (step + line + i) % 15 < 2 { step * 77 } else { 7 }),
        ];
        let mut all_wrong = 0;
        for (name, data) in kinds {
            for filler in [0, 1] {
                let end = |side| {
                    let memory = Memory::create(Layout { heap_bytes: 4 << 20 }).unwrap();
                    let heap = memory.map_heap(None).unwrap();
                    let mut mirror = Mirror::new(side);
                    mirror.add(&heap, range).unwrap();
                    End { _memory: memory, heap, mirror }
                };
                let (client, worker) = (end(Side::Client), end(Side::Worker));
                let heaps = [client.heap, worker.heap];
                let ends = [Mutex::new(client), Mutex::new(worker)];
                let links = [Mutex::new(VecDeque::new()), Mutex::new(VecDeque::new())];
                let (over, wrong, used) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
                let word = |who: usize, line: u64, i: u64| {
                    let at = heaps[who].at(range.offset + line * LINE + i * WORD, WORD).unwrap();
                    // SAFETY: the heap stays mapped for as long as the test runs.
                    unsafe { AtomicU64::from_ptr(at.cast()) }
                };
                std::thread::scope(|scope| {
                    carry(scope, &ends, &links, &over);
                    let used = &used;
                    scope.spawn(move || {
                        for step in 1..=STEPS {
                            while used.load(Ordering::SeqCst) + 1 < step {
                                std::thread::yield_now();
                            }
                            for line in 0..LINES {
                                (0..15)
                                    .for_each(|i| word(filler, line, i).store(data(step, line, i), Ordering::SeqCst));
                                word(filler, line, 15).store(step + 250, Ordering::SeqCst);
                            }
                        }
                    });
                    for step in 1..=STEPS {
                        for line in 0..LINES {
                            while word(1 - filler, line, 15).load(Ordering::SeqCst) < step + 250 {
                                std::thread::yield_now();
                            }
                            let is_right = |i| word(1 - filler, line, i).load(Ordering::SeqCst) == data(step, line, i);
                            if !(0..15).all(is_right) {
                                wrong.fetch_add(1, Ordering::SeqCst);
                            }
                        }
                        used.store(step, Ordering::SeqCst);
                    }
                    over.store(true, Ordering::SeqCst);
                });
                let wrong = wrong.load(Ordering::SeqCst);
                let total = STEPS * LINES;
                println!("data {name}, filled by {filler}: {wrong} of {total} lines are wrong");
                all_wrong += wrong;
            }
        }
        assert_eq!(all_wrong, 0);
    }
}
