//! Host memory that a session's worker has taken for itself: what the driver and we keep for its graphs, events and
//! host functions. There is no end to what a client can have made of these, so there is one to what they may cost.
//!
//! Looked at now and then, by a thread that has nothing else to do. A limit of the process's (`RLIMIT_DATA`) would
//! count what a driver only reserves. Whoever has taken the worker over stops the thread, and meets the limit of the
//! worker's cgroup (`cell/memory.rs`), which is further away.

// UNSAFETY: calls the driver through C function pointers.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;

use crate::worker::driver::load::is_software;

/// Between two looks there is at least so much time. What a client can have made in it is what a session may have
/// beyond its budget.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// And at most so much: who has little is not looked at before it can have taken what is left of its budget.
const LOOK_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// In bytes a second, more than a worker takes: commands are executed by one thread, and a core clears fewer pages.
const PACE_MAX: u64 = 16 << 30;
const PAGE: u64 = 4096;

pub struct Budget {
    statm: File,
    bytes_max: u64,
    /// Which is not the session's doing: a warm driver, and what the software GPU calls device memory.
    others: u64,
}

impl Budget {
    /// From here on. Before the worker is sealed.
    pub fn new(driver: &Driver, name: &str, devices: &[CUdevice], bytes_max: u64) -> Result<Budget, String> {
        let statm = File::open("/proc/self/statm").map_err(|e| format!("opening /proc/self/statm failed: {e}"))?;
        let mut others = own_bytes(&statm)?;
        for device in devices.iter().filter(|_| is_software(name)) {
            let mut bytes = 0;
            // SAFETY: a valid place.
            unsafe { driver.cuDeviceTotalMem_v2(&mut bytes, *device) };
            others += bytes as u64;
        }
        Ok(Budget { statm, bytes_max, others })
    }

    /// When to look again, or why the session has to end: also where it cannot be known what the worker has.
    pub fn look(&self) -> Result<Duration, String> {
        let own = own_bytes(&self.statm)?.saturating_sub(self.others);
        match self.bytes_max.checked_sub(own) {
            Some(left) => Ok(interval(left)),
            None => Err(format!(
                "its worker has taken {} MiB of host memory for what the session made, and may have {} MiB; if the \
                 program needs that, raise --host-memory of oriond serve",
                own >> 20,
                self.bytes_max >> 20
            )),
        }
    }
}

/// Until the next look at a session that has so many bytes left.
fn interval(left: u64) -> Duration {
    (LOOK_INTERVAL + Duration::from_millis(left / (PACE_MAX / 1000))).min(LOOK_INTERVAL_MAX)
}

/// Resident and nobody else's: neither the rings and the heap nor files.
fn own_bytes(statm: &File) -> Result<u64, String> {
    let mut text = [0; 256];
    let n = statm.read_at(&mut text, 0).map_err(|e| format!("reading /proc/self/statm failed: {e}"))?;
    let text = String::from_utf8_lossy(&text[..n]);
    let mut pages = text.split(' ').map(|field| field.parse::<u64>().unwrap_or(0));
    let (_, resident, shared) = (pages.next(), pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    Ok(resident.saturating_sub(shared) * PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_much_left_is_looked_at_less_often() {
        let of = |mib: u64| interval(mib << 20).as_millis();
        assert_eq!([of(0), of(15), of(1 << 10), of(8 << 10)], [100, 100, 162, 600]);
        assert_eq!([of(16 << 10), interval(u64::MAX).as_millis()], [1000, 1000]);
    }

    #[test]
    fn memory_that_is_touched_counts() {
        const BYTES: usize = 64 << 20;
        let statm = File::open("/proc/self/statm").unwrap();
        let before = own_bytes(&statm).unwrap();
        let own = vec![1u8; BYTES];
        let with = own_bytes(&statm).unwrap() - before;
        assert!(with >= BYTES as u64 / 2, "{with}");
        drop(std::hint::black_box(own));
    }
}
