//! A network that holds things up: a relay in front of a server, in which every connection is late by itself. It is no
//! carrier of its own, since it leaves all three answers of the one behind it as they are.
//!
//! ```text
//! client --> | socket | --> taken in pieces of random length, each waits a random time --> | socket | --> server
//! ```
//! Bytes of one connection keep their order, as TCP promises; nothing is promised between connections, and what one
//! `sendmsg` has sent arrives in any number of pieces. Each way of each connection has its own random numbers.

// UNSAFETY: changes the environment, before the library that reads it is loaded.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::round::Random;

const PIECE_BYTES_MAX: usize = 64 << 10;

/// Has the shim, which is not loaded yet, connect through a relay to the server that it was told.
pub fn put_in_between(late: Duration, seed: u64) -> Result<(), String> {
    let told = std::env::var("ORION_SERVER").map_err(|_| "--late-us needs a server in ORION_SERVER".to_owned())?;
    let (carrier, address) = split(&told);
    let server = address
        .to_socket_addrs()
        .ok()
        .and_then(|mut all| all.next())
        .ok_or_else(|| format!("--late-us needs a server with a host and a port, and ORION_SERVER is {told:?}"))?;
    let failed = |e| format!("listening on the loopback interface failed: {e}");
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let here = listener.local_addr().map_err(failed)?;
    std::thread::spawn(move || serve(&listener, server, late, seed));
    // SAFETY: the relay's thread, the only other one so far, does not look at the environment.
    unsafe { std::env::set_var("ORION_SERVER", format!("{carrier}{here}")) };
    Ok(())
}

/// What names the carrier, if anything does, and the rest.
fn split(server: &str) -> (&str, &str) {
    let is_named = server.split_once(':').is_some_and(|(name, rest)| !name.starts_with('[') && rest.contains(':'));
    server.split_at(if is_named { server.find(':').map_or(0, |at| at + 1) } else { 0 })
}

fn serve(listener: &TcpListener, server: SocketAddr, late: Duration, seed: u64) {
    for (index, client) in listener.incoming().flatten().enumerate() {
        let Ok(server) = TcpStream::connect(server) else { continue };
        for (way, (from, to)) in [(&client, &server), (&server, &client)].into_iter().enumerate() {
            let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { continue };
            let random = Random::new(seed ^ (index as u64 * 2 + way as u64 + 1) << 32);
            std::thread::spawn(move || carry(from, to, late, random));
        }
    }
}

/// One way of one connection, until one end has had enough.
fn carry(mut from: TcpStream, mut to: TcpStream, late: Duration, mut random: Random) {
    let _ = to.set_nodelay(true);
    let mut buffer = vec![0; PIECE_BYTES_MAX];
    loop {
        // Mostly what there is; now and then a few bytes, so that a frame's header comes alone or in two.
        let most = if random.below(8) == 0 { 1 + random.below(48) } else { PIECE_BYTES_MAX };
        let Ok(n @ 1..) = from.read(&mut buffer[..most]) else { break };
        // Half of the time not at all, or everything would only be slow.
        if random.below(2) == 0 && most > 48 {
            std::thread::sleep(late.mul_f64(random.below(1000) as f64 / 1000.0));
        }
        if to.write_all(&buffer[..n]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
