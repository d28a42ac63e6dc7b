//! What makes the compilers inside of a program hand over PTX. Left alone they hand over machine code, which the
//! software GPU does not run. They also choose between kernels by their times, which are those of another machine.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Flags of XLA: where its ptxas is, that it is used instead of nvJitLink, and how much is tried out.
const XLA_DATA: &str = "--xla_gpu_cuda_data_dir";
const XLA_LINKER: &str = "--xla_gpu_enable_libnvjitlink";
const XLA_TRIALS: &str = "--xla_gpu_autotune_level";

/// Variables for the program, and what to tell the user of them.
#[derive(Debug, Default)]
pub struct Compilers {
    pub variables: Vec<(&'static str, OsString)>,
    /// With what they are set to.
    set: Vec<String>,
    /// What the user's own values stand in the way of.
    kept: Vec<String>,
}

/// `root` is a folder with `bin/ptxas` in it. What the user has set stays as it is.
pub fn ask_for_ptx(root: &Path, variable: impl Fn(&str) -> Option<OsString>) -> Compilers {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    let ptxas = root.join("bin/ptxas");
    let mut all = Compilers::default();
    for (name, value) in [
        ("CUPY_COMPILE_WITH_PTX", OsStr::new("1")),
        ("TRITON_PTXAS_PATH", ptxas.as_os_str()),
        ("TRITON_PTXAS_BLACKWELL_PATH", ptxas.as_os_str()),
        // Mojo has the compiler in its library otherwise.
        ("MODULAR_NVPTX_COMPILER_PATH", ptxas.as_os_str()),
        // JAX tells XLA to look there, in place of what XLA_FLAGS says.
        ("CUDA_ROOT", root.as_os_str()),
        // A module that numba imports, with which it asks nvJitLink for PTX.
        ("NUMBA_CUDA_MEMORY_MANAGER", OsStr::new("orion_numba")),
        // A first convolution of TensorFlow's takes most of a minute with it.
        ("TF_CUDNN_USE_AUTOTUNE", OsStr::new("0")),
    ] {
        match variable(name) {
            None => all.set(name, value.to_owned()),
            Some(theirs) if theirs == value => {}
            Some(theirs) => all.kept.push(format!("{name}={}", theirs.display())),
        }
    }
    all.set_xla_flags(root, variable("XLA_FLAGS").unwrap_or_default());
    all
}

impl Compilers {
    fn set(&mut self, name: &'static str, value: OsString) {
        self.set.push(format!("{name}={}", value.display()));
        self.variables.push((name, value));
    }

    fn set_xla_flags(&mut self, root: &Path, theirs: OsString) {
        // XLA takes what does not begin with a hyphen for the name of a file.
        if !theirs.is_empty() && !theirs.to_string_lossy().trim_start().starts_with('-') {
            self.kept.push(format!("XLA_FLAGS={}", theirs.display()));
            return;
        }
        let mut all = theirs.clone();
        let mut added = Vec::new();
        for (name, value) in
            [(XLA_DATA, root.as_os_str()), (XLA_LINKER, OsStr::new("false")), (XLA_TRIALS, OsStr::new("0"))]
        {
            if let Some(flag) = flag(&theirs, name) {
                self.kept.push(format!("XLA_FLAGS={flag}"));
                continue;
            }
            // Flags are divided by spaces, and nothing quotes one.
            if value.as_encoded_bytes().contains(&b' ') {
                self.kept.push(format!("XLA_FLAGS without {name}, whose value has a space: {}", value.display()));
                continue;
            }
            if !all.is_empty() {
                all.push(" ");
            }
            all.push(name);
            all.push("=");
            all.push(value);
            added.push(format!("{name}={}", value.display()));
        }
        if !added.is_empty() {
            self.variables.push(("XLA_FLAGS", all));
            self.set.push(format!("XLA_FLAGS{}{}", if theirs.is_empty() { "=" } else { "+=" }, added.join(" ")));
        }
    }

    /// One line, without its end.
    pub fn line(&self) -> String {
        let mut line = format!("software GPU: compilers in the program are asked for PTX: {}", self.set.join(", "));
        if self.set.is_empty() {
            line = "software GPU: compilers in the program are not asked for PTX".to_owned();
        }
        if !self.kept.is_empty() {
            line.push_str(&format!("; yours stay: {}", self.kept.join(", ")));
        }
        line
    }
}

/// The whole flag, if `name` is among them.
fn flag<'a>(flags: &'a OsStr, name: &str) -> Option<&'a str> {
    flags.to_str()?.split_whitespace().find(|flag| flag.split('=').next() == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(environment: &[(&str, &str)]) -> Compilers {
        ask_for_ptx(Path::new("/run/o"), |name| {
            environment.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value))
        })
    }

    fn value(all: &Compilers, name: &str) -> Option<String> {
        all.variables.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string_lossy().into_owned())
    }

    #[test]
    fn each_compiler_is_asked_in_its_own_way() {
        let all = asked(&[]);
        assert_eq!(value(&all, "CUPY_COMPILE_WITH_PTX").as_deref(), Some("1"));
        assert_eq!(value(&all, "TRITON_PTXAS_PATH").as_deref(), Some("/run/o/bin/ptxas"));
        assert_eq!(value(&all, "TRITON_PTXAS_BLACKWELL_PATH").as_deref(), Some("/run/o/bin/ptxas"));
        assert_eq!(value(&all, "MODULAR_NVPTX_COMPILER_PATH").as_deref(), Some("/run/o/bin/ptxas"));
        assert_eq!(value(&all, "CUDA_ROOT").as_deref(), Some("/run/o"));
        assert_eq!(value(&all, "NUMBA_CUDA_MEMORY_MANAGER").as_deref(), Some("orion_numba"));
        assert_eq!(value(&all, "TF_CUDNN_USE_AUTOTUNE").as_deref(), Some("0"));
        let flags = "--xla_gpu_cuda_data_dir=/run/o --xla_gpu_enable_libnvjitlink=false --xla_gpu_autotune_level=0";
        assert_eq!(value(&all, "XLA_FLAGS").as_deref(), Some(flags));
        assert!(all.line().contains("CUPY_COMPILE_WITH_PTX=1, TRITON_PTXAS_PATH=/run/o/bin/ptxas"), "{}", all.line());
    }

    #[test]
    fn what_the_user_has_set_stays_and_is_named() {
        let all = asked(&[
            ("CUPY_COMPILE_WITH_PTX", "0"),
            ("TRITON_PTXAS_PATH", "/theirs/ptxas"),
            ("CUDA_ROOT", "/theirs"),
            ("XLA_FLAGS", "--xla_dump_to=/tmp/x --xla_gpu_enable_libnvjitlink=true"),
        ]);
        for name in ["CUPY_COMPILE_WITH_PTX", "TRITON_PTXAS_PATH", "CUDA_ROOT"] {
            assert_eq!(value(&all, name), None, "{name}");
        }
        let flags = "--xla_dump_to=/tmp/x --xla_gpu_enable_libnvjitlink=true --xla_gpu_cuda_data_dir=/run/o \
                     --xla_gpu_autotune_level=0";
        assert_eq!(value(&all, "XLA_FLAGS").as_deref(), Some(flags));
        let kept = "; yours stay: CUPY_COMPILE_WITH_PTX=0, TRITON_PTXAS_PATH=/theirs/ptxas, CUDA_ROOT=/theirs, \
                    XLA_FLAGS=--xla_gpu_enable_libnvjitlink=true";
        assert!(all.line().ends_with(kept), "{}", all.line());
    }

    #[test]
    fn flags_of_xla_in_a_file_stay_there() {
        let all = asked(&[("XLA_FLAGS", "/theirs/flags")]);
        assert_eq!(value(&all, "XLA_FLAGS"), None);
        assert!(all.line().ends_with("; yours stay: XLA_FLAGS=/theirs/flags"), "{}", all.line());
    }

    #[test]
    fn a_folder_with_a_space_is_no_value_of_a_flag() {
        let all = ask_for_ptx(Path::new("/run/my o"), |_| None);
        assert_eq!(
            value(&all, "XLA_FLAGS").as_deref(),
            Some("--xla_gpu_enable_libnvjitlink=false --xla_gpu_autotune_level=0")
        );
        assert!(all.line().contains("whose value has a space: /run/my o"), "{}", all.line());
    }
}
