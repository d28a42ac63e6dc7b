//! One session on one GPU.

/// What a session says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Said {
    /// It has work for the GPU and waits for the lease.
    pub wants: bool,
    /// The GPU works for it, or did a moment ago.
    pub busy: bool,
}

/// What a session has had, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ledger {
    pub used_ns: u64,
    /// Of that, what nobody else wanted.
    pub lent_ns: u64,
    /// Of that, after its lease was over.
    pub overrun_ns: u64,
    /// Leases.
    pub leases: u64,
}

/// A millionth of the GPU.
pub const WHOLE_PPM: u64 = 1_000_000;

#[derive(Debug)]
pub(crate) struct Member {
    pub said: Said,
    /// Percent of the GPU's time that it is promised.
    pub share: u64,
    /// What it may have at most, in millionths of the GPU's time.
    pub cap_ppm: u64,
    /// Time used, divided by its share: who has the least is next.
    pub virtual_ns: u64,
    /// Of a session with a cap: what it may use before it has to wait. Negative after a kernel that was longer.
    pub allowance_ns: i64,
    /// It has begun to want since the last decision.
    pub has_come: bool,
    pub ledger: Ledger,
}

impl Member {
    pub fn new(share_percent: u32, level: u32, virtual_ns: u64) -> Member {
        let share = u64::from(share_percent.clamp(1, 100));
        // The share, and of what others leave idle as much as the level says.
        let cap_ppm = share * 10_000 + u64::from(level.min(100)) * (100 - share) * 100;
        let said = Said::default();
        Member { said, share, cap_ppm, virtual_ns, allowance_ns: 0, has_come: false, ledger: Ledger::default() }
    }

    pub fn is_capped(&self) -> bool {
        self.cap_ppm < WHOLE_PPM
    }

    /// It has work, here or on the GPU.
    pub fn is_active(&self) -> bool {
        self.said.wants || self.said.busy
    }

    /// Its virtual time for this much of the GPU's.
    pub fn virtual_of(&self, ns: u64) -> u64 {
        ns.saturating_mul(100) / self.share
    }

    /// It has used the GPU for `ns`, or for as much as `most_ns`, which counts where it may not have more.
    pub fn charge(&mut self, ns: u64, most_ns: u64) {
        self.virtual_ns = self.virtual_ns.saturating_add(self.virtual_of(ns));
        self.allowance_ns = self.allowance_ns.saturating_sub_unsigned(most_ns);
        self.ledger.used_ns += ns;
    }

    /// So much time has passed. More than `most_ns` it does not have, but for what it had `before_ns`.
    pub fn earn(&mut self, ns: u64, before_ns: i64, most_ns: i64) {
        let earned = (u128::from(ns) * u128::from(self.cap_ppm) / u128::from(WHOLE_PPM)) as u64;
        self.allowance_ns = self.allowance_ns.saturating_add_unsigned(earned).min(most_ns.max(before_ns));
    }

    /// What it is promised of so much time.
    pub fn promised_of(&self, ns: u64) -> u64 {
        (u128::from(ns) * u128::from(self.share) / 100) as u64
    }

    /// For how long it may go on using the GPU, earning meanwhile.
    pub fn may_go_on_ns(&self) -> u64 {
        let left = u128::from(self.allowance_ns.max(0) as u64);
        u64::try_from(left * u128::from(WHOLE_PPM) / u128::from(WHOLE_PPM - self.cap_ppm)).unwrap_or(u64::MAX)
    }

    /// For how long it has to wait until it has an allowance of `enough_ns`.
    pub fn waits_ns(&self, enough_ns: i64) -> u64 {
        let lacks = u128::from((enough_ns - self.allowance_ns).max(0) as u64);
        u64::try_from((lacks * u128::from(WHOLE_PPM)).div_ceil(u128::from(self.cap_ppm))).unwrap_or(u64::MAX)
    }
}
