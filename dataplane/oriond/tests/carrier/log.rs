//! Whatever becomes of oriond's log, sessions go on.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::harness::{Client, Oriond, SHOUT, Transport, holds, measured, pipe, wait_until, words};

/// Strangers who talk nonsense: each is worth a line.
fn annoy(server: &Oriond, times: usize) {
    for _ in 0..times {
        let mut stranger = TcpStream::connect(&server.tcp).expect("connecting");
        let _ = stranger.write_all(b"GET / HTTP/1.1\r\nHost: gpu\r\n\r\n");
        // Until oriond has closed it, so that none of them is one too many at a time.
        let _ = stranger.set_read_timeout(Some(Duration::from_secs(10)));
        let _ = stranger.read(&mut [0; 16]);
    }
}

fn check(server: &Oriond, sessions: &mut [Client]) {
    for session in sessions {
        measured(|| {
            let asked = Instant::now();
            assert_eq!(session.call(0x101, &[4; 8]), [4; 8]);
            let took = asked.elapsed();
            holds(took < Duration::from_secs(2), || format!("an answer took {took:?}"))
        });
    }
    assert_eq!(Client::attach(server, Transport::Tcp).call(0x101, &[5; 8]), [5; 8]);
}

fn sessions(server: &Oriond) -> Vec<Client> {
    Transport::ALL.iter().map(|transport| Client::attach(server, *transport)).collect()
}

#[test]
fn a_log_on_a_full_disk_ends_no_session() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    let server = Oriond::start_with(&[], &[], Some(full.into()));
    let mut sessions = sessions(&server);
    annoy(&server, 400);
    check(&server, &mut sessions);
}

#[test]
fn a_log_that_nobody_reads_any_more_ends_no_session() {
    let (reader, writer) = pipe();
    let server = Oriond::start_with(&[], &[], Some(writer.into()));
    let mut sessions = sessions(&server);
    drop(reader);
    annoy(&server, 400);
    check(&server, &mut sessions);
}

#[test]
fn a_log_that_nobody_reads_for_a_while_holds_up_nobody_and_says_what_was_lost() {
    let (reader, writer) = pipe();
    // A page: full after some forty lines.
    // SAFETY: a plain call on a descriptor of ours.
    unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&writer), libc::F_SETPIPE_SZ, 4096) };
    let server = Oriond::start_with(&[], &["--log-level", "trace"], Some(writer.into()));
    let mut sessions = sessions(&server);
    for _ in 0..700 {
        // Two lines each that are not limited: they tell of sessions.
        drop(Client::attach(&server, Transport::Tcp));
    }
    check(&server, &mut sessions);
    let (text, wanted) = (std::sync::Mutex::new(String::new()), "log lines were lost");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut from = std::fs::File::from(reader);
            let mut bytes = [0; 4096];
            while !text.lock().unwrap().contains(wanted) {
                let n = from.read(&mut bytes).expect("reading the log");
                text.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..n]));
            }
        });
        wait_until("the count of lost lines", || {
            drop(Client::attach(&server, Transport::Tcp));
            text.lock().unwrap().contains(wanted)
        });
    });
}

#[test]
fn strangers_get_few_lines_and_a_count() {
    let server = Oriond::start(&[]);
    annoy(&server, 500);
    server.wait_for_log(&["more like it", "protocol broken during the handshake"]);
    let lines = server.log().lines().filter(|line| line.contains("protocol broken during the handshake")).count();
    assert!(lines < 50, "{lines} lines");
    check(&server, &mut []);
}

#[test]
fn a_worker_that_writes_without_end_fills_no_log_and_holds_up_nobody() {
    let server = Oriond::start(&[]);
    let mut sessions = sessions(&server);
    let mut loud = Client::attach(&server, Transport::Shm);
    let worker = format!("worker={}", loud.welcome.worker_pid);
    loud.call(SHOUT, &words(&[1]));
    server.wait_for_log(&[&worker, "line 0 of many"]);
    let before = server.log().len();
    loud.start(SHOUT, &words(&[2_000_000]));
    check(&server, &mut sessions);
    while loud.reply_or_lost().is_some() {}
    server.wait_for_log(&[&worker, "no more are shown"]);
    let grown = server.log().len() - before;
    assert!(grown < 100 << 10, "{grown} bytes of log");
    check(&server, &mut sessions);
}

/// Nothing to test it with but a log of one's own.
#[test]
fn a_log_that_is_closed_from_the_start_is_no_reason_not_to_serve() {
    let server = Oriond::start_with(&[], &[], Some(Stdio::null()));
    check(&server, &mut sessions(&server));
}

/// What the files of a folder hold, by their names, in the order of their names.
fn files(folder: &Path) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(folder).expect("the folder").flatten();
    let mut files: Vec<_> = entries
        .map(|entry| {
            let text = std::fs::read_to_string(entry.path()).expect("a file of the log");
            (entry.file_name().to_string_lossy().into_owned(), text)
        })
        .collect();
    files.sort();
    files
}

#[test]
fn each_session_has_a_file_of_its_own_which_says_what_way_it_took() {
    let folder = std::env::temp_dir().join(format!("oriond-session-log-{}", std::process::id()));
    let server = Oriond::start(&["--session-log", folder.to_str().expect("a plain path"), "--session-log-files", "2"]);
    assert_eq!(std::fs::metadata(&folder).expect("made").permissions().mode() & 0o777, 0o750);
    for (transport, way) in [
        (Transport::Shm, "[INFO] Client supports SHM mode, then server runs in SHM mode."),
        (Transport::Tcp, "[INFO] Client supports TCP mode, then server also falls back to TCP mode."),
        (Transport::Ivshmem, "[INFO] Client supports IVSHMEM mode, then server runs in IVSHMEM mode."),
        (Transport::Shm, "[INFO] Architecture initialization is done. Resource is confirmed."),
    ] {
        let client = Client::attach(&server, transport);
        let session = client.welcome.session;
        let of_it = |name: &str| name.ends_with(&format!("-{session}.log"));
        let has = |words: &str| {
            let text = files(&folder).into_iter().find(|(name, _)| of_it(name)).map(|(_, text)| text);
            text.is_some_and(|text| text.contains(words))
        };
        wait_until(&format!("{way:?} in the log of its session"), || has(way));
        assert!(has("[INFO] session begins peer="), "{:?}", files(&folder));
        drop(client);
        wait_until("the session's end in its log", || has("] session over, worker ended worker="));
    }
    let left = files(&folder);
    assert_eq!(left.len(), 2, "{left:?}");
    let path = folder.join(&left[0].0);
    assert_eq!(std::fs::metadata(path).expect("a file").permissions().mode() & 0o777, 0o640);
    // What only its own file has is nowhere else, and the other way round.
    assert!(!server.log().contains("Architecture initialization"), "{}", server.log());
    assert!(!left.iter().any(|(_, text)| text.contains("serving")), "{left:?}");
    std::fs::remove_dir_all(&folder).expect("removing");
}

#[test]
fn a_log_file_that_has_become_large_goes_aside() {
    let folder = std::env::temp_dir().join(format!("oriond-log-file-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a new folder");
    let path = folder.join("server.log");
    let server = Oriond::start(&["--log-file", path.to_str().expect("a plain path"), "--log-file-max", "2048"]);
    // Each session is worth several lines that nobody limits.
    for _ in 0..20 {
        Client::attach(&server, Transport::Shm).call(0x101, &[4; 8]);
    }
    wait_until("a second file", || files(&folder).len() == 2);
    drop(server);
    let all = files(&folder);
    assert_eq!(all.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["server.log", "server.log.1"]);
    assert!(all.iter().all(|(_, text)| text.len() <= 2048 && text.ends_with('\n')), "{all:?}");
    std::fs::remove_dir_all(&folder).expect("removing");
}
