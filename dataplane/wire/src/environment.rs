//! The application's `CUDA_…` variables that its worker's driver has to see.
//!
//! A variable is listed if libcuda reads it, if it changes what a program can observe, and if its value means the
//! same on the server. Not listed, and why:
//!
//! * `CUDA_VISIBLE_DEVICES`, `CUDA_DEVICE_ORDER`: answered in the client; they count the session's devices, not the
//!   server's.
//! * `CUDA_LAUNCH_BLOCKING`: obeyed in the client, which waits after each launch. The driver would wait inside the
//!   launch, and with it the executor, which a host function in front of the kernel needs to report its return.
//! * `CUDA_CACHE_PATH`, `CUDA_CACHE_MAXSIZE`, `CUDA_LOG_FILE`, `CUDA_COREDUMP_…`, `CUDA_HOME`, `CUDA_PATH`: name places
//!   of the client's host, or how much of the server's disk may be used.
//! * `CUDA_INJECTION64_PATH`: would load a library into the worker.
//! * `CUDA_MPS_…`, `CUDA_DISABLE_PERF_BOOST`: how the server shares and clocks its GPUs is its operator's business.
//! * `CUDA_DEVICE_WAITS_ON_EXCEPTION`, `CUDA_ENABLE_…`: ask for a debugger on the server.
//! * `CUDA_MANAGED_FORCE_DEVICE_ALLOC`: managed memory is the host's.

use crate::Fault;

/// A variable, the values that mean the same as leaving it unset, and what it changes.
struct Variable {
    name: &'static str,
    defaults: &'static [&'static str],
}

const fn variable(name: &'static str, defaults: &'static [&'static str]) -> Variable {
    Variable { name, defaults }
}

const VARIABLES: [Variable; 12] = [
    // When kernels and data reach the device: first launch (the default since 12.2) or load. PyTorch sets LAZY in every
    // process.
    variable("CUDA_MODULE_LOADING", &["LAZY", "DEFAULT"]),
    // Unset it follows the one above.
    variable("CUDA_MODULE_DATA_LOADING", &[]),
    // Whether PTX is compiled although there is machine code, or machine code is required.
    variable("CUDA_FORCE_PTX_JIT", &["0"]),
    variable("CUDA_DISABLE_PTX_JIT", &["0"]),
    variable("CUDA_FORCE_JIT", &["0"]),
    variable("CUDA_DISABLE_JIT", &["0"]),
    // How long loads take, and with how many threads.
    variable("CUDA_CACHE_DISABLE", &["0"]),
    variable("CUDA_BINARY_LOADER_THREAD_COUNT", &[]),
    // Which kernels and copies run at the same time: Megatron and FSDP set 1 so that they run in the order of launches.
    variable("CUDA_DEVICE_MAX_CONNECTIONS", &[]),
    variable("CUDA_DEVICE_MAX_COPY_CONNECTIONS", &[]),
    // How many launches may be pending before the next one waits.
    variable("CUDA_SCALE_LAUNCH_QUEUES", &[]),
    // What is set aside of the L2 cache without cuCtxSetLimit; a program can ask for it.
    variable("CUDA_DEVICE_DEFAULT_PERSISTING_L2_CACHE_PERCENTAGE_LIMIT", &[]),
];

/// All of them are numbers or words.
pub const VALUE_BYTES_MAX: usize = 64;

/// Names and values, sorted by name. What is not in it is not set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Environment(Vec<(String, String)>);

impl Environment {
    /// The listed variables, as `value_of` knows them. A value that no driver could understand is left out, as a
    /// driver would ignore it.
    pub fn of(value_of: impl Fn(&str) -> Option<String>) -> Environment {
        let known = VARIABLES.iter().filter_map(|v| Some((v.name.to_owned(), value_of(v.name)?)));
        let mut all: Vec<_> = known.filter(|(_, value)| is_plausible(value)).collect();
        all.sort();
        Environment(all)
    }

    /// What a peer says it is: only listed names, each once, with bounded values.
    pub fn checked(mut pairs: Vec<(String, String)>) -> Result<Environment, Fault> {
        pairs.sort();
        if pairs.windows(2).any(|w| w[0].0 == w[1].0) {
            return Err(Fault("an environment variable is named twice"));
        }
        if pairs.iter().any(|(name, _)| listed(name).is_none()) {
            return Err(Fault("an environment variable that is none of the driver's settings"));
        }
        if !pairs.iter().all(|(_, value)| is_plausible(value)) {
            return Err(Fault("the value of an environment variable is too long, empty, or no printable ASCII"));
        }
        Ok(Environment(pairs))
    }

    /// Most pairs there can be.
    pub const fn pairs_max() -> usize {
        VARIABLES.len()
    }

    pub fn pairs(&self) -> &[(String, String)] {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What has to be set in a process that starts with `inherited`, so that a driver in it behaves as the
    /// application asks. What the application does not set stays as the server's operator has it.
    pub fn beyond(&self, inherited: &Environment) -> Environment {
        let meaning = |name: &str, value: Option<&str>| {
            let defaults = listed(name).map_or(&[][..], |v| v.defaults);
            value.filter(|v| !defaults.contains(v)).map(str::to_owned)
        };
        let value_in = |e: &Environment, name: &str| e.0.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
        let differs = |(name, value): &&(String, String)| {
            meaning(name, Some(value.as_str())) != meaning(name, value_in(inherited, name).as_deref())
        };
        Environment(self.0.iter().filter(differs).cloned().collect())
    }
}

impl std::fmt::Display for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, (name, value)) in self.0.iter().enumerate() {
            write!(f, "{}{name}={value}", if i > 0 { " " } else { "" })?;
        }
        Ok(())
    }
}

fn listed(name: &str) -> Option<&'static Variable> {
    VARIABLES.iter().find(|v| v.name == name)
}

fn is_plausible(value: &str) -> bool {
    !value.is_empty() && value.len() <= VALUE_BYTES_MAX && value.bytes().all(|b| b.is_ascii_graphic() || b == b' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        Environment::of(|name| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
    }

    #[test]
    fn only_what_a_driver_reads_is_taken() {
        let e = environment(&[
            ("CUDA_DEVICE_MAX_CONNECTIONS", "1"),
            ("CUDA_CACHE_PATH", "/home/me"),
            ("CUDA_VISIBLE_DEVICES", "0"),
            ("CUDA_FORCE_PTX_JIT", ""),
        ]);
        assert_eq!(e.to_string(), "CUDA_DEVICE_MAX_CONNECTIONS=1");
    }

    #[test]
    fn a_default_said_aloud_is_no_difference() {
        let none = Environment::default();
        let lazy = environment(&[("CUDA_MODULE_LOADING", "LAZY"), ("CUDA_FORCE_PTX_JIT", "0")]);
        assert!(lazy.beyond(&none).is_empty());
        let eager = environment(&[("CUDA_MODULE_LOADING", "EAGER")]);
        assert_eq!(eager.beyond(&none), eager);
        assert_eq!(eager.beyond(&lazy), eager);
        assert!(eager.beyond(&eager).is_empty());
        assert_eq!(lazy.beyond(&eager).to_string(), "CUDA_MODULE_LOADING=LAZY");
        assert!(none.beyond(&eager).is_empty());
    }

    #[test]
    fn a_peer_names_nothing_else() {
        let check = |pairs: &[(&str, &str)]| {
            Environment::checked(pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect())
        };
        assert!(check(&[("CUDA_MODULE_LOADING", "EAGER"), ("CUDA_FORCE_JIT", "1")]).is_ok());
        for bad in [
            ("LD_PRELOAD", "/tmp/evil.so"),
            ("CUDA_INJECTION64_PATH", "/tmp/evil.so"),
            ("CUDA_LAUNCH_BLOCKING", "1"),
            ("CUDA_MODULE_LOADING=EAGER\0X", "1"),
            ("CUDA_MODULE_LOADING", ""),
            ("CUDA_MODULE_LOADING", "EAGER\0"),
            ("CUDA_MODULE_LOADING", "EAGER\nX=1"),
            ("CUDA_MODULE_LOADING", "é"),
            ("CUDA_MODULE_LOADING", "x".repeat(65).as_str()),
        ] {
            assert!(check(&[bad]).is_err(), "{bad:?}");
        }
        assert!(check(&[("CUDA_FORCE_JIT", "1"), ("CUDA_FORCE_JIT", "0")]).is_err());
    }
}
