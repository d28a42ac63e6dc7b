//! What a session sees as its GPUs.

use std::collections::HashMap;

use orion_cuda::sys::*;

/// One of a session's GPUs: a physical one, or with others of the session a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vgpu {
    /// What the driver calls the physical one.
    pub device: CUdevice,
    /// How many of the session's vGPUs lie on the same physical one before it. The first has the device's own primary
    /// context and default pool; the others have a context and a pool of their own in their places.
    pub before: u32,
}

impl Vgpu {
    pub fn is_first(&self) -> bool {
        self.before == 0
    }
}

/// So many vGPUs on these devices, in turn.
pub fn spread(devices: &[CUdevice], count: usize) -> Vec<Vgpu> {
    on(devices, &(0..count).map(|i| i % devices.len()).collect::<Vec<_>>())
}

/// A vGPU on each device of these numbers.
pub fn on(devices: &[CUdevice], numbers: &[usize]) -> Vec<Vgpu> {
    let before = |i: usize| numbers[..i].iter().filter(|number| **number == numbers[i]).count() as u32;
    numbers.iter().enumerate().map(|(i, number)| Vgpu { device: devices[*number], before: before(i) }).collect()
}

/// A session's vGPUs, and which of them the application sees, in its order.
pub struct Vgpus {
    all: Vec<Vgpu>,
    /// By the application's ordinals; nothing where one is another server's.
    visible: Vec<Option<usize>>,
    /// Default pools, and those that streams allocate from, of vGPUs that are not the first on their device.
    pub default_pools: HashMap<usize, CUmemoryPool>,
    pub current_pools: HashMap<usize, CUmemoryPool>,
}

impl Vgpus {
    pub fn new(all: Vec<Vgpu>) -> Vgpus {
        let visible = (0..all.len()).map(Some).collect();
        Vgpus { all, visible, default_pools: HashMap::new(), current_pools: HashMap::new() }
    }

    pub fn get(&self, vgpu: usize) -> Vgpu {
        self.all[vgpu]
    }

    /// The application sees only these, in this order; false if there is no such vGPU. What is nothing is a device of
    /// another server's.
    pub fn show(&mut self, visible: Vec<Option<usize>>) -> bool {
        let are_known = visible.iter().flatten().all(|vgpu| *vgpu < self.all.len());
        if are_known {
            self.visible = visible;
        }
        are_known
    }

    /// What the application calls `ordinal`.
    pub fn at(&self, ordinal: i32) -> Result<usize, CUresult> {
        let found = usize::try_from(ordinal).ok().and_then(|ordinal| self.visible.get(ordinal));
        found.copied().flatten().ok_or(CUDA_ERROR_INVALID_DEVICE)
    }

    /// The driver's devices, by the application's ordinals. In the place of another server's is one that no driver has.
    pub fn devices(&self) -> Vec<CUdevice> {
        self.visible.iter().map(|vgpu| vgpu.map_or(CUdevice::MAX, |vgpu| self.all[vgpu].device)).collect()
    }

    /// The first device of this server's that the application sees, as it counts them.
    pub fn first_visible(&self) -> u32 {
        self.visible.iter().position(Option::is_some).unwrap_or(0) as u32
    }

    pub fn visible_count(&self) -> u32 {
        self.visible.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_there_are_devices_share_them_in_turn() {
        let all = spread(&[7, 8], 5);
        assert_eq!(
            all.iter().map(|v| (v.device, v.before)).collect::<Vec<_>>(),
            [(7, 0), (8, 0), (7, 1), (8, 1), (7, 2)]
        );
        assert_eq!(spread(&[7, 8], 1), [Vgpu { device: 7, before: 0 }]);
        let all = on(&[7, 8], &[1, 1, 0]);
        assert_eq!(all.iter().map(|v| (v.device, v.before)).collect::<Vec<_>>(), [(8, 0), (8, 1), (7, 0)]);
    }

    #[test]
    fn the_application_sees_what_it_was_shown() {
        let mut vgpus = Vgpus::new(spread(&[7], 3));
        assert_eq!((vgpus.at(2), vgpus.at(3), vgpus.at(-1)), (Ok(2), Err(CUDA_ERROR_INVALID_DEVICE), Err(101)));
        assert!(vgpus.show(vec![Some(2), Some(0)]) && !vgpus.show(vec![Some(3)]));
        assert_eq!((vgpus.at(0), vgpus.at(1), vgpus.at(2).is_err()), (Ok(2), Ok(0), true));
        assert!(vgpus.show(vec![None, Some(1)]));
        assert_eq!((vgpus.at(0).is_err(), vgpus.at(1), vgpus.first_visible()), (true, Ok(1), 1));
    }
}
