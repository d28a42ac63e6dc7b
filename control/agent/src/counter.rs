//! The socket at which programs of this node ask for its own reserve (`orion_wire::reserve`). Each of them has a thread
//! until its session has begun.

// UNSAFETY: geteuid.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use orion_proto::few::Few;
use orion_transport::fds;
use orion_transport::room::{Limits, Room};
use orion_transport::socket::{objection_to_folder, peer_credentials, receive_timeout};
use orion_wire::reserve::{Answer, Ask, KIND, RESERVE_VERSION, SOCKET};
use tracing::warn;

use crate::reserve::Reserve;

/// Programs that are answered at one time.
const PROGRAMS_MAX: Limits = Limits { all: 64, of_others: 48, of_another: 16 };
/// A program asks at once.
const ASKS_WITHIN_SECONDS: i64 = 5;
/// A session begins within this, or the vGPUs are free again.
const BEGINS_WITHIN_SECONDS: i64 = 60;

/// Where programs look for it, in the order in which oriond's socket is looked for.
pub fn default_socket() -> PathBuf {
    if let Some(folder) = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty()) {
        return PathBuf::from(folder).join("orion").join(SOCKET);
    }
    match ours() {
        0 => PathBuf::from("/run/orion").join(SOCKET),
        uid => PathBuf::from(format!("/tmp/orion-{uid}")).join(SOCKET),
    }
}

/// Listens, and starts the thread. Whoever shows the key, or runs as this user or root, is let in.
pub fn open(path: &Path, reserve: Arc<Reserve>, client_key: Option<String>) -> Result<(), String> {
    let listener = listen(path)?;
    let (client_key, room, few) = (client_key.map(Arc::<str>::from), Room::of(PROGRAMS_MAX), Arc::<Few>::default());
    let serve = move || {
        for program in listener.incoming() {
            let Ok(program) = program else {
                // Most likely there are no descriptors left; trying again at once would only fail again.
                std::thread::sleep(Duration::from_millis(200));
                continue;
            };
            let Ok(peer) = peer_credentials(program.as_fd()) else { continue };
            let Some(place) = Room::enter(&room, peer.uid, peer.uid != ours() && peer.uid != 0) else {
                let _ = say(&program, &no("as many programs ask the agent already as it answers; ask again".into()));
                continue;
            };
            let (reserve, client_key, few) = (reserve.clone(), client_key.clone(), few.clone());
            let answer = move || {
                if let Err(e) = talk(&program, peer.uid, &reserve, client_key.as_deref())
                    && let Some(unsaid) = few.says()
                {
                    let (uid, what) =
                        (peer.uid, "a program that asked for the reserve said something else, or went away");
                    warn!(error = %e, uid, unsaid, "{what}");
                }
                drop(place);
            };
            if let Err(e) = std::thread::Builder::new().name("program".into()).spawn(answer) {
                warn!(error = %e, "starting a thread for a program failed");
            }
        }
    };
    let started = std::thread::Builder::new().name("reserve".into()).spawn(serve);
    started.map(drop).map_err(|e| format!("starting the reserve's thread failed: {e}"))
}

fn talk(program: &UnixStream, uid: u32, reserve: &Reserve, client_key: Option<&str>) -> io::Result<()> {
    receive_timeout(program.as_fd(), ASKS_WITHIN_SECONDS)?;
    let Some(ask) = hear(program)? else { return Ok(()) };
    let Ask::Want { version, is_look, wanted } = ask else {
        return Err(wrong("a session that begins with nothing lent"));
    };
    let answer = match (version, admit(uid, &wanted.client_key, client_key)) {
        (RESERVE_VERSION, Ok(())) if is_look => reserve.would_lend(wanted).unwrap_or_else(no),
        (RESERVE_VERSION, Ok(())) => reserve.lend(wanted).unwrap_or_else(no),
        (RESERVE_VERSION, Err(why)) => no(why),
        (other, _) => no(format!("this agent is of version {RESERVE_VERSION}, and the program's library of {other}")),
    };
    let allocation = match answer {
        Answer::Lent { allocation, .. } if !is_look => allocation,
        _ => return say(program, &answer),
    };
    let patience = receive_timeout(program.as_fd(), BEGINS_WITHIN_SECONDS);
    let begun = patience.and_then(|()| say(program, &answer)).and_then(|()| hear(program));
    match begun {
        Ok(Some(Ask::Begun)) => reserve.has_begun(allocation),
        Ok(_) => reserve.forsake(allocation),
        Err(e) => {
            reserve.forsake(allocation);
            return Err(e);
        }
    }
    Ok(())
}

fn no(reason: String) -> Answer {
    Answer::No { reason }
}

fn say(program: &UnixStream, answer: &Answer) -> io::Result<()> {
    fds::send_frame(program.as_fd(), KIND, &answer.encode(), &[])
}

/// Nothing if it has gone.
fn hear(program: &UnixStream) -> io::Result<Option<Ask>> {
    let (kind, body, _) = match fds::recv_frame(program.as_fd()) {
        Err(e) if matches!(e.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => return Ok(None),
        other => other?,
    };
    if kind != KIND {
        return Err(wrong(&format!("a frame of kind {kind}")));
    }
    Ask::decode(&body).map(Some).map_err(|fault| wrong(&fault.to_string()))
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// Whether this program may have something. The error says what it needs.
fn admit(uid: u32, shown: &str, client_key: Option<&str>) -> Result<(), String> {
    match client_key {
        _ if uid == ours() || uid == 0 => Ok(()),
        Some(key) if is_same(shown, key) => Ok(()),
        Some(_) => Err("this needs the pool's client-key (ORION_CLIENT_KEY), or the user of orion-agent".to_owned()),
        None => Err(format!(
            "user {uid} is neither root nor the user of orion-agent; others need a --client-key-file there, and that \
             key"
        )),
    }
}

/// Takes as long wherever they differ.
fn is_same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |all, (x, y)| all | (x ^ y)) == 0
}

fn ours() -> u32 {
    // SAFETY: geteuid cannot fail.
    unsafe { libc::geteuid() }
}

/// A killed agent's socket goes; anything else that is there stays, and is said.
fn listen(path: &Path) -> Result<UnixListener, String> {
    let name = path.display();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|e| format!("creating {} failed: {e}", folder.display()))?;
    match objection_to_folder(folder) {
        Ok(None) => {}
        Ok(Some(why)) => {
            return Err(format!(
                "refusing to listen in {}: {why}; give --reserve-socket a path in a folder of your own",
                folder.display()
            ));
        }
        Err(e) => return Err(format!("opening {} failed: {e}", folder.display())),
    }
    match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(format!("looking for {name} failed: {e}")),
        Ok(found) if !found.file_type().is_socket() || found.uid() != ours() => {
            return Err(format!("{name} is in the way; give --reserve-socket another path, or move it"));
        }
        Ok(_) => match UnixStream::connect(path) {
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path).map_err(|e| format!("removing the dead socket {name} failed: {e}"))?;
            }
            Err(e) => return Err(format!("finding out whether somebody listens on {name} failed: {e}")),
            Ok(_) => return Err(format!("another agent listens on {name}; give this one its own --reserve-socket")),
        },
    }
    let listener = UnixListener::bind(path).map_err(|e| format!("listening on {name} failed: {e}"))?;
    // Who is let in is decided by user and key.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))
        .map_err(|e| format!("setting the permissions of {name} failed: {e}"))?;
    Ok(listener)
}
