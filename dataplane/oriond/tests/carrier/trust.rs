//! Encrypted: who is believed, who is let in, and what somebody in between or at the door can do.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use orion_tls::Fingerprint;
use orion_tls::blocking;
use orion_tls::identity::{Role, uri};
use orion_tls::server::Server;
use orion_tls::trust::Trust;
use orion_transport::carrier::{self, Listener, tcp};
use orion_transport::client::{Caller, NoSession, Tuning};
use orion_wire::hello::kind;
use orion_wire::record::HeapRange;
use orion_wire::refusal::Reason;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType,
};

use crate::harness::*;

type Ca = CertifiedIssuer<'static, KeyPair>;

/// A folder with certificates.
struct Papers(PathBuf);

impl Drop for Papers {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const GOOD_UNTIL: i32 = 2100;
const LATE: i32 = 2001;

impl Papers {
    fn new(name: &str) -> Papers {
        let folder = std::env::temp_dir().join(format!("orion-papers-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a new folder");
        Papers(folder)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn put(&self, name: &str, text: &str) {
        std::fs::write(self.file(name), text).expect("writing");
        std::fs::set_permissions(self.file(name), std::fs::Permissions::from_mode(0o600)).expect("chmod");
    }

    fn ca(&self, name: &str) -> Ca {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a CA");
        self.put(&format!("{name}.pem"), &ca.pem());
        ca
    }

    fn leaf(&self, ca: &Ca, file: &str, names: Vec<SanType>, purpose: ExtendedKeyUsagePurpose, year: i32) {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        (params.subject_alt_names, params.extended_key_usages) = (names, vec![purpose]);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().expect("a key");
        self.put(&format!("{file}.pem"), &params.signed_by(&key, ca).expect("signing").pem());
        self.put(&format!("{file}.key"), &key.serialize_pem());
    }

    /// For a server at this address.
    fn server(&self, ca: &Ca, file: &str, ip: [u8; 4], year: i32) {
        self.leaf(ca, file, vec![SanType::IpAddress(ip.into())], ExtendedKeyUsagePurpose::ServerAuth, year);
    }

    fn client(&self, ca: &Ca, file: &str, uris: &[String], year: i32) {
        let names = uris.iter().map(|uri| SanType::URI(uri.as_str().try_into().expect("plain"))).collect();
        self.leaf(ca, file, names, ExtendedKeyUsagePurpose::ClientAuth, year);
    }

    fn fingerprint(&self, file: &str) -> Fingerprint {
        Fingerprint::of(&orion_tls::certificates(&self.file(&format!("{file}.pem"))).expect("it was made")[0])
    }

    /// An oriond that shows this certificate, and wants one of `ca` if that is named.
    fn oriond(&self, file: &str, ca: Option<&str>) -> Oriond {
        self.put("revoked", "# nobody yet\n");
        let mut command = Command::new(env!("CARGO_BIN_EXE_oriond"));
        command.args(["serve", "--driver", "echo", "--warm", "1", "--engines", "2", "--socket", "none"]);
        command.args(["--listen", "127.0.0.1:0"]);
        let path = |ending: &str| self.file(&format!("{file}.{ending}"));
        command.arg("--certificate").arg(path("pem")).arg("--key").arg(path("key"));
        match ca {
            Some(ca) => command.arg("--client-ca").arg(self.file(ca)).arg("--revoked").arg(self.file("revoked")),
            None => {
                self.put("token", TOKEN);
                command.arg("--token-file").arg(self.file("token"))
            }
        };
        Oriond::start_as(&mut command)
    }

    /// Who believes that CA, and shows that certificate.
    fn caller(&self, ca: &str, shown: Option<&str>) -> Caller {
        let file = |ending: &str| shown.map(|name| self.file(&format!("{name}.{ending}")));
        let (certificate, key) = (file("pem"), file("key"));
        let trust = Trust { ca: Some(self.file(ca)), certificate, key, ..Trust::default() };
        Caller { token: None, trust, ..hello() }
    }
}

fn try_attach(server: &Oriond, caller: &Caller) -> Result<Client, String> {
    try_once(server, caller).map_err(|no| no.text)
}

fn try_once(server: &Oriond, caller: &Caller) -> Result<Client, NoSession> {
    Client::try_attach(server, Transport::Tcp, caller, Tuning::default())
}

fn refused(server: &Oriond, caller: &Caller) -> String {
    try_attach(server, caller).err().expect("it is refused")
}

#[test]
fn who_shows_a_certificate_of_the_ca_comes_in_and_nobody_else() {
    let papers = Papers::new("matrix");
    let (ca, other) = (papers.ca("ca"), papers.ca("other"));
    papers.server(&ca, "server", [127, 0, 0, 1], GOOD_UNTIL);
    let red = [uri(Role::Client, "red")];
    papers.client(&ca, "red", &red, GOOD_UNTIL);
    papers.client(&ca, "administrator", &[uri(Role::Administrator, "ann")], GOOD_UNTIL);
    papers.client(&ca, "node", &[uri(Role::Node, "alpha")], GOOD_UNTIL);
    papers.client(&ca, "nobody", &[], GOOD_UNTIL);
    papers.client(&ca, "two", &[uri(Role::Client, "red"), uri(Role::Client, "blue")], GOOD_UNTIL);
    papers.client(&ca, "expired", &red, LATE);
    papers.client(&other, "stranger", &red, GOOD_UNTIL);
    let server = papers.oriond("server", Some("ca.pem"));
    for name in ["red", "administrator"] {
        let mut client = try_attach(&server, &papers.caller("ca.pem", Some(name))).expect("it is let in");
        assert_eq!(client.call(0x101, &[4; 8]), [4; 8]);
    }
    server.wait_for_log(&["session begins", "certificate=orion://client/red", "encrypted=true"]);
    for (shown, words) in [
        (None, "wants a certificate (--client-ca), and none was shown"),
        (Some("node"), "orion://node/alpha is a node's"),
        (Some("nobody"), "does not say who it is for"),
        (Some("two"), "says twice who it is for"),
        (Some("expired"), "the certificate that is shown here has expired"),
        (Some("stranger"), "not signed by a CA that it believes"),
        // A server's is none for a client.
        (Some("server"), "it does not take the certificate that is shown here"),
    ] {
        let said = refused(&server, &papers.caller("ca.pem", shown));
        assert!(said.contains(words), "{shown:?}: {said}");
    }
    // Without encryption no certificate can be shown.
    let clear = Caller { token: None, ..hello() };
    let said = refused(&server, &clear);
    assert!(said.contains("ORION_CERTIFICATE") && said.contains("ORION_TLS=1"), "{said}");
    // Whoever is believed for a server is the client's to say.
    let said = refused(&server, &papers.caller("other.pem", Some("red")));
    assert!(said.contains("not signed by the CA that is believed here"), "{said}");
    try_attach(&server, &papers.caller("ca.pem", Some("red"))).expect("it is let in as before");
}

#[test]
fn a_server_that_shows_another_certificate_is_not_talked_to() {
    let papers = Papers::new("server");
    let (ca, other) = (papers.ca("ca"), papers.ca("other"));
    papers.server(&ca, "late", [127, 0, 0, 1], LATE);
    papers.server(&ca, "elsewhere", [10, 0, 0, 1], GOOD_UNTIL);
    papers.server(&other, "foreign", [127, 0, 0, 1], GOOD_UNTIL);
    papers.client(&ca, "client", &[uri(Role::Client, "red")], GOOD_UNTIL);
    for (shown, words) in [
        ("late", "its certificate has expired"),
        ("elsewhere", "its certificate is for another name"),
        ("foreign", "not signed by the CA that is believed here"),
        ("client", "its certificate is for another purpose"),
    ] {
        let server = papers.oriond(shown, None);
        let caller = Caller { token: token(TOKEN), ..papers.caller("ca.pem", None) };
        let no = try_once(&server, &caller).err().expect("it is not believed");
        assert!(no.text.contains(words) && !no.may_pass, "{shown}: {no:?}");
        // By its fingerprint it is known, whatever else stands in it.
        let trust = Trust { fingerprint: Some(papers.fingerprint(shown)), ..Trust::default() };
        try_attach(&server, &Caller { trust, ..hello() }).expect("it is the one");
        let trust = Trust { fingerprint: Some(Fingerprint([7; 32])), ..Trust::default() };
        // It may be the next one of that server.
        let no = try_once(&server, &Caller { trust, ..hello() }).err().expect("it is not the one");
        assert!(no.text.contains("another one than was announced") && no.may_pass, "{no:?}");
    }
}

#[test]
fn who_is_revoked_loses_his_sessions_and_gets_no_new_ones() {
    let papers = Papers::new("revoked");
    let ca = papers.ca("ca");
    papers.server(&ca, "server", [127, 0, 0, 1], GOOD_UNTIL);
    for name in ["red", "blue"] {
        papers.client(&ca, name, &[uri(Role::Client, name)], GOOD_UNTIL);
    }
    let server = papers.oriond("server", Some("ca.pem"));
    let attach = |name: &str| try_attach(&server, &papers.caller("ca.pem", Some(name)));
    let (red, mut blue) = (attach("red").expect("good"), attach("blue").expect("good"));
    papers.put("revoked", &format!("{} # orion://client/red\n", papers.fingerprint("red")));
    wait_until("its session to end", || red.is_lost());
    server.wait_for_log(&["the certificate of its client was revoked"]);
    let said = attach("red").err().expect("refused");
    assert!(said.contains("orion://client/red is revoked"), "{said}");
    assert_eq!(blue.call(0x101, &[4; 8]), [4; 8]);
    // A list that cannot be read is said to be one, and the last one stays.
    papers.put("revoked", "who knows\n");
    server.wait_for_log(&["ERROR", "stays as it was", "who knows"]);
    assert!(attach("red").is_err());
    papers.put("revoked", "");
    server.wait_for_log(&["was read anew", "certificates=0"]);
    assert!(attach("red").is_ok());
}

#[test]
fn papers_that_are_no_good_stop_oriond_at_its_start() {
    let papers = Papers::new("start");
    let (ca, other) = (papers.ca("ca"), papers.ca("other"));
    papers.server(&ca, "server", [127, 0, 0, 1], GOOD_UNTIL);
    papers.server(&other, "other-server", [127, 0, 0, 1], GOOD_UNTIL);
    papers.put("token", TOKEN);
    papers.put("list", "red\n");
    let path = |name: &str| papers.file(name).to_str().expect("plain").to_owned();
    std::fs::set_permissions(papers.file("other-server.key"), std::fs::Permissions::from_mode(0o644)).expect("chmod");
    papers.put("kept.key", &std::fs::read_to_string(papers.file("other-server.key")).expect("it was made"));
    for (options, words) in [
        (vec!["--certificate", &path("server.pem"), "--key", &path("other-server.key")], "chmod 600"),
        (vec!["--certificate", &path("server.pem"), "--key", &path("kept.key")], "do not go together"),
        (vec!["--certificate", &path("none.pem"), "--key", &path("server.key")], "none.pem"),
        (vec!["--certificate", &path("server.key"), "--key", &path("server.key")], "has no certificate in it"),
        (vec!["--certificate", &path("server.pem"), "--key", &path("server.pem")], "has no key in it"),
        (vec!["--certificate", &path("server.pem")], "--key"),
        (vec!["--client-ca", &path("token")], "has no certificate in it"),
        (vec!["--client-ca", &path("ca.pem"), "--revoked", &path("list")], "\"red\" is no fingerprint"),
        (vec!["--revoked", &path("list")], "--client-ca"),
        (vec!["--insecure", "--client-ca", &path("ca.pem")], "leave one of them out"),
        (vec!["--listen", "none", "--client-ca", &path("ca.pem")], "is about a TCP address"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_oriond"))
            .args(["serve", "--driver", "echo", "--socket", "none", "--listen", "127.0.0.1:0", "--token-file"])
            .arg(papers.file("token"))
            .args(&options)
            .output()
            .expect("starting oriond");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(words), "{options:?}: {said}");
    }
}

/// Somebody in between who takes each side's keys for his own sees everything, and comes no further than the first
/// proof: it is of the certificate that its side was shown.
#[test]
fn somebody_in_between_with_a_certificate_of_his_own_gets_nowhere() {
    let papers = Papers::new("between");
    papers.server(&papers.ca("ca"), "his", [127, 0, 0, 1], GOOD_UNTIL);
    let his = Server::read(&papers.file("his.pem"), &papers.file("his.key"), None).expect("a certificate");
    let server = Oriond::start(&[]);
    let listener = TcpListener::bind("127.0.0.1:0").expect("listening");
    let address = listener.local_addr().expect("an address").to_string();
    let behind = server.server(Transport::Tls);
    let between = std::thread::spawn(move || {
        let mut client = listener.accept().expect("a client").0;
        let mut secured = blocking::accept(&mut client, &his.config).expect("the client takes any certificate");
        let caller = Caller { trust: Transport::Tls.trust(), ..hello() };
        let mut channel = tcp::reach(&behind, &tcp::way(&behind, &caller).expect("a way")).expect("the server");
        // What the client says first, passed on, and the answer back.
        let mut record = vec![0; 5];
        client.read_exact(&mut record).expect("a record");
        record.resize(orion_tls::record::record_bytes(&record).expect("a record").expect("whole"), 0);
        client.read_exact(&mut record[5..]).expect("a record");
        let orion_tls::record::Opened::Record { plain, .. } = secured.opener.open(&mut record).expect("his key") else {
            panic!("no record");
        };
        channel.send(&record[plain], &[]).expect("passing on");
        let (answer, body, _) = channel.recv_frame().expect("an answer");
        assert_eq!(answer, kind::CHALLENGE);
        let mut out = orion_tls::record::Outgoing::default();
        secured.sealer.seal(&orion_wire::hello::frame(answer, &body), &mut out).expect("his key");
        out.slices().for_each(|record| client.write_all(record).expect("passing back"));
        let mut rest = Vec::new();
        let _ = client.read_to_end(&mut rest);
        rest
    });
    let caller = Caller { trust: Transport::Tls.trust(), ..hello() };
    let attached = carrier::attach(&over_tcp(&address), &caller, Tuning::default(), Listener::NOBODY);
    let no = attached.err().expect("it is seen");
    assert_eq!(no.refused, Some(Reason::NotPermitted));
    assert!(no.text.contains("does not know this program's token"), "{}", no.text);
    assert!(between.join().expect("no panic").is_empty(), "the client said something to him");
}

/// Passes connections on. What went by is kept, and once `spoil` is set a byte of what the client says is changed.
fn wire_tap(to: &str) -> (String, Arc<Mutex<Vec<u8>>>, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listening");
    let address = listener.local_addr().expect("an address").to_string();
    let (heard, spoil, to) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)), to.to_owned());
    let (all, spoils) = (heard.clone(), spoil.clone());
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.expect("a connection");
            let server = TcpStream::connect(&to).expect("connecting");
            for (mut from, mut to, is_clients) in
                [(client.try_clone().unwrap(), server.try_clone().unwrap(), true), (server, client, false)]
            {
                let (all, spoils) = (all.clone(), spoils.clone());
                std::thread::spawn(move || {
                    let mut buffer = [0; 64 << 10];
                    while let Ok(n @ 1..) = from.read(&mut buffer) {
                        if is_clients && n > 10 && spoils.swap(false, Ordering::SeqCst) {
                            buffer[n - 1] ^= 1;
                        }
                        all.lock().unwrap().extend(&buffer[..n]);
                        if to.write_all(&buffer[..n]).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
    (address, heard, spoil)
}

#[test]
fn what_goes_by_can_be_neither_read_nor_changed() {
    let mut server = Oriond::start(&[]);
    let (address, heard, spoil) = wire_tap(&server.tcp);
    server.tcp = address;
    let secret = b"nobody else is to read this line of a program's data";
    let mut client = Client::attach(&server, Transport::Tls);
    let mut body = secret.to_vec();
    body.resize(secret.len().next_multiple_of(8), b' ');
    assert_eq!(client.call(0x101, &body), body);
    // In bulk, over whichever connections take it.
    let range = HeapRange { offset: 4096, bytes: 4 << 20 };
    client.bytes_mut(range).chunks_exact_mut(secret.len()).for_each(|chunk| chunk.copy_from_slice(secret));
    let sum: u64 = client.bytes(range).iter().map(|byte| u64::from(*byte)).sum();
    client.announce(range);
    assert_eq!(client.sum(range), sum);
    let went_by = heard.lock().unwrap().clone();
    assert!(went_by.len() > range.bytes as usize);
    let is_in = |words: &[u8]| went_by.windows(words.len()).any(|w| w == words);
    assert!(!is_in(&secret[..16]) && !is_in(&TOKEN.as_bytes()[..16]) && !is_in(b"ORIO"));
    spoil.store(true, Ordering::SeqCst);
    client.start(0x101, &body);
    assert!(client.reply_or_lost().is_none());
    server.wait_for_log(&["session ends", "a record was changed on its way"]);
}

/// An address of this machine's that is not loopback's, if it has one.
fn outward() -> Option<IpAddr> {
    let all = if_addrs::get_if_addrs().expect("the system says which there are");
    all.iter().map(if_addrs::Interface::ip).find(|ip| ip.is_ipv4() && !ip.is_loopback())
}

#[test]
fn from_elsewhere_nothing_is_said_in_the_clear_unless_both_sides_say_so() {
    let Some(ip) = outward() else { panic!("this test needs a network interface beside loopback") };
    let any = format!("{ip}:0");
    let mut server = Oriond::start(&["--listen", &any]);
    // By the token alone, with nothing said about encryption on either side.
    let attached = carrier::attach(&over_tcp(&server.tcp), &hello(), Tuning::default(), Listener::NOBODY);
    let attached = attached.map_err(|no| no.text).expect("it is let in");
    assert_eq!(attached.security.is_encrypted, Some(true));
    attached.carrier.close();
    let insecure = Caller { trust: Trust { insecure: true, ..Trust::default() }, ..hello() };
    let said = refused(&server, &insecure);
    assert!(said.contains("spoken to by TLS from other machines") && said.contains("ORION_INSECURE"), "{said}");
    // Somebody without a token has nothing to know the server by.
    let said = refused(&server, &Caller { token: None, ..hello() });
    assert!(said.contains("ORION_CA") && said.contains("ORION_TOKEN_FILE"), "{said}");
    server = Oriond::start(&["--listen", &any, "--insecure"]);
    server.wait_for_log(&["WARN", "INSECURE"]);
    assert!(!server.log().contains("whoever reaches it"), "it has a token");
    assert_eq!(try_attach(&server, &insecure).expect("both have said so").call(0x101, &[4; 8]), [4; 8]);
    server.wait_for_log(&["session begins", "encrypted=false"]);
    // Nobody is made to.
    assert!(try_attach(&server, &hello()).is_ok());
    server.wait_for_log(&["session begins", "encrypted=true"]);
}

/// Another program's port, or an Orion's of before TLS.
#[test]
fn who_wants_encryption_and_meets_none_goes_nowhere() {
    for answer in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"ORIO\x03\0\0\0\0\0\0\0\0\0\0\0"] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listening");
        let address = listener.local_addr().expect("an address").to_string();
        let other = std::thread::spawn(move || {
            let mut client = listener.accept().expect("a client").0;
            let mut first = [0; 1];
            client.read_exact(&mut first).expect("it speaks first");
            client.write_all(answer).expect("answering");
            let mut rest = Vec::new();
            let _ = client.read_to_end(&mut rest);
            (first[0], rest)
        });
        let caller = Caller { trust: Transport::Tls.trust(), ..hello() };
        let no = carrier::attach(&over_tcp(&address), &caller, Tuning::default(), Listener::NOBODY).err();
        let text = no.expect("no session").text;
        assert!(text.contains("does not speak TLS"), "{text}");
        let (first, rest) = other.join().expect("no panic");
        assert!(first == 22 && !rest.windows(4).any(|w| w == b"ORIO"), "it went on in the clear");
    }
}

/// The beginning of what a client of TLS says.
fn client_hello() -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listening");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        let caller = Caller { trust: Transport::Tls.trust(), ..hello() };
        let _ = carrier::attach(&over_tcp(&address), &caller, Tuning::default(), Listener::NOBODY);
    });
    let mut client = listener.accept().expect("a client").0;
    let mut record = vec![0; 5];
    client.read_exact(&mut record).expect("a record");
    record.resize(orion_tls::record::record_bytes(&record).expect("a record").expect("whole"), 0);
    client.read_exact(&mut record[5..]).expect("a record");
    record
}

#[test]
fn handshakes_that_stop_half_way_are_closed_and_keep_nobody_out() {
    let server = Oriond::start(&["--warm", "4"]);
    let whole = client_hello();
    let begin = Instant::now();
    // One that says nothing more, at each place where it can stop; then more than may stand there.
    let mut stopped: Vec<TcpStream> = (0..300)
        .map(|n| {
            let mut stream = TcpStream::connect(&server.tcp).expect("connecting");
            let cut = if n % 3 == 0 { whole.len() } else { n % whole.len() };
            stream.write_all(&whole[..cut]).expect("sending");
            stream
        })
        .collect();
    // The oldest went when there were too many.
    let _ = stopped[0].read_to_end(&mut Vec::new());
    crate::door::made_room_for_others(&server, &stopped[0]);
    let tuning = Tuning { lanes: 0, ..Tuning::default() };
    for _ in 0..4 {
        Client::try_attach(&server, Transport::Tls, &hello(), tuning).map_err(|no| no.text).expect("room for one more");
    }
    // The others when their time was over.
    let _ = stopped[299].read_to_end(&mut Vec::new());
    assert!(begin.elapsed() >= Duration::from_secs(4), "after {:?}", begin.elapsed());
    wait_until("the door to be empty", || {
        stopped.iter_mut().all(|stream| {
            stream.set_nonblocking(true).expect("a socket");
            matches!(stream.read(&mut [0; 64 << 10]), Ok(0) | Err(_)) && has_ended(stream)
        })
    });
}

fn has_ended(stream: &TcpStream) -> bool {
    let mut entry = libc::pollfd { fd: stream.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one valid entry.
    unsafe { libc::poll(&raw mut entry, 1, 0) > 0 }
}

/// A small fuzzer: a true beginning with bytes changed, lengths that are none, records of every kind, and one long
/// handshake that never ends.
#[test]
fn nonsense_where_keys_are_agreed_on_hurts_nobody() {
    let server = Oriond::start(&[]);
    let mut bystander = Client::attach(&server, Transport::Tls);
    let whole = client_hello();
    let mut random = 0x2545_f491_4f6c_dd1du64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for round in 0..300u64 {
        let mut bytes = whole.clone();
        match round % 4 {
            0 => (0..1 + next() % 4).for_each(|_| {
                let at = 1 + next() as usize % (bytes.len() - 1);
                bytes[at] ^= 1 << (next() % 8);
            }),
            1 => bytes = (0..1 + next() % 200).map(|i| if i == 0 { 22 } else { next() as u8 }).collect(),
            2 => {
                // Whole, and behind it a record of some kind.
                bytes.extend([20 + next() as u8 % 5, 3, 3, 0, 4]);
                bytes.extend((0..4).map(|_| next() as u8));
            }
            _ => bytes = [&[22, 3, 1, 0x40, 0][..], &[1, 0, 0xff, 0xff], &vec![next() as u8; (16 << 10) - 4]].concat(),
        }
        let mut stream = TcpStream::connect(&server.tcp).expect("connecting");
        let _ = stream.write_all(&bytes);
        if round % 4 == 3 {
            // A message that says that it is longer than all that is kept of one.
            for _ in 0..6 {
                let _ = stream.write_all(&[&[22, 3, 3, 0x40, 0][..], &[7; 16 << 10]].concat());
            }
        }
        if round % 2 == 0 {
            let _ = stream.shutdown(std::net::Shutdown::Write);
            read_rest(&mut stream);
        }
    }
    assert_eq!(bystander.call(0x101, &[4; 8]), [4; 8]);
    wait_until("an attach", || Client::try_attach(&server, Transport::Tls, &hello(), Tuning::default()).is_ok());
}
