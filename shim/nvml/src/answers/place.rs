//! Where a device is on its node's buses.

use std::ffi::c_uint;

use orion_cuda::nvml_table::Device;

use crate::arguments::until_zero;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    pub domain: c_uint,
    pub bus: c_uint,
    pub device: c_uint,
}

impl Place {
    pub fn of(device: &Device) -> Option<Place> {
        Place::parse(until_zero(&device.pci_bus_id))
    }

    /// `domain:bus:device.function` or `bus:device.function`, all hexadecimal.
    pub fn parse(text: &str) -> Option<Place> {
        let (place, _function) = text.split_once('.').unwrap_or((text, "0"));
        let mut parts = place.rsplit(':').map(|part| c_uint::from_str_radix(part, 16).ok());
        let (device, bus) = (parts.next()??, parts.next()??);
        let domain = parts.next().unwrap_or(Some(0))?;
        parts.next().is_none().then_some(Place { domain, bus, device })
    }

    pub fn text(self, digits: usize) -> String {
        format!("{:0digits$X}:{:02X}:{:02X}.0", self.domain, self.bus, self.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_in_both_forms_and_written_as_nvml_does() {
        let place = Place { domain: 1, bus: 0x3b, device: 0xa };
        assert_eq!(Place::parse("00000001:3B:0A.0"), Some(place));
        assert_eq!(Place::parse("0001:3b:0a.0"), Some(place));
        assert_eq!(Place::parse("3b:0a.0"), Some(Place { domain: 0, ..place }));
        assert_eq!((place.text(8), place.text(4)), ("00000001:3B:0A.0".into(), "0001:3B:0A.0".into()));
        for text in ["", "3b", "x:3b:0a.0", "0:0:0:0.0", ":"] {
            assert_eq!(Place::parse(text), None, "{text}");
        }
    }
}
