//! For tests, in debug builds: queue pairs that end in error, as they do when their device fails, at a moment that the
//! test chooses, ranges that cannot be registered, as where there is a limit on locked memory, and a device whose
//! paging is used whatever it brings.

// UNSAFETY: libibverbs is C. A queue pair is asked for only while it is in the list, from which it goes before it is
// destroyed.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use rdma_mummy_sys as sys;

use super::works::Use;

/// Names a file: while there is one, all but the first queue pair end in error, and then it is gone.
const VARIABLE: &str = "ORION_SOFT_BREAKS";
/// Set in a process that can register no range: `shown`, `read` or both.
const UNREGISTERED: &str = "ORION_SOFT_UNREGISTERED";
/// Set in a process whose device is not asked whether its paging is right.
const TRUSTED: &str = "ORION_SOFT_PAGING_TRUSTED";
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

static ALL: Mutex<All> = Mutex::new(All { made: 0, here: Vec::new() });

/// Those of this process.
struct All {
    made: usize,
    /// By number and address.
    here: Vec<(usize, usize)>,
}

/// A queue pair, in the list for as long as this is here.
pub struct Listed(usize);

fn all() -> MutexGuard<'static, All> {
    // A test that fails elsewhere is no reason for another one to.
    ALL.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Listed {
    pub fn new(qp: *mut sys::ibv_qp) -> Listed {
        let mut all = all();
        all.made += 1;
        let number = all.made;
        all.here.push((number, qp as usize));
        Listed(number)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        all().here.retain(|(number, _)| *number != self.0);
    }
}

/// Whether a range can be registered.
pub fn may_register(how: Use) -> Result<(), String> {
    let name = match how {
        Use::ShownToRead => "shown",
        Use::ReadInto => "read",
    };
    let may = !std::env::var(UNREGISTERED).is_ok_and(|value| value.contains(name));
    if may { Ok(()) } else { Err(format!("{UNREGISTERED} has it that no range is {name}")) }
}

/// Whether a device's paging is used without being tried. For ranges of whole pages in packets of 4096 bytes
/// Soft-RoCE's is right, so that tests can have it.
pub fn trusts_paging() -> bool {
    std::env::var_os(TRUSTED).is_some()
}

/// How many this process has made so far.
pub fn made() -> usize {
    all().made
}

/// Those end in error that were made after so many. Answers how many did.
pub fn all_after(made: usize) -> usize {
    let all = all();
    let after = all.here.iter().filter(|(number, _)| *number > made);
    after.map(|(_, address)| end_in_error(*address as *mut sys::ibv_qp)).count()
}

fn end_in_error(qp: *mut sys::ibv_qp) {
    // SAFETY: all-zero is valid for plain numbers; the queue pair is in the list, so it was not destroyed.
    unsafe {
        let mut attributes: sys::ibv_qp_attr = std::mem::zeroed();
        attributes.qp_state = sys::ibv_qp_state::IBV_QPS_ERR;
        let done = sys::ibv_modify_qp(qp, &mut attributes, sys::ibv_qp_attr_mask::IBV_QP_STATE.0 as i32);
        assert_eq!(done, 0, "a queue pair may end in error from any state");
    }
}

/// Has a thread look for the file, if one is named.
pub fn begin_if_asked() -> std::io::Result<()> {
    let Some(file) = std::env::var_os(VARIABLE).map(PathBuf::from) else { return Ok(()) };
    std::thread::Builder::new().name("breaking".into()).spawn(move || {
        loop {
            if file.exists() {
                all_after(1);
                // It was there a moment ago; who made it waits for its end.
                let _ = std::fs::remove_file(&file);
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    })?;
    Ok(())
}
