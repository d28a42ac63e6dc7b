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
    /// The longest that it has waited for others, and not for its own limit.
    pub waited_ns_max: u64,
}

/// What a session that has ended had beyond what it was promised: the next one of its owner begins with that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Debt {
    left_ns: u64,
    /// Of its allowance.
    overdrawn_ns: u64,
    /// Of the GPU's time, more than the others that wanted it.
    ahead_ns: u64,
    share: u64,
    cap_ppm: u64,
}

impl Debt {
    /// What is left of it: it is paid back by the time that passes.
    pub fn at(self, now_ns: u64) -> Debt {
        let passed_ns = now_ns.saturating_sub(self.left_ns);
        let earned = |part: u64, whole: u64| (u128::from(passed_ns) * u128::from(part) / u128::from(whole)) as u64;
        Debt {
            left_ns: now_ns.max(self.left_ns),
            overdrawn_ns: self.overdrawn_ns.saturating_sub(earned(self.cap_ppm, WHOLE_PPM)),
            ahead_ns: self.ahead_ns.saturating_sub(earned(self.share, 100)),
            ..self
        }
    }

    pub fn is_paid(&self) -> bool {
        self.overdrawn_ns == 0 && self.ahead_ns == 0
    }

    /// Both of them, of one owner.
    pub fn and(self, other: Debt) -> Debt {
        let overdrawn_ns = self.overdrawn_ns.saturating_add(other.overdrawn_ns);
        Debt { overdrawn_ns, ahead_ns: self.ahead_ns.saturating_add(other.ahead_ns), ..self }
    }
}

/// A millionth of the GPU.
pub const WHOLE_PPM: u64 = 1_000_000;

/// From this level on half of its promise is a session's in any case, and at level 0 all of it: who lacks something
/// could not catch up then.
const LEAST_LEVEL: u32 = 25;
/// What handing over costs is not lacked.
const OWED_PERCENT: u64 = 98;
/// Of what a session lacks no more is remembered.
const LACKS_NS_MAX: i64 = 1_000_000_000;

#[derive(Debug)]
pub(crate) struct Member {
    pub said: Said,
    /// Percent of the GPU's time that it is promised.
    pub share: u64,
    /// Whose it is, if that is known.
    pub owner: Option<u64>,
    /// What it may have at most, in millionths of the GPU's time.
    pub cap_ppm: u64,
    /// Time used, divided by its share: who has the least is next.
    pub virtual_ns: u64,
    /// Of a session with a cap: what it may use before it has to wait. Negative after a kernel that was longer.
    pub allowance_ns: i64,
    /// What is its in any case, although others lack something, in millionths of the GPU's time.
    least_ppm: u64,
    /// What it has left of that.
    pub least_ns: i64,
    /// What it lacks of its promise, since it has wanted it.
    pub lacks_ns: i64,
    /// In its last turn it was passed by: what it gives the GPU does not end when it should.
    pub was_passed_by: bool,
    /// It has begun to want since the last decision, or while the lease changes hands.
    pub has_come: bool,
    /// It has come back to less than the others have had, and is next.
    pub hurries: bool,
    /// Since when it has been waiting for others.
    pub waits_since_ns: Option<u64>,
    pub ledger: Ledger,
}

impl Member {
    pub fn new(owner: Option<u64>, share_percent: u32, level: u32, virtual_ns: u64) -> Member {
        let share = u64::from(share_percent.clamp(1, 100));
        // The share, and of what others leave idle as much as the level says.
        let cap_ppm = share * 10_000 + u64::from(level.min(100)) * (100 - share) * 100;
        Member {
            said: Said::default(),
            share,
            owner,
            cap_ppm,
            virtual_ns,
            allowance_ns: 0,
            least_ppm: share * 100 * (100 - 2 * u64::from(level.min(LEAST_LEVEL))),
            least_ns: 0,
            lacks_ns: 0,
            was_passed_by: false,
            has_come: false,
            hurries: false,
            waits_since_ns: None,
            ledger: Ledger::default(),
        }
    }

    /// What it leaves behind when it ends.
    pub fn debt(&self, now_ns: u64, floor_ns: u64) -> Debt {
        let overdrawn_ns = if self.is_capped() { self.allowance_ns.min(0).unsigned_abs() } else { 0 };
        let ahead_ns = self.promised_of(self.virtual_ns.saturating_sub(floor_ns));
        Debt { left_ns: now_ns, overdrawn_ns, ahead_ns, share: self.share, cap_ppm: self.cap_ppm }
    }

    pub fn owes(&mut self, debt: Debt) {
        self.virtual_ns = self.virtual_ns.saturating_add(self.virtual_of(debt.ahead_ns));
        self.allowance_ns = self.allowance_ns.saturating_sub_unsigned(debt.overdrawn_ns);
        self.least_ns = self.least_ns.saturating_sub_unsigned(debt.ahead_ns);
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

    /// It has used the GPU for `ns`, or for `most_ns` if it had it to itself.
    pub fn charge(&mut self, ns: u64, most_ns: u64) {
        self.virtual_ns = self.virtual_ns.saturating_add(self.virtual_of(ns));
        self.allowance_ns = self.allowance_ns.saturating_sub_unsigned(most_ns);
        self.least_ns = self.least_ns.saturating_sub_unsigned(ns);
        self.lacks_ns = self.lacks_ns.saturating_sub_unsigned(ns);
        self.ledger.used_ns += ns;
    }

    pub fn earn(&mut self, ns: u64, most_ns: i64) {
        let part = |ppm: u64| (u128::from(ns) * u128::from(ppm) / u128::from(WHOLE_PPM)) as u64;
        self.allowance_ns = self.allowance_ns.saturating_add_unsigned(part(self.cap_ppm)).min(most_ns);
        self.least_ns = self.least_ns.saturating_add_unsigned(part(self.least_ppm)).min(most_ns);
        let owed_ns = self.promised_of(ns) * OWED_PERCENT / 100;
        self.lacks_ns = match self.is_active() {
            true => self.lacks_ns.saturating_add_unsigned(owed_ns).clamp(0, LACKS_NS_MAX),
            // What it does not want it does not lack.
            false => 0,
        };
    }

    /// Whether it waits for others now.
    pub fn note_wait(&mut self, now_ns: u64, waits: bool) {
        let since_ns = *self.waits_since_ns.get_or_insert(now_ns);
        self.ledger.waited_ns_max = self.ledger.waited_ns_max.max(now_ns.saturating_sub(since_ns));
        self.waits_since_ns.take_if(|_| !waits);
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

    /// For how long it has to wait until it has something of what is its in any case.
    pub fn waits_for_least_ns(&self) -> u64 {
        let lacks = u128::from(self.least_ns.min(0).unsigned_abs());
        u64::try_from((lacks * u128::from(WHOLE_PPM)).div_ceil(u128::from(self.least_ppm))).unwrap_or(u64::MAX)
    }

    /// For how long it has to wait until it has an allowance of `enough_ns`.
    pub fn waits_ns(&self, enough_ns: i64) -> u64 {
        let lacks = u128::from((enough_ns - self.allowance_ns).max(0) as u64);
        u64::try_from((lacks * u128::from(WHOLE_PPM)).div_ceil(u128::from(self.cap_ppm))).unwrap_or(u64::MAX)
    }
}
