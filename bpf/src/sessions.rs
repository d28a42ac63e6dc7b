//! Whose a connection is. oriond says of each session, at the socket where tools ask it, where the other ends of its
//! connections are; the system shows which connections there are, so it is asked only when one is new.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::histogram::Counts;
use crate::ports::{self, Ends};
use crate::processes::shown;
use crate::report::{Connection, OfSession};

/// Of the words that are read here.
const VERSION: u32 = 1;
/// oriond answers at once, unless another tool does not read.
const PATIENCE: Duration = Duration::from_secs(2);
/// A report of a thousand sessions is smaller.
const BYTES_MAX: u64 = 64 << 20;
/// How often it is asked whose a connection is, four times a second. A stranger's is nobody's, and one becomes a
/// session's when its worker has begun.
const LOOKS_MAX: u32 = 100;
/// How oriond calls its socket for tools, unless it is told otherwise.
const NAME: &str = "stats.sock";
/// What listens, among sockets of `/proc/PID/net/unix`.
const LISTENS: u32 = 0x10000;

#[derive(Default)]
pub struct Sessions {
    /// Where it is asked; nowhere of a program that is no oriond.
    socket: Option<Result<PathBuf, String>>,
    /// Connections that are open, by inode, and how often it was asked whose they are.
    looks: BTreeMap<String, u32>,
    /// `None` where several sessions were there one after the other, which the programs in the kernel count as one.
    of: BTreeMap<Ends, Option<Of>>,
    who: BTreeMap<u64, Who>,
    /// Why it was not told the last time.
    refusal: Option<String>,
}

/// Of which session a connection is, and which of its lanes; `None` of its main one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Of {
    pub session: u64,
    pub lane: Option<u32>,
}

/// Whom a session is for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Who {
    program: String,
    tenant: Option<String>,
}

/// What is read here of what oriond says: `dataplane/telemetry/src/report.rs`.
#[derive(Deserialize)]
struct Said {
    version: u32,
    sessions: Vec<SaidOf>,
}

#[derive(Deserialize)]
struct SaidOf {
    session: u64,
    client: SaidClient,
    tenant: Option<String>,
    connections: Vec<SaidConnection>,
}

#[derive(Deserialize)]
struct SaidClient {
    program: String,
}

#[derive(Deserialize)]
struct SaidConnection {
    lane: Option<u32>,
    peer: SocketAddr,
    port: u16,
}

impl Sessions {
    /// Of an oriond.
    pub fn of_oriond(pid: u32) -> Sessions {
        Sessions { socket: Some(socket_of(pid)), ..Sessions::default() }
    }

    /// It is asked there.
    pub fn ask_at(&mut self, socket: PathBuf) {
        self.socket = Some(Ok(socket));
    }

    /// Finds out whose these are, by the inodes of their sockets, as far as that is not known.
    pub fn look<'a>(&mut self, open: impl Iterator<Item = (&'a str, Ends)>) {
        let Some(socket) = &self.socket else { return };
        let open: Vec<(&str, Ends)> = open.collect();
        let before = |inode: &str| self.looks.get(inode).copied().unwrap_or(0);
        let mut looks: BTreeMap<String, u32> = open.iter().map(|(i, _)| ((*i).to_owned(), before(i))).collect();
        if looks.values().any(|looks| *looks < LOOKS_MAX) {
            let said = socket.clone().and_then(|socket| ask(&socket));
            self.refusal = said.as_ref().err().cloned();
            let told = said.map_or_else(|_| BTreeSet::new(), |said| self.hear(said));
            for (inode, ends) in &open {
                let looks = looks.get_mut(*inode).expect("each has its own");
                *looks = if told.contains(ends) { LOOKS_MAX } else { LOOKS_MAX.min(*looks + 1) };
            }
        }
        self.looks = looks;
    }

    /// Answers of which connections it tells.
    fn hear(&mut self, said: Said) -> BTreeSet<Ends> {
        let mut told = BTreeSet::new();
        for SaidOf { session, client, tenant, connections } in said.sessions {
            for SaidConnection { lane, peer, port } in connections {
                let (ends, of) = (Ends::new(peer, port), Of { session, lane });
                told.insert(ends);
                let known = self.of.entry(ends).or_insert(Some(of));
                known.take_if(|known| *known != of);
                let who = || Who { program: shown(&client.program), tenant: tenant.as_deref().map(shown) };
                self.who.entry(session).or_insert_with(who);
            }
        }
        told
    }

    pub fn of(&self, ends: Ends) -> Option<Of> {
        self.of.get(&ends).copied().flatten()
    }

    /// Why nothing is known, where that is so.
    pub fn refusal(&self) -> Option<String> {
        self.refusal.as_ref().map(|why| format!("whose a connection is is not known: {why}"))
    }

    /// Says of each connection whose it is, and sums up by session.
    pub fn join(&self, counted: Vec<(Connection, Counts)>) -> (Vec<Connection>, Vec<OfSession>) {
        let (mut connections, mut sums) = (Vec::new(), BTreeMap::<u64, (OfSession, Counts)>::new());
        for (mut connection, counts) in counted {
            if let Some(of) = self.of(Ends::new(connection.peer, connection.port)) {
                (connection.session, connection.lane) = (Some(of.session), of.lane);
                match sums.get_mut(&of.session) {
                    None => drop(sums.insert(of.session, (self.sum(of.session, &connection), counts))),
                    Some((sum, all)) => {
                        sum.connections += 1;
                        sum.received += connection.received;
                        sum.retransmits += connection.retransmits;
                        all.merge(&counts);
                    }
                }
            }
            connections.push(connection);
        }
        connections.sort_by_key(|c| (c.session.is_none(), c.session, c.lane, c.peer));
        let sums = sums.into_values().map(|(sum, all)| OfSession { round_trips: all.times(), ..sum });
        (connections, sums.collect())
    }

    /// With its first connection.
    fn sum(&self, session: u64, first: &Connection) -> OfSession {
        let Who { program, tenant } = self.who.get(&session).cloned().unwrap_or_default();
        let Connection { received, retransmits, round_trips, .. } = *first;
        OfSession { session, program, tenant, connections: 1, received, retransmits, round_trips }
    }
}

fn ask(socket: &Path) -> Result<Said, String> {
    let failed = |e: std::io::Error| format!("asking oriond at {} failed: {e}", socket.display());
    let connection = UnixStream::connect(socket).map_err(failed)?;
    connection.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let mut text = String::new();
    connection.take(BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    match serde_json::from_str::<Said>(&text) {
        Ok(said) if said.version == VERSION => Ok(said),
        Ok(said) => Err(format!("oriond reports in version {}, and this orion-probe reads {VERSION}", said.version)),
        Err(e) => Err(format!("what oriond says at {} is not of this version: {e}", socket.display())),
    }
}

/// Where an oriond answers tools, as others reach it.
fn socket_of(oriond: u32) -> Result<PathBuf, String> {
    let own = ports::sockets_of(oriond);
    let table = std::fs::read(format!("/proc/{oriond}/net/unix")).unwrap_or_default();
    let path = String::from_utf8_lossy(&table).lines().skip(1).find_map(|line| listens_at(line, &own));
    let path = path.ok_or_else(|| {
        format!("process {oriond} listens at no path that ends in {NAME}: name the one of its --stats by --stats")
    })?;
    // It tells all of its sessions to its own user alone.
    let [theirs, ours] = [user(&oriond.to_string()), user("self")];
    if theirs != ours {
        let [theirs, ours] = [theirs, ours].map(|user| user.map_or("?".to_owned(), |uid| uid.to_string()));
        return Err(format!("oriond tells it to its own user {theirs}, and this is user {ours}"));
    }
    // It may be in another mount namespace, where the path is.
    let place = if path.starts_with('/') { "root" } else { "cwd" };
    Ok(format!("/proc/{oriond}/{place}/{}", path.trim_start_matches('/')).into())
}

/// As whom a process does what it does.
fn user(pid: &str) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().nth(1)?.parse().ok()
}

/// Of a line of `/proc/PID/net/unix`, where it is one of these and for tools.
fn listens_at(line: &str, own: &BTreeSet<String>) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let flags = u32::from_str_radix(words.get(3)?, 16).ok()?;
    let path = words.get(7..)?.join(" ");
    let is_it = flags & LISTENS != 0 && own.contains(*words.get(6)?) && path.ends_with(NAME);
    is_it.then_some(path)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixListener;

    use orion_telemetry::report as theirs;

    use super::*;
    use crate::histogram::{self, Times};

    fn ends(peer: &str) -> Ends {
        Ends::new(peer.parse().expect("an address"), 7)
    }

    /// A session, and its connections.
    type Told<'a> = (u64, &'a [(Option<u32>, &'a str)]);

    /// As oriond says it.
    fn told(sessions: &[Told]) -> String {
        let connection = |(lane, peer): &(Option<u32>, &str)| {
            let Ends { peer, port } = ends(peer);
            theirs::Connection { lane: *lane, peer, port }
        };
        let session = |(session, connections): &Told| theirs::Session {
            session: *session,
            client: theirs::Client { program: format!("program-{session}\x1b[7m"), ..Default::default() },
            tenant: Some("team".to_owned()),
            connections: connections.iter().map(connection).collect(),
            ..Default::default()
        };
        let sessions = sessions.iter().map(session).collect();
        let report = theirs::Report { version: theirs::VERSION, sessions, ..Default::default() };
        serde_json::to_string(&report).expect("plain data")
    }

    fn hear(sessions: &mut Sessions, text: &str) {
        sessions.hear(serde_json::from_str(text).expect("what oriond says"));
    }

    /// So many round trips of one microsecond.
    fn counted(peer: &str, retransmits: u64, round_trips: usize) -> (Connection, Counts) {
        let counts = histogram::tests::counted(&vec![1000; round_trips]);
        let Ends { peer, port } = ends(peer);
        let connection = Connection {
            session: None,
            lane: None,
            peer,
            port,
            received: 10,
            retransmits,
            smoothed_ns: 0,
            unacked_bytes: 0,
            unsent_bytes: 0,
            unread_bytes: 0,
            unacked_bytes_max: 0,
            unsent_bytes_max: 0,
            unread_bytes_max: 0,
            round_trips: counts.times(),
        };
        (connection, counts)
    }

    #[test]
    fn connections_have_their_session_and_a_session_the_sum_of_its_own() {
        let mut sessions = Sessions::default();
        let main_and_lane = [(None, "10.0.0.7:1000"), (Some(0), "10.0.0.7:1001")];
        hear(&mut sessions, &told(&[(5, &main_and_lane), (6, &[(None, "[2001:db8::7]:1000")])]));
        let counted = [
            // As a socket for both kinds has it.
            counted("[::ffff:10.0.0.7]:1001", 3, 30),
            counted("10.0.0.8:1000", 9, 90),
            counted("[2001:db8::7]:1000", 0, 0),
            counted("10.0.0.7:1000", 1, 10),
        ];
        let (connections, sums) = sessions.join(counted.into());
        let joined: Vec<_> = connections.iter().map(|c| (c.session, c.lane, c.retransmits)).collect();
        assert_eq!(joined, [(Some(5), None, 1), (Some(5), Some(0), 3), (Some(6), None, 0), (None, None, 9)]);
        let sum = &sums[0];
        assert_eq!((sum.session, sum.connections, sum.received, sum.retransmits), (5, 2, 20, 4));
        assert_eq!((sum.round_trips.count, sum.round_trips.sum_ns), (40, 40_000));
        assert_eq!((sum.program.as_str(), sum.tenant.as_deref()), ("program-5\u{fffd}[7m", Some("team")));
        assert_eq!((sums.len(), sums[1].session, sums[1].round_trips), (2, 6, Times::default()));
    }

    #[test]
    fn an_address_that_two_sessions_had_is_neithers() {
        let mut sessions = Sessions::default();
        for session in [5, 5, 6, 6] {
            hear(&mut sessions, &told(&[(session, &[(None, "10.0.0.7:1000")])]));
            let expected = (session == 5).then_some(Of { session, lane: None });
            assert_eq!(sessions.of(ends("10.0.0.7:1000")), expected);
        }
    }

    #[test]
    fn oriond_is_asked_when_a_connection_is_new_and_not_for_ever() {
        let path = std::env::temp_dir().join(format!("orion-bpf-{}.stats.sock", std::process::id()));
        let oriond = UnixListener::bind(&path).expect("listening");
        let here = std::process::id();
        assert_eq!(socket_of(here), Ok(format!("/proc/{here}/root{}", path.display()).into()));
        let answers = std::thread::spawn(move || {
            let texts = [told(&[]), told(&[(5, &[(None, "10.0.0.7:1")])]), "what?".to_owned()];
            for text in texts {
                oriond.accept().expect("accepting").0.write_all(text.as_bytes()).expect("writing");
            }
        });
        let mut sessions = Sessions::default();
        sessions.ask_at(path.clone());
        let (one, other) = (("1", ends("10.0.0.7:1")), ("2", ends("10.0.0.7:2")));
        sessions.look(std::iter::empty());
        sessions.look([one].into_iter());
        assert_eq!((sessions.of(one.1), sessions.refusal()), (None, None));
        let of = Some(Of { session: 5, lane: None });
        (0..10).for_each(|_| sessions.look([one].into_iter()));
        assert_eq!(sessions.of(one.1), of);
        sessions.look([one, other].into_iter());
        assert!(sessions.refusal().is_some_and(|why| why.contains("not of this version")));
        answers.join().expect("three questions");
        std::fs::remove_file(&path).expect("removing");
        (0..2 * LOOKS_MAX).for_each(|_| sessions.look([other].into_iter()));
        assert_eq!(sessions.looks, BTreeMap::from([("2".to_owned(), LOOKS_MAX)]));
        assert_eq!((sessions.of(one.1), sessions.of(other.1)), (of, None));
    }
}
