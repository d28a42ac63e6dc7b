//! One question to the controller, over HTTP, and its answer. No thread, no runtime: the program waits for its GPU
//! anyway.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use orion_transport::client::NoSession;
use orion_transport::lease::SignedLease;
use orion_transport::proof::fresh_nonce;
use orion_wire::address::Server;
use orion_wire::refusal::Reason;

use super::json::{Object, object, quoted};
use super::wanted::Wanted;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// It answers when what it says is on its disk.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// A lease is a few hundred bytes, what is free and who holds the rest a few thousand.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// What the controller has given.
pub struct Granted {
    pub allocation: String,
    pub node: String,
    pub server: Server,
    /// GPU and vGPU of each.
    pub places: String,
    pub lease: SignedLease,
}

/// Asks for vGPUs. The error is one line: what was asked, what is free, and what to try.
pub fn ask(wanted: &Wanted, program: &str) -> Result<Granted, NoSession> {
    let answer = exchange(wanted, "POST", "/allocations", &question(wanted, program)?)?;
    let text = |name: &str| answer.get(name).cloned().ok_or_else(|| damaged(wanted, &format!("it has no {name}")));
    let address = text("address")?;
    let server = Server::parse(&address).map_err(|why| damaged(wanted, &why))?;
    let signature = hex(&text("signature")?).and_then(|bytes| bytes.try_into().ok());
    let (Some(body), Some(signature)) = (hex(&text("lease")?), signature) else {
        return Err(damaged(wanted, "its lease is none").into());
    };
    let lease = SignedLease { body, signature };
    Ok(Granted { allocation: text("allocation")?, node: text("node")?, server, places: text("places")?, lease })
}

/// Gives back what no session came of. If that is not heard either, it goes back by itself in half a minute.
pub fn give_back(wanted: &Wanted, granted: &Granted) {
    let _ = exchange(wanted, "DELETE", &format!("/allocations/{}", granted.allocation), "");
}

fn question(wanted: &Wanted, program: &str) -> Result<String, String> {
    // A name of our own, under which the same is answered if the controller is asked again.
    let nonce = fresh_nonce().map_err(|e| format!("reading random bytes failed: {e}"))?;
    let name: String = nonce[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let client = format!("{} {} {program}", host.trim(), std::process::id());
    let mut fields = vec![
        format!("\"allocation\":{}", quoted(&name)),
        format!("\"vgpus\":{}", wanted.vgpus),
        format!("\"tenant\":{}", quoted(&wanted.tenant)),
        format!("\"group\":{}", quoted(&wanted.group)),
        format!("\"client\":{}", quoted(&client)),
    ];
    fields.extend(wanted.memory_mib.map(|mib| format!("\"memory_mib\":{mib}")));
    fields.extend(wanted.ratio.map(|ratio| format!("\"ratio\":{ratio}")));
    Ok(format!("{{{}}}", fields.join(",")))
}

fn exchange(wanted: &Wanted, method: &str, path: &str, body: &str) -> Result<Object, NoSession> {
    let controller = &wanted.controller;
    let failed = |e: io::Error| {
        format!(
            "the pool's controller at {controller} is not reached: {e}; is orion-controller running there, and is \
             ORION_CONTROLLER (or controller_addr in client.conf) right?"
        )
    };
    let mut socket = connect(controller).map_err(failed)?;
    let key = wanted.client_key.as_ref().map(|key| format!("Authorization: Bearer {key}\r\n")).unwrap_or_default();
    if key.bytes().filter(|byte| matches!(byte, b'\r' | b'\n')).count() > 2 {
        return Err("ORION_CLIENT_KEY has a line break in it".to_owned().into());
    }
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {controller}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n{key}\r\n",
        body.len()
    );
    socket.write_all(format!("{head}{body}").as_bytes()).map_err(failed)?;
    let mut answer = Vec::new();
    socket.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).map_err(failed)?;
    let (status, object) = read(&answer).ok_or_else(|| damaged(wanted, "it is no HTTP with JSON"))?;
    match (status, object.get("error")) {
        (200, None) => Ok(object),
        (status, Some(error)) => {
            // Whoever lacks the key is kept out; whoever finds no room finds no GPU.
            let refused = (status == 401).then_some(Reason::NotPermitted);
            let hint = if status == 401 { " (ORION_CLIENT_KEY)" } else { "" };
            Err(NoSession {
                refused,
                text: format!("the pool's controller at {controller}: {}{hint}", one_line(error)),
            })
        }
        (status, None) => Err(damaged(wanted, &format!("it has status {status}")).into()),
    }
}

fn connect(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for candidate in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&candidate, CONNECT_TIMEOUT) {
            Ok(socket) => {
                socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
                socket.set_write_timeout(Some(ANSWER_TIMEOUT))?;
                return Ok(socket);
            }
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// Status and body of a whole answer.
fn read(answer: &[u8]) -> Option<(u16, Object)> {
    let (head, body) = std::str::from_utf8(answer).ok()?.split_once("\r\n\r\n")?;
    let (first, headers) = head.split_once("\r\n").unwrap_or((head, ""));
    let status = first.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    let length = headers.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    })?;
    (body.len() == length).then_some(())?;
    Some((status, object(body)?))
}

fn damaged(wanted: &Wanted, why: &str) -> String {
    format!(
        "what answers at {} is no controller of this version of Orion's: {why}; check ORION_CONTROLLER, and compare \
         versions",
        wanted.controller
    )
}

/// The controller explains in several lines.
fn one_line(text: &str) -> String {
    let mut line = String::new();
    for part in text.lines().map(str::trim).filter(|part| !part.is_empty()) {
        let between = if line.is_empty() {
            ""
        } else if line.ends_with(':') {
            " "
        } else {
            "; "
        };
        line.push_str(between);
        line.push_str(part);
    }
    line
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
    fn an_explanation_is_one_line() {
        let text = "the pool has no room for 1 vGPU\nfree:\n  a GPU 0: 0 MiB\n  b GPU 0: 1 MiB\nwould fit: nothing";
        let line = "the pool has no room for 1 vGPU; free: a GPU 0: 0 MiB; b GPU 0: 1 MiB; would fit: nothing";
        assert_eq!(one_line(text), line);
        assert_eq!(hex("00ff1"), None);
        assert_eq!(hex("00fF"), Some(vec![0, 255]));
    }
}
