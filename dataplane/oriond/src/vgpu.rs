//! What tells several vGPUs on one GPU apart.

use orion_cuda::sys::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID;
use orion_wire::hello::Device;

/// Programs tell devices apart by UUID and by place: no two of a session may have the same. The places that a machine
/// has are in low PCI domains.
pub fn set_apart(d: &mut Device, number: u32) {
    const DOMAIN: u32 = 0x8000;
    for (byte, number) in d.uuid.iter_mut().rev().zip(number.to_le_bytes()) {
        *byte ^= number;
    }
    if let Some((domain, rest)) = d.pci_bus_id.split_once(':') {
        let domain = u32::from_str_radix(domain, 16).unwrap_or(0) + DOMAIN + number;
        d.pci_bus_id = format!("{domain:04X}:{rest}");
        for (id, value) in &mut d.attributes {
            if *id == CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID {
                *value = domain as i32;
            }
        }
    }
}
