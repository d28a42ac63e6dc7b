//! How a driver rounds what it allocates.

/// In bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rounding {
    pub granule: u64,
    /// An allocation of more than half of this has pages of its own; smaller ones share pages.
    pub page: u64,
}

impl Rounding {
    pub fn of(self, bytes: u64) -> u64 {
        let multiple = if bytes > self.page / 2 { self.page } else { self.granule };
        bytes.max(1).checked_next_multiple_of(multiple).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_allocations_share_pages_and_large_ones_do_not() {
        let rounding = Rounding { granule: 512, page: 2 << 20 };
        assert_eq!([1, 512, 513, 1 << 20].map(|bytes| rounding.of(bytes)), [512, 512, 1024, 1 << 20]);
        assert_eq!([(1 << 20) + 1, 2 << 20, 5 << 20].map(|bytes| rounding.of(bytes)), [2 << 20, 2 << 20, 6 << 20]);
        assert_eq!(rounding.of(u64::MAX), u64::MAX);
    }
}
