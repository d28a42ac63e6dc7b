//! Parameters as C has them.

/// `name: type, …` as `cuda.h` has it.
pub fn parameters(params: &[(String, crate::header::Type)]) -> String {
    params.iter().map(|(n, t)| format!("{n}: {t}, ")).collect()
}
