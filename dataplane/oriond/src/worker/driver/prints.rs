//! Whether any kernel of the session can print.
//!
//! A client's wait must not end before what its kernels printed has been shown. The driver writes that out when it is
//! asked to wait, and finding out whether it has costs 2 us of every wait: a call into it and two reads of pipes.
//! Code that prints names `vprintf`, the one function behind `printf` of CUDA C++ and of Triton, so a session that has
//! loaded no such code need not look. The images are searched on a thread of their own; until one has been, it counts
//! as code that prints.

// UNSAFETY: asks the driver for attributes of devices, and lowers the priority of a thread of its own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;

use crate::worker::driver::image::Image;

/// Images that wait to be searched. More stay suspects.
const IMAGES_MAX: usize = 1024;

const PRINTS: &[u8] = b"vprintf";

pub struct Prints {
    /// Images that print, that nobody could look into, or that nobody has looked into yet.
    suspects: Arc<AtomicUsize>,
    capabilities: Vec<u32>,
    searcher: OnceLock<Option<SyncSender<Arc<Image>>>>,
}

impl Prints {
    pub fn new(driver: &Driver, devices: &[CUdevice]) -> Prints {
        let attribute = |device: CUdevice, which| {
            let mut value = 0;
            // SAFETY: a valid out pointer.
            unsafe { driver.cuDeviceGetAttribute(&mut value, which, device) };
            value as u32
        };
        let capability = |device: &CUdevice| {
            attribute(*device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10
                + attribute(*device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
        };
        let capabilities = devices.iter().map(capability).collect();
        Prints { suspects: Arc::default(), capabilities, searcher: OnceLock::new() }
    }

    /// Of the session's devices; `90` is 9.0.
    pub fn capabilities(&self) -> &[u32] {
        &self.capabilities
    }

    /// Whether a kernel of the session may print. Once code that prints was loaded that stays so.
    pub fn possible(&self) -> bool {
        // Relaxed: an image is counted by the executor before it answers the load.
        self.suspects.load(Ordering::Relaxed) != 0
    }

    /// An image was loaded.
    pub fn look(&self, image: &Arc<Image>) {
        self.suspects.fetch_add(1, Ordering::Relaxed);
        let searcher = self.searcher.get_or_init(|| start(self.suspects.clone(), self.capabilities.clone()));
        if let Some(searcher) = searcher {
            // The thread ends with the process; if it could not be started every image stays a suspect.
            let _ = searcher.try_send(image.clone());
        }
    }
}

fn start(suspects: Arc<AtomicUsize>, capabilities: Vec<u32>) -> Option<SyncSender<Arc<Image>>> {
    let (sender, images) = sync_channel::<Arc<Image>>(IMAGES_MAX);
    let search = move || {
        // SAFETY: plain calls about this thread.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, libc::gettid() as libc::id_t, 10) };
        for image in images {
            let is_silent = |part: &[u8]| orion_soft::image::mentions(part, &capabilities, PRINTS) == Some(false);
            if image.parts().all(is_silent) {
                suspects.fetch_sub(1, Ordering::Relaxed);
            }
        }
    };
    std::thread::Builder::new().name("prints".into()).spawn(search).ok().map(|_| sender)
}
