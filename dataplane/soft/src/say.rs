//! Lines of the software GPU's own on standard error, each once: a program that meets a limit meets it in a loop.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

/// Different lines that are remembered. More are not said: whose program it is decides how many there are.
const LINES_MAX: usize = 1024;

static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// `orion-soft: text`.
pub fn say(text: &str) {
    let line = format!("orion-soft: {text}\n");
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.len() < LINES_MAX && said.insert(line.clone()) {
        put(&line);
    }
}

/// A line as it is, by one write, so that nothing comes between its parts. There is nothing to do where it fails.
pub fn put(line: &str) {
    let _ = std::io::stderr().write_all(line.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_said_once() {
        say("the same");
        say("the same");
        assert_eq!(SAID.lock().unwrap().iter().filter(|line| line.contains("the same")).count(), 1);
    }
}
