//! What README.md tells a user to type, typed.

#[allow(dead_code, reason = "the lines typed here start programs themselves")]
mod orion;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A folder and a server of this test, which go when it ends.
struct Scene {
    folder: PathBuf,
    oriond: Child,
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.oriond.kill();
        let _ = self.oriond.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Scene {
    /// With a program called `program`, and an oriond on `socket`.
    fn new() -> Scene {
        let folder = std::env::temp_dir().join(format!("orion-readme-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a new folder");
        let socket = folder.join("socket");
        let mut oriond = Command::new(orion::built().join("oriond"));
        oriond.args(["serve", "--driver", "soft", "--listen", "none", "--socket"]).arg(&socket);
        let oriond = oriond.stderr(Stdio::null()).spawn().expect("oriond starts");
        let scene = Scene { folder, oriond };
        let began = std::time::Instant::now();
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            assert!(began.elapsed().as_secs() < 20, "oriond does not listen");
            std::thread::yield_now();
        }
        scene
    }

    /// Types a line into a shell at the root of the repository.
    fn type_in(&self, line: &str) -> Output {
        let mut shell = Command::new("sh");
        shell.args(["-e", "-c", line]).current_dir(orion_built::root()).stdin(Stdio::null());
        // So that "~" is the folder of this test. What cargo needs of the user's own stays.
        let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
        for (name, place) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
            shell.env(name, std::env::var_os(name).map_or_else(|| home.join(place), PathBuf::from));
        }
        shell
            .env("HOME", &self.folder)
            .env_remove("LD_LIBRARY_PATH")
            .env_remove("LD_PRELOAD")
            .env("ORION_VERBOSE", "1");
        shell.output().expect("sh starts")
    }
}

/// The lines of the first block of code behind `heading` in README.md.
fn block_after(heading: &str) -> Vec<String> {
    block_of("README.md", heading)
}

fn block_of(document: &str, heading: &str) -> Vec<String> {
    let text = std::fs::read_to_string(orion_built::root().join(document)).expect("it is there");
    let (_, rest) = text.split_once(heading).unwrap_or_else(|| panic!("{document} has no {heading:?}"));
    let block = rest.split("```").nth(1).expect("a block of code");
    block.lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn what_the_readme_says_to_type_works() {
    let scene = Scene::new();
    let programs = scene.folder.join("programs");
    let build = orion_built::root().join("dataplane/conformance/cuda/build.sh");
    for folder in [&programs, &orion_built::root().join("target/quickstart")] {
        let output = Command::new(&build).arg(folder).arg("vector_add").output().expect("build.sh starts");
        assert!(output.status.success(), "{}", orion::complaint(&output));
    }
    let socket = format!("unix:{}", scene.folder.join("socket").display());
    let program = programs.join("vector_add.static");
    let right = |line: &str, output: &Output| {
        let text = String::from_utf8_lossy(&output.stdout);
        let said = orion::complaint(output);
        assert!(output.status.success() && text.contains("PASS "), "{line}: {text}{said}");
        assert!(said.contains("orion: transport "), "{line}: {said}");
    };

    let recipe = block_after("Without it:");
    let (install, run) = (&recipe[0], &recipe[1]);
    let output = scene.type_in(install);
    assert!(output.status.success(), "{install}: {}", orion::complaint(&output));
    let here = run.replace("tcp:gpu-node:7411", &socket).replace("./program", &program.display().to_string());
    assert!(here.contains(&socket) && here.contains("vector_add"), "{run} is not what this test knows");
    right(run, &scene.type_in(&here));
    let installed = |name: &str| scene.folder.join("orion").join(name);
    assert!(installed("bin/oriond").is_file() && installed("lib/orion/libcuda.so").is_file());

    for line in block_after("## Running programs") {
        let line = line.split(" #").next().unwrap_or_default().trim_end();
        let here = line.replace("gpu-node:7411", &socket).replace("./program", &program.display().to_string());
        right(line, &scene.type_in(&here));
    }
    for line in block_after("more GPUs than there are:") {
        right(&line, &scene.type_in(&line.replace("./program", &program.display().to_string())));
    }
    // The folder may be copied, and what lies there finds its parts.
    let copy = scene.folder.join("copied");
    let copied = Command::new("cp").arg("-a").arg(installed("")).arg(&copy).status().expect("cp starts");
    assert!(copied.success());
    let run = format!("{}/bin/orion-run --software-gpu -- {}", copy.display(), Path::new(&program).display());
    right(&run, &scene.type_in(&run));
}

/// Each device that oriond's README has for a virtual machine, against libvirt's own schema.
#[test]
fn what_the_readme_has_for_libvirt_is_valid() {
    let xml = block_of("dataplane/oriond/README.md", "In libvirt's XML");
    assert!(xml.iter().any(|line| line.contains("<shmem")), "{xml:?}");
    let folder = std::env::temp_dir().join(format!("orion-libvirt-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a new folder");
    let file = folder.join("domain.xml");
    let validate = |devices: &str| {
        let domain = format!(
            "<domain type='kvm'><name>guest</name><memory unit='MiB'>512</memory><os><type>hvm</type></os>\
             <devices>{devices}</devices></domain>"
        );
        std::fs::write(&file, domain).expect("writing");
        Command::new("virt-xml-validate").arg(&file).arg("domain").output()
    };
    let good = validate(&xml.join("\n"));
    // What is no device of libvirt's is no device of README's either: the schema is there, and looks at this.
    let bad = validate(&xml.join("\n").replace("<shmem", "<shmemory").replace("</shmem", "</shmemory"));
    std::fs::remove_dir_all(&folder).expect("removing");
    match (good, bad) {
        (Ok(good), Ok(bad)) => {
            assert!(good.status.success(), "{}", orion::complaint(&good));
            assert!(!bad.status.success(), "virt-xml-validate takes anything: {}", orion::complaint(&bad));
        }
        (Err(e), _) | (_, Err(e)) => {
            println!("README's XML is not compared with libvirt's schema: virt-xml-validate: {e}");
            println!("(Debian's libvirt-clients and libxml2-utils have it)");
        }
    }
}
