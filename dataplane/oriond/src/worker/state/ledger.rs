//! What the device memory of a session's vGPUs is used for, and how much each may have.
//!
//! Pure arithmetic: nothing here asks a driver. Who calls the driver is `session::charging`, and no other place may
//! name its functions that allocate (`drivers_memory_is_charged` in `dataplane/api`).

// UNSAFETY: a test starts from a C struct of zeros.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use orion_cuda::sys::*;

use crate::meter::Meter;

/// Something that has device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum What {
    Memory(CUdeviceptr),
    /// The driver's handle.
    Array(usize),
    MipmappedArray(usize),
    /// Of `cuMemCreate`, by our number.
    Physical(u64),
    /// All that a pool has reserved.
    Pool(usize),
    /// All that the graphs of a vGPU have reserved.
    Graphs(usize),
    /// The variables of a module or library that is being loaded, by the client's name, or is loaded, by the driver's.
    Loading(u64),
    Globals(usize),
    /// Something that is being given back on another thread, whose own name may be another's before that is over; or
    /// that is being made, and has no name yet.
    Nameless(u64),
    /// What a context sets aside beyond its defaults.
    Limit(u64, CUlimit),
    /// A context beyond the first.
    Context(u64),
}

#[derive(Debug, Clone, Copy)]
struct Charge {
    vgpu: usize,
    bytes: u64,
    /// The context that it ends with; 0 for none.
    context: u64,
}

#[derive(Debug, Clone, Copy)]
struct Account {
    limit: u64,
    used: u64,
}

pub struct Ledger {
    accounts: Vec<Account>,
    charges: HashMap<What, Charge>,
    physical: Physical,
    /// What the graphs on each device had when it was last asked.
    graphs: HashMap<CUdevice, u64>,
    names: u64,
    /// Where what is used is shown.
    meter: Option<Arc<Meter>>,
}

impl Ledger {
    /// With each vGPU's limit in bytes.
    pub fn new(limits: &[u64]) -> Ledger {
        let accounts = limits.iter().map(|limit| Account { limit: *limit, used: 0 }).collect();
        Ledger {
            accounts,
            charges: HashMap::new(),
            physical: Physical::default(),
            graphs: HashMap::new(),
            names: 0,
            meter: None,
        }
    }

    /// From here on whatever changes is shown there.
    pub fn show(&mut self, meter: Arc<Meter>) {
        self.meter = Some(meter);
        (0..self.accounts.len()).for_each(|vgpu| self.shown(vgpu));
    }

    fn shown(&self, vgpu: usize) {
        if let Some(meter) = &self.meter {
            meter.uses(vgpu, self.accounts[vgpu].used);
        }
    }

    pub fn limit(&self, vgpu: usize) -> u64 {
        self.accounts[vgpu].limit
    }

    pub fn used(&self, vgpu: usize) -> u64 {
        self.accounts[vgpu].used
    }

    pub fn is_exceeded(&self, vgpu: usize) -> bool {
        self.used(vgpu) > self.limit(vgpu)
    }

    pub fn free(&self, vgpu: usize) -> u64 {
        self.limit(vgpu).saturating_sub(self.used(vgpu))
    }

    /// Charges `bytes` in place of what was charged for the same; false, and nothing changes, if that is beyond the
    /// limit.
    pub fn charge(&mut self, vgpu: usize, what: What, bytes: u64, context: u64) -> bool {
        let before = self.charged(what);
        if bytes.saturating_sub(before) > self.free(vgpu) {
            return false;
        }
        self.note(vgpu, what, bytes, context);
        true
    }

    /// As [`Self::charge`], of what is so already: what a pool has reserved, say.
    pub fn note(&mut self, vgpu: usize, what: What, bytes: u64, context: u64) {
        let before = self.take_back(what);
        if bytes > 0 {
            self.accounts[vgpu].used = self.accounts[vgpu].used.saturating_add(bytes);
            self.charges.insert(what, Charge { vgpu, bytes, context });
        }
        // Not what was between the two: somebody may look.
        before.into_iter().chain([vgpu]).for_each(|vgpu| self.shown(vgpu));
    }

    /// Answers whose it was.
    fn take_back(&mut self, what: What) -> Option<usize> {
        let charge = self.charges.remove(&what)?;
        let account = &mut self.accounts[charge.vgpu];
        account.used = account.used.saturating_sub(charge.bytes);
        Some(charge.vgpu)
    }

    pub fn charged(&self, what: What) -> u64 {
        self.charges.get(&what).map_or(0, |charge| charge.bytes)
    }

    /// The same memory has another name.
    pub fn rename(&mut self, from: What, to: What) {
        if let Some(charge) = self.charges.remove(&from) {
            self.release(to);
            self.charges.insert(to, charge);
        }
    }

    /// Something is about to be given back, and stays charged until [`Self::release`] of the answer.
    pub fn ending(&mut self, what: What) -> What {
        let ending = self.nameless();
        self.rename(what, ending);
        ending
    }

    /// Charges `bytes` for something that is about to be made, or nothing if they do not fit. It gets its name by
    /// [`Self::rename`], or is released.
    pub fn reserve(&mut self, vgpu: usize, bytes: u64, context: u64) -> Option<What> {
        let what = self.nameless();
        self.charge(vgpu, what, bytes, context).then_some(what)
    }

    fn nameless(&mut self) -> What {
        self.names += 1;
        What::Nameless(self.names)
    }

    pub fn release(&mut self, what: What) {
        if let Some(vgpu) = self.take_back(what) {
            self.shown(vgpu);
        }
    }

    /// A context has ended, and what is charged for it.
    pub fn context_gone(&mut self, context: u64) {
        let ended: Vec<What> =
            self.charges.iter().filter(|(_, charge)| charge.context == context).map(|(what, _)| *what).collect();
        ended.into_iter().for_each(|what| self.release(what));
    }

    /// The graphs on a device have so much now, and what has changed is a vGPU's.
    pub fn graphs_have(&mut self, device: CUdevice, vgpu: usize, bytes: u64) {
        let before = self.graphs.insert(device, bytes).unwrap_or(0);
        let own = self.charged(What::Graphs(vgpu));
        if bytes >= before {
            return self.note(vgpu, What::Graphs(vgpu), own + (bytes - before), 0);
        }
        // What it has not had was another's, of whose end nobody has said.
        let mut less = before - bytes;
        let others = (0..self.accounts.len()).filter(|other| *other != vgpu);
        for of in std::iter::once(vgpu).chain(others) {
            let had = self.charged(What::Graphs(of));
            self.note(of, What::Graphs(of), had - had.min(less), 0);
            less -= had.min(less);
        }
    }

    /// `cuMemCreate` has made a handle of what was reserved.
    pub fn created(&mut self, reserved: What, handle: u64) {
        let id = self.physical.created(handle);
        self.rename(reserved, What::Physical(id));
    }

    /// Another handle of what is mapped at an address.
    pub fn retained(&mut self, handle: u64, address: CUdeviceptr) {
        self.physical.retained(handle, address);
    }

    pub fn handle_released(&mut self, handle: u64) {
        if let Some(id) = self.physical.released(handle) {
            self.release(What::Physical(id));
        }
    }

    pub fn mapped(&mut self, handle: u64, address: CUdeviceptr, bytes: u64) {
        self.physical.mapped(handle, address, bytes);
    }

    pub fn unmapped(&mut self, address: CUdeviceptr, bytes: u64) {
        for id in self.physical.unmapped(address, bytes) {
            self.release(What::Physical(id));
        }
    }
}

/// Memory of `cuMemCreate`, which lives as long as a handle or a mapping of it does.
#[derive(Default)]
struct Physical {
    next: u64,
    /// Handles and mappings, by number.
    references: HashMap<u64, usize>,
    /// The number that a handle stands for, and how often it was given out.
    handles: HashMap<u64, (u64, usize)>,
    /// By first address: the end, and the number.
    mappings: BTreeMap<CUdeviceptr, (CUdeviceptr, u64)>,
}

impl Physical {
    fn created(&mut self, handle: u64) -> u64 {
        self.next += 1;
        self.handles.insert(handle, (self.next, 1));
        self.references.insert(self.next, 1);
        self.next
    }

    fn retained(&mut self, handle: u64, address: CUdeviceptr) {
        let mapping = self.mappings.range(..=address).next_back().filter(|(_, (end, _))| address < *end);
        let Some((_, (_, id))) = mapping else { return };
        let (of, count) = self.handles.entry(handle).or_insert((*id, 0));
        *count += 1;
        *self.references.entry(*of).or_default() += 1;
    }

    /// The number whose memory is free now, if any.
    fn released(&mut self, handle: u64) -> Option<u64> {
        let (id, count) = self.handles.get_mut(&handle)?;
        let id = *id;
        *count -= 1;
        if *count == 0 {
            self.handles.remove(&handle);
        }
        self.give_up(id)
    }

    fn mapped(&mut self, handle: u64, address: CUdeviceptr, bytes: u64) {
        if let Some((id, _)) = self.handles.get(&handle) {
            self.mappings.insert(address, (address.saturating_add(bytes), *id));
            *self.references.entry(*id).or_default() += 1;
        }
    }

    fn unmapped(&mut self, address: CUdeviceptr, bytes: u64) -> Vec<u64> {
        let inside: Vec<CUdeviceptr> =
            self.mappings.range(address..address.saturating_add(bytes)).map(|(first, _)| *first).collect();
        let ids: Vec<u64> = inside.iter().filter_map(|first| self.mappings.remove(first)).map(|(_, id)| id).collect();
        ids.into_iter().filter_map(|id| self.give_up(id)).collect()
    }

    fn give_up(&mut self, id: u64) -> Option<u64> {
        let count = self.references.get_mut(&id)?;
        *count -= 1;
        if *count > 0 {
            return None;
        }
        self.references.remove(&id);
        Some(id)
    }
}

/// Each level of a mipmapped array begins at a multiple of this.
const LEVEL_GRANULE: u64 = 512;

/// What an array is made of: format, channels, and its sizes, of which 0 is none.
pub trait Shape {
    fn elements(&self) -> (CUarray_format, u32, [usize; 3]);
}

impl Shape for CUDA_ARRAY_DESCRIPTOR {
    fn elements(&self) -> (CUarray_format, u32, [usize; 3]) {
        (self.Format, self.NumChannels, [self.Width, self.Height, 0])
    }
}

impl Shape for CUDA_ARRAY3D_DESCRIPTOR {
    fn elements(&self) -> (CUarray_format, u32, [usize; 3]) {
        (self.Format, self.NumChannels, [self.Width, self.Height, self.Depth])
    }
}

/// Bytes of an array's elements.
pub fn array_bytes(d: &impl Shape) -> u64 {
    let (format, channels, sizes) = d.elements();
    // Of formats that are not listed the largest: none has more than 16 bytes.
    let channel: u64 = match format {
        CU_AD_FORMAT_UNSIGNED_INT8 | CU_AD_FORMAT_SIGNED_INT8 => 1,
        CU_AD_FORMAT_UNSIGNED_INT16 | CU_AD_FORMAT_SIGNED_INT16 | CU_AD_FORMAT_HALF => 2,
        CU_AD_FORMAT_UNSIGNED_INT32 | CU_AD_FORMAT_SIGNED_INT32 | CU_AD_FORMAT_FLOAT => 4,
        _ => 16,
    };
    let cells = sizes.iter().fold(channels as u64, |cells, size| cells.saturating_mul((*size).max(1) as u64));
    cells.saturating_mul(channel)
}

/// Bytes of all levels of a mipmapped array.
pub fn mipmapped_bytes(d: &CUDA_ARRAY3D_DESCRIPTOR, levels: u32) -> u64 {
    level_bytes(d, levels)
        .fold(0, |all, bytes| all.saturating_add(bytes.checked_next_multiple_of(LEVEL_GRANULE).unwrap_or(u64::MAX)))
}

/// As [`array_bytes`], of each level of a mipmapped array.
fn level_bytes(d: &CUDA_ARRAY3D_DESCRIPTOR, levels: u32) -> impl Iterator<Item = u64> {
    let d = *d;
    let shrunk = move |size: usize, level: u32| if size == 0 { 0 } else { (size >> level).max(1) };
    (0..levels.min(usize::BITS - 1)).map(move |level| {
        // Layers of an array do not shrink.
        let layered = d.Flags & CUDA_ARRAY3D_LAYERED != 0;
        let depth = if layered { d.Depth } else { shrunk(d.Depth, level) };
        let (width, height) = (shrunk(d.Width, level), shrunk(d.Height, level));
        array_bytes(&CUDA_ARRAY3D_DESCRIPTOR { Width: width, Height: height, Depth: depth, ..d })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_given_and_what_does_not_changes_nothing() {
        let mut ledger = Ledger::new(&[100, 50]);
        assert!(ledger.charge(0, What::Memory(1), 60, 7) && ledger.charge(0, What::Memory(2), 40, 8));
        assert!(!ledger.charge(0, What::Memory(3), 1, 7));
        assert_eq!((ledger.used(0), ledger.free(0), ledger.free(1)), (100, 0, 50));
        // In place of what it was.
        assert!(ledger.charge(0, What::Memory(2), 30, 8) && !ledger.charge(0, What::Memory(2), 41, 8));
        ledger.context_gone(7);
        assert_eq!((ledger.used(0), ledger.used(1)), (30, 0));
        ledger.release(What::Memory(2));
        ledger.release(What::Memory(2));
        assert_eq!(ledger.used(0), 0);
    }

    #[test]
    fn what_is_so_already_may_be_beyond_the_limit() {
        let mut ledger = Ledger::new(&[100]);
        ledger.note(0, What::Pool(1), 130, 0);
        assert_eq!((ledger.used(0), ledger.free(0)), (130, 0));
        assert!(!ledger.charge(0, What::Memory(1), 1, 0));
        ledger.note(0, What::Pool(1), 90, 0);
        assert!(ledger.charge(0, What::Memory(1), 10, 0));
    }

    #[test]
    fn physical_memory_lives_as_long_as_a_handle_or_a_mapping() {
        let mut ledger = Ledger::new(&[100]);
        let reserved = ledger.reserve(0, 40, 0).expect("it fits");
        assert_eq!((ledger.used(0), ledger.reserve(0, 61, 0)), (40, None));
        ledger.created(reserved, 0x77);
        ledger.mapped(0x77, 0x1000, 0x100);
        ledger.mapped(0x77, 0x2000, 0x100);
        ledger.handle_released(0x77);
        assert_eq!(ledger.used(0), 40);
        ledger.retained(0x77, 0x2080);
        ledger.unmapped(0x1000, 0x1100);
        assert_eq!(ledger.used(0), 40);
        ledger.handle_released(0x77);
        assert_eq!(ledger.used(0), 0);
        // A handle that nobody was given, and addresses where nothing is, are no memory.
        ledger.handle_released(0x77);
        ledger.unmapped(0, u64::MAX);
        assert_eq!(ledger.used(0), 0);
    }

    #[test]
    fn graphs_of_two_on_one_device_are_told_apart_by_who_changes_what() {
        let mut ledger = Ledger::new(&[1000, 1000]);
        ledger.graphs_have(7, 0, 100);
        ledger.graphs_have(7, 1, 150);
        assert_eq!((ledger.used(0), ledger.used(1)), (100, 50));
        ledger.graphs_have(7, 0, 50);
        assert_eq!((ledger.used(0), ledger.used(1)), (0, 50));
        // More than it had itself.
        ledger.graphs_have(7, 0, 20);
        assert_eq!((ledger.used(0), ledger.used(1)), (0, 20));
    }

    #[test]
    fn what_is_given_back_elsewhere_does_not_take_its_names_next_owner_along() {
        let mut ledger = Ledger::new(&[100]);
        assert!(ledger.charge(0, What::Memory(1), 30, 0));
        let ending = ledger.ending(What::Memory(1));
        // The driver has freed it already, and given the address out anew.
        assert!(ledger.charge(0, What::Memory(1), 50, 0));
        ledger.release(ending);
        assert_eq!(ledger.used(0), 50);
    }

    #[test]
    fn levels_shrink_and_layers_do_not() {
        // SAFETY: integers.
        let mut d: CUDA_ARRAY3D_DESCRIPTOR = unsafe { std::mem::zeroed() };
        (d.Width, d.Height, d.Format, d.NumChannels) = (8, 4, CU_AD_FORMAT_FLOAT, 2);
        assert_eq!(level_bytes(&d, 4).collect::<Vec<_>>(), [256, 64, 16, 8]);
        assert_eq!(mipmapped_bytes(&CUDA_ARRAY3D_DESCRIPTOR { Width: usize::MAX, ..d }, 2), u64::MAX);
        (d.Depth, d.Flags) = (6, CUDA_ARRAY3D_LAYERED);
        assert_eq!(level_bytes(&d, 2).collect::<Vec<_>>(), [6 * 256, 6 * 64]);
    }
}
