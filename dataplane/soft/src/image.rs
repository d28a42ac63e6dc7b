//! Finds the PTX to run in what a program hands over: text, a fat binary, or its wrapper.

// UNSAFETY: an image arrives as a bare pointer whose length is inside it.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

use orion_cuda::sys::*;

use crate::api::R;
use crate::context;
use crate::ptx::link;

const WRAPPER_MAGIC: u32 = 0x4662_43b1;
/// A list of fat binaries follows the wrapper's own, for the driver to link.
const WRAPPER_WITH_LIST: u32 = 2;
const FATBIN_MAGIC: u32 = 0xba55_ed50;
const ELF_MAGIC: u32 = u32::from_le_bytes(*b"\x7fELF");
const KIND_PTX: u16 = 1;
const KIND_CUBIN: u16 = 2;
const FLAG_LZ4: u64 = 0x2000;
const FLAG_ZSTD: u64 = 0x8000;
/// Bounds what a damaged header can make us allocate.
const TEXT_BYTES_MAX: usize = 1 << 30;

/// What an image has for the software GPU.
pub struct Text {
    /// PTX; of an image that is linked from several, theirs, apart by `link::NEXT`.
    pub ptx: Arc<String>,
    /// A compiler wrote it, for this device or one like it: what is wrong with it is what the software GPU lacks.
    pub compiled: bool,
    /// The name of the file that the program has it in, as far as that is known.
    pub owner: String,
}

/// Of a file's name, what is told.
const OWNER_CHARS_MAX: usize = 100;

thread_local! {
    static OWNER: RefCell<String> = const { RefCell::new(String::new()) };
}

/// What images this thread loads in `work` are of a file of this name, which lines about them tell. A server says so
/// for its client, who has the file.
pub fn of_file<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let told = name.chars().filter(|c| !c.is_control()).take(OWNER_CHARS_MAX).collect();
    let before = OWNER.replace(told);
    let done = work();
    OWNER.set(before);
    done
}

fn owner() -> String {
    OWNER.with_borrow(Clone::clone)
}

/// ` from libx.so`, or nothing where the file is not known.
pub fn from(owner: &str) -> String {
    if owner.is_empty() { String::new() } else { format!(" from {owner}") }
}

/// The text of an image in memory.
///
/// # Safety
/// `image` points to one of the formats CUDA accepts, whole.
pub unsafe fn ptx_at(image: *const c_void) -> R<Text> {
    if image.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: every format is at least four bytes long.
    let magic = unsafe { image.cast::<u32>().read_unaligned() };
    match magic {
        WRAPPER_MAGIC => {
            // SAFETY: a wrapper is magic, version and the pointer to its fat binary.
            let (version, own) = unsafe {
                let own = fat_binary(image.cast::<*const c_void>().add(1).read_unaligned())?;
                (image.cast::<u32>().add(1).read_unaligned(), entries(own)?)
            };
            if version != WRAPPER_WITH_LIST || best_ptx(&own).is_some() {
                return text_of(&own);
            }
            // SAFETY: in this version the pointer to such a list follows.
            let parts = unsafe { fat_binaries(image.cast::<*const *const c_void>().add(2).read_unaligned())? };
            if parts.is_empty() { text_of(&own) } else { linked(&parts) }
        }
        // SAFETY: the magic says that it is one.
        FATBIN_MAGIC => text_of(&entries(unsafe { fat_binary(image)? })?),
        ELF_MAGIC => {
            // SAFETY: the header of an ELF file is 64 bytes long.
            let header = unsafe { image.cast::<[u8; 64]>().read_unaligned() };
            // SAFETY: the header says that there are so many bytes, and the caller that the file is whole.
            let file = unsafe { std::slice::from_raw_parts(image.cast::<u8>(), cubin_bytes(&header)) };
            Err(no_ptx_in_cubin(file))
        }
        _ => {
            // SAFETY: what is not binary is NUL-terminated text.
            let text = unsafe { CStr::from_ptr(image.cast::<c_char>()) };
            plain_text(text.to_bytes().to_vec())
        }
    }
}

/// What follows the header of a fat binary.
///
/// # Safety
/// `image` is null or points to a fat binary, whole.
unsafe fn fat_binary<'a>(image: *const c_void) -> R<&'a [u8]> {
    // SAFETY: the header is 16 bytes, and says how long the rest is.
    unsafe {
        if image.is_null() || image.cast::<u32>().read_unaligned() != FATBIN_MAGIC {
            return Err(CUDA_ERROR_INVALID_IMAGE);
        }
        let head = image.cast::<u8>().add(6).cast::<u16>().read_unaligned();
        let size = image.cast::<u8>().add(8).cast::<u64>().read_unaligned();
        Ok(std::slice::from_raw_parts(image.cast::<u8>().add(head as usize), size as usize))
    }
}

/// # Safety
/// `list` is null or points to pointers to fat binaries, the last of which is null.
unsafe fn fat_binaries<'a>(list: *const *const c_void) -> R<Vec<&'a [u8]>> {
    let mut found = Vec::new();
    while !list.is_null() {
        // SAFETY: no null pointer has been met in the list.
        let next = unsafe { list.add(found.len()).read_unaligned() };
        if next.is_null() {
            break;
        }
        // SAFETY: the caller's promise.
        found.push(unsafe { fat_binary(next)? });
    }
    Ok(found)
}

/// The PTX texts of the fat binaries that an image is linked from, for `link` to make one module of.
fn linked(parts: &[&[u8]]) -> R<Text> {
    let mut texts = Vec::new();
    for part in parts {
        let all = entries(part)?;
        // Functions of the device runtime stay undefined, and only kernels that call them are refused.
        let is_left_out = all.is_empty() || ptx_for_this(&all).is_none() && is_device_runtime(&all);
        if !is_left_out {
            texts.push(text(best_for(&all)?)?);
        }
    }
    if texts.is_empty() {
        Err(no_ptx("the image", None, false))
    } else {
        Ok(Text { ptx: Arc::new(texts.join(link::NEXT)), compiled: true, owner: owner() })
    }
}

/// Whether this is NVIDIA's library behind dynamic parallelism, of which there is PTX for newer devices only. Programs
/// name its functions too, but not the kernels that its copies are.
fn is_device_runtime(all: &[Entry]) -> bool {
    let holds = |code: &[u8]| memchr::memmem::find(code, b"memcpy_3d_device").is_some();
    all.iter().find(|e| e.kind == KIND_CUBIN).is_some_and(|cubin| cubin.unpack().is_ok_and(|code| holds(&code)))
}

/// The PTX text of an image whose length is known.
pub fn ptx_in(bytes: &[u8]) -> R<Text> {
    let magic = bytes.first_chunk::<4>().map_or(0, |b| u32::from_le_bytes(*b));
    match magic {
        FATBIN_MAGIC => {
            let head = field(bytes, 6, 2).ok_or(CUDA_ERROR_INVALID_IMAGE)? as usize;
            text_of(&entries(bytes.get(head..).ok_or(CUDA_ERROR_INVALID_IMAGE)?)?)
        }
        ELF_MAGIC => Err(no_ptx_in_cubin(bytes)),
        _ => plain_text(bytes[..bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len())].to_vec()),
    }
}

fn plain_text(bytes: Vec<u8>) -> R<Text> {
    String::from_utf8(bytes)
        .map(|ptx| Text { ptx: Arc::new(ptx), compiled: false, owner: owner() })
        .map_err(|_| CUDA_ERROR_INVALID_IMAGE)
}

fn no_ptx_in_cubin(file: &[u8]) -> CUresult {
    no_ptx("the cubin", first_kernel(file), file.first_chunk::<64>().is_some_and(cubin_runs))
}

/// `runs` says that the device that the software GPU stands for would run the image, as it has machine code for it.
fn no_ptx(what: &str, kernel: Option<String>, runs: bool) -> CUresult {
    let kernel = kernel.map_or_else(String::new, |k| format!(" with kernel {k}"));
    let from = from(&owner());
    crate::say::say(&format!(
        "{what}{from}{kernel} has no PTX, which is what the software GPU runs; build with \
         -gencode arch=compute_75,code=compute_75 (or for any other target); cuBLAS has PTX for devices that it does \
         not know, as with orion-run --capability 13.0 (ORION_SOFT_CAPABILITY)"
    ));
    if runs {
        context::lacks();
    }
    CUDA_ERROR_NO_BINARY_FOR_GPU
}

/// The bytes of an ELF file up to the end of its tables, which are behind its names.
fn cubin_bytes(header: &[u8; 64]) -> usize {
    let table = |place, entry, count| {
        let [place, bytes, count] =
            [(place, 8), (entry, 2), (count, 2)].map(|(at, n)| field(header, at, n).unwrap_or(0));
        place.saturating_add(bytes * count)
    };
    match table(32, 54, 56).max(table(40, 58, 60)) {
        end if end > TEXT_BYTES_MAX as u64 => header.len(),
        end => header.len().max(end as usize),
    }
}

/// Whether the device that the software GPU stands for runs the machine code behind an ELF header.
fn cubin_runs(header: &[u8; 64]) -> bool {
    let flags = u32::from_le_bytes([header[48], header[49], header[50], header[51]]);
    // CUDA 13's files keep the compute capability one byte further up.
    let sm = if header[8] >= 8 { flags >> 8 & 0xff } else { flags & 0xff };
    runs(sm)
}

fn runs(sm: u32) -> bool {
    let capability = crate::device::capability();
    sm / 10 == capability / 10 && sm <= capability
}

fn field(b: &[u8], at: usize, n: usize) -> Option<u64> {
    let mut v = [0; 8];
    v[..n].copy_from_slice(b.get(at..at.checked_add(n)?)?);
    Some(u64::from_le_bytes(v))
}

/// Whether code of an image that a device of one of these compute capabilities (`90` is 9.0) could run holds `needle`.
/// Nothing if that cannot be told.
pub fn mentions(image: &[u8], capabilities: &[u32], needle: &[u8]) -> Option<bool> {
    let mut found = false;
    each_program(image, capabilities, |bytes| {
        found |= memchr::memmem::find(bytes, needle).is_some();
        !found
    })?;
    Some(found)
}

/// Shows each program of an image that a device of one of these compute capabilities could run, unpacked, until `show`
/// answers no. Nothing if it cannot be told which.
pub fn each_program(image: &[u8], capabilities: &[u32], mut show: impl FnMut(&[u8]) -> bool) -> Option<()> {
    let magic = image.first_chunk::<4>().map_or(0, |b| u32::from_le_bytes(*b));
    if magic != FATBIN_MAGIC {
        show(image);
        return Some(());
    }
    let (head, size) = (field(image, 6, 2)? as usize, field(image, 8, 8)? as usize);
    let all = entries(image.get(head..head.checked_add(size)?)?).ok()?;
    // As in the wrapper of an image that is to be linked.
    if all.is_empty() {
        return Some(());
    }
    let mut wanted = vec![false; all.len()];
    for capability in capabilities {
        let is_cubin = |e: &Entry| e.kind == KIND_CUBIN && e.sm / 10 == capability / 10 && e.sm <= *capability;
        let is_ptx = |e: &Entry| e.kind == KIND_PTX && e.sm <= *capability;
        let any_cubin = all.iter().any(is_cubin);
        if !any_cubin && !all.iter().any(is_ptx) {
            return None;
        }
        for (entry, wanted) in all.iter().zip(&mut wanted) {
            *wanted |= if any_cubin { is_cubin(entry) } else { is_ptx(entry) };
        }
    }
    for (entry, _) in all.iter().zip(wanted).filter(|(_, wanted)| *wanted) {
        if !show(&entry.unpack().ok()?) {
            break;
        }
    }
    Some(())
}

/// One program of a fat binary.
struct Entry<'a> {
    kind: u16,
    sm: u32,
    flags: u64,
    /// Bytes once unpacked.
    full: usize,
    stored: &'a [u8],
}

impl Entry<'_> {
    fn unpack(&self) -> R<std::borrow::Cow<'_, [u8]>> {
        if self.full > TEXT_BYTES_MAX {
            return Err(CUDA_ERROR_INVALID_IMAGE);
        }
        if self.flags & FLAG_ZSTD != 0 {
            unpack_zstd(self.stored, self.full).map(Into::into)
        } else if self.flags & FLAG_LZ4 != 0 {
            lz4_flex::block::decompress(self.stored, self.full).map(Into::into).map_err(|_| CUDA_ERROR_INVALID_IMAGE)
        } else {
            Ok(self.stored.into())
        }
    }
}

/// The programs of a fat binary; `bytes` is what follows its header.
fn entries(bytes: &[u8]) -> R<Vec<Entry<'_>>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(entry) = bytes.get(at..).filter(|rest| rest.len() >= 64) {
        let get = |o, n| field(entry, o, n).ok_or(CUDA_ERROR_INVALID_IMAGE);
        let (head, padded, packed) = (get(4, 4)? as usize, get(8, 8)? as usize, get(16, 4)? as usize);
        if head < 64 {
            return Err(CUDA_ERROR_INVALID_IMAGE);
        }
        let stored = if packed != 0 { packed } else { padded };
        let stored = head.checked_add(stored).and_then(|end| entry.get(head..end)).ok_or(CUDA_ERROR_INVALID_IMAGE)?;
        let (kind, sm) = (get(0, 2)? as u16, get(28, 4)? as u32);
        found.push(Entry { kind, sm, flags: get(40, 8)?, full: get(56, 8)? as usize, stored });
        at = head.checked_add(padded).and_then(|n| n.checked_add(at)).ok_or(CUDA_ERROR_INVALID_IMAGE)?;
    }
    Ok(found)
}

/// The newest PTX for a device of this one's compute capability or less.
fn ptx_for_this<'a, 'b>(all: &'a [Entry<'b>]) -> Option<&'a Entry<'b>> {
    all.iter().filter(|e| e.kind == KIND_PTX && e.sm <= crate::device::capability()).max_by_key(|e| e.sm)
}

fn has_code_for_this(all: &[Entry]) -> bool {
    all.iter().any(|e| e.kind == KIND_CUBIN && runs(e.sm))
}

/// The PTX to run; for a newer device if there is no other. Its instructions decide whether it runs, not its target.
fn best_ptx<'a, 'b>(all: &'a [Entry<'b>]) -> Option<&'a Entry<'b>> {
    let newer = || all.iter().filter(|e| e.kind == KIND_PTX).min_by_key(|e| e.sm);
    ptx_for_this(all).or_else(newer)
}

fn text_of(all: &[Entry]) -> R<Text> {
    Ok(Text { ptx: Arc::new(text(best_for(all)?)?), compiled: true, owner: owner() })
}

fn best_for<'a, 'b>(all: &'a [Entry<'b>]) -> R<&'a Entry<'b>> {
    best_ptx(all).ok_or_else(|| {
        let cubins = all.iter().filter(|e| e.kind == KIND_CUBIN);
        let kernel = cubins.filter_map(|e| first_kernel(&e.unpack().ok()?)).next();
        no_ptx(&named(all), kernel, has_code_for_this(all))
    })
}

fn text(entry: &Entry) -> R<String> {
    let mut text = entry.unpack()?.into_owned();
    text.truncate(memchr::memchr(0, &text).unwrap_or(text.len()));
    String::from_utf8(text).map_err(|_| CUDA_ERROR_INVALID_IMAGE)
}

/// A fat binary in words: what it holds.
fn named(all: &[Entry]) -> String {
    let of = |kind| all.iter().filter(move |e| e.kind == kind).map(|e| e.sm.to_string()).collect::<Vec<_>>();
    let holds = |what: &str, sms: Vec<String>| {
        if sms.is_empty() { format!("no {what}") } else { format!("{what} for {}", sms.join(", ")) }
    };
    format!("the fat binary ({}, {})", holds("machine code", of(KIND_CUBIN)), holds("PTX", of(KIND_PTX)))
}

/// The name of a kernel in machine code, each of which has a section called after it.
fn first_kernel(cubin: &[u8]) -> Option<String> {
    const PREFIX: &[u8] = b".text.";
    let at = memchr::memmem::find(cubin, PREFIX)? + PREFIX.len();
    let name = cubin[at..].split(|&b| b == 0).next()?;
    String::from_utf8(name.to_vec()).ok().filter(|n| !n.is_empty())
}

/// The fat binaries in a file, such as a shared object, wherever in it they are.
pub fn fat_binaries_in(file: &[u8]) -> impl Iterator<Item = &[u8]> {
    const MAGIC: [u8; 4] = FATBIN_MAGIC.to_le_bytes();
    memchr::memmem::find_iter(file, &MAGIC).filter_map(move |at| {
        let (version, head) = (field(file, at + 4, 2)?, field(file, at + 6, 2)? as usize);
        let end = head.checked_add(field(file, at + 8, 8)? as usize)?.checked_add(at)?;
        if version == 1 && at.is_multiple_of(8) { file.get(at..end) } else { None }
    })
}

/// The newest PTX of a fat binary, for whichever device.
pub fn newest_ptx(fat_binary: &[u8]) -> R<Option<String>> {
    let head = field(fat_binary, 6, 2).ok_or(CUDA_ERROR_INVALID_IMAGE)? as usize;
    let all = entries(fat_binary.get(head..).ok_or(CUDA_ERROR_INVALID_IMAGE)?)?;
    let newest = all.iter().filter(|e| e.kind == KIND_PTX).max_by_key(|e| e.sm);
    newest.map(|e| text(e)).transpose()
}

fn unpack_zstd(payload: &[u8], full: usize) -> R<Vec<u8>> {
    let mut out = Vec::with_capacity(full);
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(payload).map_err(|_| CUDA_ERROR_INVALID_IMAGE)?;
    std::io::Read::read_to_end(&mut std::io::Read::take(&mut decoder, TEXT_BYTES_MAX as u64), &mut out)
        .map_err(|_| CUDA_ERROR_INVALID_IMAGE)?;
    Ok(out)
}
