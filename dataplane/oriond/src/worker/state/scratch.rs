//! Pinned memory by which few bytes come out of the device.

// UNSAFETY: maps memory, and has the driver pin it.

use std::ptr;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::record::RECORD_BYTES_MAX;

/// As much as fits into a reply.
const SLOT_BYTES: usize = RECORD_BYTES_MAX / 2;

/// Slots that a session has at most: 128 MiB.
pub const SCRATCH_MAX: usize = 1024;

/// One of [`Scratch`], for one copy.
#[derive(Clone, Copy)]
pub struct Slot {
    /// [`SLOT_BYTES`], aligned to a page.
    pub at: *mut u8,
    number: usize,
}

struct Place {
    at: *mut u8,
    /// The context that it is pinned in, by its handle; none has 0.
    context: u64,
}

/// Slots are pinned in the context whose copies they take: one that ends waits for those, and takes with it what was
/// pinned in it, for all others too. So the memory is the worker's own and stays, and is pinned anew.
#[derive(Default)]
pub struct Scratch {
    places: Vec<Place>,
    /// Numbers of those that no copy uses.
    spare: Vec<usize>,
}

impl Scratch {
    /// Slots that copies use now.
    pub fn used(&self) -> usize {
        self.places.len() - self.spare.len()
    }

    /// A slot for a copy in the current context, whose handle is `context`.
    pub fn take(&mut self, driver: &Driver, context: u64) -> Result<Slot, CUresult> {
        let number = self.spare_of(context).or_else(|| self.spare_of(0));
        let number = match number {
            Some(number) => number,
            None if self.places.len() < SCRATCH_MAX => self.add()?,
            // All that are spare are pinned elsewhere.
            None => self.spare.pop().ok_or(CUDA_ERROR_OUT_OF_MEMORY)?,
        };
        let place = &mut self.places[number];
        if place.context != context {
            let code = pin(driver, place.at, place.context != 0);
            if code != CUDA_SUCCESS {
                place.context = 0;
                self.spare.push(number);
                return Err(code);
            }
            place.context = context;
        }
        Ok(Slot { at: place.at, number })
    }

    fn spare_of(&mut self, context: u64) -> Option<usize> {
        let at = self.spare.iter().rposition(|number| self.places[*number].context == context)?;
        Some(self.spare.swap_remove(at))
    }

    fn add(&mut self) -> Result<usize, CUresult> {
        let (access, how) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: fresh pages, which are never unmapped.
        let at = unsafe { libc::mmap(ptr::null_mut(), SLOT_BYTES, access, how, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        self.places.push(Place { at: at.cast(), context: 0 });
        Ok(self.places.len() - 1)
    }

    /// The copy is over.
    pub fn give_back(&mut self, slot: Slot) {
        self.spare.push(slot.number);
    }

    /// A context has ended, and what was pinned in it is not any more.
    pub fn context_gone(&mut self, context: u64) {
        self.places.iter_mut().filter(|place| place.context == context).for_each(|place| place.context = 0);
    }
}

fn pin(driver: &Driver, at: *mut u8, is_pinned: bool) -> CUresult {
    // SAFETY: a slot that no copy uses.
    unsafe {
        if is_pinned {
            driver.cuMemHostUnregister(at.cast());
        }
        match driver.cuMemHostRegister_v2(at.cast(), SLOT_BYTES, CU_MEMHOSTREGISTER_PORTABLE) {
            // A green context's pages are its device's.
            CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED => CUDA_SUCCESS,
            code => code,
        }
    }
}
