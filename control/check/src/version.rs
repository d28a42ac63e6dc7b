//! Whether an oriond talks to programs of this release. Its first answer says so, before anybody proves anything.

use std::os::fd::AsFd;

use orion_transport::channel::Channel;
use orion_transport::client::Server;
use orion_transport::client::handshake::answer_to;
use orion_transport::proof::fresh_nonce;
use orion_transport::socket;
use orion_wire::hello::{Hello, kind};
use orion_wire::refusal::Reason;
use orion_wire::version::Version;

use crate::finding::Report;

const TIMEOUT_SECONDS: i64 = 3;

pub fn check(report: &mut Report, server: &Server, mut channel: Channel) {
    match ask(server, &mut channel) {
        Ok(()) => report.well("version", format!("{server} talks to programs of this release ({}).", Version::OWN)),
        Err(Answer::Other(text)) => report.fail("version", text, "install one release on both sides"),
        Err(Answer::None(why)) => report.warn(
            "version",
            format!("Which release {server} has is not known: {why}"),
            "look whether it is an oriond, and into its log: journalctl -u oriond",
        ),
    }
}

enum Answer {
    Other(String),
    None(String),
}

fn ask(server: &Server, channel: &mut Channel) -> Result<(), Answer> {
    let failed = |e: std::io::Error| Answer::None(e.to_string());
    socket::receive_timeout(channel.as_fd(), TIMEOUT_SECONDS).map_err(failed)?;
    let nonce = fresh_nonce().map_err(failed)?;
    let hello = Hello { version: Version::OWN, nonce }.encode();
    channel.send_frame(kind::HELLO, &hello, &[]).map_err(failed)?;
    match answer_to(server, channel, kind::CHALLENGE, "the greeting") {
        Ok(_) => Ok(()),
        Err(no) if no.refused == Some(Reason::Version) => Err(Answer::Other(no.text)),
        Err(no) => Err(Answer::None(no.text)),
    }
}
