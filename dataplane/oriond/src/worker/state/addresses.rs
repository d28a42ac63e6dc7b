//! Device addresses that the driver gave to this session.

// UNSAFETY: a test starts from a C struct of zeros.

use std::collections::BTreeMap;

use orion_cuda::sys::*;

/// The first byte of device memory of this session, or of memory shared with the client, as far as was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceAddress(pub(in crate::worker) CUdeviceptr);

impl DeviceAddress {
    pub fn raw(self) -> CUdeviceptr {
        self.0
    }
}

/// What a range of device addresses is, and so what ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// Allocated in this context.
    Memory(u64),
    Pool,
    /// A graph's: its addresses outlive what is done with the memory.
    Graph,
    Reservation,
    /// The globals of a module or library of this name.
    Globals(u64),
    /// Another session's.
    Imported,
}

#[derive(Debug, Clone, Copy)]
struct Range {
    end: u64,
    of: Of,
}

/// What the driver allocates begins at multiples of this, so what lies behind the end of an allocation, up to the next
/// one, is nobody else's. Whether an operation may touch it is the driver's to say.
pub(in crate::worker) const GRANULE: u64 = 512;

/// Ranges found last, by address.
const RECENT: usize = 16;

/// The session's device addresses.
#[derive(Default)]
pub struct Addresses {
    /// What the driver gave out, by first address.
    given: BTreeMap<u64, Range>,
    /// What the driver said is the device's when it was asked; forgotten with the next command that might end some.
    pub(in crate::worker) asked: BTreeMap<u64, u64>,
    pub(in crate::worker) recent: [(u64, u64); RECENT],
}

impl Addresses {
    /// The driver has given out memory. What is known to lie there has ended unnoticed.
    pub fn given(&mut self, base: u64, bytes: u64, of: Of) {
        let granule = if matches!(of, Of::Memory(_) | Of::Pool | Of::Graph) { GRANULE } else { 1 };
        let end = base.checked_add(bytes.max(1)).and_then(|end| end.checked_next_multiple_of(granule));
        let (Some(end), 1..) = (end, base) else { return };
        self.take(base, end);
        self.given.insert(base, Range { end, of });
    }

    /// Drops whatever meets the range.
    fn take(&mut self, first: u64, end: u64) {
        while let Some((&base, _)) = self.given.range(..end).next_back().filter(|(_, r)| r.end > first) {
            self.given.remove(&base);
        }
        self.doubt();
        self.recent = Default::default();
    }

    /// Whether an allocation begins there that was made in a context, and not in a stream's order.
    pub fn is_allocation(&self, base: u64) -> bool {
        self.given.get(&base).is_some_and(|range| matches!(range.of, Of::Memory(_)))
    }

    /// Memory is given back, all that began at this address.
    pub fn ended(&mut self, base: u64) {
        if self.given.get(&base).is_some_and(|range| range.of != Of::Graph) {
            self.given.remove(&base);
        }
        self.doubt();
        self.recent = Default::default();
    }

    fn ended_if(&mut self, ends: impl Fn(Of) -> bool) {
        self.given.retain(|_, range| !ends(range.of));
        self.doubt();
        self.recent = Default::default();
    }

    /// A module or library is unloaded.
    pub fn unloaded(&mut self, name: u64) {
        self.ended_if(|of| of == Of::Globals(name));
    }

    /// A context is gone, and what was allocated, loaded or opened in it.
    pub fn context_gone(&mut self, context: u64) {
        self.ended_if(|of| match of {
            Of::Memory(home) => home == context,
            Of::Globals(_) | Of::Imported => true,
            Of::Pool | Of::Graph | Of::Reservation => false,
        });
    }

    /// A command that might give something back: what the driver said about addresses may hold no longer.
    #[inline]
    pub fn doubt(&mut self) {
        if !self.asked.is_empty() {
            self.asked.clear();
            self.recent = Default::default();
        }
    }

    /// The known range that an address lies in.
    pub(in crate::worker) fn at(&self, address: u64) -> Option<(u64, u64)> {
        let given = self.given.range(..=address).next_back().map(|(base, range)| (*base, range.end));
        let asked = || self.asked.range(..=address).next_back().map(|(base, end)| (*base, *end));
        given.filter(|(_, end)| address < *end).or_else(|| asked().filter(|(_, end)| address < *end))
    }

    pub(in crate::worker) fn slot(address: u64) -> usize {
        (address >> 21) as usize % RECENT
    }
}

/// Bytes of a line: the product.
pub fn line(factors: &[u64]) -> Result<u64, CUresult> {
    factors.iter().try_fold(1u64, |a, b| a.checked_mul(*b)).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// Bytes from the first row's beginning to the last one's end.
pub fn rows(pitch: u64, count: u64, row: u64) -> Result<u64, CUresult> {
    if count == 0 || row == 0 {
        return Ok(0);
    }
    let before = pitch.checked_mul(count - 1);
    before.and_then(|before| before.checked_add(row)).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// Which attributes of streams the driver is given: not those whose values it takes for its own pointers, which are a
/// launch's or a node's, nor any that this version does not know.
pub fn stream_attribute(attribute: u32) -> Result<(), CUresult> {
    match attribute {
        CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT
        | CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT
        | CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE
        | CU_LAUNCH_ATTRIBUTE_MAX.. => Err(CUDA_ERROR_INVALID_VALUE),
        _ => Ok(()),
    }
}

/// First address of one side of a copy, and the bytes from there to its last one.
pub fn span(
    base: u64,
    place: [usize; 3],
    pitch: usize,
    height: usize,
    c: &CUDA_MEMCPY3D,
) -> Result<(u64, u64), CUresult> {
    let [x, y, z] = place.map(|v| v as u64);
    let (width, rows, slices) = (c.WidthInBytes as u64, c.Height as u64, c.Depth as u64);
    if width == 0 || rows == 0 || slices == 0 {
        return Ok((base, 0));
    }
    let counted = || {
        let pitch = pitch as u64;
        let slice = pitch.checked_mul(height as u64);
        // A slice's size matters where there is more than one.
        let slice = if z == 0 && slices == 1 { Some(0) } else { slice }?;
        let skipped = z.checked_mul(slice)?.checked_add(y.checked_mul(pitch)?)?;
        let first = base.checked_add(skipped)?.checked_add(x)?;
        let whole = (slices - 1).checked_mul(slice)?.checked_add((rows - 1).checked_mul(pitch)?)?;
        let bytes = whole.checked_add(width)?;
        first.checked_add(bytes)?;
        Some((first, bytes))
    };
    counted().ok_or(CUDA_ERROR_INVALID_VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_is_known_until_it_ends() {
        let mut a = Addresses::default();
        a.given(0x10_0000, 100, Of::Memory(1));
        assert_eq!(a.at(0x10_0000), Some((0x10_0000, 0x10_0200)));
        assert_eq!((a.at(0xf_ffff), a.at(0x10_0200)), (None, None));
        a.ended(0x10_0000);
        assert_eq!(a.at(0x10_0000), None);
        // A graph's addresses stay, and what is given out anew takes their place.
        a.given(0x20_0000, 0x4000, Of::Graph);
        a.ended(0x20_0000);
        assert!(a.at(0x20_3000).is_some());
        a.given(0x20_1000, 0x1000, Of::Pool);
        assert_eq!((a.at(0x20_0000), a.at(0x20_1000)), (None, Some((0x20_1000, 0x20_2000))));
        a.context_gone(1);
        assert!(a.at(0x20_1000).is_some());
    }

    #[test]
    fn impossible_ranges_are_not_known() {
        let mut a = Addresses::default();
        a.given(u64::MAX - 10, 100, Of::Pool);
        a.given(0, 100, Of::Pool);
        assert!(a.given.is_empty());
        assert_eq!((line(&[u64::MAX, 2]), line(&[3, 4])), (Err(CUDA_ERROR_INVALID_VALUE), Ok(12)));
        assert_eq!(
            (rows(u64::MAX, 3, 1), rows(16, 3, 4), rows(16, 0, 4)),
            (Err(CUDA_ERROR_INVALID_VALUE), Ok(36), Ok(0))
        );
    }

    #[test]
    fn a_copys_span_goes_from_its_first_to_its_last_byte() {
        // SAFETY: a struct of integers and pointers, for which zero is a value.
        let mut c: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
        (c.WidthInBytes, c.Height, c.Depth) = (16, 3, 2);
        assert_eq!(span(0x1000, [4, 2, 1], 64, 10, &c), Ok((0x1000 + 640 + 128 + 4, 640 + 128 + 16)));
        for (place, pitch, height) in [
            ([4, 2, 1], usize::MAX, 10),
            ([usize::MAX, 0, 0], 64, 10),
            ([0, 0, 0], 1 << 32, 1 << 32),
            ([0, 1 << 40, 0], 1 << 40, 1),
        ] {
            assert_eq!(span(0x1000, place, pitch, height, &c), Err(CUDA_ERROR_INVALID_VALUE));
        }
    }
}
