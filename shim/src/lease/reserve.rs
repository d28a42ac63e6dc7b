//! One question to the agent of this node, where no controller of the pool is reached: whether it lends something of
//! the node's own reserve.

// UNSAFETY: getuid.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use orion_tls::Fingerprint;
use orion_transport::client::wanted::Wanted;
use orion_transport::environment;
use orion_transport::fds;
use orion_transport::lease::SignedLease;
use orion_transport::socket::{connect_local, objection_to_folder, receive_timeout};
use orion_wire::address::Server;
use orion_wire::reserve::{self, Answer, Ask, KIND, RESERVE_VERSION, SOCKET};

use super::granted::{self, Claim, Granted, Part};

/// An agent that is there answers at once.
const ANSWER_SECONDS: i64 = 5;

/// Nothing if no agent of this node lends any. The error says why it does not lend this.
pub fn ask(wanted: &Wanted, client: &str) -> Option<Result<Granted, String>> {
    exchange(wanted, client, false)
}

/// The same of what would be lent, and nothing is.
pub fn look(wanted: &Wanted, client: &str) -> Option<Result<Granted, String>> {
    exchange(wanted, client, true)
}

fn exchange(wanted: &Wanted, client: &str, is_look: bool) -> Option<Result<Granted, String>> {
    let socket = socket()?;
    let agent = connect_local(&socket, ANSWER_SECONDS as u64).ok()?;
    Some(
        answer(&agent, wanted, client, is_look)
            .map_err(|why| format!("this node's own reserve: {why}"))
            .and_then(|answer| {
                let granted = granted(answer, agent);
                granted.map_err(|why| format!("what answers at {} is no agent: {why}", socket.display()))
            })
            .and_then(|granted| {
                // What was lent goes back with its connection.
                let reached = granted.parts.iter().try_for_each(|part| wanted.is_reached_at(&part.server));
                reached.map(|()| granted).map_err(|why| format!("this node's own reserve: {why}"))
            }),
    )
}

fn answer(agent: &UnixStream, wanted: &Wanted, client: &str, is_look: bool) -> Result<Answer, String> {
    if wanted.with_group {
        return Err("it knows no groups; it lends nothing where ORION_RES_GROUP=BOX is asked for".to_owned());
    }
    let wanted = reserve::Wanted {
        vgpus: wanted.vgpus,
        memory_mib: wanted.memory_mib,
        ratio: wanted.ratio,
        tenant: wanted.tenant.clone(),
        group: wanted.group.clone(),
        client: client.to_owned(),
        client_key: wanted.client_key.clone().unwrap_or_default(),
        carrier: wanted.carrier.map_or(String::new(), |carrier| carrier.name.to_owned()),
    };
    let ask = Ask::Want { version: RESERVE_VERSION, is_look, wanted }.encode();
    let exchange = || {
        receive_timeout(agent.as_fd(), ANSWER_SECONDS)?;
        fds::send_frame(agent.as_fd(), KIND, &ask, &[])?;
        fds::recv_frame(agent.as_fd())
    };
    let (kind, body, _) = exchange().map_err(|e: io::Error| format!("its agent does not answer: {e}"))?;
    match Answer::decode(&body) {
        Ok(Answer::No { reason }) => Err(granted::one_line(&reason)),
        Ok(answer) if kind == KIND => Ok(answer),
        Ok(_) => Err(format!("its agent answers with a frame of kind {kind}")),
        Err(fault) => Err(format!("its agent's answer is damaged: {fault}")),
    }
}

fn granted(answer: Answer, agent: UnixStream) -> Result<Granted, String> {
    let Answer::Lent { allocation, node, address, places, lease: body, signature, certificate } = answer else {
        return Err("it neither lends nor refuses".to_owned());
    };
    let (server, lease) = (Server::parse(&address)?, SignedLease { body, signature });
    let (allocation, certificate) = (allocation.to_string(), certificate.map(Fingerprint));
    let parts = vec![Part { node, server, places, lease, certificate }];
    Ok(Granted { allocation, parts, claim: Claim::OfReserve(agent) })
}

/// The first that is there of the places in which an agent listens, in a folder in which nobody else could have put it.
fn socket() -> Option<PathBuf> {
    // SAFETY: getuid cannot fail.
    let uid = unsafe { libc::getuid() };
    let runtime = environment::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    let folders = [
        runtime.map(|folder| PathBuf::from(folder).join("orion")),
        Some("/run/orion".into()),
        environment::is_believed().then(|| format!("/tmp/orion-{uid}").into()),
    ];
    let is_there = |folder: &PathBuf| folder.join(SOCKET).exists();
    let folder = folders.into_iter().flatten().find(is_there)?;
    matches!(objection_to_folder(&folder), Ok(None)).then(|| folder.join(SOCKET))
}
