//! Amounts of memory, as people write them.

/// `8 GiB`, `512MiB`, or a number of MiB.
pub fn parse_mib(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let each = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "m" | "mib" => 1,
        "g" | "gib" => 1 << 10,
        "t" | "tib" => 1 << 20,
        part if part.starts_with(['.', ',']) => {
            return Err("it is a whole number, such as 1536MiB for 1.5GiB".to_owned());
        }
        _ => return Err(format!("unit {unit:?} is none of MiB, GiB, TiB")),
    };
    let number: u64 = number.parse().map_err(|_| format!("{text:?} does not begin with a number"))?;
    match number.checked_mul(each) {
        Some(mib) if mib > 0 => Ok(mib),
        _ => Err(format!("{text:?} is no memory that a vGPU can have")),
    }
}

/// A number of vGPUs.
pub fn parse_vgpus(text: &str) -> Result<u32, String> {
    text.trim().parse().map_err(|_| "it is a whole number of vGPUs, such as 2".to_owned())
}

/// A part of a GPU's time.
pub fn parse_percent(text: &str) -> Result<u32, String> {
    let percent = text.trim().parse().ok().filter(|percent| (1..=100).contains(percent));
    percent.ok_or_else(|| "it is a whole number of percent, 1 to 100, such as 50".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_told_what_is() {
        assert_eq!((parse_vgpus("2"), parse_percent(" 50 "), parse_percent("100")), (Ok(2), Ok(50), Ok(100)));
        for text in ["two", "-1", "", "4294967296", "1.5"] {
            assert!(parse_vgpus(text).expect_err(text).contains("such as 2"));
        }
        for text in ["50%", "0", "101", "-5", "0.5"] {
            assert!(parse_percent(text).expect_err(text).contains("1 to 100, such as 50"));
        }
        assert!(parse_mib("1.5GiB").expect_err("no whole number").contains("1536MiB"));
    }

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
