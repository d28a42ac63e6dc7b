//! Programs nobody would write answer the same on the software GPU alone and through Orion: `perf/suite/differ.py`.

#[allow(dead_code, reason = "what other tests need of it")]
mod orion;

use std::path::Path;
use std::process::Command;

#[test]
fn random_programs_answer_the_same_alone_and_through_orion() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = std::env::temp_dir().join(format!("orion-differ-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a new folder");
    let alone = orion::built().join("liborion_soft.so");
    std::os::unix::fs::symlink(alone, folder.join("libcuda.so.1")).expect("a link in a new folder");
    let output = Command::new("python3")
        .arg(repository.join("perf/suite/differ.py"))
        .args(["--known", "--seeds", "40", "--steps", "400", "--orion-args=--software-gpu", "--native-lib"])
        .arg(&folder)
        .arg("--orion-run")
        .arg(orion::built().join("orion-run"))
        .output()
        .expect("python3 starts");
    print!("{}", String::from_utf8_lossy(&output.stdout));
    std::fs::remove_dir_all(&folder).expect("removing");
    assert!(output.status.success(), "{}", orion::complaint(&output));
}
