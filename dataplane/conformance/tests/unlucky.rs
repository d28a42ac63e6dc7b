//! Programs that are out of luck: with threads that are cancelled in the midst of a call or have hardly any stack, and
//! with a sanitizer that watches.

use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::process::Command;

#[allow(dead_code, reason = "what other tests need of it")]
mod orion;

fn said(way: &str, transport: &str) -> String {
    let example = orion_built::build(&["-p", "orion-conformance", "--example", "unlucky_threads"]);
    let program = example.join("examples/unlucky_threads");
    let output = orion::command(transport, &program, &[way]).output().expect("orion-run starts");
    assert!(output.status.success(), "over {transport}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// It would leave what it holds to nobody, and others would wait for that.
#[test]
fn a_thread_that_is_cancelled_ends_behind_its_call() {
    for transport in ["shm", "tcp"] {
        assert_eq!(said("cancelled", transport), "the calls had returned, and 7 is read\n", "over {transport}");
    }
}

/// Their handlers may run before any of the driver's in the child, and hold what another thread waits for that is in
/// the midst of a call.
#[test]
fn who_has_handlers_for_forks_has_registered_memory_for_himself_and_waits_for_nobody() {
    for transport in ["shm", "tcp"] {
        assert_eq!(said("forked", transport), "20 forks, 0 bytes of a child's, and 7 is read\n", "over {transport}");
    }
}

/// What Orion sends, wakes, ends and closes is its own alone: the numbers may be files of the program's by now.
#[test]
fn a_program_that_closes_all_descriptors_has_their_numbers_for_itself() {
    let source = orion_built::root().join("dataplane/conformance/circumstances/reused.py");
    for transport in ["shm", "tcp"] {
        let mut run = orion::command(transport, "python3".as_ref(), &[source.to_str().expect("a name of letters")]);
        let output = run.output().expect("orion-run starts");
        let said = String::from_utf8_lossy(&output.stdout);
        let wanted = "files [], sockets [], the child's kept, calls came back with errors\n";
        assert!(output.status.success() && said == wanted, "over {transport}: {said}{}", orion::complaint(&output));
    }
}

/// Word of host functions, and of memory that comes back, is behind what the driver has to say.
#[test]
fn a_standard_error_that_nobody_reads_holds_up_no_work() {
    let example = orion_built::build(&["-p", "orion-conformance", "--example", "unlucky_threads"]);
    let program = example.join("examples/unlucky_threads");
    let pipe = std::env::temp_dir().join(format!("orion-unread-{}", std::process::id()));
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("it starts").success());
    let mut open = std::fs::OpenOptions::new();
    let mut both = open.read(true).write(true).custom_flags(libc::O_NONBLOCK).open(&pipe).expect("a pipe");
    while both.write(&[b'x'; 4096]).is_ok() {}
    let (program, stderr) = (program.to_str().expect("a path of letters"), pipe.to_str().expect("a path of letters"));
    let shell = ["20", "sh", "-c", "exec \"$0\" unread 2>\"$1\"", program, stderr];
    for transport in ["shm", "tcp"] {
        let output = orion::command(transport, "timeout".as_ref(), &shell).output().expect("orion-run starts");
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!((output.status.code(), said.as_ref()), (Some(0), "7 is read\n"), "over {transport}");
    }
    std::fs::remove_file(&pipe).expect("it was made");
}

/// Of what a session might use of its memory it has not used anything yet. Locked, as real-time programs lock their
/// memory, or written to a core, it would be all that the machine has.
#[test]
fn what_a_session_does_not_use_is_neither_locked_nor_in_a_core() {
    let script = orion_built::root().join("dataplane/conformance/circumstances/unlucky.py");
    let out = std::env::temp_dir().join(format!("orion-locked-{}", std::process::id()));
    let text = |path: &std::path::Path| path.to_str().expect("a path of letters").to_owned();
    for (transport, way) in ["shm", "tcp"].into_iter().flat_map(|transport| ["locked", "locks"].map(|w| (transport, w)))
    {
        let arguments = [text(&script), text(&out), way.to_owned()];
        let output = orion::command(transport, "python3".as_ref(), &arguments.each_ref().map(String::as_str))
            .output()
            .expect("orion-run starts");
        let said = std::fs::read_to_string(&out).unwrap_or_default();
        assert_eq!(said, "cuInit 0, right, right, little", "{way} over {transport}: {}", orion::complaint(&output));
        std::fs::remove_file(&out).expect("it was made");
    }
    // The kernel's own word for what it leaves out.
    let source = "import ctypes, re; cuda = ctypes.CDLL('libcuda.so.1'); cuda.cuInit(0); c = ctypes.c_void_p()\n\
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0)\n\
        maps = re.split(r'(?m)^(?=[0-9a-f]+-[0-9a-f]+ )', open('/proc/self/smaps').read())\n\
        size = lambda text: int(re.search(r'Size: +([0-9]+) kB', text)[1])\n\
        kept = lambda text: ' dd' not in re.search(r'VmFlags:(.*)', text)[1]\n\
        print(sum(size(one) for one in maps if 'orion-session' in one and kept(one)) < 1 << 18)";
    for transport in ["shm", "tcp"] {
        let output = orion::command(transport, "python3".as_ref(), &["-c", source]).output().expect("orion-run starts");
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "True\n",
            "over {transport}: {}",
            orion::complaint(&output)
        );
    }
}

/// Coroutines have as little, and so have threads of `PTHREAD_STACK_MIN`.
#[test]
fn no_call_takes_16_kib_of_its_threads_stack() {
    for transport in ["shm", "tcp"] {
        let said = said("shallow", transport);
        let deepest = said.lines().map(|line| line.split_once(' ').expect("bytes and a name"));
        let deepest = deepest.map(|(bytes, name)| (bytes.parse::<usize>().expect("a number"), name));
        let (bytes, name) = deepest.max().expect("some call");
        assert!((2 << 10..16 << 10).contains(&bytes), "{name} takes {bytes} bytes over {transport}:\n{said}");
    }
}

/// Where its library is one of its own, as gcc's, AddressSanitizer insists on being the first. It ends a program with
/// leaks, and ThreadSanitizer one that maps where it does not like it, which without randomness is nearly everywhere.
#[test]
fn a_program_with_a_sanitizer_runs_and_has_no_leak() {
    let source = orion_built::root().join("dataplane/conformance/circumstances/sanitized.c");
    for sanitizer in ["address", "thread"] {
        let program = std::env::temp_dir().join(format!("orion-sanitized-{}-{sanitizer}", std::process::id()));
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-o"]).arg(&program).arg(&source).args([
            &format!("-fsanitize={sanitizer}"),
            "-ldl",
            "-pthread",
        ]);
        let made = cc.output().expect("there is a C compiler");
        assert!(made.status.success(), "{made:?}");
        for transport in ["shm", "tcp"] {
            let path = program.to_str().expect("a name of letters");
            let mut run = orion::command(transport, "setarch".as_ref(), &["-R", path]);
            // It knows nothing of locks in libraries that were not built for it.
            run.env("TSAN_OPTIONS", "ignore_noninstrumented_modules=1");
            let output = run.output().expect("orion-run starts");
            let said = String::from_utf8_lossy(&output.stdout);
            let complaint = orion::complaint(&output);
            assert!(output.status.success() && said == "right\n", "{sanitizer} over {transport}: {complaint}");
        }
        std::fs::remove_file(program).expect("it was made");
    }
}

/// Of whose memory Orion has changed the pages, and which does not know that. On a GPU of its own the driver holds the
/// pages, and what lies at the address is the program's.
#[test]
fn registered_memory_may_be_unmapped_replaced_and_made_larger_and_there_may_be_thousands() {
    let source = orion_built::root().join("dataplane/conformance/circumstances/registered.c");
    let program = std::env::temp_dir().join(format!("orion-registered-{}", std::process::id()));
    let made = Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(&source).args(["-ldl", "-pthread"]).output();
    let made = made.expect("there is a C compiler");
    assert!(made.status.success(), "{made:?}");
    for transport in ["shm", "tcp"] {
        let ways = ["changed", "grown", "beside", "variables", "many", "changed old", "grown old", "beside old"];
        for way in ways {
            let words: Vec<&str> = way.split(' ').collect();
            let output = orion::command(transport, &program, &words).output().expect("orion-run starts");
            let said = String::from_utf8_lossy(&output.stdout);
            let complaint = orion::complaint(&output);
            assert!(output.status.success() && said == "right\n", "{way} over {transport}: {said}{complaint}");
            let is_told = |of: &str, words| assert_eq!(complaint.contains(words), way == of, "{way}: {complaint}");
            is_told("many", "half are left to the program");
            is_told("variables", "of which 1 ranges are out of kernels' reach");
        }
    }
    std::fs::remove_file(program).expect("it was made");
}

/// Whoever starts a setuid program would have it make files, read them and send what it computes, as he likes.
#[test]
fn a_program_with_more_rights_than_who_starts_it_does_not_listen_to_his_environment() {
    if std::fs::metadata("/proc/self").expect("this process").uid() != 0 {
        eprintln!("only root can make a program another user's");
        return;
    }
    let folder = std::env::temp_dir().join(format!("orion-privileged-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::copy(orion::built().join("libcuda.so"), folder.join("libcuda.so.1")).expect("copying");
    let (source, program) =
        (orion_built::root().join("dataplane/conformance/circumstances/privileged.c"), folder.join("program"));
    let made =
        Command::new("cc").arg(&source).arg("-o").arg(&program).args(["-ldl", "-Wl,-rpath"]).arg(&folder).output();
    let made = made.expect("there is a C compiler");
    assert!(made.status.success(), "{made:?}");
    let listens = |mode: u32| {
        std::os::unix::fs::chown(&program, Some(4711), None).expect("root may");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(mode)).expect("chmod");
        let out = folder.join("out");
        std::fs::create_dir_all(&out).expect("a folder");
        std::fs::set_permissions(&out, std::fs::Permissions::from_mode(0o777)).expect("chmod");
        let mut run = Command::new(&program);
        run.env("ORION_SERVER", "unix:/nowhere/of/his").env("ORION_ASKED_FILE", out.join("asked")).env("HOME", &out);
        run.env("CUDA_LOG_FILE", out.join("log")).env_remove("ORION_CONTROLLER");
        let output = run.output().expect("it starts");
        assert!(output.status.success(), "{}", orion::complaint(&output));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let made = std::fs::read_dir(&out).expect("a folder").count();
        let heard = made > 0 || String::from_utf8_lossy(&output.stderr).contains("/nowhere/of/his");
        std::fs::remove_dir_all(&out).expect("removing");
        (said, heard)
    };
    let (said, heard) = listens(0o755);
    assert!(said.starts_with("plain ") && heard, "{said}");
    let (said, heard) = listens(0o4755);
    match said.starts_with("privileged ") {
        true => assert!(!heard, "{said}"),
        false => eprintln!("programs get nobody's rights in {}", folder.display()),
    }
    std::fs::remove_dir_all(&folder).expect("removing");
}
