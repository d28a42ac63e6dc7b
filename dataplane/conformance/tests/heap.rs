//! What is left of the host heap that a program shares with its worker when it has freed everything, whatever has gone
//! wrong in between: all of it.

mod orion;

#[test]
fn heap_ranges_come_back_over_shared_memory() {
    hold_over("shm");
}

#[test]
fn heap_ranges_come_back_over_tcp() {
    hold_over("tcp");
}

fn hold_over(transport: &str) {
    let program = orion_built::build(&["-p", "orion-conformance", "--example", "heap_comes_back"])
        .join("examples/heap_comes_back");
    for way in ["order", "fault", "destroyed"] {
        let output = orion::through_orion(transport, &program, &[way]);
        let said = String::from_utf8_lossy(&output.stdout);
        let complaint = orion::complaint(&output);
        assert!(output.status.success() && said.contains("PASS "), "{way} over {transport}: {said}\n{complaint}");
    }
}
