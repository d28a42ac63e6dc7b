//! What a fact is, and the few words facts are written in.

use std::fmt::Debug;

use orion_cuda::sys::CUresult;

use crate::driver::{Cuda, name_of};

/// Why the library's answer is not the fact.
pub type Verdict = Result<(), String>;

/// What the runner prepares before a fact: each level includes the one before.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub enum Needs {
    /// The library is open; nothing has been called. Always in a process of its own.
    Nothing,
    /// `cuInit(0)` has succeeded; the thread has no context.
    Init,
    /// The primary context of device 0 is current.
    Context,
}

pub struct Fact {
    pub group: &'static str,
    pub name: &'static str,
    pub needs: Needs,
    /// Runs in a process of its own, because it breaks the context or depends on a fresh one.
    pub alone: bool,
    /// What the process must have printed once it has ended. Makes the fact `alone`.
    pub stdout: Option<&'static str>,
    pub stderr: Option<&'static str>,
    /// Why several threads cannot ask it at once; empty if they can.
    pub not_in_a_crowd: &'static str,
    pub run: fn(&'static Cuda) -> Verdict,
}

impl Fact {
    pub const fn new(group: &'static str, name: &'static str, needs: Needs, run: fn(&'static Cuda) -> Verdict) -> Self {
        let alone = matches!(needs, Needs::Nothing);
        Self { group, name, needs, alone, stdout: None, stderr: None, not_in_a_crowd: "", run }
    }

    pub const fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    pub const fn prints(mut self, text: &'static str) -> Self {
        self.stdout = Some(text);
        self.alone().not_in_a_crowd("the output of one is compared")
    }

    pub const fn complains(mut self, text: &'static str) -> Self {
        self.stderr = Some(text);
        self.alone().not_in_a_crowd("the output of one is compared")
    }

    pub const fn not_in_a_crowd(mut self, why: &'static str) -> Self {
        self.not_in_a_crowd = why;
        self
    }

    pub fn matches(&self, text: &str) -> bool {
        match text.split_once("::") {
            Some((group, name)) => self.group == group && self.name.contains(name),
            None => self.group == text || self.name.contains(text),
        }
    }
}

/// `facts!(stream, Context, [a, b, c.alone()])`: a table row for each function, named by it.
macro_rules! facts {
    ($group:ident: $($needs:ident [ $($name:ident $(.$option:ident($($value:expr),*))*),* $(,)? ])*) => {
        pub const FACTS: &[$crate::fact::Fact] = &[$($(
            $crate::fact::Fact::new(
                stringify!($group), stringify!($name), $crate::fact::Needs::$needs, $name,
            )$(.$option($($value),*))*,
        )*)*];
    };
}

/// The call answers exactly this code.
macro_rules! answers {
    ($code:ident, $call:expr) => {
        $crate::fact::expect_code(stringify!($call), $call, &[$code])?
    };
    ([$($code:ident),+], $call:expr) => {
        $crate::fact::expect_code(stringify!($call), $call, &[$($code),+])?
    };
}

/// The call succeeds.
macro_rules! ok {
    ($call:expr) => {
        $crate::fact::expect_code(stringify!($call), $call, &[orion_cuda::sys::CUDA_SUCCESS])?
    };
}

/// Two values are the same.
macro_rules! same {
    ($got:expr, $expected:expr) => {
        $crate::fact::expect_same(stringify!($got), &$got, &$expected)?
    };
}

/// A condition holds; the text says what the condition means.
macro_rules! holds {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(format!($($text)+));
        }
    };
}

pub(crate) use {answers, facts, holds, ok, same};

pub fn expect_code(call: &str, got: CUresult, expected: &[CUresult]) -> Verdict {
    if expected.contains(&got) {
        return Ok(());
    }
    let wanted: Vec<String> = expected.iter().map(|code| name_of(*code)).collect();
    let call: String = call.split_whitespace().collect::<Vec<_>>().join(" ");
    Err(format!("{call} answered {}, expected {}", name_of(got), wanted.join(" or ")))
}

pub fn expect_same<T: PartialEq<U> + Debug, U: Debug + ?Sized>(what: &str, got: &T, expected: &U) -> Verdict {
    if got == expected {
        return Ok(());
    }
    Err(format!("{what} is {}, expected {}", short(got), short(expected)))
}

/// Keeps a buffer of a thousand words from filling the report.
fn short<T: Debug + ?Sized>(value: &T) -> String {
    let text = format!("{value:?}");
    match text.char_indices().nth(120) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
