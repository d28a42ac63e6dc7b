//! What was offered to programs that have gone at a moment at which nobody could take it back.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use orion_proto::pool_client::PoolClient;
use orion_proto::*;
use tonic::Code;
use tonic::transport::Channel;

use crate::peer::{Peer, until};
use crate::{PATIENCE, Scene, node, runtime};

/// How long after the next one leads, and its node has been heard of, a killed program's vGPUs are back.
const BACK: Duration = Duration::from_secs(2);
/// What a machine with other work beside it may take longer.
const SLACK: Duration = Duration::from_secs(3);

fn name(number: u128) -> String {
    format!("01234567-89ab-4def-8123-{number:012x}")
}

/// What a program does between the controller's answer and its session: it keeps its connection.
struct Program {
    _connection: TcpStream,
}

impl Program {
    fn is_offered(peer: &Peer, number: u128, head: &str) -> Program {
        let mut socket = TcpStream::connect(peer.address()).expect("it listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let body = format!("{{\"allocation\":\"{}\",\"vgpus\":1,\"memory_mib\":1024,\"ratio\":1}}", name(number));
        let length = body.len();
        let request =
            format!("POST /allocations HTTP/1.1\r\nHost: orion\r\n{head}Content-Length: {length}\r\n\r\n{body}");
        socket.write_all(request.as_bytes()).expect("sending");
        let mut answer = Vec::new();
        while !answer.ends_with(b"}") {
            let mut piece = [0; 4096];
            let count = socket.read(&mut piece).expect("an answer");
            answer.extend_from_slice(&piece[..count]);
            assert!(count > 0, "{}", String::from_utf8_lossy(&answer));
        }
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        Program { _connection: socket }
    }

    /// The shim's words.
    fn claims(peer: &Peer, number: u128) -> Program {
        Program::is_offered(peer, number, "Orion-Claims: 1\r\n")
    }
}

/// The node's agent: registers where it has to, and says which leases have been shown there. What the controller has
/// then, without what is over.
async fn beat(pool: &mut PoolClient<Channel>, live: &[u128]) -> Option<Vec<String>> {
    let live = live.iter().map(|number| name(*number)).collect();
    match pool.heartbeat(HeartbeatRequest { node: "x".into(), live, ..Default::default() }).await {
        Ok(_) => {}
        Err(status) if status.code() == Code::NotFound => drop(pool.register(node("x")).await.ok()?),
        Err(_) => return None,
    }
    let list = pool.list_allocations(ListAllocationsRequest::default()).await.ok()?.into_inner();
    Some(list.allocations.into_iter().map(|a| a.allocation).collect())
}

/// Until the first one is back; then the others.
async fn until_back(pool: &mut PoolClient<Channel>, number: u128, live: &[u128]) -> (Duration, Vec<String>) {
    let began = Instant::now();
    loop {
        if let Some(all) = beat(pool, live).await.filter(|all| !all.contains(&name(number))) {
            return (began.elapsed(), all);
        }
        assert!(began.elapsed() < PATIENCE, "what was offered to a program that was killed never comes back");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn what_was_offered_to_a_program_that_was_killed_with_the_leader_is_back_soon_and_nobody_elses() {
    runtime().block_on(async {
        let mut scene = Scene::new(1);
        scene.client().await.register(node("x")).await.expect("registering");
        // One is killed with the controller, one asks the next one, one has shown its lease to the node, which the
        // controller had not heard of yet, and one has never said that its connection counts.
        let killed = Program::claims(&scene.a, 1);
        let asks_again = Program::claims(&scene.a, 2);
        let has_begun = Program::claims(&scene.a, 3);
        let counts_itself = Program::is_offered(&scene.a, 4, "");
        scene.a.kill();
        drop(killed);
        until("another leader", || scene.b.leads());
        let mut pool = scene.client_of(&scene.b).await;
        pool.register(node("x")).await.expect("registering");
        let again = Program::claims(&scene.b, 2);
        drop((asks_again, has_begun));
        let (back, others) = until_back(&mut pool, 1, &[3]).await;
        println!("back {back:?} after the next one led");
        assert!(back < BACK + SLACK, "after {back:?}");
        assert_eq!(others, [2, 3, 4].map(name));
        tokio::time::sleep(BACK).await;
        let others = beat(&mut pool, &[3]).await.expect("it leads");
        assert_eq!(others, [2, 3, 4].map(name), "it was taken from a program that is there");
        // And the connection to the one that leads counts as the first one did.
        drop(again);
        let (back, others) = until_back(&mut pool, 2, &[3]).await;
        assert!(back < BACK, "after {back:?}");
        assert_eq!(others, [3, 4].map(name));
        drop(counts_itself);
    });
}

#[test]
fn what_was_offered_to_a_program_that_was_killed_while_nothing_could_be_stored_is_back_soon_after() {
    runtime().block_on(async {
        let mut scene = Scene::new(3);
        let mut pool = scene.client().await;
        pool.register(node("x")).await.expect("registering");
        let killed = Program::claims(&scene.a, 1);
        let stays = Program::claims(&scene.a, 2);
        [0, 1].into_iter().for_each(|member| scene.etcd.kill(member));
        drop(killed);
        // The controller hears of it, and cannot take it back.
        until("a word about etcd", || scene.a.http("GET", "/healthz", "").0 == 503);
        [0, 1].into_iter().for_each(|member| scene.etcd.start(member));
        until("the pool", || [&scene.a, &scene.b].iter().any(|peer| peer.leads()));
        let (began, still_leads) = (Instant::now(), scene.a.leads());
        let mut pool = scene.client().await;
        let (_, others) = until_back(&mut pool, 1, &[]).await;
        let back = began.elapsed();
        println!("back {back:?} after etcd was; the first one leads still: {still_leads}");
        assert!(back < BACK + 2 * SLACK, "after {back:?}");
        // Who is there keeps his, as long as his connection is to the one that leads.
        assert!(!still_leads || others.contains(&name(2)), "{others:?}");
        drop(stays);
    });
}
