//! Which processors and memory of this machine are near a device: all of them, for no part of it is nearer than another
//! as far as is known here. Programs bind their threads by this (dask-cuda, NVIDIA's examples).

// UNSAFETY: pointers of NVML's interface are null or valid for what the function reads or writes; the calling thread's
// own processors are set.

use std::ffi::{c_uint, c_ulong};

use crate::arguments::{answer, known};
use crate::types::*;

const PROCESSORS: &str = "/sys/devices/system/cpu/online";
const NODES: &str = "/sys/devices/system/node/online";

pub unsafe fn nvmlDeviceGetCpuAffinity(device: nvmlDevice_t, cpuSetSize: c_uint, cpuSet: *mut c_ulong) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(known(device).and_then(|_| unsafe { put_set(cpuSet, cpuSetSize, PROCESSORS) }))
}

pub unsafe fn nvmlDeviceGetCpuAffinityWithinScope(
    device: nvmlDevice_t,
    cpuSetSize: c_uint,
    cpuSet: *mut c_ulong,
    scope: nvmlAffinityScope_t,
) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(known(device).and_then(|_| is_scope(scope)).and_then(|_| unsafe { put_set(cpuSet, cpuSetSize, PROCESSORS) }))
}

pub unsafe fn nvmlDeviceGetMemoryAffinity(
    device: nvmlDevice_t,
    nodeSetSize: c_uint,
    nodeSet: *mut c_ulong,
    scope: nvmlAffinityScope_t,
) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(known(device).and_then(|_| is_scope(scope)).and_then(|_| unsafe { put_set(nodeSet, nodeSetSize, NODES) }))
}

/// Binds the calling thread to what [`nvmlDeviceGetCpuAffinity`] says.
pub unsafe fn nvmlDeviceSetCpuAffinity(device: nvmlDevice_t) -> nvmlReturn_t {
    answer(known(device).and_then(|_| run_anywhere()))
}

pub unsafe fn nvmlDeviceClearCpuAffinity(device: nvmlDevice_t) -> nvmlReturn_t {
    answer(known(device).and_then(|_| run_anywhere()))
}

fn run_anywhere() -> Result<(), nvmlReturn_t> {
    let numbers = listed(PROCESSORS);
    let in_set = numbers.into_iter().filter(|number| *number < libc::CPU_SETSIZE as usize);
    // SAFETY: zeroes are an empty set, which has room for these.
    let outcome = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        in_set.for_each(|number| libc::CPU_SET(number, &mut set));
        libc::sched_setaffinity(0, size_of_val(&set), &set)
    };
    if outcome == 0 { Ok(()) } else { Err(NVML_ERROR_UNKNOWN) }
}

/// NUMA nodes or sockets.
fn is_scope(scope: nvmlAffinityScope_t) -> Result<(), nvmlReturn_t> {
    if scope <= NVML_AFFINITY_SCOPE_SOCKET { Ok(()) } else { Err(NVML_ERROR_INVALID_ARGUMENT) }
}

/// # Safety
/// Null, or valid for `words` words.
unsafe fn put_set(to: *mut c_ulong, words: c_uint, file: &str) -> Result<(), nvmlReturn_t> {
    if to.is_null() || words == 0 {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    // SAFETY: the caller's promise; zeroes first, for what is there has not been written yet.
    let set = unsafe {
        std::ptr::write_bytes(to, 0, words as usize);
        std::slice::from_raw_parts_mut(to, words as usize)
    };
    let bits = c_ulong::BITS as usize;
    for number in listed(file) {
        // As NVIDIA's, which tells as many as there is room for.
        if let Some(word) = set.get_mut(number / bits) {
            *word |= 1 << (number % bits);
        }
    }
    Ok(())
}

/// Machines without the file have one of it.
fn listed(file: &str) -> Vec<usize> {
    parse(&std::fs::read_to_string(file).unwrap_or_default()).unwrap_or_else(|| vec![0])
}

/// `0-3,8,10-11`.
fn parse(text: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_linux_are_read() {
        assert_eq!(parse("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(parse("0\n"), Some(vec![0]));
        for text in ["", "\n", "x", "1-", "-"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_set_has_the_bits_of_what_is_listed_and_no_more_than_it_has_room_for() {
        let path = std::env::temp_dir().join(format!("orion-nvml-set-{}", std::process::id()));
        std::fs::write(&path, "1,64-65,200\n").expect("a folder for files");
        let mut words = [c_ulong::MAX; 3];
        // SAFETY: two words of three.
        let outcome = unsafe { put_set(words.as_mut_ptr(), 2, path.to_str().expect("a path in letters")) };
        std::fs::remove_file(&path).expect("it was written");
        assert_eq!((outcome, words), (Ok(()), [2, 3, c_ulong::MAX]));
        // SAFETY: null.
        assert_eq!(unsafe { put_set(std::ptr::null_mut(), 2, PROCESSORS) }, Err(NVML_ERROR_INVALID_ARGUMENT));
        // SAFETY: no words.
        assert_eq!(unsafe { put_set(words.as_mut_ptr(), 0, PROCESSORS) }, Err(NVML_ERROR_INVALID_ARGUMENT));
    }
}
