//! Handshakes, records and what is refused, between two ends of a socket.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use orion_tls::blocking::{self, Stream};
use orion_tls::handshake::{Handshake, Secured};
use orion_tls::identity::{self, Role};
use orion_tls::record::{Opened, Outgoing};
use orion_tls::server::Server;
use orion_tls::trust::{ENVIRONMENT, Trust, Way};
use orion_tls::{Fingerprint, certificates};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType,
};

struct Scene(PathBuf);

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

type Ca = CertifiedIssuer<'static, KeyPair>;

impl Scene {
    fn new(name: &str) -> Scene {
        let folder = std::env::temp_dir().join(format!("orion-tls-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a new folder");
        Scene(folder)
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
        params.subject_alt_names = names;
        params.extended_key_usages = vec![purpose];
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, ca).expect("signing");
        self.put(&format!("{file}.pem"), &certificate.pem());
        self.put(&format!("{file}.key"), &key.serialize_pem());
    }

    fn server(&self, ca: &Ca, file: &str, year: i32) {
        let names = vec![SanType::IpAddress([127, 0, 0, 1].into()), SanType::DnsName("node".try_into().unwrap())];
        self.leaf(ca, file, names, ExtendedKeyUsagePurpose::ServerAuth, year);
    }

    fn client(&self, ca: &Ca, file: &str, uri: &str, year: i32) {
        self.leaf(ca, file, vec![SanType::URI(uri.try_into().unwrap())], ExtendedKeyUsagePurpose::ClientAuth, year);
    }

    fn serve(&self, file: &str, ca: Option<&str>) -> Server {
        let ca = ca.map(|name| self.file(&format!("{name}.pem")));
        Server::read(&self.file(&format!("{file}.pem")), &self.file(&format!("{file}.key")), ca.as_deref()).unwrap()
    }

    fn trust(&self, ca: &str, client: Option<&str>) -> Trust {
        let file = |ending: &str| client.map(|client| self.file(&format!("{client}.{ending}")));
        Trust {
            ca: Some(self.file(&format!("{ca}.pem"))),
            certificate: file("pem"),
            key: file("key"),
            ..Trust::default()
        }
    }
}

fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = TcpStream::connect(listener.local_addr().unwrap()).expect("it listens");
    (client, listener.accept().expect("it comes").0)
}

/// Both ends' connections, or what each says is wrong. A server's word about a client's certificate comes to the client
/// with the first bytes that it waits for.
fn meet(server: &Server, trust: &Trust, host: &str) -> (Result<Stream<TcpStream>, String>, Result<Secured, String>) {
    let Way::Tls(config, name) = trust.way_to(host, ENVIRONMENT).expect("sound") else { panic!("plain") };
    let (here, mut there) = sockets();
    let config_there = server.config.clone();
    let answering = std::thread::spawn(move || {
        let secured = blocking::accept(&mut there, &config_there)?;
        Ok::<_, std::io::Error>((secured, there))
    });
    let mut stream = Stream::connect(here, &config, &name).map_err(|e| e.to_string());
    let met = answering.join().expect("no panic");
    if met.is_err()
        && let Ok(client) = &mut stream
        && let Err(e) = client.read(&mut [0])
    {
        stream = Err(e.to_string());
    }
    (stream, met.map(|(secured, _)| secured).map_err(|e| e.to_string()))
}

#[test]
fn both_sides_know_who_the_other_is() {
    let scene = Scene::new("both");
    let ca = scene.ca("ca");
    scene.server(&ca, "server", 2100);
    scene.client(&ca, "red", "orion://client/red", 2100);
    let server = scene.serve("server", Some("ca"));
    for host in ["127.0.0.1:1", "node:7411"] {
        let (client, met) = meet(&server, &scene.trust("ca", Some("red")), host);
        client.map(drop).expect("the server is the one");
        let shown = met.expect("the client is known").peer.expect("it was shown");
        let who = identity::of(&shown).expect("it says who");
        assert_eq!((who.role, who.name.as_str()), (Role::Client, "red"));
        let file = certificates(&scene.file("red.pem")).unwrap();
        assert_eq!(who.fingerprint, Fingerprint::of(&file[0]));
    }
    // Without one a client comes in too: what it may do there is another question.
    let (client, met) = meet(&server, &scene.trust("ca", None), "node:1");
    assert!(client.is_ok() && met.expect("it comes in").peer.is_none());
}

#[test]
fn what_is_wrong_with_a_certificate_is_said() {
    let scene = Scene::new("wrong");
    let (ca, other) = (scene.ca("ca"), scene.ca("other"));
    scene.server(&ca, "server", 2100);
    scene.server(&ca, "late", 2001);
    scene.client(&other, "stranger", "orion://client/red", 2100);
    scene.client(&ca, "expired", "orion://client/red", 2001);
    scene.client(&ca, "client", "orion://client/red", 2100);
    let server = scene.serve("server", Some("ca"));
    let said = |server: &Server, trust: &Trust, host: &str| meet(server, trust, host).0.map(drop).expect_err("refused");
    for (why, words) in [
        (said(&server, &scene.trust("other", None), "node:1"), "not signed by the CA that is believed here"),
        (said(&server, &scene.trust("ca", None), "elsewhere:1"), "is for another name"),
        (said(&scene.serve("late", None), &scene.trust("ca", None), "node:1"), "has expired"),
        (said(&scene.serve("client", None), &scene.trust("ca", None), "node:1"), "another purpose"),
        (said(&server, &scene.trust("ca", Some("stranger")), "node:1"), "not signed by a CA that it believes"),
        (said(&server, &scene.trust("ca", Some("expired")), "node:1"), "that is shown here has expired"),
    ] {
        assert!(why.contains(words), "{why}");
    }
    let pinned = |fingerprint| Trust { fingerprint: Some(fingerprint), ..Trust::default() };
    assert!(meet(&server, &pinned(server.fingerprint), "anything:1").0.is_ok());
    let why = said(&server, &pinned(Fingerprint([7; 32])), "node:1");
    assert!(why.contains("another one than was announced"), "{why}");
}

#[test]
fn bytes_arrive_in_both_directions_whatever_their_number_and_however_often_keys_change() {
    let scene = Scene::new("bytes");
    let ca = scene.ca("ca");
    scene.server(&ca, "server", 2100);
    let (server, trust) = (scene.serve("server", None), scene.trust("ca", None));
    let Way::Tls(config, name) = trust.way_to("node:1", ENVIRONMENT).unwrap() else { panic!("plain") };
    let (mut here, mut there) = sockets();
    let answering = std::thread::spawn(move || blocking::accept(&mut there, &server.config).map(|s| (s, there)));
    let mut client = blocking::connect(&mut here, &config, &name).expect("a server");
    let (mut server, _there) = answering.join().unwrap().expect("a client");
    client.sealer.change_keys_after(3);
    for len in [0usize, 1, 16384, 16385, 300_000] {
        let plain: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
        for (sealer, opener) in [(&mut client.sealer, &mut server.opener), (&mut server.sealer, &mut client.opener)] {
            let mut out = Outgoing::default();
            sealer.seal(&plain, &mut out).expect("sealing");
            let mut sent: Vec<u8> = out.slices().flatten().copied().collect();
            assert!(len < 100 || !sent.windows(64).any(|w| w == &plain[..64]), "it is in the clear");
            let (mut at, mut got) = (0, Vec::new());
            assert_eq!(opener.open(&mut sent[..4.min(len)]), Ok(Opened::Part));
            while at < sent.len() {
                let Ok(Opened::Record { used, plain }) = opener.open(&mut sent[at..]) else { panic!("at {at}") };
                got.extend_from_slice(&sent[at..][plain]);
                at += used;
            }
            assert!(got == plain, "{len} bytes");
        }
    }
    let mut out = Outgoing::default();
    client.sealer.seal(b"word", &mut out).unwrap();
    let mut changed: Vec<u8> = out.slices().flatten().copied().collect();
    *changed.last_mut().unwrap() ^= 1;
    assert_eq!(server.opener.open(&mut changed), Err("a record was changed on its way".to_owned()));
}

#[test]
fn who_does_not_speak_tls_is_told_so() {
    let scene = Scene::new("plain");
    let ca = scene.ca("ca");
    scene.server(&ca, "server", 2100);
    let Way::Tls(config, name) = scene.trust("ca", None).way_to("node:1", ENVIRONMENT).unwrap() else { panic!() };
    let (here, mut there) = sockets();
    there.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    let why = Stream::connect(here, &config, &name).map(drop).expect_err("no TLS").to_string();
    assert!(why.contains("does not speak TLS"), "{why}");
    let (mut here, mut there) = sockets();
    here.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let config = scene.serve("server", None).config;
    assert!(blocking::accept(&mut there, &config).map(drop).expect_err("no TLS").to_string().contains("TLS"));
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let scene = Scene::new("settings");
    let ca = scene.ca("ca");
    scene.client(&ca, "red", "orion://client/red", 2100);
    let of = |pairs: &[(&str, &Path)]| {
        let value = |name: &str| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| v.display().to_string());
        Trust::from_environment(value).and_then(|trust| trust.way_to("node:1", ENVIRONMENT).map(drop))
    };
    let (ca, red, key) = (scene.file("ca.pem"), scene.file("red.pem"), scene.file("red.key"));
    assert_eq!(of(&[("ORION_CA", &ca), ("ORION_CERTIFICATE", &red), ("ORION_KEY", &key)]), Ok(()));
    assert_eq!(of(&[("ORION_INSECURE", Path::new("1"))]), Ok(()));
    std::fs::set_permissions(scene.file("red.key"), std::fs::Permissions::from_mode(0o640)).unwrap();
    for (pairs, words) in [
        (&[][..], "nothing says whose certificate to believe: give ORION_CA FILE"),
        (&[("ORION_CA", &*ca), ("ORION_INSECURE", Path::new("1"))][..], "in the clear, and a CA"),
        (&[("ORION_INSECURE", Path::new("yes"))][..], "it is 0 or 1"),
        (&[("ORION_CA", Path::new("/nowhere"))][..], "reading the certificate /nowhere failed"),
        (&[("ORION_CA", &*key)][..], "has no certificate in it"),
        (&[("ORION_CA", &*ca), ("ORION_CERTIFICATE", &*red)][..], "needs its key"),
        (&[("ORION_CA", &*ca), ("ORION_CERTIFICATE", &*red), ("ORION_KEY", &*key)][..], "mode 0640"),
        (&[("ORION_FINGERPRINT", Path::new("abc"))][..], "ORION_FINGERPRINT: \"abc\" is no fingerprint"),
    ] {
        let why = of(pairs).expect_err(words);
        assert!(why.contains(words), "{why}");
    }
    assert!(matches!(Trust::default().way_to("127.0.0.1:1", ENVIRONMENT), Ok(Way::Plain)));
}

#[test]
fn a_certificate_says_once_who_it_is_for() {
    let scene = Scene::new("who");
    let ca = scene.ca("ca");
    for (uri, words) in [
        ("spiffe://elsewhere/red", "does not say who it is for"),
        ("orion://king/red", "does not say who it is for"),
        ("orion://client/", "cannot be a name"),
        ("orion://client/a%20b", "cannot be a name"),
    ] {
        scene.client(&ca, "who", uri, 2100);
        let why = identity::of(&certificates(&scene.file("who.pem")).unwrap()[0]).expect_err(uri);
        assert!(why.contains(words), "{why}");
    }
}

/// In debug builds rustls panics if it is shown a second time what was wrong the first time.
#[test]
fn a_beginning_with_any_one_byte_changed_is_answered_or_refused() {
    let scene = Scene::new("spoiled");
    let ca = scene.ca("ca");
    scene.server(&ca, "server", 2100);
    let server = scene.serve("server", None);
    let Way::Tls(config, name) = scene.trust("ca", None).way_to("node:1", ENVIRONMENT).expect("sound") else {
        panic!("plain")
    };
    let mut whole = Vec::new();
    Handshake::client(config, name).expect("a client").step(&[], &mut whole).expect("it speaks first");
    let mut refused = 0;
    for at in 0..whole.len() {
        let mut spoiled = whole.clone();
        spoiled[at] ^= 0x40;
        let mut handshake = Handshake::server(server.config.clone()).expect("a server");
        let mut out = Vec::new();
        match handshake.step(&spoiled, &mut out) {
            Ok(may_speak) => assert!(!may_speak),
            Err(why) => {
                assert!(!why.is_empty());
                refused += 1;
            }
        }
    }
    // Random bytes and what nobody knows are as good as before.
    assert!(refused > 20, "{refused} of {}", whole.len());
}
