//! Which sessions have a share of the GPU's time, and which.

use orion_arbiter::Settings;
use orion_wire::lease::Vgpu;

/// When the time of GPUs is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Division {
    /// Where a session has a share other than all of it.
    Auto,
    /// Always: without shares of their own all have the same.
    On,
    /// Never: the driver's own time slices, the same for all.
    Off,
}

/// What an operator decides about the GPU's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    pub division: Division,
    /// Of a vGPU without a lease, in percent.
    pub share: Option<u32>,
    pub arbiter: Settings,
}

impl Policy {
    /// The share of each vGPU of a session with these vGPUs of a lease, or without a lease; nothing if nobody divides
    /// the time of its GPUs.
    pub fn shares(&self, leased: &[Vgpu]) -> Option<Shares> {
        let shares = match leased {
            [] => Shares::Each(self.share.unwrap_or(100)),
            leased => Shares::Listed(leased.iter().map(|vgpu| vgpu.ratio).collect()),
        };
        match self.division {
            Division::Off => None,
            Division::On => Some(shares),
            Division::Auto => shares.any_is_a_part().then_some(shares),
        }
    }
}

/// Shares by vGPU, in percent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shares {
    Each(u32),
    Listed(Vec<u32>),
}

impl Shares {
    fn any_is_a_part(&self) -> bool {
        match self {
            Shares::Each(share) => *share != 100,
            Shares::Listed(shares) => shares.iter().any(|share| *share != 100),
        }
    }

    /// Of each GPU, in the order in which they first appear among the GPUs of the vGPUs, what all vGPUs on it have.
    pub fn by_gpu(&self, gpus: &[u64]) -> Vec<(u64, u32)> {
        let mut sums: Vec<(u64, u32)> = Vec::new();
        for (i, gpu) in gpus.iter().enumerate() {
            let share = match self {
                Shares::Each(share) => *share,
                Shares::Listed(shares) => shares.get(i).copied().unwrap_or(0),
            };
            match sums.iter_mut().find(|(of, _)| of == gpu) {
                Some((_, sum)) => *sum = (*sum + share).min(100),
                None => sums.push((*gpu, share.clamp(1, 100))),
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(division: Division, share: Option<u32>) -> Policy {
        Policy { division, share, arbiter: Settings::default() }
    }

    fn leased(ratio: u32) -> Vgpu {
        Vgpu { gpu: "GPU-1".into(), memory_bytes: 1, ratio }
    }

    #[test]
    fn only_parts_are_divided_unless_told_otherwise() {
        assert_eq!(policy(Division::Auto, None).shares(&[]), None);
        assert_eq!(policy(Division::Auto, Some(30)).shares(&[]), Some(Shares::Each(30)));
        assert_eq!(policy(Division::On, None).shares(&[]), Some(Shares::Each(100)));
        assert_eq!(policy(Division::Auto, None).shares(&[leased(100)]), None);
        assert_eq!(policy(Division::Auto, None).shares(&[leased(100), leased(5)]), Some(Shares::Listed(vec![100, 5])));
        assert_eq!(policy(Division::Off, None).shares(&[leased(5)]), None);
    }

    #[test]
    fn vgpus_on_one_gpu_have_their_shares_together() {
        assert_eq!(Shares::Each(30).by_gpu(&[4, 7, 4]), [(4, 60), (7, 30)]);
        assert_eq!(Shares::Each(60).by_gpu(&[4, 4]), [(4, 100)]);
        assert_eq!(Shares::Listed(vec![10, 20]).by_gpu(&[1, 0]), [(1, 10), (0, 20)]);
        // Of more vGPUs than the lease has nobody has anything but the least.
        assert_eq!(Shares::Listed(vec![]).by_gpu(&[3]), [(3, 1)]);
    }
}
