//! Host memory that the GPU reaches: pinned memory, and the application's own memory once it is registered.
//!
//! Both are pages of the session's heap, which the worker maps at the same address and registers with the
//! driver: a host pointer is a device pointer, as with unified addressing. Memory that the application
//! registers is moved onto heap pages where it lies: its content is copied, and the heap's pages replace its own
//! at the same address. Pages of a file that other programs map, too, have to stay the file's: the worker maps the
//! file ([`crate::memory::shared_file`]). What can be neither moved nor mapped (files on disks, stacks) stays as it is:
//! copies take the way of pageable memory, and no kernel can reach it.
//!
//! Over TCP each side has pages of its own. Copies announce what they touch; what kernels may touch is kept in step by
//! [`crate::memory::in_step`].

// UNSAFETY: replaces pages of the application's memory and copies them.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use orion_cuda::sys::*;
use orion_ring::Heap;
use orion_wire::message::address::{ClaimedHost, ClaimedPlace};
use orion_wire::message::host_memory::{MemHostAlloc, MemHostRegister, MemHostUnregister, PagesOf, Pinned};
use orion_wire::pages::SharedMemory;
use orion_wire::record::HeapRange;

use crate::answer::posted;
use crate::memory::held::Held;
use crate::memory::mappings::{self, Mapping};
use crate::memory::variables;
use crate::session::call::{call, post};
use crate::session::route::is_of;
use crate::state::address_map::{MemoryKind, Range};
use crate::state::heap::{PAGE, Region};
use crate::state::host_memory::{BLOCK, Moved, Pages};
use crate::state::memory_file::{Mapped, MemoryFile};
use crate::state::process::state;
use crate::state::session::Session;

/// Memory is moved in pieces of this, so that no more than that of it is there twice.
const PIECE: u64 = 16 << 20;

/// Up to so much is moved at once: each piece may be a mapping of its own for the rest of the process's life.
const WHOLE: u64 = 4 * PAGE;

/// Mappings that a range which is moved, or moved back, may add: itself, its last page, and what lies behind it.
const MAPPINGS_OF_A_RANGE: u64 = 3;

/// A range of the heap that is registered with the driver, or will be before any later command.
pub fn allocate(s: &Session, bytes: u64) -> Result<HeapRange, CUresult> {
    if bytes > BLOCK / 2 {
        let align = if bytes >= BLOCK { BLOCK } else { PAGE };
        let range = take(s, bytes, align)?;
        // Before it is pinned, and before the application has touched every small page of it. But where it is known
        // which pages nobody has written to, those need not be compared (`orion_transport::holes`), nor be made.
        if s.holes.is_none() {
            s.heap.make_huge(range.offset, range.bytes);
        }
        register(s, range).inspect_err(|_| give_back(s, range))?;
        return Ok(range);
    }
    let in_blocks = |more: Option<HeapRange>| {
        let mut small = s.host_memory.small.lock();
        let region = small.get_or_insert_with(|| Region::of_blocks(BLOCK));
        if let Some(block) = more {
            region.release(block.offset, block.bytes);
        }
        region.allocate(bytes, PAGE).map(|offset| HeapRange { offset, bytes })
    };
    if let Some(range) = in_blocks(None) {
        return Ok(range);
    }
    let block = take(s, BLOCK, BLOCK)?;
    register(s, block).inspect_err(|_| give_back(s, block))?;
    in_blocks(Some(block)).ok_or(CUDA_ERROR_OUT_OF_MEMORY)
}

/// Over TCP the worker gives back the pages that it has there, as [`take`] has done here. That is awaited, because what
/// a carrier brings next does not wait for commands.
fn register(s: &Session, range: HeapRange) -> Result<(), CUresult> {
    let q = MemHostAlloc { request: Pinned::Register, range: range.into() };
    match s.pages.are_separate() {
        false => posted(post(MemHostAlloc::OP, |w| q.encode(w))),
        true => call(MemHostAlloc::OP, |w| q.encode(w), |_| Ok(())),
    }
}

pub fn take(s: &Session, bytes: u64, align: u64) -> Result<HeapRange, CUresult> {
    let mut allocator = s.heap_allocator.lock();
    let mut offset = allocator.take(bytes, align);
    // Freed memory may still be on its way back.
    let start = std::time::Instant::now();
    while offset.is_none()
        && start.elapsed() < std::time::Duration::from_secs(10)
        && !s.host_memory.freed.lock().is_empty()
    {
        let wait = std::time::Duration::from_millis(20);
        allocator = allocator.wait_timeout(&s.staging_released, wait);
        offset = allocator.take(bytes, align);
    }
    drop(allocator);
    let Some(offset) = offset else {
        crate::say!(
            "the session's host heap ({} MiB) has no room for {bytes} bytes of pinned memory",
            s.welcome.heap_bytes >> 20
        );
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    };
    let range = HeapRange { offset, bytes: bytes.next_multiple_of(PAGE) };
    if s.pages.are_separate() {
        // Something else may have been there, here and in the worker: both sides begin with no pages.
        remove_pages(s, range);
    }
    Ok(range)
}

fn remove_pages(s: &Session, range: HeapRange) {
    if let Some(at) = s.heap.at(range.offset, range.bytes) {
        // SAFETY: callers have the range to themselves.
        unsafe { libc::madvise(at.cast(), range.bytes as usize, libc::MADV_REMOVE) };
    }
}

/// Gives a range back whose pages nobody needs any more. In shared memory this also frees the worker's pages:
/// they are the same.
pub fn give_back(s: &Session, range: HeapRange) {
    remove_pages(s, range);
    s.heap_allocator.lock().release(range.offset, range.bytes);
}

/// For tests: bytes of the heap that somebody has, of staging memory and of the rest. Without a session none.
///
/// # Safety
/// Two words can be written there.
#[cfg(debug_assertions)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orion_heap_in_use(out: *mut [u64; 2]) {
    let in_use = crate::session::attached::session().map_or([0; 2], |s| {
        let small = s.host_memory.small.lock().as_ref().map_or(0, Region::free_bytes);
        let allocator = s.heap_allocator.lock();
        let (staging, all) = (s.welcome.staging_bytes.min(s.welcome.heap_bytes), s.welcome.heap_bytes);
        let [free_staging, free] = allocator.free_bytes();
        [staging - free_staging, all - staging - free - small]
    });
    // SAFETY: the caller's promise.
    unsafe { out.write(in_use) };
}

/// The worker is done with a range. False if it is not freed pinned memory.
pub fn released(s: &Session, range: HeapRange) -> bool {
    let Some(alone) = s.host_memory.freed.lock().remove(&range.offset) else {
        return false;
    };
    if alone {
        give_back(s, range);
    } else if let Some(small) = s.host_memory.small.lock().as_mut() {
        // The worker has done so too: see its `clear`.
        if s.pages.are_separate()
            && let Some(at) = s.heap.at(range.offset, range.bytes)
        {
            // SAFETY: a range of the heap that nobody uses until it is released below.
            unsafe { at.write_bytes(0, range.bytes as usize) };
        }
        small.release(range.offset, range.bytes);
    }
    true
}

/// What memory that both sides see has all of `bytes` at `address`, if any.
pub fn shared(s: &Session, address: u64, bytes: u64) -> Option<SharedMemory> {
    if let Some(offset) = s.heap.offset_of(address, bytes) {
        return Some(SharedMemory::Heap(HeapRange { offset, bytes }));
    }
    if let Some(range) = variables::shared(address, bytes) {
        return Some(SharedMemory::Heap(range));
    }
    // Relaxed: whoever registered the memory told this thread so by other means.
    if !s.host_memory.any_registered.load(Ordering::Relaxed) {
        return None;
    }
    let range = state().addresses.find(address)?;
    let is_whole = range.device_pointer != 0 && range.bytes_from(address) >= bytes;
    if !is_whole || !is_of(s, range.device) {
        return None;
    }
    match range.kind {
        MemoryKind::RegisteredHost => {
            Some(SharedMemory::Heap(HeapRange { offset: range.owner + (address - page_of(range.base)), bytes }))
        }
        MemoryKind::RegisteredFile => Some(SharedMemory::File),
        _ => None,
    }
}

/// Where the application has a range of the heap.
pub fn address_of(s: &Session, range: HeapRange) -> Option<u64> {
    let moved = s.host_memory.moved.lock();
    let inside = |(_, pages): &(&u64, &Pages)| range.offset.wrapping_sub(pages.range.offset) < pages.range.bytes;
    let registered = moved.iter().find(inside).map(|(first, pages)| first + (range.offset - pages.range.offset));
    registered.or_else(|| s.heap.at(range.offset, range.bytes).map(|at| at as u64))
}

/// What begins in registered memory has to end in it too: the driver takes no other copy.
pub fn check_registered(s: &Session, address: u64, bytes: u64) -> Result<(), CUresult> {
    if !s.host_memory.any_registered.load(Ordering::Relaxed) {
        return Ok(());
    }
    match state().addresses.find(address) {
        Some(r) if r.is_registered() && r.bytes_from(address) < bytes => Err(CUDA_ERROR_INVALID_VALUE),
        _ => Ok(()),
    }
}

/// Pinned and managed memory lies in the heap beside other such memory, and has pages of its own there: what begins in
/// one allocation ends in its pages.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` where it does not, as the driver answers.
pub fn ends_in_one_allocation(address: u64, bytes: u64) -> Result<(), CUresult> {
    if (address % PAGE).saturating_add(bytes) <= PAGE {
        return Ok(());
    }
    match state().addresses.find(address).is_some_and(|range| ends_before(&range, address, bytes)) {
        true => Err(CUDA_ERROR_INVALID_VALUE),
        false => Ok(()),
    }
}

/// Whether so many bytes from an address of pinned or managed memory reach beyond its pages.
pub fn ends_before(range: &Range, address: u64, bytes: u64) -> bool {
    let is_of_heap = matches!(range.kind, MemoryKind::PinnedHost | MemoryKind::Managed);
    is_of_heap && range.end().next_multiple_of(PAGE) - address < bytes
}

pub fn page_of(address: u64) -> u64 {
    address / PAGE * PAGE
}

/// Moves pages onto the heap where they lie; where they are there, or why that is not possible.
///
/// Other threads may run meanwhile, and write to these pages: they wait for the exchange ([`crate::memory::held`]).
/// The first and the last page may hold other things too (the allocator's, neighbours'), so each of them is exchanged
/// by itself, within some microseconds. What cannot be moved as a whole is moved back.
pub fn move_in(s: &'static Session, moved: &mut Moved, first: u64, bytes: u64) -> Result<HeapRange, String> {
    mappings::take_room(MAPPINGS_OF_A_RANGE).map_err(|(now, most)| {
        format!(
            "this process has {now} mappings, each registered range takes {MAPPINGS_OF_A_RANGE} more, and of the \
             {most} that the system allows (vm.max_map_count) half are left to the program; register fewer and larger \
             ranges"
        )
    })?;
    // For a child that is forked, too, where there may be nothing to be asked any more.
    let _ = look_of(&s.memory_file, s.heap);
    let align = if bytes >= BLOCK { BLOCK } else { PAGE };
    let range = take(s, bytes, align).map_err(|_| "the session's host heap has no room for it".to_owned())?;
    if !can_map_again(s, range) {
        give_back(s, range);
        return Err("the session's own memory cannot be mapped a second time".to_owned());
    }
    let Some(heap) = s.heap.at(range.offset, bytes).map(|at| at as u64) else {
        return Err("it is not in the heap".to_owned());
    };
    // The worker first: it knows whether the address is free there.
    let q = MemHostRegister { pages: PagesOf::Heap, range: range.into(), address: ClaimedPlace::new(first) };
    if let Err(code) = call(MemHostRegister::OP, |w| q.encode(w), |_| Ok(())) {
        give_back(s, range);
        return Err(format!("the worker cannot map it at {first:#x} ({code})"));
    }
    for (done, (at, len)) in pieces(first, bytes).enumerate() {
        let from = heap + (at - first);
        // SAFETY: both are `len` mapped bytes: the heap range is ours, and the application's memory is private,
        // readable and writable.
        if !unsafe { put_over(&s.memory_file, s.heap, from, at, len) } {
            let why = std::io::Error::last_os_error();
            let q = MemHostUnregister { address: ClaimedHost::new(first) };
            // It is the range of a session that goes on, or of none.
            let _ = call(MemHostUnregister::OP, |w| q.encode(w), |_| Ok(()));
            moved.extend(move_out(s, first, range, pieces(first, bytes).take(done)));
            return Err(format!("mapping {len} bytes of the heap at {at:#x} failed: {why}"));
        }
    }
    keep_size(first, bytes);
    // Over TCP the bytes stay here until a copy or a kernel needs them.
    Ok(range)
}

/// Makes the last page a mapping of its own, by an advice that says nothing of memory like this. Whoever lets
/// registered memory grow (`realloc` does, by `mremap`) would else have what lies behind it in the heap, which is
/// others'. What grows has to be one mapping, so `mremap` fails, and `realloc` copies.
fn keep_size(first: u64, bytes: u64) {
    if bytes > PAGE {
        // SAFETY: no byte is changed.
        unsafe { libc::madvise((first + bytes - PAGE) as *mut c_void, PAGE as usize, libc::MADV_RANDOM) };
    }
}

/// Copies `len` bytes from `at` to the shared pages at `from`, which are the heap's, and maps those at `at` instead.
///
/// # Safety
/// `at` is ordinary memory, `from` a shared mapping that nobody else uses; both are whole pages.
pub unsafe fn put_over(file: &MemoryFile, heap: Heap, from: u64, at: u64, len: u64) -> bool {
    // SAFETY: the caller's promise. The exchange keeps the content.
    unsafe {
        let again = map_again(file, heap, from, len);
        if again == libc::MAP_FAILED {
            return false;
        }
        let _held = hold(at, len);
        crate::memory::parallel_copy::copy(from as *mut u8, at as *const u8, len as usize);
        let is_there = take_place(again, at, len);
        if is_there {
            // Unlike the heap it is in cores: it is the application's.
            libc::madvise(at as *mut c_void, len as usize, libc::MADV_DODUMP);
        }
        is_there
    }
}

/// Moves a mapping to `at`, over what is there, in one step: whoever uses that address meanwhile finds the one or the
/// other. Where that cannot be done it is gone.
///
/// # Safety
/// Nobody knows of the mapping; nobody minds what becomes of the one at `at`.
pub unsafe fn take_place(mapping: *mut c_void, at: u64, len: u64) -> bool {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the caller's promise.
    unsafe {
        let moved = libc::mremap(mapping, len as usize, len as usize, flags, at as *mut c_void);
        if moved == libc::MAP_FAILED {
            libc::munmap(mapping, len as usize);
        }
        moved as u64 == at
    }
}

/// Keeps other threads from writing to pages that are about to be exchanged, where the system allows that.
///
/// # Safety
/// As [`Held::hold`].
unsafe fn hold(at: u64, len: u64) -> Option<Held> {
    // SAFETY: the caller's promise.
    unsafe { Held::hold(at, len) }
        .inspect_err(|why| {
            crate::say!(
                "what other threads write beside memory, or into it, at the moment in which it is registered or \
                 unregistered may be lost: userfaultfd(2) is not to be had ({why}): Docker's own list of system calls \
                 forbids it, Linux before 5.19 has less of it, and pages of a device, as of ivshmem, have none"
            );
        })
        .ok()
}

/// Maps pages of the heap a second time, anywhere.
pub fn map_again(file: &MemoryFile, heap: Heap, from: u64, len: u64) -> *mut c_void {
    // SAFETY: with an old size of zero, mremap maps shared pages a second time.
    let mapped = unsafe { libc::mremap(from as *mut c_void, 0, len as usize, libc::MREMAP_MAYMOVE) };
    let Some(offset) = heap.offset_of(from, len).filter(|_| mapped == libc::MAP_FAILED && file.is_open()) else {
        return mapped;
    };
    // Pages of a device are not mapped twice in this way, but by their file.
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let offset = (file.heap_at + offset) as libc::off_t;
    // SAFETY: a new mapping of a range of the heap.
    unsafe { libc::mmap(std::ptr::null_mut(), len as usize, access, libc::MAP_SHARED, file.fd, offset) }
}

/// Whether pages of the heap can be mapped again: an application may have closed what is not its own, and then those of
/// a device cannot.
fn can_map_again(s: &Session, range: HeapRange) -> bool {
    let Some(from) = s.heap.at(range.offset, PAGE) else { return false };
    let mapped = map_again(&s.memory_file, s.heap, from as u64, PAGE);
    // SAFETY: of this function's own.
    mapped != libc::MAP_FAILED && unsafe { libc::munmap(mapped, PAGE as usize) } == 0
}

/// What lies between the first and the last page, in parts of at most [`PIECE`]; the first page; the last page. A range
/// of up to [`WHOLE`] is one piece.
fn pieces(first: u64, bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    let (edge, last) = if bytes <= WHOLE { (bytes, first) } else { (PAGE, first + bytes - PAGE) };
    let between = (first + edge..last).step_by(PIECE as usize).map(move |at| (at, PIECE.min(last - at)));
    between.chain([(first, edge)]).chain((last > first).then_some((last, PAGE)))
}

/// Makes pages that lie on a range of the heap from `first` on the application's own again, with their content, and
/// gives the range back. Where there is no memory for that they stay the heap's, as long as the session lasts: which,
/// as entries of [`crate::state::host_memory::HostMemory::moved`].
///
/// An application that has unmapped its memory meanwhile, or mapped something else there, keeps what it has.
pub fn move_out(
    s: &Session,
    first: u64,
    range: HeapRange,
    pieces: impl Iterator<Item = (u64, u64)>,
) -> Vec<(u64, Pages)> {
    let (mut stays, parts) = (Vec::new(), parts_of(s, first, range));
    let is_whole = parts.iter().map(|part| part.bytes).sum::<u64>() == range.bytes;
    let _ = mappings::take_room(MAPPINGS_OF_A_RANGE);
    for (at, len) in pieces {
        for part in parts.iter().filter_map(|part| part.within(at, len)) {
            let offset = range.offset + (part.at - first);
            let is_own = stays.is_empty() && s.heap.at(offset, part.bytes).is_some_and(|from| make_own(&part, from));
            match is_own {
                // So that one piece is there twice, and not all of them.
                true => remove_pages(s, HeapRange { offset, bytes: part.bytes }),
                false => {
                    let range = HeapRange { offset, bytes: part.bytes };
                    stays.push((part.at, Pages { range, registrations: 0 }));
                }
            }
        }
    }
    if !stays.is_empty() {
        let bytes: u64 = stays.iter().map(|(_, pages)| pages.range.bytes).sum();
        crate::say!("{bytes} bytes at {first:#x} stay the session's: there is no memory to give them back");
    } else if !is_whole && is_elsewhere(s, first, range) {
        let bytes = range.bytes;
        crate::say!("{bytes} bytes that were registered at {first:#x} stay the session's: they were moved (mremap)");
    } else {
        give_back(s, range);
    }
    stays
}

/// As [`move_out`], of all that was moved.
pub fn move_all_out(s: &Session, first: u64, range: HeapRange) -> Vec<(u64, Pages)> {
    move_out(s, first, range, pieces(first, range.bytes))
}

/// Pages that still lie where they were moved, and what the application may do there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    at: u64,
    bytes: u64,
    protection: libc::c_int,
}

impl Part {
    /// What of it lies in a range.
    fn within(&self, first: u64, bytes: u64) -> Option<Part> {
        let (at, end) = (self.at.max(first), (self.at + self.bytes).min(first + bytes));
        (at < end).then(|| Part { at, bytes: end - at, ..*self })
    }
}

/// What of a mapping is that of a range of the heap which was moved to `first`.
fn part_of(heap: &Mapped, mapping: &Mapping, first: u64, range: HeapRange) -> Option<Part> {
    let part = Part { at: mapping.start, bytes: mapping.end - mapping.start, protection: mapping.protection() };
    let part = part.within(first, range.bytes)?;
    let offset = mapping.offset + (part.at - mapping.start);
    let is_it = mapping.is_shared && (mapping.device, mapping.inode) == (heap.device, heap.inode);
    (is_it && offset == heap.heap_at + range.offset + (part.at - first)).then_some(part)
}

/// How mappings of the heap look, by the one that there has always been.
fn look_of(file: &MemoryFile, heap: Heap) -> Option<Mapped> {
    if let Some(known) = file.mapped.get() {
        return Some(*known);
    }
    let (at, mut found) = (heap.base() as u64, None);
    mappings::each(at, at + 1, |mapping| {
        let heap_at = mapping.offset + (at - mapping.start);
        found = Some(Mapped { device: mapping.device, inode: mapping.inode, heap_at });
    })
    .ok()?;
    found.map(|found| *file.mapped.get_or_init(|| found))
}

/// What of a range that was moved to `first` still is there.
fn parts_of(s: &Session, first: u64, range: HeapRange) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let all = Part { at: first, bytes: range.bytes, protection: libc::PROT_READ | libc::PROT_WRITE };
    let look = look_of(&s.memory_file, s.heap);
    let mut see = |mapping: &Mapping| {
        let part = look.as_ref().and_then(|look| part_of(look, mapping, first, range));
        match (parts.last_mut(), part) {
            (Some(last), Some(part)) if (last.at + last.bytes, last.protection) == (part.at, part.protection) => {
                last.bytes += part.bytes;
            }
            (_, part) => parts.extend(part),
        }
    };
    let end = first + range.bytes;
    let asked = match mappings::each_if_asked(first, end, &mut see) {
        Some(asked) => asked,
        None if looks_untouched(s, first, range) => return vec![all],
        None => mappings::each(first, end, see),
    };
    match asked.is_err() || look.is_none() {
        // After chroot, or in a sandbox that opens no files: nobody can say whether they are what they were.
        true if is_mapped(first, end) => vec![all],
        _ => parts,
    }
}

/// Whether pages of a range that was moved to `first` seem to be there all, for reading and writing. A kernel that has
/// to be asked by reading all that it knows is not asked then: in a process with thousands of mappings that takes
/// milliseconds, for each range that is unregistered. What seems so and is not is another file with the same bytes.
fn looks_untouched(s: &Session, first: u64, range: HeapRange) -> bool {
    /// Of a page's word in `/proc/self/pagemap`: it is there, and a file's or shared.
    const SHARED_AND_THERE: u64 = 1 << 63 | 1 << 61;
    const PAGES_AT_ONCE: usize = 512;
    const COMPARED: usize = 64;
    let (Some(heap), bytes) = (s.heap.at(range.offset, range.bytes), range.bytes as usize) else { return false };
    // It fails where something is not mapped, or not to be written.
    // SAFETY: pages are made, and no byte changes.
    if unsafe { libc::madvise(first as *mut c_void, bytes, libc::MADV_POPULATE_WRITE) } != 0 {
        return false;
    }
    let Ok(pages) = std::fs::File::open("/proc/self/pagemap") else { return false };
    let mut words = [0u8; 8 * PAGES_AT_ONCE];
    for at in (first..first + range.bytes).step_by(PAGES_AT_ONCE * PAGE as usize) {
        let count = PAGES_AT_ONCE.min(((first + range.bytes - at) / PAGE) as usize);
        let words = &mut words[..8 * count];
        let read = std::os::unix::fs::FileExt::read_exact_at(&pages, words, at / PAGE * 8);
        let is_there = |word: &[u8]| {
            let word = u64::from_ne_bytes(word.try_into().expect("eight of them"));
            word & SHARED_AND_THERE == SHARED_AND_THERE
        };
        if read.is_err() || !words.chunks_exact(8).all(is_there) {
            return false;
        }
    }
    (0..bytes).step_by(PAGE as usize).all(|page| {
        // SAFETY: pages that were seen to be there; who changes them meanwhile has them compared otherwise.
        unsafe { libc::memcmp((first as usize + page) as *const c_void, heap.add(page).cast(), COMPARED) == 0 }
    })
}

/// Whether pages from `first` to `last` still are those of a range that was moved to `at`, for reading and writing.
pub fn is_still_there(s: &Session, at: u64, range: HeapRange, first: u64, last: u64) -> bool {
    let within = parts_of(s, at, range).into_iter().find_map(|part| part.within(first, last - first));
    within == Some(Part { at: first, bytes: last - first, protection: libc::PROT_READ | libc::PROT_WRITE })
}

/// Whether the application has some of a range that was moved to `first` at another address, where nobody looks for it.
fn is_elsewhere(s: &Session, first: u64, range: HeapRange) -> bool {
    let Some(look) = look_of(&s.memory_file, s.heap) else { return true };
    let known = [(s.heap.base() as u64, s.heap.bytes()), (first, range.bytes)];
    let in_file = look.heap_at + range.offset;
    let mut is_there = false;
    let asked = mappings::each(0, u64::MAX, |mapping| {
        let end = mapping.offset + (mapping.end - mapping.start);
        is_there |= (mapping.device, mapping.inode) == (look.device, look.inode)
            && mapping.offset < in_file + range.bytes
            && in_file < end
            && !known.iter().any(|(at, bytes)| (*at..at + bytes).contains(&mapping.start));
    });
    asked.is_err() || is_there
}

/// Makes pages the application's own again, with their content, which is at `from`, too. False if there is no memory
/// for that: then they are what they were.
fn make_own(part: &Part, from: *const u8) -> bool {
    let (len, access) = (part.bytes as usize, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: the fresh mapping is ours until it takes the place of the pages at `at`, which are a mapping of
    // the heap that this module made. The exchange keeps the content.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let fresh = libc::mmap(std::ptr::null_mut(), len, access, flags, -1, 0);
        if fresh == libc::MAP_FAILED {
            return false;
        }
        // Nobody writes where nobody may.
        let _held = (part.protection & access == access).then(|| hold(part.at, part.bytes));
        crate::memory::parallel_copy::copy(fresh.cast(), from, len);
        if part.protection != access {
            libc::mprotect(fresh, len, part.protection);
        }
        take_place(fresh, part.at, part.bytes)
    }
}

/// What the pages of a range are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// The process's own, readable and writable: can be moved.
    Private,
    /// Pages of a file, which others may map and write: have to stay the file's.
    Shared,
    /// A stack, a device, its own pages over a file, as a program's variables that have values are: userfaultfd, which
    /// keeps others from writing during the exchange, has none of them. Has to stay.
    Other,
    /// The driver refuses to register it for writing.
    ReadOnly,
}

/// An error where some page is not mapped at all.
pub fn backing_of(first: u64, last: u64) -> Result<Backing, CUresult> {
    let mut pages = Seen::from(first);
    match mappings::each(first, last, |mapping| pages.see(mapping)) {
        Ok(()) => match pages.up_to(last).ok_or(CUDA_ERROR_INVALID_VALUE)? {
            Backing::Private if is_own_stack(first, last) => Ok(Backing::Other),
            backing => Ok(backing),
        },
        // After chroot, or in a sandbox that opens no files. Nobody can say what these pages are, so they stay.
        Err(e) if is_mapped(first, last) => {
            crate::say!(
                "registered memory stays pageable, and kernels cannot use it: reading /proc/self/maps failed: {e}; \
                 is there no /proc here (chroot), or does a sandbox forbid it?"
            );
            Ok(Backing::Other)
        }
        Err(_) => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// Whether this thread writes to the range while it calls: its stack, whose pages have a name only in the first thread.
fn is_own_stack(first: u64, last: u64) -> bool {
    const BELOW: u64 = 256 << 10;
    const ABOVE: u64 = 16 << 10;
    let here = (&raw const first) as u64;
    first < here + ABOVE && here.saturating_sub(BELOW) < last
}

fn is_mapped(first: u64, last: u64) -> bool {
    let mut at_once = [0u8; 1024];
    let bytes = at_once.len() * PAGE as usize;
    (first..last).step_by(bytes).all(|at| {
        let bytes = bytes.min((last - at) as usize);
        // SAFETY: a byte for each page, of whatever may be there.
        unsafe { libc::mincore(at as *mut c_void, bytes, at_once.as_mut_ptr()) == 0 }
    })
}

/// What is known of the pages from one on, mapping by mapping.
struct Seen {
    /// Where what is known ends.
    at: u64,
    backing: Option<Backing>,
    has_hole: bool,
}

impl Seen {
    fn from(first: u64) -> Seen {
        Seen { at: first, backing: None, has_hole: false }
    }

    fn see(&mut self, mapping: &Mapping) {
        let name = mapping.name;
        let anonymous = mapping.inode == 0 && (name.is_empty() || name == b"[heap]" || name.starts_with(b"[anon"));
        let this = match (mapping.is_readable, mapping.is_writable, mapping.is_shared) {
            (false, ..) => return self.has_hole = true,
            (true, false, _) => Backing::ReadOnly,
            (true, true, true) => Backing::Shared,
            (true, true, false) if anonymous => Backing::Private,
            (true, true, false) => Backing::Other,
        };
        self.has_hole |= mapping.start > self.at;
        self.at = mapping.end;
        self.backing = Some(match self.backing.unwrap_or(this) {
            same if same == this => this,
            other if Backing::ReadOnly == this || Backing::ReadOnly == other => Backing::ReadOnly,
            _ => Backing::Other,
        });
    }

    /// Nothing where a page is not mapped, or not readable.
    fn up_to(&self, last: u64) -> Option<Backing> {
        self.backing.filter(|_| !self.has_hole && self.at >= last)
    }
}

/// Memory that was moved: where it is, and where in the heap.
#[derive(Debug, Clone, Copy)]
pub struct MovedRange {
    pub at: u64,
    pub range: HeapRange,
}

/// Called in the child of a fork: memory that was moved is shared with the parent there, where the application
/// expects a copy. It becomes private from here on. The first and the last page hold what is the allocator's, too:
/// these are copied at once, for the parent goes on changing them.
pub fn in_forked_child(s: &Session, moved: &[MovedRange]) {
    // If the descriptor was closed, or is something else by now, the old mappings stay.
    if !s.memory_file.is_open() {
        return;
    }
    let [MovedRange { at: first, .. }, ..] = *moved else { return };
    let MovedRange { at, range } = moved[moved.len() - 1];
    let look = s.memory_file.mapped.get();
    let own = |moved: &MovedRange, part: Part| make_childs_own(s, part, moved.range.offset + (part.at - moved.at));
    // All of them in one look, for each may be one at a text. What the parent has unmapped, or has mapped there since,
    // is not touched.
    let mut rest = moved;
    let asked = mappings::each(first, at + range.bytes, |mapping| {
        while let Some((moved, behind)) = rest.split_first() {
            if let Some(part) = look.and_then(|look| part_of(look, mapping, moved.at, moved.range)) {
                own(moved, part);
            }
            if moved.at + moved.range.bytes > mapping.end {
                break;
            }
            rest = behind;
        }
    });
    if asked.is_err() || look.is_none() {
        for moved in moved {
            let (at, bytes) = (moved.at, moved.range.bytes);
            own(moved, Part { at, bytes, protection: libc::PROT_READ | libc::PROT_WRITE });
        }
    }
}

fn make_childs_own(s: &Session, part: Part, offset: u64) {
    // SAFETY: replaces a mapping of the heap by a private mapping of the same pages. What is written to a page is what
    // it has.
    unsafe {
        let mapped = libc::mmap(
            part.at as *mut c_void,
            part.bytes as usize,
            part.protection,
            libc::MAP_PRIVATE | libc::MAP_FIXED,
            s.memory_file.fd,
            (s.memory_file.heap_at + offset) as libc::off_t,
        );
        let access = libc::PROT_READ | libc::PROT_WRITE;
        if mapped == libc::MAP_FAILED || part.protection & access != access {
            return;
        }
        for byte in [part.at, part.at + part.bytes - 1].map(|at| at as *mut u8) {
            byte.write_volatile(byte.read_volatile());
        }
    }
}

#[cfg(test)]
mod tests {
    use orion_ring::{Layout, Memory};

    use super::*;
    use crate::state::heap::PAGE;

    #[test]
    fn only_private_memory_can_be_moved() {
        let maps = "\
55d000000000-55d000002000 rw-p 00000000 00:00 0 [heap]
7f0000000000-7f0000004000 rw-p 00000000 00:00 0
7f0000004000-7f0000006000 rw-s 00000000 00:01 123 /dev/shm/x
7f0000006000-7f0000007000 r--p 00000000 00:00 0
7f0000009000-7f000000a000 ---p 00000000 00:00 0
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0 [stack]
7ffd00000000-7ffd00001000 rw-p 00003000 00:1c 77 /bin/sh
";
        let backing = |first, last| {
            let mut pages = Seen::from(first);
            mappings::in_text(maps.as_bytes(), first, last, |mapping| pages.see(mapping)).expect("text");
            pages.up_to(last)
        };
        assert_eq!(backing(0x55d000000000, 0x55d000002000), Some(Backing::Private));
        assert_eq!(backing(0x7f0000001000, 0x7f0000004000), Some(Backing::Private));
        assert_eq!(backing(0x7f0000004000, 0x7f0000006000), Some(Backing::Shared));
        assert_eq!(backing(0x7f0000001000, 0x7f0000005000), Some(Backing::Other));
        assert_eq!(backing(0x7f0000005000, 0x7f0000007000), Some(Backing::ReadOnly));
        assert_eq!(backing(0x7f0000006000, 0x7f0000008000), None);
        assert_eq!(backing(0x7f0000009000, 0x7f000000a000), None);
        assert_eq!(backing(0x7ffc00001000, 0x7ffc00002000), Some(Backing::Other));
        assert_eq!(backing(0x100000, 0x101000), None);
        assert_eq!(backing(0x7ffd00000000, 0x7ffd00001000), Some(Backing::Other));
    }

    fn part(at: u64, bytes: u64) -> Part {
        Part { at, bytes, protection: libc::PROT_READ | libc::PROT_WRITE }
    }

    #[test]
    fn memory_moves_onto_shared_pages_and_back() {
        let bytes = 3 * PAGE;
        let map = |flags| {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: fresh mappings.
            let p = unsafe {
                libc::mmap(std::ptr::null_mut(), bytes as usize, protection, flags | libc::MAP_ANONYMOUS, -1, 0)
            };
            assert_ne!(p, libc::MAP_FAILED);
            p as u64
        };
        let memory = Memory::create(Layout { heap_bytes: bytes }).expect("memory");
        let (file, shared) = (MemoryFile::of(&memory).expect("its size"), memory.map_heap(None).expect("a heap"));
        let (heap, app) = (shared.base() as u64, map(libc::MAP_PRIVATE));
        let byte = |base: u64, i: u64| (base + i) as *mut u8;
        // SAFETY: all addresses lie in the two mappings above.
        unsafe {
            for i in 0..bytes {
                byte(app, i).write_volatile(i as u8 ^ 0x5a);
            }
            for (at, len) in pieces(app, bytes) {
                assert!(put_over(&file, shared, heap + (at - app), at, len));
            }
            for i in 0..bytes {
                assert_eq!(byte(app, i).read_volatile(), i as u8 ^ 0x5a);
            }
            byte(heap, 5000).write_volatile(1);
            assert_eq!(byte(app, 5000).read_volatile(), 1);
            for (at, len) in pieces(app, bytes) {
                assert!(make_own(&part(at, len), (heap + (at - app)) as *const u8));
            }
            byte(heap, 5000).write_volatile(2);
            assert_eq!(byte(app, 5000).read_volatile(), 1);
            assert_eq!(byte(app, 5001).read_volatile(), 5001u64 as u8 ^ 0x5a);
        }
    }

    /// Writes a number to a word as often as it can, and sees each time whether it is still there.
    #[test]
    fn what_others_write_during_an_exchange_is_kept() {
        use std::sync::atomic::AtomicBool;
        let bytes = 2 * PAGE;
        let memory = Memory::create(Layout { heap_bytes: bytes }).expect("memory");
        let (file, shared) = (MemoryFile::of(&memory).expect("its size"), memory.map_heap(None).expect("a heap"));
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping.
        let app = unsafe { libc::mmap(std::ptr::null_mut(), bytes as usize, protection, flags, -1, 0) } as u64;
        // SAFETY: pages of the mapping above, which this thread does not write to.
        if let Err(why) = unsafe { Held::hold(app, PAGE) } {
            assert!(std::env::var_os("ORION_TESTS_INSIST").is_none(), "no userfaultfd: {why}");
            println!("left out: no userfaultfd: {why}");
            return;
        }
        let stops = AtomicBool::new(false);
        let lost = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let (word, mut number, mut lost) = ((app + 8) as *mut u64, 0, 0);
                while !stops.load(Ordering::Relaxed) {
                    number += 1;
                    // SAFETY: a word of the mapping above that nobody else writes to.
                    unsafe {
                        word.write_volatile(number);
                        lost += u64::from(word.read_volatile() != number);
                    }
                }
                lost
            });
            for _ in 0..1000 {
                for (at, len) in pieces(app, bytes) {
                    // SAFETY: ordinary memory, and a heap that nobody uses.
                    assert!(unsafe { put_over(&file, shared, shared.base() as u64 + (at - app), at, len) });
                }
                for (at, len) in pieces(app, bytes) {
                    assert!(make_own(&part(at, len), (shared.base() as u64 + (at - app)) as *const u8));
                }
            }
            stops.store(true, Ordering::Relaxed);
            writer.join().expect("it ends")
        });
        assert_eq!(lost, 0);
    }

    // AddressSanitizer keeps what a function has elsewhere.
    #[cfg(not(sanitized))]
    #[test]
    fn a_threads_own_stack_is_left_where_it_is() {
        std::thread::spawn(|| {
            let mut buffer = [1u8; 3 * PAGE as usize];
            let first = buffer.as_mut_ptr() as u64 / PAGE * PAGE;
            assert_eq!(backing_of(first, first + PAGE), Ok(Backing::Other));
            std::hint::black_box(&mut buffer);
        })
        .join()
        .expect("it ends");
    }

    #[test]
    fn pieces_cover_a_range_once() {
        for pages in [1, 2, 3, 4, PIECE / PAGE + 2, PIECE / PAGE + 3, 3 * PIECE / PAGE] {
            let mut all: Vec<_> = pieces(0x10000, pages * PAGE).collect();
            all.sort_unstable();
            let mut at = 0x10000;
            for (start, len) in all {
                assert_eq!(start, at);
                at += len;
            }
            assert_eq!(at, 0x10000 + pages * PAGE);
        }
    }
}
