//! The probes that are declared are in the program, where BPF loaders look for them.

use crate::scene::built;

#[test]
fn oriond_has_a_note_for_each_probe() {
    let program = std::fs::read(built().join("oriond")).expect("it was built");
    let has = |words: &[u8]| program.windows(words.len()).any(|window| window == words);
    assert!(has(b"stapsdt\0"));
    // Nobody arbitrates shares yet.
    let fired = orion_telemetry::probe::ALL.iter().filter(|probe| probe.name != "held_back");
    for probe in fired {
        let note = format!("{}\0{}\0", orion_telemetry::probe::PROVIDER, probe.name);
        assert!(has(note.as_bytes()), "{} has no note", probe.name);
    }
}
