//! Who has no right to a node's GPUs, by every way in: each is refused, each with the line that says why, to the
//! program and in oriond's log.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use orion_transport::carrier::welcome_of;
use orion_transport::client::{Caller, Server};
use orion_transport::fds;
use orion_transport::lease::{Instance, LeaseKey, MasterKey, SignedLease};
use orion_wire::agent::{AGENT_VERSION, Answer, Ask, KIND};
use orion_wire::lease::{Lease, LeaseId};
use orion_wire::refusal::Reason;

use crate::scene::{Scene, wait_until};
use crate::{allocate, show};

/// What the controller of a scene signs by.
fn master(scene: &Scene) -> MasterKey {
    let secret = std::fs::read(scene.folder.join("data/lease.key")).expect("the controller's key");
    MasterKey::new(secret.try_into().expect("32 bytes"))
}

/// Which oriond serves on a node. It says so to its agent, so that one has to go for a moment.
fn instance(scene: &mut Scene, index: usize) -> Instance {
    let (name, address) = (scene.nodes[index].name, scene.nodes[index].address.clone());
    scene.nodes[index].agent.kill();
    let socket = UnixStream::connect(scene.folder.join(format!("{name}.pool"))).expect("it listens");
    fds::send_frame(socket.as_fd(), KIND, &Ask::Who { version: AGENT_VERSION }.encode(), &[]).expect("sending");
    let (_, body, _) = fds::recv_frame(socket.as_fd()).expect("an answer");
    let Ok(Answer::Server { instance, .. }) = Answer::decode(&body) else { panic!("no server") };
    drop(socket);
    scene.nodes[index].agent = scene.start_agent(name, &address);
    instance
}

/// What somebody without a right shows, and the words that he gets.
type Row = (&'static str, Caller, &'static str);

fn with(lease: SignedLease) -> Caller {
    Caller { lease: Some(lease), ..Caller::new("a test", None) }
}

/// A lease as it was given, but for something, with its old signature.
fn altered(good: &SignedLease, change: impl FnOnce(&mut Lease)) -> SignedLease {
    let mut lease = Lease::decode(&good.body).expect("a lease");
    change(&mut lease);
    SignedLease { body: lease.encode(), signature: good.signature }
}

/// For the node whose key this is.
fn rows(good: &SignedLease, key: &LeaseKey, others: &[(&'static str, SignedLease, &'static str)]) -> Vec<Row> {
    let made = "made by somebody else";
    let lease = Lease::decode(&good.body).expect("a lease");
    let late = Lease { begins_before_unix_ms: 1, ..lease.clone() };
    let mut rows: Vec<Row> = vec![
        ("no lease", Caller::new("a test", None), "set ORION_CONTROLLER"),
        ("a lease that has run out", with(key.sign(&late)), "the lease ran out"),
        ("nothing that was ever a lease", with(SignedLease { body: vec![7; 64], signature: [7; 32] }), "is damaged"),
        ("half a lease", with(SignedLease { body: good.body[..40].to_vec(), ..good.clone() }), "is damaged"),
        ("without its signature", with(SignedLease { signature: [0; 32], ..good.clone() }), made),
        ("by a key of one's own", with(LeaseKey::from_bytes([9; 32]).sign(&lease)), made),
        ("more memory", with(altered(good, |l| l.vgpus[0].memory_bytes *= 2)), "it was changed"),
        ("more vGPUs", with(altered(good, |l| l.vgpus.push(l.vgpus[0].clone()))), "it was changed"),
        ("another GPU", with(altered(good, |l| l.vgpus[0].gpu.push('0'))), "it was changed"),
        ("a larger share", with(altered(good, |l| l.vgpus[0].ratio = 100)), "it was changed"),
        ("for longer", with(altered(good, |l| l.begins_before_unix_ms += 1)), "it was changed"),
        ("another number", with(altered(good, |l| l.id = LeaseId([1; 16]))), "it was changed"),
        ("another tenant", with(altered(good, |l| l.tenant = "blue".into())), "it was changed"),
    ];
    rows.extend(others.iter().map(|(what, lease, words)| (*what, with(lease.clone()), *words)));
    rows
}

#[test]
fn whoever_has_no_right_is_refused_by_every_way_in_with_the_line_that_says_why() {
    let mut scene = Scene::new(&["a", "b"], "", false);
    let instances = [instance(&mut scene, 0), instance(&mut scene, 1)];
    let (master, strangers) = (master(&scene), Scene::new(&["a"], "", false));
    let red = "{\"vgpus\":1,\"memory_mib\":256,\"tenant\":\"red\"}";
    // One after the other fills a node up.
    let (_, good, node) = allocate(&scene, red);
    let (_, used, _) = allocate(&scene, red);
    let (_, taken_back, same) = allocate(&scene, red);
    assert_eq!(node, same);
    let here = scene.nodes.iter().position(|n| n.name == node).expect("one of them");
    let there = scene.nodes[1 - here].name;
    let key = master.key_of(&node, &instances[here]);
    let lease = Lease::decode(&good.body).expect("a lease");
    let of_blue = Lease { id: LeaseId([4; 16]), tenant: "blue".into(), ..lease.clone() };
    let elsewhere = Lease { node: there.into(), ..lease.clone() };
    let foreign = MasterKey::new([8; 32]).key_of(&node, &instances[here]);
    let others = [
        ("another node's", master.key_of(there, &instances[1 - here]).sign(&elsewhere), "is for the node"),
        ("of an oriond before this one", master.key_of(&node, &[0; 16]).sign(&lease), "from before oriond was started"),
        ("of another controller", foreign.sign(&lease), "made by somebody else"),
        (
            "of another pool's node",
            allocate(&strangers, red).1,
            if node == "a" { "made by" } else { "is for the node" },
        ),
        // What it says everybody may know; its signature only who was given it.
        ("another tenant's", SignedLease { body: of_blue.encode(), ..good.clone() }, "made by somebody else"),
        ("used before", used.clone(), "was used before"),
        ("taken back", taken_back.clone(), "was taken back"),
    ];
    let tcp = Server::parse(&scene.nodes[here].address).expect("an address");
    let local = format!("unix:{}", scene.folder.join(format!("{node}.sock")).display());
    let local = Server::parse(&local).expect("an address");
    assert_eq!(show(&tcp, &used), Ok(256 << 20));
    let name = Lease::decode(&taken_back.body).expect("a lease").id.to_string();
    assert_eq!(scene.http("DELETE", &format!("/allocations/{name}"), "").0, 200);
    wait_until("the node's hearing that a lease was taken back", || {
        show(&tcp, &taken_back).is_err_and(|why| why.contains("was taken back"))
    });
    for (way, server) in [("tcp", &tcp), ("shm", &local)] {
        let rows = rows(&good, &key, &others);
        for (what, caller, words) in rows {
            let no = welcome_of(server, &caller).err().unwrap_or_else(|| panic!("{what} is let in over {way}"));
            // Of these another one is worth asking for.
            let is_asked_again = ["made by somebody else", "was taken back"].iter().any(|why| no.text.contains(why));
            let reason = if is_asked_again { Reason::Lease } else { Reason::NotPermitted };
            assert_eq!(no.refused, Some(reason), "{what} over {way}: {}", no.text);
            assert!(no.text.contains(words), "{what} over {way}: {}", no.text);
            wait_until("oriond's line about it", || {
                let log = scene.nodes[0].oriond.log();
                log.lines().any(|line| line.contains("session refused") && line.contains(words))
                    || log.contains(" more ")
            });
        }
    }
    // None of that has used up what red was given.
    assert_eq!(show(&tcp, &good), Ok(256 << 20));
}

/// A name is no right either: what blue was given nobody gets by asking under blue's name.
#[test]
fn an_allocation_of_another_tenant_is_not_had_by_its_name() {
    let scene = Scene::new(&["a"], "", true);
    let ask = |tenant: &str, vgpus: u32| {
        let name = "00000000-0000-4000-8000-00000000000b";
        let body = format!("{{\"allocation\":\"{name}\",\"tenant\":\"{tenant}\",\"vgpus\":{vgpus}}}");
        scene.http("POST", "/allocations", &body)
    };
    assert_eq!(ask("blue", 1).0, 200);
    for (tenant, vgpus) in [("red", 1), ("blue", 2), ("", 1)] {
        let (status, answer) = ask(tenant, vgpus);
        assert!(status == 400 && answer.contains("was asked for otherwise"), "{status} {answer}");
    }
}
