//! Whose environment a worker's driver sees.

use orion_transport::client::{Caller, Tuning};
use orion_wire::environment::Environment;
use orion_wire::{Reader, Writer};

use crate::harness::{Client, Oriond, Transport, VARIABLE, hello, request, wait_until};
use crate::on_each_carrier;

fn with(pairs: &[(&str, &str)]) -> Caller {
    let environment = Environment::of(|name| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()));
    assert_eq!(environment.pairs().len(), pairs.len());
    Caller { environment, ..hello() }
}

fn attach(server: &Oriond, transport: Transport, hello: &Caller) -> Client {
    Client::try_attach(server, transport, hello, Tuning::default()).expect("attaching")
}

/// A variable as the client's worker has it.
fn seen(client: &mut Client, name: &str) -> Option<String> {
    let mut body = Vec::new();
    body.bytes(name.as_bytes());
    let reply = client.call(VARIABLE, &body);
    let value = Reader::new(&reply).text().expect("a value").to_owned();
    (!value.is_empty()).then_some(value)
}

fn warm_worker(server: &Oriond) -> u32 {
    server.wait_for_log(&["worker warm"]);
    server.workers()[0]
}

on_each_carrier! {
    fn settings_reach_a_worker_that_is_started_for_them(server: &Oriond, transport: Transport) {
        let pool = warm_worker(server);
        let ours = with(&[("CUDA_DEVICE_MAX_CONNECTIONS", "1"), ("CUDA_MODULE_LOADING", "EAGER")]);
        let mut client = attach(server, transport, &ours);
        assert_ne!(client.welcome.worker_pid, pool);
        assert_eq!(seen(&mut client, "CUDA_DEVICE_MAX_CONNECTIONS").as_deref(), Some("1"));
        assert_eq!(seen(&mut client, "CUDA_MODULE_LOADING").as_deref(), Some("EAGER"));
        assert_eq!(client.call(0x101, &[4; 8]), [4; 8]);
        // The pool was left alone, and the next client's worker knows nothing of it.
        let mut other = attach(server, transport, &hello());
        assert_eq!(other.welcome.worker_pid, pool);
        assert_eq!(seen(&mut other, "CUDA_DEVICE_MAX_CONNECTIONS"), None);
    }
}

on_each_carrier! {
    fn defaults_said_aloud_take_a_warm_worker(server: &Oriond, transport: Transport) {
        let pool = warm_worker(server);
        let pytorch = with(&[("CUDA_MODULE_LOADING", "LAZY"), ("CUDA_FORCE_PTX_JIT", "0")]);
        assert_eq!(attach(server, transport, &pytorch).welcome.worker_pid, pool);
    }
}

#[test]
fn what_the_server_started_with_is_no_difference_and_can_be_undone() {
    let server = Oriond::start_in(
        &[("CUDA_MODULE_LOADING", "EAGER"), ("CUDA_LAUNCH_BLOCKING", "1"), ("CUDA_FORCE_JIT", "0")],
        &[],
    );
    let pool = warm_worker(&server);
    let mut client = attach(&server, Transport::Shm, &with(&[("CUDA_MODULE_LOADING", "EAGER")]));
    assert_eq!(client.welcome.worker_pid, pool);
    assert_eq!(seen(&mut client, "CUDA_MODULE_LOADING").as_deref(), Some("EAGER"));
    // A driver that waits inside launches is never what a worker needs.
    assert_eq!(seen(&mut client, "CUDA_LAUNCH_BLOCKING"), None);
    let mut client = attach(&server, Transport::Shm, &with(&[("CUDA_MODULE_LOADING", "LAZY")]));
    assert_eq!(seen(&mut client, "CUDA_MODULE_LOADING").as_deref(), Some("LAZY"));
}

#[test]
fn several_clients_with_settings_of_their_own_are_served_at_once() {
    let server = Oriond::start(&["--warm", "0"]);
    let clients: Vec<Client> = std::thread::scope(|scope| {
        let attaching: Vec<_> = (0..6)
            .map(|n| {
                let server = &server;
                scope.spawn(move || {
                    let value = (n % 3 + 1).to_string();
                    let hello = with(&[("CUDA_DEVICE_MAX_CONNECTIONS", value.as_str())]);
                    let mut client = attach(server, Transport::Tcp, &hello);
                    assert_eq!(seen(&mut client, "CUDA_DEVICE_MAX_CONNECTIONS"), Some(value));
                    client
                })
            })
            .collect();
        attaching.into_iter().map(|a| a.join().expect("attaching")).collect()
    });
    drop(clients);
    wait_until("all workers to end", || server.workers().is_empty());
}

/// One whose client did not wait for it serves nobody else.
#[test]
fn a_worker_started_for_a_client_that_left_is_retired() {
    // What it said before it went does not hide that it has gone.
    for last_words in [&b""[..], b"?"] {
        check_retired(last_words);
    }
}

fn check_retired(last_words: &[u8]) {
    let server = Oriond::start(&["--warm", "0"]);
    let hello = with(&[("CUDA_DEVICE_MAX_CONNECTIONS", "2")]);
    let mut channel = server.dial(Transport::Shm);
    let request = request(&mut channel, &hello).0;
    channel.send(&request, &[]).expect("sending the request");
    channel.send(last_words, &[]).expect("sending more");
    drop(channel);
    // Seen while the worker is being started, or when it is warm.
    wait_until("the client to be missed", || {
        let log = server.log();
        log.contains("gone while it waited") || log.contains("worker warm")
    });
    wait_until("the worker to end", || server.workers().is_empty());
}
