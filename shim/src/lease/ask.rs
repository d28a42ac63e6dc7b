//! One question to the controller, over HTTP, and its answer. No thread, no runtime: the program waits for its GPU
//! anyway.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use orion_tls::blocking::Stream;
use orion_tls::trust::{ENVIRONMENT, Way};
use orion_transport::client::NoSession;
use orion_transport::client::json::{Object, object};
use orion_transport::client::wanted::Wanted;
use orion_transport::lease::SignedLease;
use orion_transport::proof::fresh_nonce;
use orion_wire::address::Server;
use orion_wire::handle::OWNERS_MAX as NODES_MAX;
use orion_wire::refusal::Reason;

use super::granted::{Claim, Granted, Line, Part, one_line};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// It answers when what it says is on its disk.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Where there are others one that is stopped is not waited for as long.
const ANSWER_OF_SEVERAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Asking again for longer is worth a line.
const QUIET: Duration = Duration::from_secs(2);
/// No controller has a program ask again for longer.
const AGAIN_MAX: Duration = Duration::from_secs(30);
/// Between two times of asking again: the first one, and the longest.
const AGAIN_PAUSES: [Duration; 2] = [Duration::from_millis(25), Duration::from_millis(400)];
/// Between two rounds of asking all of them.
const PAUSE: Duration = Duration::from_millis(250);
/// A lease is a few hundred bytes, what is free and who holds the rest a few thousand.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Why there is no answer.
enum Trouble {
    /// Whoever is asked again may have one; in words.
    NotNow(String),
    /// Another controller leads; and what is said if that is not so.
    Elsewhere(String, String),
    /// There is no room; who asks again for so long may find some.
    Full(NoSession, Duration),
    Refused(NoSession),
}

/// Why nothing is given.
struct Refused {
    no: NoSession,
    may_pass_within: Duration,
}

impl From<NoSession> for Refused {
    fn from(no: NoSession) -> Refused {
        Refused { no, may_pass_within: Duration::ZERO }
    }
}

impl From<String> for Trouble {
    fn from(text: String) -> Trouble {
        Trouble::Refused(text.into())
    }
}

fn not_reached(controller: &str, e: &io::Error) -> Trouble {
    Trouble::NotNow(format!("the pool's controller at {controller} is not reached: {e}"))
}

/// Asks for vGPUs, and again as long as no controller is reached that leads; then this node may have some of its own.
/// The error is one line: what was asked, what is free, and what to try.
pub fn ask(wanted: &Wanted, program: &str) -> Result<Granted, NoSession> {
    // A name of our own, under which the same is answered if the controller is asked again.
    let nonce = fresh_nonce().map_err(|e| format!("reading random bytes failed: {e}"))?;
    let name: String = nonce[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    let client = client(program);
    let question = wanted.question(&client, &name);
    let once = || {
        patiently(
            wanted,
            || round(wanted, "POST", "/allocations", &question, Some(&name)),
            || super::reserve::ask(wanted, &client),
        )
    };
    // Who says how long he waits has waited.
    let longest = wanted.wait.map_or(AGAIN_MAX, |_| Duration::ZERO);
    let (granted, why) = while_it_may_pass(longest, once)?;
    if let Some(why) = why {
        let Part { places, node, .. } = &granted.parts[0];
        crate::say!("{why}; using {places} of the own reserve of this node, {node}");
    }
    Ok(granted)
}

/// What would be given to this program, by the controller or, where none is reached, of this node's own reserve.
/// Neither gives anything: no session begins with it.
pub fn look(wanted: &Wanted, program: &str) -> Result<Granted, NoSession> {
    let client = client(program);
    let question = wanted.question(&client, "");
    let of_reserve = || super::reserve::look(wanted, &client);
    let once = || patiently(wanted, || round(wanted, "POST", "/look", &question, None), of_reserve);
    // Nobody waits in the pool's queue to look.
    let longest = wanted.wait.map_or(AGAIN_MAX, Duration::from_secs);
    while_it_may_pass(longest, once).map(|(would, _)| would)
}

/// Asks again as long as what is in the way may pass, and no longer than so.
fn while_it_may_pass<T>(longest: Duration, once: impl Fn() -> Result<T, Refused>) -> Result<T, NoSession> {
    let (began, [mut pause, longest_pause], mut has_said) = (Instant::now(), AGAIN_PAUSES, false);
    loop {
        let Refused { no, may_pass_within } = match once() {
            Ok(given) => return Ok(given),
            Err(refused) => refused,
        };
        let within = may_pass_within.min(longest);
        if began.elapsed() >= within {
            return Err(no);
        }
        if within > QUIET && !std::mem::replace(&mut has_said, true) {
            let seconds = within.as_secs();
            crate::say!("{}; a node may be there soon, asking for {seconds} s at most (ORION_WAIT)", no.text);
        }
        std::thread::sleep(pause);
        pause = (2 * pause).min(longest_pause);
    }
}

/// Asks as long as no controller is reached that leads; then this node may have some of its own, and with it comes why.
fn patiently(
    wanted: &Wanted,
    round: impl Fn() -> Result<(Object, Line), Trouble>,
    of_reserve: impl Fn() -> Option<Result<Granted, String>>,
) -> Result<(Granted, Option<String>), Refused> {
    let patience = wanted.wait_for_controller();
    let until = Instant::now() + patience;
    let mut has_said = false;
    loop {
        let why = match round() {
            Ok((answer, line)) => return Ok((granted(wanted, &answer, line)?, None)),
            Err(Trouble::Full(no, may_pass_within)) => return Err(Refused { no, may_pass_within }),
            Err(Trouble::Refused(no)) => return Err(no.into()),
            Err(Trouble::NotNow(why) | Trouble::Elsewhere(_, why)) => why,
        };
        let why = match of_reserve() {
            None => why,
            Some(Err(no)) => format!("{why}; {no}"),
            Some(Ok(granted)) => return Ok((granted, Some(why))),
        };
        if Instant::now() >= until {
            let hint = "is orion-controller running there, and is ORION_CONTROLLER (or controller_addr in client.conf) \
                        right?";
            return Err(NoSession::from(format!("{why}; {hint}")).into());
        }
        if !std::mem::replace(&mut has_said, true) {
            let seconds = patience.as_secs();
            crate::say!("{why}; waiting for it, {seconds} s at most (ORION_WAIT)");
        }
        std::thread::sleep(PAUSE);
    }
}

/// Asks the controllers one after the other until one answers that leads. What is asked has a name, so asking again
/// does nothing twice.
fn round(
    wanted: &Wanted,
    method: &str,
    path: &str,
    body: &str,
    claims: Option<&str>,
) -> Result<(Object, Line), Trouble> {
    let (mut candidates, mut last) = (wanted.candidates(), None);
    while let Some(controller) = candidates.next() {
        let trouble = match exchange(wanted, &controller, method, path, body, claims) {
            Err(trouble @ (Trouble::NotNow(_) | Trouble::Elsewhere(..))) => trouble,
            answer => return answer,
        };
        if let Trouble::Elsewhere(leader, _) = &trouble {
            candidates.leads(leader);
        }
        last = Some(trouble);
    }
    Err(last.expect("who wants something of a pool has named a controller"))
}

fn granted(wanted: &Wanted, answer: &Object, line: Line) -> Result<Granted, NoSession> {
    let all = wanted.controllers.join(",");
    let text = |name: &str| answer.get(name).cloned().ok_or_else(|| damaged(&all, &format!("it has no {name}")));
    // What further nodes have given has the number of the node behind its name.
    let part = |number: usize| {
        let text = |name: &str| text(&if number == 1 { name.to_owned() } else { format!("{name}_{number}") });
        let server = Server::parse(&text("address")?).map_err(|why| damaged(&all, &why))?;
        wanted.is_reached_at(&server)?;
        let signature = hex(&text("signature")?).and_then(|bytes| bytes.try_into().ok());
        let (Some(body), Some(signature)) = (hex(&text("lease")?), signature) else {
            return Err(damaged(&all, "its lease is none"));
        };
        let lease = SignedLease { body, signature };
        let certificate = match text("certificate")? {
            none if none.is_empty() => None,
            text => Some(text.parse().map_err(|why: String| damaged(&all, &why))?),
        };
        Ok(Part { node: text("node")?, server, places: text("places")?, lease, certificate })
    };
    let nodes: usize = text("nodes")?.parse().map_err(|_| damaged(&all, "its number of nodes is none"))?;
    if nodes > NODES_MAX {
        let text = format!(
            "the pool gives {} vGPUs of {nodes} nodes, and one program uses those of {NODES_MAX} at most; \
                            ask for fewer (ORION_VGPU)",
            wanted.vgpus
        );
        return Err(text.into());
    }
    let parts = (1..=nodes).map(part).collect::<Result<_, String>>()?;
    let allocation = text("allocation")?;
    match nodes {
        0 => Err(damaged(&all, "it is of no node").into()),
        _ => Ok(Granted { allocation, parts, claim: Claim::OfPool(Box::new(line)) }),
    }
}

/// Gives back what no session came of. If that is not heard either, it goes back by itself in half a minute. What is of
/// a reserve goes back with its connection.
pub fn give_back(wanted: &Wanted, granted: &Granted) {
    if granted.is_of_reserve() {
        return;
    }
    let _ = round(wanted, "DELETE", &format!("/allocations/{}", granted.allocation), "", None);
}

/// Host, process and program, for people to read.
fn client(program: &str) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{} {} {program}", host.trim(), std::process::id())
}

/// `claims` is the allocation that is to go back when the connection ends.
fn exchange(
    wanted: &Wanted,
    controller: &str,
    method: &str,
    path: &str,
    body: &str,
    claims: Option<&str>,
) -> Result<(Object, Line), Trouble> {
    let unreached = |e: io::Error| not_reached(controller, &e);
    let way = wanted.trust.way_to(controller, ENVIRONMENT)?;
    let mut line = match (connect(controller, wanted).map_err(unreached)?, way) {
        (socket, Way::Plain) => Line::Clear(socket),
        // Another certificate than is believed does not get better by waiting.
        (socket, Way::Tls(config, name)) => match Stream::connect(socket, &config, &name) {
            Ok(stream) => Line::Sealed(stream),
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                return Err(format!("the pool's controller at {controller}: {e}").into());
            }
            Err(e) => return Err(unreached(e)),
        },
    };
    let key = wanted.client_key.as_ref().map(|key| format!("Authorization: Bearer {key}\r\n")).unwrap_or_default();
    // What is given goes back when this connection ends and nobody has come for it.
    let claiming = if claims.is_some() { "Orion-Claims: 1\r\n" } else { "" };
    if key.bytes().filter(|byte| matches!(byte, b'\r' | b'\n')).count() > 2 {
        return Err("ORION_CLIENT_KEY has a line break in it".to_owned().into());
    }
    let head = |method: &str, path: &str, bytes: usize| {
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {controller}\r\nContent-Type: application/json\r\nContent-Length: \
             {bytes}\r\n{claiming}{key}\r\n"
        )
    };
    // Its one byte is sent when the session has begun. It goes ahead of the answer, so that there is no moment at which
    // vGPUs are given and nobody claims them; but a controller that lets us wait would not see us go with it unread.
    let claim = claims.map(|name| head("POST", &format!("/allocations/{name}/session"), 1)).unwrap_or_default();
    let (first, then) = if wanted.wait.is_none() { (claim.as_str(), "") } else { ("", claim.as_str()) };
    let question = format!("{}{body}{first}", head(method, path, body.len()));
    line.write_all(question.as_bytes()).map_err(unreached)?;
    let answer = receive(&mut line, answers_within(wanted)).map_err(|e| match e.kind() {
        // A word about the certificate that is shown here comes with the first bytes.
        io::ErrorKind::InvalidData => format!("the pool's controller at {controller}: {e}").into(),
        _ => unreached(e),
    })?;
    let (status, object) = read(&answer).ok_or_else(|| damaged(controller, "it is no HTTP with JSON"))?;
    match (status, object.get("error")) {
        (200, None) => {
            line.write_all(then.as_bytes()).map_err(unreached)?;
            Ok((object, line))
        }
        (status, Some(error)) => {
            // Whoever lacks the key is kept out; whoever finds no room finds no GPU.
            let refused = matches!(status, 401 | 403).then_some(Reason::NotPermitted);
            let hint = if status == 401 { " (ORION_CLIENT_KEY)" } else { "" };
            let text = format!("the pool's controller at {controller}: {}{hint}", one_line(error));
            match (status, object.get("leader")) {
                (307, Some(leader)) => Err(Trouble::Elsewhere(leader.clone(), text)),
                (503, _) => Err(Trouble::NotNow(text)),
                _ => {
                    let no = NoSession { refused, ..text.into() };
                    let within = object.get("may_pass_ms").and_then(|ms| ms.parse().ok()).map(Duration::from_millis);
                    Err(match within {
                        Some(within) => Trouble::Full(no, within.min(AGAIN_MAX)),
                        None => Trouble::Refused(no),
                    })
                }
            }
        }
        (status, None) => Err(damaged(controller, &format!("it has status {status}")).into()),
    }
}

/// One whole answer, or what there was when the controller went away or said too much. What follows it is another one.
fn receive(line: &mut Line, patience: Duration) -> io::Result<Vec<u8>> {
    let until = Instant::now() + patience;
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    while !is_whole(&answer) && answer.len() < ANSWER_BYTES_MAX {
        match line.read(&mut piece) {
            // It was asked something, and a controller that is there says something.
            Ok(0) if answer.is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&piece[..count]),
            // A profiler's timer is no reason to have no GPU; but it must not keep the wait from its end.
            Err(e) if e.kind() == io::ErrorKind::Interrupted && Instant::now() < until => {}
            Err(e) => return Err(e),
        }
    }
    Ok(answer)
}

fn answers_within(wanted: &Wanted) -> Duration {
    let patience = if wanted.controllers.len() == 1 { ANSWER_TIMEOUT } else { ANSWER_OF_SEVERAL_TIMEOUT };
    patience + Duration::from_secs(wanted.wait.unwrap_or(0))
}

fn connect(address: &str, wanted: &Wanted) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for candidate in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&candidate, CONNECT_TIMEOUT) {
            Ok(socket) => {
                socket.set_read_timeout(Some(answers_within(wanted)))?;
                socket.set_write_timeout(Some(ANSWER_TIMEOUT))?;
                return Ok(socket);
            }
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// First line and body of a whole answer.
fn parts(answer: &[u8]) -> Option<(&str, &str)> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let (first, headers) = head.split_once("\r\n").unwrap_or((head, ""));
    let length = headers.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    })?;
    let body = answer[end + 4..].get(..length)?;
    Some((first, std::str::from_utf8(body).ok()?))
}

fn is_whole(answer: &[u8]) -> bool {
    parts(answer).is_some()
}

/// Status and body of a whole answer.
fn read(answer: &[u8]) -> Option<(u16, Object)> {
    let (first, body) = parts(answer)?;
    let status = first.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    Some((status, object(body)?))
}

fn damaged(controller: &str, why: &str) -> String {
    format!(
        "what answers at {controller} is no controller of this version of Orion's: {why}; check ORION_CONTROLLER, and \
         compare versions"
    )
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_whole_or_not_at_all() {
        let answer =
            "HTTP/1.1 409 Conflict\r\ncontent-type: application/json\r\nContent-Length: 14\r\n\r\n{\"error\":\"no\"}";
        let (status, object) = read(answer.as_bytes()).expect("an answer");
        assert_eq!((status, object["error"].as_str()), (409, "no"));
        assert!((0..answer.len()).all(|cut| read(&answer.as_bytes()[..cut]).is_none()));
        assert!(read(b"SSH-2.0-OpenSSH_9.6\r\n").is_none());
    }

    #[test]
    fn bytes_are_written_in_pairs_of_digits() {
        assert_eq!(hex("00ff1"), None);
        assert_eq!(hex("00fF"), Some(vec![0, 255]));
    }
}
