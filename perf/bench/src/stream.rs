//! Recorded call streams: what an application asks of the driver in one step, as text.
//!
//! ```text
//! # a comment
//! begin 12                 repeats the lines up to `end`
//!     8 launch 64          a count, then the call: a launch with 64 bytes of parameters
//!     2 local device       answered by the shim: device, state, context, attribute or capturing
//!     1 think 20us         the application is busy with itself
//! end
//! 1 call                   a call with an answer
//! 1 set 4096               a memset of so many bytes
//! 1 copy 4096              a copy within the device
//! 1 h2d pinned 1048576     a copy to the device, from pinned or pageable memory
//! 1 d2h pageable 4         a copy from the device, waited for
//! 1 sync                   waits for the stream
//! ```

use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Launch { bytes: usize },
    Local(Local),
    Call,
    Set { bytes: usize },
    Copy { bytes: usize },
    ToDevice { pinned: bool, bytes: usize },
    ToHost { pinned: bool, bytes: usize },
    Sync,
    Think(Duration),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Local {
    Device,
    State,
    Context,
    Attribute,
    Capturing,
}

/// A run of equal calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    pub count: u32,
    pub op: Op,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    pub runs: Vec<Run>,
}

/// The streams that come with the program.
pub const SHIPPED: [(&str, &str); 3] = [
    ("training-step", include_str!("../streams/training-step.txt")),
    ("generate-token", include_str!("../streams/generate-token.txt")),
    ("small-ops", include_str!("../streams/small-ops.txt")),
];

/// Largest copy a stream may ask for; clients set their buffers up by it.
pub const COPY_BYTES_MAX: usize = 256 << 20;
const RUNS_MAX: usize = 1 << 20;

impl Stream {
    /// A shipped stream by its name, or a file.
    pub fn named(name: &str) -> Result<Stream, String> {
        if let Some((_, text)) = SHIPPED.iter().find(|(shipped, _)| *shipped == name) {
            return Stream::parse(text);
        }
        let text = std::fs::read_to_string(name).map_err(|e| {
            let names = SHIPPED.map(|(n, _)| n).join(", ");
            format!("there is no stream {name:?}: it is none of {names}, and reading it as a file failed: {e}")
        })?;
        Stream::parse(&text).map_err(|e| format!("{name}: {e}"))
    }

    pub fn parse(text: &str) -> Result<Stream, String> {
        // The outermost level first; `begin` opens one more.
        let mut open: Vec<(u32, Vec<Run>)> = vec![(1, Vec::new())];
        for (index, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split('#').next().unwrap_or("").split_whitespace().collect();
            let wrong = |what: String| format!("line {}: {what}", index + 1);
            match words.as_slice() {
                [] => {}
                ["begin", times] => open.push((count(times).map_err(wrong)?, Vec::new())),
                ["end"] => {
                    let (times, runs) = open.pop().expect("the outermost level is never closed");
                    let outer = open.last_mut().ok_or_else(|| wrong("end without begin".into()))?;
                    if outer.1.len() + runs.len() * times as usize > RUNS_MAX {
                        return Err(wrong(format!("the stream has more than {RUNS_MAX} lines when written out")));
                    }
                    (0..times).for_each(|_| outer.1.extend_from_slice(&runs));
                }
                [times, rest @ ..] => {
                    let run = Run { count: count(times).map_err(wrong)?, op: op(rest).map_err(wrong)? };
                    open.last_mut().expect("the outermost level is never closed").1.push(run);
                }
            }
        }
        match open.len() {
            1 => Ok(Stream { runs: open.remove(0).1 }),
            _ => Err("begin without end".into()),
        }
    }
}

fn count(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| format!("{text:?} is not a count"))
}

fn op(words: &[&str]) -> Result<Op, String> {
    let bytes = |text: &str, max: usize| match text.parse::<usize>() {
        Ok(n) if n <= max => Ok(n),
        _ => Err(format!("{text:?} is not a number of bytes up to {max}")),
    };
    let pinned = |text: &str| match text {
        "pinned" => Ok(true),
        "pageable" => Ok(false),
        _ => Err(format!("{text:?} is neither pinned nor pageable")),
    };
    Ok(match words {
        ["launch", n] => Op::Launch { bytes: bytes(n, 1024)? },
        ["call"] => Op::Call,
        ["sync"] => Op::Sync,
        ["set", n] => Op::Set { bytes: bytes(n, COPY_BYTES_MAX)? },
        ["copy", n] => Op::Copy { bytes: bytes(n, COPY_BYTES_MAX / 2)? },
        ["h2d", kind, n] => Op::ToDevice { pinned: pinned(kind)?, bytes: bytes(n, COPY_BYTES_MAX)? },
        ["d2h", kind, n] => Op::ToHost { pinned: pinned(kind)?, bytes: bytes(n, COPY_BYTES_MAX)? },
        ["local", what] => Op::Local(match *what {
            "device" => Local::Device,
            "state" => Local::State,
            "context" => Local::Context,
            "attribute" => Local::Attribute,
            "capturing" => Local::Capturing,
            _ => return Err(format!("local call {what:?} is unknown")),
        }),
        ["think", time] => Op::Think(duration(time)?),
        _ => return Err(format!("{:?} is no call of a stream", words.join(" "))),
    })
}

fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| format!("{text:?} is not a time such as 20us"))?;
    match &text[digits.len()..] {
        "ns" => Ok(Duration::from_nanos(number)),
        "us" => Ok(Duration::from_micros(number)),
        "ms" => Ok(Duration::from_millis(number)),
        _ => Err(format!("{text:?} has none of the units ns, us, ms")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_streams_have_the_observed_counts() {
        let launches = |name: &str| -> u64 {
            let stream = Stream::named(name).unwrap();
            let launches = stream.runs.iter().filter(|r| matches!(r.op, Op::Launch { .. }));
            launches.map(|r| u64::from(r.count)).sum()
        };
        assert_eq!(launches("training-step"), 910);
        assert_eq!(launches("generate-token"), 142);
        assert_eq!(launches("small-ops"), 2000);
    }

    #[test]
    fn loops_nest() {
        let stream = Stream::parse("begin 2\n begin 3\n 1 call # why\n end\n 1 sync\nend").unwrap();
        let (call, sync) = (Run { count: 1, op: Op::Call }, Run { count: 1, op: Op::Sync });
        assert_eq!(stream.runs, [call, call, call, sync, call, call, call, sync]);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, complaint) in [
            ("1 call\n1 jump", "line 2: \"jump\" is no call of a stream"),
            ("begin 2\n1 call", "begin without end"),
            ("end", "line 1: end without begin"),
            ("0 call", "line 1: \"0\" is not a count"),
            ("1 think 5", "line 1: \"5\" has none of the units ns, us, ms"),
            ("1 h2d slow 4", "line 1: \"slow\" is neither pinned nor pageable"),
            ("1 launch 4096", "line 1: \"4096\" is not a number of bytes up to 1024"),
        ] {
            assert_eq!(Stream::parse(text), Err(complaint.to_owned()));
        }
    }
}
