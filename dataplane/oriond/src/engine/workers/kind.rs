//! What a worker is started with.

use std::collections::BTreeSet;
use std::fmt;

use orion_wire::environment::Environment;

/// A driver reads its environment when it is loaded, so who needs another one gets a worker that is started for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kind {
    /// What its driver sees beyond our own environment.
    pub environment: Environment,
    /// The GPUs that it sees, as `GPU-…` names; all of the node's where there is none.
    pub gpus: BTreeSet<String>,
}

impl Kind {
    /// Of these GPUs, with our own settings.
    pub fn of_gpus(gpus: impl IntoIterator<Item = String>) -> Kind {
        Kind { gpus: gpus.into_iter().collect(), ..Kind::default() }
    }

    /// What the driver sees beyond our own environment, names and values.
    pub fn variables(&self) -> Vec<(String, String)> {
        let mut variables = self.environment.pairs().to_vec();
        if !self.gpus.is_empty() {
            let visible = self.gpus.iter().cloned().collect::<Vec<_>>().join(",");
            variables.push(("CUDA_VISIBLE_DEVICES".to_owned(), visible));
        }
        variables
    }
}

/// With what, after "with".
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variables: Vec<String> = self.variables().iter().map(|(name, value)| format!("{name}={value}")).collect();
        f.write_str(&variables.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_is_told_which_gpus_it_sees() {
        let kind = Kind::of_gpus(["GPU-b".to_owned(), "GPU-a".to_owned()]);
        assert_eq!(kind.to_string(), "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b");
        assert_eq!(Kind::default().variables(), []);
    }
}
