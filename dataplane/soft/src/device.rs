//! The device model: count, memory accounting, settings.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use orion_cuda::sys::*;

use crate::api::R;

/// Two partitions of the size that compute capability 9.0 asks for.
pub const SM_COUNT: u32 = 16;
pub const DRIVER_VERSION: c_int = 13000;
pub const SHARED_DEFAULT: u32 = 48 << 10;
pub const SHARED_OPTIN: u32 = 227 << 10;
pub const DEVICES_MAX: usize = 8;

pub struct Model {
    /// The numbers of the devices that are seen, in the order in which they are.
    pub seen: Vec<i32>,
    pub memory_bytes: u64,
    /// `90` is 9.0.
    pub capability: u32,
}

const CAPABILITY: u32 = 90;

fn model() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| {
        settings(|name| std::env::var(name).ok()).unwrap_or(Model {
            seen: Vec::new(),
            memory_bytes: 0,
            capability: CAPABILITY,
        })
    })
}

/// What the environment says about the devices, or why it cannot be.
pub(crate) fn settings(variable: impl Fn(&str) -> Option<String>) -> Result<Model, String> {
    let number = |name: &str, usual: u64, range: std::ops::RangeInclusive<u64>| {
        let Some(text) = variable(name).filter(|text| !text.is_empty()) else { return Ok(usual) };
        text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
            format!("{name}={text} is not a number from {} to {}; leave it out for {usual}", range.start(), range.end())
        })
    };
    let name = "ORION_SOFT_CAPABILITY";
    let capability = match variable(name).filter(|text| !text.is_empty()) {
        None => CAPABILITY,
        Some(text) => capability_of(&text).ok_or_else(|| {
            format!("{name}={text} is not a compute capability from 7.5 to 13.9, such as 9.0; leave it out for 9.0")
        })?,
    };
    let count = number("ORION_SOFT_DEVICES", 1, 1..=DEVICES_MAX as u64)? as i32;
    Ok(Model {
        capability,
        seen: seen(variable("CUDA_VISIBLE_DEVICES").as_deref(), count)?,
        memory_bytes: number("ORION_SOFT_MEMORY_MIB", 4096, 16..=1 << 20)? << 20,
    })
}

/// The devices of `CUDA_VISIBLE_DEVICES`, by number or whole UUID: those before the first entry that is neither.
fn seen(visible: Option<&str>, count: i32) -> Result<Vec<i32>, String> {
    let Some(list) = visible else { return Ok((0..count).collect()) };
    let of = |entry: &str| (0..count).find(|n| entry == n.to_string() || entry == gpu_name(*n));
    let mut seen = Vec::new();
    for number in list.split(',').map_while(|entry| of(entry.trim())) {
        if seen.contains(&number) {
            return Err(format!("CUDA_VISIBLE_DEVICES={list} names device {number} twice"));
        }
        seen.push(number);
    }
    if seen.is_empty() {
        return Err(format!(
            "CUDA_VISIBLE_DEVICES={list} begins with none of the software GPU's devices, which are 0 to {} and {} \
             to {}",
            count - 1,
            gpu_name(0),
            gpu_name(count - 1)
        ));
    }
    Ok(seen)
}

/// Of the device with this number.
pub fn uuid(number: i32) -> [u8; 16] {
    let mut bytes = *b"orion-soft-gpu-0";
    bytes[15] = b'0' + number as u8;
    bytes
}

fn gpu_name(number: i32) -> String {
    let hex: String = uuid(number).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// `9.0` is 90.
fn capability_of(text: &str) -> Option<u32> {
    let (major, minor) = text.split_once('.')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    (minor <= 9).then_some(10 * major.min(99) + minor).filter(|capability| (75..=139).contains(capability))
}

/// The compute capability that the devices report; `90` is 9.0. What they can do is the same with any.
pub fn capability() -> u32 {
    model().capability
}

/// What is wrong with the environment's settings for the devices. With those there is no device.
pub fn objection() -> Option<String> {
    settings(|name| std::env::var(name).ok()).err()
}

/// The seed of the pauses that streams make, if they are to make any.
pub fn jitter() -> Option<u64> {
    static SEED: OnceLock<Option<u64>> = OnceLock::new();
    *SEED.get_or_init(|| {
        let text = std::env::var("ORION_SOFT_JITTER").ok()?;
        let seed = text.parse().ok();
        if seed.is_none() {
            eprintln!("orion-soft: ORION_SOFT_JITTER is {text:?}, not a number: streams make no pauses");
        }
        seed
    })
}

static USED: [AtomicU64; DEVICES_MAX] = [const { AtomicU64::new(0) }; DEVICES_MAX];
pub(crate) static INITIALISED: AtomicBool = AtomicBool::new(false);

pub fn count() -> usize {
    model().seen.len()
}

/// Which of the machine's devices this one is, of those that are seen.
pub fn number(dev: CUdevice) -> i32 {
    model().seen[dev as usize]
}

pub fn total_bytes() -> u64 {
    model().memory_bytes
}

pub fn used_bytes(device: i32) -> u64 {
    USED.get(device as usize).map_or(0, |u| u.load(Ordering::Relaxed))
}

/// Takes memory from a device; `None` when it has too little left.
pub fn charge(device: i32, bytes: u64) -> Option<()> {
    let used = USED.get(device as usize)?;
    used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |u| u.checked_add(bytes).filter(|&u| u <= total_bytes()))
        .ok()
        .map(drop)
}

pub fn refund(device: i32, bytes: u64) {
    if let Some(used) = USED.get(device as usize) {
        used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// What the statistics about memory of graphs say beyond what there is of it.
pub struct GraphMemory {
    /// The most that there has been, since each was set to zero.
    pub used_most: u64,
    pub reserved_most: u64,
}

/// Of a device that there is.
pub fn graph_memory(device: i32) -> MutexGuard<'static, GraphMemory> {
    static ALL: [Mutex<GraphMemory>; DEVICES_MAX] =
        [const { Mutex::new(GraphMemory { used_most: 0, reserved_most: 0 }) }; DEVICES_MAX];
    ALL[device as usize].lock().expect("no panic happens under this lock")
}

thread_local! {
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Runs an application's host function, which may not call CUDA.
pub fn host_function(f: impl FnOnce()) {
    IN_HOST_FUNCTION.set(true);
    f();
    IN_HOST_FUNCTION.set(false);
}

pub fn initialised() -> R {
    if IN_HOST_FUNCTION.get() {
        return Err(CUDA_ERROR_NOT_PERMITTED);
    }
    if INITIALISED.load(Ordering::Relaxed) { Ok(()) } else { Err(CUDA_ERROR_NOT_INITIALIZED) }
}

pub fn check(dev: CUdevice) -> R<i32> {
    initialised()?;
    if (0..count() as i32).contains(&dev) { Ok(dev) } else { Err(CUDA_ERROR_INVALID_DEVICE) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_make_no_sense_are_said_to_be_so() {
        let with = |devices: &'static str, mib: &'static str| {
            settings(move |name| match name {
                "ORION_SOFT_DEVICES" => Some(devices.to_owned()),
                "ORION_SOFT_MEMORY_MIB" => Some(mib.to_owned()),
                _ => None,
            })
        };
        assert!(with("", "").is_ok_and(|m| (m.seen.len(), m.memory_bytes) == (1, 4 << 30)));
        assert!(with("8", "16").is_ok_and(|m| (m.seen.len(), m.memory_bytes) == (8, 16 << 20)));
        for (devices, mib, wrong) in [
            ("abc", "", "ORION_SOFT_DEVICES=abc"),
            ("0", "", "=0"),
            ("9", "", "=9"),
            ("1", "15", "MIB=15"),
            ("1", "1G", "1G"),
        ] {
            let Err(said) = with(devices, mib) else { panic!("{devices:?} and {mib:?} were taken") };
            assert!(said.contains(wrong) && said.contains(" to "), "{said}");
        }
    }

    #[test]
    fn devices_are_seen_by_number_or_uuid_up_to_the_first_that_is_none() {
        assert_eq!(seen(None, 3), Ok(vec![0, 1, 2]));
        assert_eq!(seen(Some("2,0"), 3), Ok(vec![2, 0]));
        assert_eq!(seen(Some(&format!("{},0", gpu_name(1))), 3), Ok(vec![1, 0]));
        assert_eq!(seen(Some("1,3,0"), 3), Ok(vec![1]));
        for (list, said) in [("", "begins with none"), ("3", "0 to 2"), ("GPU-", "begins"), ("1,1", "device 1 twice")] {
            assert!(seen(Some(list), 3).is_err_and(|why| why.contains(said)), "{list}");
        }
    }

    #[test]
    fn a_compute_capability_is_two_numbers() {
        for (text, capability) in [("9.0", Some(90)), ("7.5", Some(75)), ("13.0", Some(130)), ("12.1", Some(121))] {
            assert_eq!(capability_of(text), capability, "{text}");
        }
        for text in ["", "9", "90", "7.4", "14.0", "9.10", "-9.0", "a.b", "9.0.1", "4294967295.9"] {
            assert_eq!(capability_of(text), None, "{text}");
        }
        let said = settings(|name| (name == "ORION_SOFT_CAPABILITY").then(|| "90".to_owned())).err();
        assert!(said.is_some_and(|said| said.contains("ORION_SOFT_CAPABILITY=90 is not")));
    }
}
