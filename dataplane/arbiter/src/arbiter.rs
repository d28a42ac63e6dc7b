//! Who holds the lease, until when, and who is next.

use std::collections::BTreeMap;

use crate::member::{Debt, Ledger, Member, Said};
use crate::together::{Progress, Together, Verdict};

/// A lease that others wait for is at least so long: the GPU stands still for some microseconds at each change.
const LEASE_NS_MIN: u64 = 1_000_000;
/// A round, in which each has its turn, takes as long as so many leases at least, and as one for each that wants the
/// GPU: at each change an H200 stands still for 140 us, which is 2.7 % of leases of 5 ms and 1.1 % of two of 12.5.
const ROUND_LEASES: u64 = 5;
/// Rounds divide a second, so that whoever looks at a second sees whole ones, wherever it begins.
const SECOND_NS: u64 = 1_000_000_000;
/// So long before a lease ends the next session may begin with a little work.
const ARMED_NS: u64 = 50_000;
/// And that is all that it has begun then.
const EARLY_NS_MAX: u64 = 100_000;
/// It is told before that, because it may have to be woken: as long before as it took lately, within these bounds.
const LEAD_NS_MIN: u64 = 100_000;
const LEAD_NS_MAX: u64 = 700_000;
/// Who has begun so soon after it was given the lease was awake.
const AWAKE_NS: u64 = 30_000;
/// A session whose work goes on for so long after its lease has ended does not hold up the others any more: the GPU's
/// own time slicing divides them from then on.
const OVERRUN_NS_MAX: u64 = 10_000_000;
/// What a session with a cap may have saved up, and at least for two turns: while others have theirs it goes on
/// earning.
const ALLOWANCE_NS_MAX: u64 = 10_000_000;
/// What it must have saved up to be given a lease.
const ALLOWANCE_NS_ENOUGH: i64 = 2_000_000;
/// Owners whose debts are known at a time.
const DEBTS_MAX: usize = 1024;
/// So much less than it is promised a session may have had, and not be let catch up.
const LACKS_NS: i64 = 10_000_000;
/// Who waits for an allowance is not looked at more often.
const LOOK_NS_MIN: u64 = 50_000;
/// So little is nothing.
const ALLOWANCE_NS_NONE: u64 = 20_000;
/// Times are not told apart any finer: that for which an allowance lasts is rounded each time it is asked for.
const GRAIN_NS: u64 = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Of a lease where somebody has a cap. Else a round takes as long as five of them, or one for each that wants the
    /// GPU if that is longer, and each has its share of it.
    pub quantum_ns: u64,
    /// How much of the time that others leave idle a session may have, in percent: 0 keeps each to its share.
    pub level: u32,
    /// Whether sessions may have the GPU together, where each gains by that.
    pub may_be_together: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { quantum_ns: 5_000_000, level: 100, may_be_together: true }
    }
}

/// What a session may do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// Give the GPU nothing more.
    Stop,
    /// It is next: it may give the GPU a little from then on.
    Armed { from_ns: u64 },
    /// It holds the lease, until that time if there is one.
    Lease { until_ns: Option<u64> },
    /// All have the lease, and the driver divides the GPU.
    Together,
    /// It is alone and may have everything: nobody counts.
    Free,
}

#[derive(Debug, Clone, Copy)]
struct Holder {
    id: u64,
    since_ns: u64,
    /// Because others wait.
    turn_until_ns: Option<u64>,
    /// That, or because its allowance ends.
    until_ns: Option<u64>,
    /// Since when it was to stop.
    stopped_ns: Option<u64>,
    /// It was seen to work, or has had the time to begin.
    has_begun: bool,
}

/// Whoever is next.
#[derive(Debug, Clone, Copy)]
struct Next {
    id: u64,
    from_ns: u64,
    /// When it should have been told.
    told_ns: u64,
}

#[derive(Debug)]
pub struct Arbiter {
    settings: Settings,
    members: BTreeMap<u64, Member>,
    holder: Option<Holder>,
    armed: Option<Next>,
    /// How long before it may begin the next one is told.
    lead_ns: u64,
    /// When whoever has the lease now was told that it would be next, until it has begun.
    told_ns: Option<u64>,
    /// Whether the one that is armed has begun, and what it is still to be charged for that.
    begun: Option<(u64, u64)>,
    /// Whether all have the lease.
    together: Together,
    /// Of sessions that have ended, by owner.
    debts: BTreeMap<u64, Debt>,
    /// No session that comes back has less virtual time than this, but for a quantum.
    floor_ns: u64,
    /// Up to which virtual time each may go in this round.
    round_ends_ns: u64,
    /// Until when has been charged.
    now_ns: u64,
}

impl Arbiter {
    pub fn new(settings: Settings, now_ns: u64) -> Arbiter {
        Arbiter {
            settings,
            members: BTreeMap::new(),
            holder: None,
            armed: None,
            lead_ns: LEAD_NS_MIN,
            told_ns: None,
            begun: None,
            together: Together::new(now_ns),
            debts: BTreeMap::new(),
            floor_ns: 0,
            round_ends_ns: 0,
            now_ns,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// A session with this share of the GPU, in percent. What an earlier one of its owner's had too much it owes.
    pub fn join(&mut self, now_ns: u64, id: u64, owner: Option<u64>, share_percent: u32) {
        self.charge(now_ns);
        let mut member = Member::new(owner, share_percent, self.settings.level, self.floor_ns);
        if let Some(debt) = owner.and_then(|owner| self.debts.remove(&owner)) {
            member.owes(debt.at(now_ns));
        }
        self.end_freedom(now_ns);
        self.members.insert(id, member);
    }

    /// Whoever has the GPU to itself has had no lease, and may be using it: it has one from now on, until somebody
    /// wants the GPU.
    fn end_freedom(&mut self, now_ns: u64) {
        let mut members = self.members.iter().filter(|(_, member)| !member.is_capped());
        if let (None, 1, Some((id, _))) = (self.holder, self.members.len(), members.next()) {
            let (turn_until_ns, until_ns, stopped_ns) = (None, None, None);
            let holder = Holder { id: *id, since_ns: now_ns, turn_until_ns, until_ns, stopped_ns, has_begun: true };
            self.holder = Some(holder);
        }
    }

    /// It is over, or its process has died: what it held is free.
    pub fn leave(&mut self, now_ns: u64, id: u64) -> Option<Ledger> {
        self.charge(now_ns);
        self.holder.take_if(|holder| holder.id == id);
        self.armed.take_if(|armed| armed.id == id);
        self.begun.take_if(|(begun, _)| *begun == id);
        self.together.leave(id);
        let member = self.members.remove(&id)?;
        if let Some(owner) = member.owner {
            self.keep_debt(now_ns, owner, member.debt(now_ns, self.floor_ns));
        }
        Some(member.ledger)
    }

    /// Of more owners than there is room for the debts of those that came last are forgotten.
    fn keep_debt(&mut self, now_ns: u64, owner: u64, debt: Debt) {
        let debt = self.debts.remove(&owner).map_or(debt, |earlier| debt.and(earlier.at(now_ns)));
        if self.debts.len() >= DEBTS_MAX {
            self.debts.retain(|_, debt| !debt.at(now_ns).is_paid());
        }
        if !debt.is_paid() && self.debts.len() < DEBTS_MAX {
            self.debts.insert(owner, debt);
        }
    }

    /// What a session says now.
    pub fn hear(&mut self, now_ns: u64, id: u64, said: Said) {
        if self.members.get(&id).is_none_or(|member| member.said == said) {
            return;
        }
        self.charge(now_ns);
        let (floor_ns, quantum_ns) = (self.floor_ns, self.settings.quantum_ns);
        let Some(member) = self.members.get_mut(&id) else { return };
        if !member.is_active() {
            // Time that it did not use is not owed to it later, but for a quantum.
            member.virtual_ns = member.virtual_ns.max(floor_ns.saturating_sub(member.virtual_of(quantum_ns)));
        }
        let begins = said.busy && !member.said.busy;
        member.has_come |= said.wants && !member.said.wants;
        member.hurries &= said.wants;
        member.said = said;
        if begins {
            self.begins(now_ns, id);
        }
    }

    /// What a session says that it has done so far. It is believed as far as it harms nobody else: see [`Together`].
    pub fn progress(&mut self, id: u64, progress: Progress) {
        if self.members.contains_key(&id) {
            self.together.hear(id, progress);
        }
    }

    /// A session has begun to work.
    fn begins(&mut self, now_ns: u64, id: u64) {
        if let Some(next) = self.armed.filter(|next| next.id == id) {
            self.begun = Some((id, EARLY_NS_MAX));
            self.took(now_ns.saturating_sub(next.told_ns.max(next.from_ns.saturating_sub(self.lead_ns))));
        }
        let Some(holder) = self.holder.as_mut().filter(|holder| holder.id == id) else { return };
        holder.has_begun = true;
        let late_ns = now_ns - holder.since_ns;
        if let Some(told_ns) = self.told_ns.take() {
            match late_ns <= AWAKE_NS {
                // It did not have to be told any earlier, and might have been told later.
                true => self.took(0),
                false => self.took(now_ns - told_ns),
            }
        }
    }

    /// To be woken took a session so long: what was seen once may come again, and is forgotten slowly.
    fn took(&mut self, ns: u64) {
        let lead_ns = if ns > self.lead_ns { ns } else { self.lead_ns - (self.lead_ns - ns) / 64 };
        self.lead_ns = lead_ns.clamp(LEAD_NS_MIN, LEAD_NS_MAX);
    }

    /// What was seen since it was last asked for, if it was tried whether all gain by having the lease at once.
    pub fn verdict(&mut self) -> Option<Verdict> {
        self.together.verdict.take()
    }

    /// Whether all have the lease, because each gains by that.
    pub fn has_all_together(&self) -> bool {
        self.together.is_settled()
    }

    pub fn ledger(&self, id: u64) -> Option<Ledger> {
        self.members.get(&id).map(|member| member.ledger)
    }

    /// What a session has last said.
    pub fn heard(&self, id: u64) -> Option<Said> {
        self.members.get(&id).map(|member| member.said)
    }

    /// Whether the lease is about to go from one session to another, or has gone and nobody has begun: what is said
    /// then is to be heard at once.
    pub fn is_changing(&self) -> bool {
        self.armed.is_some() || self.holder.is_some_and(|holder| holder.stopped_ns.is_some() || !holder.has_begun)
    }

    /// Whether it is its own limit that a session waits for, and not others.
    pub fn is_held_by_its_limit(&self, id: u64) -> bool {
        self.members.get(&id).is_some_and(|member| !Self::may_have_it(member))
    }

    pub fn grant(&self, id: u64) -> Grant {
        let Some(member) = self.members.get(&id) else { return Grant::Stop };
        if self.members.len() == 1 && !member.is_capped() {
            return Grant::Free;
        }
        if self.together.is_on() {
            return Grant::Together;
        }
        match self.holder {
            Some(holder) if holder.id == id && holder.stopped_ns.is_none() => {
                Grant::Lease { until_ns: holder.until_ns }
            }
            _ => match self.armed {
                Some(next) if next.id == id => Grant::Armed { from_ns: next.from_ns },
                _ => Grant::Stop,
            },
        }
    }

    /// Decides, and answers when to decide again although nobody has said anything. Whoever drives this shows the
    /// grants, hears what sessions say after that, and asks again at once if a grant was taken away: a session may have
    /// begun with something just then.
    pub fn decide(&mut self, now_ns: u64) -> Option<u64> {
        self.charge(now_ns);
        if self.are_together(now_ns) {
            return Some(self.together.next_look());
        }
        self.release(now_ns);
        if self.holder.is_none() {
            self.give(now_ns);
        }
        self.bound(now_ns);
        self.arm(now_ns);
        self.note_waits(now_ns);
        // Who comes while the lease changes hands hurries whoever has it next.
        if self.holder.is_none_or(|holder| holder.stopped_ns.is_none()) {
            self.members.values_mut().for_each(|member| member.has_come = false);
        }
        self.next_look(now_ns)
    }
}

// Steps of a decision.
impl Arbiter {
    fn may_be_together(&self) -> bool {
        self.settings.may_be_together
            && self.members.len() > 1
            && self.members.values().all(|member| !member.is_capped())
    }

    /// Whether all have the lease now.
    fn are_together(&mut self, now_ns: u64) -> bool {
        // In turns that is worth a try where somebody waits for his.
        let may = self.may_be_together() && (self.together.is_on() || self.next(self.holder.map(|h| h.id)).is_some());
        let shares = self.members.iter().map(|(id, member)| (*id, member.share)).collect();
        if self.together.decide(now_ns, may, &shares) {
            (self.holder, self.armed, self.begun, self.told_ns) = (None, None, None, None);
        }
        self.together.is_on()
    }

    /// Charges the time since it was last called to whoever had the GPU. Several who have it at once share it.
    fn charge(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.now_ns);
        if passed_ns == 0 {
            return;
        }
        self.now_ns = now_ns;
        if self.together.is_settled() {
            return self.count(passed_ns);
        }
        let (holder, armed) = (self.holder, self.armed.map(|next| next.id));
        let holds = |id: u64| holder.is_some_and(|holder| holder.id == id);
        let is_wanted = self.members.iter().any(|(id, member)| !holds(*id) && member.said.wants);
        // Who has begun before its lease has no more than that on the GPU.
        let mut rest_ns = passed_ns;
        if let Some((id, left_ns)) = self.begun
            && let Some(member) = self.members.get_mut(&id)
        {
            let ns = (passed_ns / 2).min(left_ns);
            member.charge(ns, passed_ns.min(left_ns));
            rest_ns -= ns;
            self.begun = Some((id, left_ns - ns));
        }
        let begun = self.begun.map(|(id, _)| id);
        let most_ns = passed_ns.midpoint(rest_ns);
        let allowance_ns_max = ALLOWANCE_NS_MAX.max(2 * self.settings.quantum_ns) as i64;
        let has_it =
            |id: u64, member: &Member| begun != Some(id) && (member.said.busy || holds(id) && member.said.wants);
        let count = self.members.iter().filter(|(id, member)| has_it(**id, member)).count() as u64;
        for (id, member) in &mut self.members {
            if has_it(*id, member) {
                let ns = rest_ns / count;
                // How the GPU divides itself among several is not known: a cap holds in any case.
                member.charge(ns, most_ns);
                // Who was given the lease cannot work before it has heard of that.
                if holder.is_some_and(|holder| holder.id == *id && !holder.has_begun) && !member.said.busy {
                    member.allowance_ns = member.allowance_ns.saturating_add_unsigned(rest_ns);
                }
                if !is_wanted && count == 1 {
                    member.ledger.lent_ns += ns * (100 - member.share) / 100;
                }
                let is_its_turn = holder.is_some_and(|holder| holder.id == *id && holder.stopped_ns.is_none());
                if !is_its_turn && armed != Some(*id) && !self.together.is_on() {
                    member.ledger.overrun_ns += ns;
                }
            }
            member.earn(passed_ns, allowance_ns_max);
        }
        if let Some(holder) = &mut self.holder {
            holder.has_begun |= now_ns.saturating_sub(holder.since_ns) >= LEAD_NS_MAX;
        }
        let least = self.members.values().filter(|member| member.is_active()).map(|member| member.virtual_ns).min();
        self.floor_ns = self.floor_ns.max(least.unwrap_or(0));
    }

    /// Of the time for which all had the lease each is told a part, and owes nobody anything: it had what was its.
    fn count(&mut self, passed_ns: u64) {
        let busy = self.members.values().filter(|member| member.said.busy).count() as u64;
        let busy_members = self.members.values_mut().filter(|member| member.said.busy);
        busy_members.for_each(|member| member.ledger.used_ns += passed_ns / busy);
    }

    fn may_have_it(member: &Member) -> bool {
        !member.is_capped() || member.allowance_ns >= ALLOWANCE_NS_ENOUGH
    }

    /// Whether others that lack something, because this one's work did not stop, are to catch up before it begins more.
    /// Without caps whoever has had the least is next anyhow; with one he may wait for his allowance just now.
    fn lets_others_catch_up(&self, member: &Member) -> bool {
        let lacks = |other: &Member| !std::ptr::eq(other, member) && other.lacks_ns > LACKS_NS;
        member.is_capped() && member.was_passed_by && member.least_ns < 0 && self.members.values().any(lacks)
    }

    fn is_armed(&self, id: u64) -> bool {
        self.armed.is_some_and(|next| next.id == id)
    }

    /// Because it was to be next.
    fn has_begun(&self, id: u64, member: &Member) -> bool {
        self.is_armed(id) && member.said.busy
    }

    /// Those that wait, but for `not`.
    fn waiting(&self, not: Option<u64>) -> impl Iterator<Item = (u64, &Member)> {
        self.members.iter().map(|(id, member)| (*id, member)).filter(move |(id, member)| {
            let waits = member.said.wants && Self::may_have_it(member) && !self.lets_others_catch_up(member);
            Some(*id) != not && (waits || self.has_begun(*id, member))
        })
    }

    /// Who is next of those that wait, but for `not`. Who has begun because he was to be next is. Where somebody has a
    /// cap it is who has had the least.
    fn next(&self, not: Option<u64>) -> Option<(u64, &Member)> {
        let (is_exact, round_ns) = (self.is_any_capped(), self.round_virtual_ns());
        self.waiting(not).min_by_key(|(id, member)| {
            let turn = if is_exact { (member.virtual_ns, 0) } else { self.turn(member, 0, round_ns) };
            (!self.has_begun(*id, member), !member.hurries, turn, *id)
        })
    }

    /// When a session has its next turn, if it has the GPU for `ns` before: in which round, and when in it. Whoever has
    /// the largest share is first, for what the last round took too long the first one has less.
    fn turn(&self, member: &Member, ns: u64, round_ns: u64) -> (u64, u64) {
        (self.rounds_until(member, ns, round_ns), 100 - member.share)
    }

    /// In how many rounds a session has its next turn, if it has the GPU for `ns` before. In each round the order is
    /// the same, whatever came between: a second from the middle of a round has as many turns of each as any other.
    fn rounds_until(&self, member: &Member, ns: u64, round_ns: u64) -> u64 {
        let worth_ns = member.virtual_of(LEASE_NS_MIN.min(member.promised_of(round_ns) / 2).max(1));
        let virtual_ns = member.virtual_ns.saturating_add(member.virtual_of(ns)).saturating_add(worth_ns);
        virtual_ns.saturating_sub(self.round_ends_ns).div_ceil(round_ns.max(1))
    }

    fn is_any_capped(&self) -> bool {
        self.members.values().any(Member::is_capped)
    }

    /// How long a round takes.
    fn round_ns(&self) -> u64 {
        let count = self.members.values().filter(|member| member.is_active()).count() as u64;
        let at_least_ns = (self.settings.quantum_ns * ROUND_LEASES.max(count)).max(1);
        SECOND_NS / (SECOND_NS / at_least_ns).max(1)
    }

    /// What so much of a round adds to the virtual time of each that wants the GPU.
    fn virtual_ns_of_round(&self, ns: u64) -> u64 {
        let active = self.members.values().filter(|member| member.is_active());
        ns * 100 / active.map(|member| member.share).sum::<u64>().max(1)
    }

    fn round_virtual_ns(&self) -> u64 {
        self.virtual_ns_of_round(self.round_ns())
    }

    /// What is left to a session of a round that ends there.
    fn left_ns(member: &Member, end_ns: u64) -> u64 {
        member.promised_of(end_ns.saturating_sub(member.virtual_ns))
    }

    /// Whether another one is to have the GPU when the holder's time is over, if it has it for `left_ns` until then.
    fn is_others_turn(&self, holder: Holder, left_ns: u64) -> bool {
        let Some(member) = self.members.get(&holder.id) else { return true };
        let left_ns = if member.is_active() { left_ns } else { 0 };
        if member.is_capped() && member.may_go_on_ns() < left_ns + ALLOWANCE_NS_NONE {
            return true;
        }
        let Some((id, other)) = self.next(Some(holder.id)) else { return false };
        let is_due = if self.is_any_capped() {
            other.virtual_ns < member.virtual_ns.saturating_add(member.virtual_of(left_ns))
        } else {
            let round_ns = self.round_virtual_ns();
            (self.turn(other, 0, round_ns), id) < (self.turn(member, left_ns, round_ns), holder.id)
        };
        is_due || other.hurries || !member.is_active() || self.has_begun(id, other)
    }

    fn release(&mut self, now_ns: u64) {
        let Some(mut holder) = self.holder else { return };
        if let Some(stopped_ns) = holder.stopped_ns {
            let Some(member) = self.members.get_mut(&holder.id) else { return };
            // In a decision after the one that stopped it, so that it has seen that.
            if !member.said.busy || now_ns >= stopped_ns.saturating_add(OVERRUN_NS_MAX) {
                member.was_passed_by = member.said.busy;
                self.holder = None;
            }
            return;
        }
        let Some(member) = self.members.get(&holder.id) else { return };
        let is_over = holder.until_ns.is_some_and(|until_ns| now_ns >= until_ns);
        let left_ns = holder.until_ns.map_or(u64::MAX, |until_ns| until_ns.saturating_sub(now_ns));
        let ends_soon = left_ns <= ARMED_NS + self.lead_ns + GRAIN_NS;
        if !member.is_active() && self.next(Some(holder.id)).is_some() {
            holder.stopped_ns = Some(now_ns);
        } else if ends_soon && member.is_active() {
            match self.is_others_turn(holder, left_ns) {
                true if is_over => holder.stopped_ns = Some(now_ns),
                true => {}
                // Now, so that it need not wait for word of that.
                false => holder = Holder { since_ns: now_ns, turn_until_ns: None, ..holder },
            }
        }
        self.holder = Some(holder);
    }

    fn give(&mut self, now_ns: u64) {
        let Some((id, next)) = self.next(None) else { return };
        let has_begun = next.said.busy;
        self.told_ns = self.armed.filter(|armed| armed.id == id && !has_begun).map(|armed| armed.told_ns);
        if let Some(member) = self.members.get_mut(&id) {
            member.ledger.leases += 1;
            member.hurries = false;
        }
        (self.armed, self.begun) = (None, None);
        let (turn_until_ns, until_ns, stopped_ns) = (None, None, None);
        self.holder = Some(Holder { id, since_ns: now_ns, turn_until_ns, until_ns, stopped_ns, has_begun });
    }

    /// Of a lease that others wait for: what is left to the session of its round. With a cap nobody has to be there for
    /// long, since all wait for allowances.
    ///
    /// Rounds end at multiples of their length. Handing over takes time that nobody is charged for, so one that begins
    /// late is as much shorter, and the next begins no later than it did.
    fn turn_ns(&mut self, now_ns: u64, id: u64) -> u64 {
        if self.is_any_capped() {
            return self.settings.quantum_ns;
        }
        let round_ns = self.round_virtual_ns();
        let Some(member) = self.members.get(&id) else { return self.settings.quantum_ns };
        // What is worth no lease it has with the next one.
        if self.rounds_until(member, 0, round_ns) > 0 {
            let nominal_ns = self.round_ns();
            let late_ns = now_ns % nominal_ns;
            let early_ns = if late_ns < nominal_ns / 2 { 0 } else { nominal_ns };
            // Little by little: long turns make seconds differ.
            let ns = (nominal_ns + early_ns - late_ns).clamp(nominal_ns * 7 / 8, nominal_ns * 9 / 8);
            let virtual_ns = self.virtual_ns_of_round(ns);
            self.round_ends_ns = self.round_ends_ns.max(member.virtual_ns) + virtual_ns;
        }
        Self::left_ns(member, self.round_ends_ns)
            .clamp(LEASE_NS_MIN, LEASE_NS_MIN.max(2 * member.promised_of(round_ns)))
    }

    /// How long the holder may go on.
    fn bound(&mut self, now_ns: u64) {
        let Some(mut holder) = self.holder.filter(|holder| holder.stopped_ns.is_none()) else { return };
        let is_wanted = self.next(Some(holder.id)).is_some();
        let is_new = is_wanted && holder.turn_until_ns.is_none();
        let turn_ns = if is_new { self.turn_ns(now_ns, holder.id) } else { 0 };
        let is_any_capped = self.is_any_capped();
        let Some(had_ns) = self.members.get(&holder.id).map(|member| member.virtual_ns) else { return };
        // Who comes back and has had less than its share does not wait for a whole quantum.
        // Who has just had its turn has come, too, and differs by less than a lease from who has the next one.
        let lacks_ns = |other: &Member| if is_any_capped { 0 } else { other.virtual_of(LEASE_NS_MIN) };
        let hurries = |other: &Member| other.has_come && other.virtual_ns + lacks_ns(other) < had_ns;
        let (mut somebody_hurries, half_ns) = (false, self.round_virtual_ns() / 2);
        for other in self.members.values_mut().filter(|other| Self::may_have_it(other) && hurries(other)) {
            somebody_hurries = true;
            other.hurries |= !is_any_capped && other.virtual_ns + half_ns < had_ns;
        }
        let Some(member) = self.members.get(&holder.id) else { return };
        holder.turn_until_ns = is_wanted.then(|| {
            let soon_ns = now_ns.max(holder.since_ns + LEASE_NS_MIN);
            match (holder.turn_until_ns, somebody_hurries) {
                (None, true) => soon_ns,
                (None, false) => now_ns + turn_ns,
                (Some(until_ns), true) => until_ns.min(soon_ns),
                (Some(until_ns), false) => until_ns,
            }
        });
        let allowed_ns = member.is_capped().then(|| now_ns.saturating_add(member.may_go_on_ns()));
        holder.until_ns = holder.turn_until_ns.into_iter().chain(allowed_ns).min();
        self.holder = Some(holder);
    }

    /// Whoever is next may begin just before the holder ends, so that the GPU does not stand still between them.
    fn arm(&mut self, now_ns: u64) {
        self.armed = self.holder.and_then(|holder| {
            let from_ns = match holder.stopped_ns {
                Some(stopped_ns) => Some(holder.until_ns.unwrap_or(stopped_ns).min(stopped_ns)),
                None => holder.until_ns.map(|until_ns| until_ns.saturating_sub(ARMED_NS)),
            };
            let left_ns = holder.until_ns.map_or(0, |until_ns| until_ns.saturating_sub(now_ns));
            let from_ns = from_ns.filter(|from_ns| now_ns + self.lead_ns + GRAIN_NS >= *from_ns)?;
            let (id, _) = self.next(Some(holder.id)).filter(|_| self.is_others_turn(holder, left_ns))?;
            // One more than the holder and the next would be too many.
            let crowd = self.members.iter().any(|(one, member)| member.said.busy && *one != holder.id && *one != id);
            let told_ns = from_ns.saturating_sub(self.lead_ns);
            let told_ns = self.armed.filter(|armed| armed.id == id).map_or(told_ns, |armed| armed.told_ns);
            (!crowd).then_some(Next { id, from_ns, told_ns })
        });
        self.begun = self.begun.filter(|(id, _)| self.is_armed(*id));
    }

    /// Who wants the GPU and may have it waits for others until it has the lease.
    fn note_waits(&mut self, now_ns: u64) {
        let holder = self.holder.filter(|holder| holder.stopped_ns.is_none()).map(|holder| holder.id);
        for (id, member) in &mut self.members {
            let waits = member.said.wants && holder != Some(*id) && Self::may_have_it(member);
            member.note_wait(now_ns, waits);
        }
    }

    fn next_look(&self, now_ns: u64) -> Option<u64> {
        let holder = self.holder.and_then(|holder| match holder.stopped_ns {
            // At once if it has nothing on the GPU: it had only to see that it was stopped.
            Some(_) if self.members.get(&holder.id).is_none_or(|member| !member.said.busy) => Some(now_ns),
            Some(stopped_ns) => Some(stopped_ns + OVERRUN_NS_MAX),
            // It says so when it begins, if its lease has an end.
            None if self.members.get(&holder.id).is_none_or(|member| !member.is_active()) => None,
            None => {
                let arms = holder.until_ns.map(|until_ns| until_ns.saturating_sub(ARMED_NS + self.lead_ns));
                let arms = arms.filter(|at_ns| *at_ns > now_ns + GRAIN_NS && self.next(Some(holder.id)).is_some());
                arms.into_iter().chain(holder.until_ns).min()
            }
        });
        // Those who wait for an allowance.
        let allowances = self.members.values().filter(|member| member.said.wants && !Self::may_have_it(member));
        let allowances = allowances.map(|member| now_ns + member.waits_ns(ALLOWANCE_NS_ENOUGH).max(LOOK_NS_MIN));
        let behind = self.members.values().filter(|member| member.said.wants && self.lets_others_catch_up(member));
        let behind = behind.map(|member| now_ns + member.waits_for_least_ns().max(LOOK_NS_MIN));
        let together = self.may_be_together().then(|| self.together.next_look());
        holder.into_iter().chain(allowances).chain(behind).chain(together).min()
    }
}
