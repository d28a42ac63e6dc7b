//! `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`, which libcuda interprets in the application's process.
//!
//! The rules are not those of any document but those of driver 580.159, tried value by value.

use orion_cuda::sys::*;
use orion_wire::hello::Device;

/// Which devices the application sees, as indices into `devices` in the application's order. The error is what
/// `cuInit` answers: no device is left, or one was named twice.
pub fn visible_devices(visible: Option<&str>, order: Option<&str>, devices: &[Device]) -> Result<Vec<u32>, CUresult> {
    let order = device_order(order, devices);
    let seen = match visible {
        None => order,
        // The first entry decides what the list is made of; an entry of the other sort ends it.
        Some(list) if list.starts_with("GPU-") => select(list, |entry| by_uuid(entry, devices))?,
        Some(list) => select(list, |entry| Some(*order.get(leading_integer(entry)?)?))?,
    };
    if seen.is_empty() { Err(CUDA_ERROR_NO_DEVICE) } else { Ok(seen) }
}

/// How indices count the devices: as the worker lists them (fastest first), or by bus id.
fn device_order(order: Option<&str>, devices: &[Device]) -> Vec<u32> {
    let mut indices: Vec<u32> = (0..devices.len() as u32).collect();
    if order == Some("PCI_BUS_ID") {
        indices.sort_by_key(|i| &devices[*i as usize].pci_bus_id);
    }
    indices
}

/// The entries up to the first that names no device.
fn select(list: &str, device_of: impl Fn(&str) -> Option<u32>) -> Result<Vec<u32>, CUresult> {
    let mut seen = Vec::new();
    for device in list.split(',').map_while(device_of) {
        if seen.contains(&device) {
            return Err(CUDA_ERROR_INVALID_DEVICE);
        }
        seen.push(device);
    }
    Ok(seen)
}

/// The one device whose UUID starts with `entry`, in either case. Text after a whole UUID is ignored.
fn by_uuid(entry: &str, devices: &[Device]) -> Option<u32> {
    let digits = entry.strip_prefix("GPU-")?.to_ascii_lowercase();
    let wanted = &digits.as_bytes()[..digits.len().min(36)];
    let mut matching =
        (0..devices.len() as u32).filter(|i| uuid_text(&devices[*i as usize].uuid).as_bytes().starts_with(wanted));
    let first = matching.next()?;
    // A prefix that fits several devices names none; so does the empty one, even on a machine with one device.
    (matching.next().is_none() && !wanted.is_empty()).then_some(first)
}

fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (i, byte) in uuid.iter().enumerate() {
        if [4, 6, 8, 10].contains(&i) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// What C's `atoi` reads: `"0x1"` is 0, `" +1 GPU"` is 1, 2^32 is 0; but no digits are no number.
fn leading_integer(entry: &str) -> Option<usize> {
    let entry = entry.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    let (negative, digits) = match entry.as_bytes().first()? {
        b'-' => (true, &entry[1..]),
        b'+' => (false, &entry[1..]),
        _ => (false, entry),
    };
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    if end == 0 {
        return None;
    }
    let value = digits[..end].parse::<i64>().unwrap_or(i64::MAX);
    usize::try_from((if negative { -value } else { value }) as i32).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices() -> Vec<Device> {
        let device = |first: u8, bus: &str| Device {
            uuid: [first, 0xa1, 0x4d, 0xb6, 0x9b, 0x7c, 0x9d, 0x4c, 0x42, 5, 0xf7, 0x14, 0xd8, 0x22, 0x3f, 9],
            pci_bus_id: bus.into(),
            ..Device::default()
        };
        vec![device(0x29, "0000:41:00.0"), device(0x2a, "0000:1b:00.0")]
    }

    fn seen(list: &str) -> Result<Vec<u32>, CUresult> {
        visible_devices(Some(list), None, &devices())
    }

    const NONE: Result<Vec<u32>, CUresult> = Err(CUDA_ERROR_NO_DEVICE);
    const TWICE: Result<Vec<u32>, CUresult> = Err(CUDA_ERROR_INVALID_DEVICE);

    #[test]
    fn unset_shows_all() {
        assert_eq!(visible_devices(None, None, &devices()), Ok(vec![0, 1]));
    }

    #[test]
    fn indices_choose_and_order() {
        for list in ["1,0", " 1,0", "1, 0", "1 ,0x0", "01,-0", "1;5,0.7", "1abc,4294967296"] {
            assert_eq!(seen(list), Ok(vec![1, 0]), "{list:?}");
        }
    }

    #[test]
    fn the_first_invalid_entry_ends_the_list() {
        for list in ["0,5,1", "0,-1,1", "0,,1", "0,abc,1", "0,GPU-2a", "0", "0 1", "0,99999999999999999999"] {
            assert_eq!(seen(list), Ok(vec![0]), "{list:?}");
        }
        for list in
            ["", " ", "-1", "2,0", ",0", "abc", "none", "all", "NoDevFiles", "18446744073709551616", "MIG-GPU-29a1"]
        {
            assert_eq!(seen(list), NONE, "{list:?}");
        }
    }

    #[test]
    fn naming_a_device_twice_is_an_error() {
        for list in ["0,0", "0, 0", "1,0,1", "0x1,0", "GPU-29,GPU-29a1"] {
            assert_eq!(seen(list), TWICE, "{list:?}");
        }
        assert_eq!(seen("0,7,0"), Ok(vec![0]));
    }

    #[test]
    fn uuids_match_by_prefix() {
        for list in
            ["GPU-29", "GPU-29A14DB6-9B7C", "GPU-29a14db6-9b7c-9d4c-4205-f714d8223f09", "GPU-29,0", "GPU-29,GPU-"]
        {
            assert_eq!(seen(list), Ok(vec![0]), "{list:?}");
        }
        assert_eq!(seen("GPU-29a14db6-9b7c-9d4c-4205-f714d8223f090"), Ok(vec![0]));
        assert_eq!(seen("GPU-2a,GPU-29"), Ok(vec![1, 0]));
        for list in ["GPU-2", "GPU-", "GPU", "gpu-29", " GPU-29", "GPU-zz", "29a14db6"] {
            assert_eq!(seen(list), NONE, "{list:?}");
        }
    }

    #[test]
    fn indices_can_count_by_bus_id() {
        let seen = |list| visible_devices(list, Some("PCI_BUS_ID"), &devices());
        assert_eq!(seen(None), Ok(vec![1, 0]));
        assert_eq!(seen(Some("0")), Ok(vec![1]));
        assert_eq!(seen(Some("GPU-29")), Ok(vec![0]));
    }
}
