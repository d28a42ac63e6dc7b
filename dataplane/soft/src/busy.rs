//! When each device works: from where a stream begins with a kernel, a copy or a memset until none is left of any.
//! A host function, and a wait for a value in memory, are not the device's work.

use std::sync::{Mutex, MutexGuard, OnceLock};

use crate::device::DEVICES_MAX;

type Observer = Box<dyn Fn(usize, bool) + Send + Sync>;

static OBSERVER: OnceLock<Observer> = OnceLock::new();
/// Pieces of work that run on each device.
static RUNNING: [Mutex<u32>; DEVICES_MAX] = [const { Mutex::new(0) }; DEVICES_MAX];

/// `observer` is told of each device that begins to work (`true`) and stops (`false`), of one device in this order.
/// There is one observer, the first.
pub fn observe(observer: impl Fn(usize, bool) + Send + Sync + 'static) {
    let _ = OBSERVER.set(Box::new(observer));
}

/// Does a piece of a device's work.
pub(crate) fn during<T>(device: i32, work: impl FnOnce() -> T) -> T {
    let _working = OBSERVER.get().map(|observer| Working::begin(device as usize, observer));
    work()
}

struct Working {
    device: usize,
    observer: &'static Observer,
}

fn running(device: usize) -> MutexGuard<'static, u32> {
    // The number is right whoever panicked.
    RUNNING[device].lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Working {
    fn begin(device: usize, observer: &'static Observer) -> Working {
        let mut running = running(device);
        *running += 1;
        if *running == 1 {
            observer(device, true);
        }
        Working { device, observer }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let mut running = running(self.device);
        *running -= 1;
        if *running == 0 {
            (self.observer)(self.device, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No other test of this crate observes.
    #[test]
    fn a_device_works_from_its_first_piece_of_work_to_its_last() {
        static SEEN: Mutex<Vec<(usize, bool)>> = Mutex::new(Vec::new());
        let last = DEVICES_MAX - 1;
        during(last as i32, || ());
        observe(move |device, works| {
            if device == last {
                SEEN.lock().expect("no panic happens under this lock").push((device, works));
            }
        });
        during(last as i32, || during(last as i32, || during(0, || ())));
        let failed = std::panic::catch_unwind(|| during(last as i32, || panic!("of the test")));
        assert!(failed.is_err());
        let seen = SEEN.lock().expect("as above").clone();
        assert_eq!(seen, [(last, true), (last, false), (last, true), (last, false)]);
    }
}
