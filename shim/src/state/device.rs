//! The devices as the application sees them.

// UNSAFETY: publishes one leaked object.

use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, Ordering};

use orion_cuda::sys::*;
use orion_transport::environment;
use orion_wire::hello::{self, PEER_ACCESS, Welcome};

use crate::state::context::Context;
use crate::state::managed;
use crate::state::session::{Attachment, Greeted};
use crate::state::visible::visible_devices;

/// Attribute ids below this are found by index; CUDA 13.0 ends at 147.
const ATTRIBUTES_DIRECT: usize = 256;

/// What a GPU may do with the pages of its own host, and none can do with those of another process or machine: a
/// program that asks before it passes plain host memory to a kernel takes its other way. Of managed memory see
/// [`crate::api::managed`].
const NOT_SHARED_WITH_THE_HOST: [CUdevice_attribute; 4] = [
    CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
    CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST,
];

/// What the node's driver could do and Orion does not: the table or the shim refuses the functions. A program that asks
/// takes its other way; one that believed the node's value would fail for good, as NCCL with the network card of the
/// client's host does.
const NOT_SERVED: [CUdevice_attribute; 23] = [
    // cuMemExportToShareableHandle, cuMemImportFromShareableHandle.
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
    // cuMemPoolExportToShareableHandle.
    CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES,
    // The client's network card does not reach the GPU: cuMemGetHandleForAddressRange, cuFlushGPUDirectRDMAWrites.
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING,
    CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED,
    // Graphics, on the GPU's host: cuImportExternalSemaphore, cuCtxCreate_v4 with cigParams.
    CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_D3D12_CIG_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_VULKAN_CIG_SUPPORTED,
    // cuMemMapArrayAsync.
    CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED,
    // cuMemBatchDecompressAsync.
    CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK,
    CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH,
    // cuMemCreate and cuMemPoolCreate of host memory.
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
];

/// What an attribute says through Orion where the node's driver says `value`.
fn as_served(id: CUdevice_attribute, value: i32) -> i32 {
    match id {
        // The node nearest to the GPU is the GPU's host's. This is what says that there is none.
        CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID => -1,
        CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY => managed::is_on().into(),
        id if NOT_SHARED_WITH_THE_HOST.contains(&id) || NOT_SERVED.contains(&id) => 0,
        _ => value,
    }
}

/// One device the application sees.
pub struct Device {
    /// Of which session it is, and what that session's worker calls it.
    pub session: usize,
    pub worker_ordinal: u32,
    /// What it is among the devices of all sessions.
    pub granted: u32,
    pub name: Vec<u8>,
    pub uuid: [u8; 16],
    pub total_memory: u64,
    pub pci_bus_id: Vec<u8>,
    pub pci: PciAddress,
    /// `None`: the driver answers `CUDA_ERROR_INVALID_VALUE`.
    attributes: [Option<i32>; ATTRIBUTES_DIRECT],
    attributes_above: Vec<(u32, i32)>,
    pub stream_priorities: (i32, i32),
    pub limits: Vec<(u32, u64)>,
    pub primary: Context,
}

impl Device {
    pub fn is_software(&self) -> bool {
        self.name == orion_cuda::SOFTWARE_GPU.as_bytes()
    }

    fn new(ordinal: u32, (session, worker_ordinal): (usize, u32), d: &hello::Device) -> Device {
        let mut attributes = [None; ATTRIBUTES_DIRECT];
        let mut attributes_above = Vec::new();
        for (id, value) in &d.attributes {
            let value = as_served(*id, *value);
            match attributes.get_mut(*id as usize) {
                Some(slot) => *slot = Some(value),
                None => attributes_above.push((*id, value)),
            }
        }
        Device {
            session,
            worker_ordinal,
            granted: worker_ordinal,
            name: d.name.clone().into_bytes(),
            uuid: d.uuid,
            total_memory: d.total_memory,
            pci_bus_id: d.pci_bus_id.clone().into_bytes(),
            pci: PciAddress::parse(&d.pci_bus_id).unwrap_or_default(),
            attributes,
            attributes_above,
            stream_priorities: d.stream_priorities,
            limits: d.limits.clone(),
            primary: Context::primary(ordinal, session),
        }
    }

    #[inline]
    pub fn attribute(&self, id: u32) -> Option<i32> {
        match self.attributes.get(id as usize) {
            Some(value) => *value,
            None => self.attributes_above.iter().find(|(i, _)| *i == id).map(|(_, value)| *value),
        }
    }
}

/// Domain, bus, device and function of a PCI address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PciAddress {
    pub domain: u32,
    pub bus: u32,
    pub device: u32,
    pub function: u32,
}

impl PciAddress {
    /// `[domain:]bus:device[.function]`, hexadecimal; the domain or the function may be absent, but not both.
    pub fn parse(text: &str) -> Option<PciAddress> {
        let fields: Vec<&str> = text.trim_start().split(':').collect();
        let (domain, bus, rest) = match fields[..] {
            [domain, bus, rest] => (hex(domain)?, bus, rest),
            [bus, rest] if rest.contains('.') => (0, bus, rest),
            _ => return None,
        };
        let (device, function) = rest.split_once('.').unwrap_or((rest, "0"));
        Some(PciAddress { domain, bus: hex(bus)?, device: hex(device)?, function: hex(function)? })
    }
}

/// As `sscanf` with `%x`: an optional `0x`, then digits; what follows them is ignored.
fn hex(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("0x").filter(|rest| rest.starts_with(|c: char| c.is_ascii_hexdigit()));
    let text = digits.unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(text.len());
    u32::from_str_radix(&text[..end], 16).ok()
}

/// What the Welcome says, arranged for answering.
pub struct Facts {
    pub devices: Vec<Device>,
    /// What `cuInit` answers: `CUDA_SUCCESS`, `CUDA_ERROR_NO_DEVICE` if none is left to see, or
    /// `CUDA_ERROR_INVALID_DEVICE` if `CUDA_VISIBLE_DEVICES` names one twice.
    pub refusal: CUresult,
    /// What their servers say.
    greeted: Greeted,
}

impl Facts {
    fn new(welcomes: &[&Welcome], visible: Option<&str>, order: Option<&str>) -> Facts {
        let greeted = Greeted::of(welcomes.iter().map(|welcome| Greeted::from(*welcome)).collect());
        let owners = welcomes.iter().enumerate().map(|(session, welcome)| (session, welcome.devices.len() as u32));
        let owners: Vec<(usize, u32)> =
            owners.flat_map(|(session, count)| (0..count).map(move |ordinal| (session, ordinal))).collect();
        let (seen, refusal) = match visible_devices(visible, order, &greeted.devices) {
            Ok(seen) => (seen, CUDA_SUCCESS),
            Err(code) => (Vec::new(), code),
        };
        let device = |(app, granted): (u32, u32)| {
            let at = granted as usize;
            Device { granted, ..Device::new(app, owners[at], &greeted.devices[at]) }
        };
        Facts { devices: (0..).zip(seen).map(device).collect(), refusal, greeted }
    }

    #[inline]
    pub fn device(&self, ordinal: c_int) -> Result<&Device, CUresult> {
        usize::try_from(ordinal).ok().and_then(|i| self.devices.get(i)).ok_or(CUDA_ERROR_INVALID_DEVICE)
    }

    pub fn peer_access(&self, from: c_int, to: c_int) -> Result<bool, CUresult> {
        Ok(self.peer(from, to)? & PEER_ACCESS != 0)
    }

    /// How, of `PEER_*`.
    pub fn peer(&self, from: c_int, to: c_int) -> Result<u8, CUresult> {
        let (a, b) = (self.device(from)?.granted as usize, self.device(to)?.granted as usize);
        Ok(if from == to { 0 } else { self.greeted.peer(a, b).unwrap_or(0) })
    }
}

pub struct Devices {
    pub facts: AtomicPtr<Facts>,
}

impl Devices {
    pub const fn new() -> Devices {
        Devices { facts: AtomicPtr::new(std::ptr::null_mut()) }
    }

    #[cold]
    pub fn facts_of(&'static self, attachment: &Attachment) -> &'static Facts {
        let p = self.facts.load(Ordering::Acquire);
        if !p.is_null() {
            // SAFETY: published facts are never freed.
            return unsafe { &*p };
        }
        let [visible, order] = ["CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"].map(environment::var_os);
        // A value that is no UTF-8 names no device.
        let [visible, order] = [&visible, &order].map(|v| v.as_ref().map(|v| v.to_str().unwrap_or("")));
        self.publish(Facts::new(&attachment.all().map(|s| &s.welcome).collect::<Vec<_>>(), visible, order))
    }

    pub fn publish(&'static self, facts: Facts) -> &'static Facts {
        let fresh = Box::into_raw(Box::new(facts));
        match self.facts.compare_exchange(std::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: just leaked, never freed.
            Ok(_) => unsafe { &*fresh },
            Err(first) => {
                // SAFETY: another thread was first; nobody has seen ours.
                drop(unsafe { Box::from_raw(fresh) });
                // SAFETY: published facts are never freed.
                unsafe { &*first }
            }
        }
    }
}

#[cfg(test)]
pub mod fixture {
    use super::*;
    use crate::state::process::state;

    pub const DRIVER_VERSION: u32 = 13_000;

    /// Two devices as an H200 describes itself, without a worker behind them.
    pub fn initialise() {
        state().devices.publish(Facts::new(&[&welcome()], None, None));
    }

    fn welcome() -> Welcome {
        let device = |uuid, bus: &str, slot| hello::Device {
            name: "NVIDIA H200".into(),
            uuid: [uuid; 16],
            total_memory: 0x22_f33f_0000,
            is_limited: false,
            pci_bus_id: bus.into(),
            attributes: vec![
                (CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024),
                (CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132),
                (CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 0),
                (CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, slot),
                (CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 0),
                (CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, 1 << 28),
                (CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9),
                (CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0),
                (CU_DEVICE_ATTRIBUTE_NUMA_ID, -1),
                (CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1),
                (CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1),
                (CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 1),
                (300, 7),
            ],
            stream_priorities: (0, -5),
            limits: vec![(CU_LIMIT_STACK_SIZE, 1024), (CU_LIMIT_PRINTF_FIFO_SIZE, 8_650_752)],
            granularity: (2 << 20, 2 << 20),
            pcie: Default::default(),
            driver_release: String::new(),
        };
        Welcome {
            session: 1,
            worker_pid: 0,
            driver_version: DRIVER_VERSION,
            missing: vec![],
            devices: vec![device(0x29, "0000:00:06.0", 6), device(0x2a, "0000:00:07.0", 7)],
            peer_access: vec![0, 1, 1, 0],
            memory_bytes: 0,
            heap_bytes: 0,
            staging_bytes: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fixture::initialise;
    use super::*;
    use crate::session::device::attribute;

    #[test]
    fn attributes_of_what_is_refused_are_zero() {
        // Every one of 103, 110, 116, 119, 124, 128 and 134 to 146, but 139 and 140, which are the card's own numbers.
        let said: Vec<(u32, i32)> =
            [103, 110, 116, 119, 124, 128].into_iter().chain(134..=146).map(|id| (id, 7)).collect();
        let node = hello::Device { attributes: said, ..Default::default() };
        let device = Device::new(0, (0, 0), &node);
        for (id, _) in &node.attributes {
            let served = match id {
                134 => -1,
                139 | 140 => 7,
                _ => 0,
            };
            assert_eq!(device.attribute(*id), Some(served), "attribute {id}");
        }
    }

    #[test]
    fn what_is_refused_is_not_claimed() {
        initialise();
        assert_eq!(attribute(0, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY), Some(1));
        for id in [CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS] {
            assert_eq!(attribute(0, id), Some(0), "attribute {id}");
        }
    }
}
