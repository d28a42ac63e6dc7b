//! Amounts of memory, as people write them.

/// `8 GiB`, `512MiB`, or a number of MiB.
pub fn parse_mib(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let each = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "m" | "mib" => 1,
        "g" | "gib" => 1 << 10,
        "t" | "tib" => 1 << 20,
        _ => return Err(format!("unit {unit:?} is none of MiB, GiB, TiB")),
    };
    let number: u64 = number.parse().map_err(|_| format!("{text:?} does not begin with a number"))?;
    match number.checked_mul(each) {
        Some(mib) if mib > 0 => Ok(mib),
        _ => Err(format!("{text:?} is no memory that a vGPU can have")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_mib_unless_it_says_otherwise() {
        for (text, mib) in [("4096", 4096), ("8GiB", 8192), ("8 gib", 8192), ("1 TiB", 1 << 20), ("300M", 300)] {
            assert_eq!(parse_mib(text), Ok(mib));
        }
        for text in ["", "0", "GiB", "-1", "1.5 GiB", "8 GB", "99999999999999999999", "99999999999999999 GiB"] {
            assert!(parse_mib(text).is_err(), "{text}");
        }
    }
}
