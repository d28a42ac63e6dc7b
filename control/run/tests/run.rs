//! orion-run with a stand-in for oriond: what the program sees, what scripts see, and what is left.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

/// Says that it listens, notes its arguments, and waits for SIGTERM.
const STAND_IN: &str = r#"#!/bin/sh
echo "$@" > "$(dirname "$0")/arguments"
echo "devices=${CUDA_VISIBLE_DEVICES-unset},${CUDA_DEVICE_ORDER-unset}" >> "$(dirname "$0")/arguments"
trap 'echo ended >> "$(dirname "$0")/arguments"; exit 0' TERM
while [ $# -gt 0 ]; do
  case $1 in
    --ready-fd) fd=$2 ;;
    --socket) socket=$2 ;;
  esac
  shift
done
[ "$socket" = none ] && address=tcp:127.0.0.1:4242 || address=unix:$socket
eval "echo $address >&$fd; exec $fd>&-"
sleep 60 & wait
kill $!
"#;

/// Held while files are written and while a child is started: a child of another test that has forked and not yet
/// executed would hold our half-written program open, which then cannot be executed ("Text file busy").
static FORKING: Mutex<()> = Mutex::new(());

/// What the shim does when a program first asks for a GPU.
const ASKED: &str = ": > $ORION_ASKED_FILE";

/// What orion-run sets for compilers in the program.
const FOR_COMPILERS: [&str; 8] = [
    "CUPY_COMPILE_WITH_PTX",
    "TRITON_PTXAS_PATH",
    "TRITON_PTXAS_BLACKWELL_PATH",
    "MODULAR_NVPTX_COMPILER_PATH",
    "CUDA_ROOT",
    "NUMBA_CUDA_MEMORY_MANAGER",
    "TF_CUDNN_USE_AUTOTUNE",
    "XLA_FLAGS",
];

struct Installed(PathBuf);

fn c_library() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux has it");
    let path = maps.split_whitespace().find(|word| word.contains("/libc.so") || word.contains("/libc-"));
    PathBuf::from(path.expect("this program uses the C library"))
}

impl Installed {
    fn new(name: &str, oriond: &str) -> Installed {
        let _alone = FORKING.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = std::env::temp_dir().join(format!("orion-run-test-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("runtime")).expect("creating a folder");
        std::fs::copy(env!("CARGO_BIN_EXE_orion-run"), folder.join("orion-run")).expect("copying orion-run");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_orion-ptxas"), folder.join("orion-ptxas")).expect("linking");
        // Some that may be loaded into any program.
        let link = |library: PathBuf, name| std::os::unix::fs::symlink(library, folder.join(name)).expect("linking");
        link(c_library().with_file_name("libm.so.6"), "libcuda.so");
        link(c_library(), "libcupti.so");
        link(c_library().with_file_name("libdl.so.2"), "libnvidia_ml.so");
        std::fs::write(folder.join("oriond"), oriond).expect("writing");
        std::fs::set_permissions(folder.join("oriond"), std::fs::Permissions::from_mode(0o755)).expect("chmod");
        Installed(folder)
    }

    fn start(&self, arguments: &[&str]) -> Child {
        self.start_with(arguments, &[])
    }

    fn start_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Child {
        let _alone = FORKING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut run = Command::new(self.0.join("orion-run"));
        for name in ["ORION_SERVER", "ORION_TRANSPORT", "ORION_TOKEN", "ORION_TOKEN_FILE", "ORION_QUIET", "LD_PRELOAD"]
            .iter()
            .chain(&FOR_COMPILERS)
        {
            run.env_remove(name);
        }
        run.args(arguments)
            .envs(environment.iter().copied())
            .env("XDG_RUNTIME_DIR", self.0.join("runtime"))
            .env_remove("LD_LIBRARY_PATH")
            .env("CUDA_VISIBLE_DEVICES", "1")
            .env("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starting orion-run")
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.run_with(arguments, &[])
    }

    fn run_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
        let output = self.start_with(arguments, environment).wait_with_output().expect("waiting for orion-run");
        let left: Vec<_> = std::fs::read_dir(self.0.join("runtime")).expect("reading").flatten().collect();
        assert!(left.is_empty(), "left behind: {left:?}");
        output
    }

    fn oriond_saw(&self) -> String {
        std::fs::read_to_string(self.0.join("arguments")).unwrap_or_default()
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Standard error, but for the line about compilers that each run on the software GPU has once.
fn said(output: &Output) -> String {
    let (line, rest): (Vec<_>, Vec<_>) = text(&output.stderr)
        .lines()
        .map(|line| format!("{line}\n"))
        .partition(|line| line.starts_with("orion-run: software GPU: compilers in the program are asked for PTX: "));
    assert_eq!(line.len(), 1, "{line:?} {rest:?}");
    rest.concat()
}

#[test]
fn the_program_finds_library_and_server() {
    let here = Installed::new("environment", STAND_IN);
    let script = r#"echo "$ORION_SERVER|$LD_LIBRARY_PATH|$TRITON_LIBCUDA_PATH"; ls "$TRITON_LIBCUDA_PATH""#;
    let output = here.run(&["--software-gpu", "--", "sh", "-c", script]);
    let out = text(&output.stdout);
    let (first, names) = out.split_once('\n').expect("two lines");
    let parts: Vec<&str> = first.split('|').collect();
    assert!(parts[0].starts_with("unix:/") && Path::new(parts[0].trim_start_matches("unix:")).starts_with(parts[1]));
    assert_eq!(parts[1], parts[2]);
    assert!(names.contains("libcuda.so\n") && names.contains("libcuda.so.1\n"), "{names}");
    assert!(names.contains("libnvidia-ml.so.1\n"), "{names}");
    assert!(here.oriond_saw().contains("--driver soft") && here.oriond_saw().contains("ended"));
}

#[test]
fn a_profiler_s_library_is_loaded_before_the_program_s_own() {
    let here = Installed::new("profiler", STAND_IN);
    let preloaded = || {
        let output = here.run(&["--software-gpu", "--", "sh", "-c", &format!("{ASKED}; echo $LD_PRELOAD")]);
        let said = said(&output);
        (text(&output.stdout).trim_end().split(':').next().unwrap_or_default().to_owned(), said)
    };
    let library = c_library().canonicalize().expect("it is there");
    assert_eq!(preloaded(), (library.to_string_lossy().into_owned(), String::new()));
    std::fs::remove_file(here.0.join("libcupti.so")).expect("it was there");
    let (first, said) = preloaded();
    assert_ne!(Path::new(&first), library);
    assert!(said.contains("cannot profile"), "{said}");
}

#[test]
fn tcp_is_loopback_with_a_token() {
    let here = Installed::new("tcp", STAND_IN);
    let output = here.run(&[
        "--software-gpu",
        "--transport",
        "tcp",
        "sh",
        "-c",
        r#"echo "$ORION_SERVER"; cat "$ORION_TOKEN_FILE""#,
    ]);
    let out = text(&output.stdout);
    let (server, token) = out.split_once('\n').expect("two lines");
    assert_eq!((server, token.len()), ("tcp:127.0.0.1:4242", 32));
    assert!(here.oriond_saw().contains("--listen 127.0.0.1:0"));
}

#[test]
fn the_choice_of_devices_is_made_once_in_the_program() {
    let here = Installed::new("devices", STAND_IN);
    let output = here.run(&["--software-gpu", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER"]);
    assert_eq!(text(&output.stdout), "1 PCI_BUS_ID\n");
    assert!(here.oriond_saw().contains("devices=unset,unset"), "{}", here.oriond_saw());
}

#[test]
fn exit_status_and_output_are_the_programs() {
    let here = Installed::new("status", STAND_IN);
    let output = here.run(&["--software-gpu", "sh", "-c", &format!("{ASKED}; echo out; echo err >&2; exit 7")]);
    assert_eq!((output.status.code(), text(&output.stdout), said(&output)), (Some(7), "out\n".into(), "err\n".into()));
    assert_eq!(here.run(&["--software-gpu", "sh", "-c", "kill -9 $$"]).status.code(), Some(137));
    let output = here.run(&["--software-gpu", "/nonexistent/program"]);
    assert_eq!(output.status.code(), Some(127));
    assert!(text(&output.stderr).contains("there is no program"));
    let output = here.run(&["--software-gpu", "--vgpuz", "2", "true"]);
    assert_eq!(output.status.code(), Some(127));
    assert!(text(&output.stderr).contains("there is no program --vgpuz, and no such option: see orion-run --help"));
}

#[test]
fn a_standard_error_that_takes_nothing_is_no_reason_to_fail() {
    let here = Installed::new("full", STAND_IN);
    // Worth a line.
    std::fs::remove_file(here.0.join("libcupti.so")).expect("it was there");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    let mut command = Command::new(here.0.join("orion-run"));
    command.args(["--software-gpu", "sh", "-c", "exit 7"]).env("XDG_RUNTIME_DIR", here.0.join("runtime"));
    let alone = FORKING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut child = command.stderr(full).spawn().expect("starting orion-run");
    drop(alone);
    assert_eq!(child.wait().expect("waiting").code(), Some(7));
}

#[test]
fn signals_reach_the_program_and_nothing_is_left() {
    let here = Installed::new("signals", STAND_IN);
    let script = "trap 'exit 5' TERM; echo ready; while :; do sleep 0.05; done";
    let mut child = here.start(&["--software-gpu", "sh", "-c", script]);
    let mut ready = [0u8; 6];
    std::io::Read::read_exact(child.stdout.as_mut().expect("piped"), &mut ready).expect("the program's output");
    // SAFETY: a signal to our own child.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    assert_eq!(child.wait().expect("waiting").code(), Some(5));
    assert_eq!(std::fs::read_dir(here.0.join("runtime")).expect("reading").count(), 0);
}

#[test]
fn an_oriond_that_does_not_start_is_quoted() {
    let here = Installed::new("broken", "#!/bin/sh\necho 'oriond: no such thing' >&2\nexit 1\n");
    let output = here.run(&["--software-gpu", "true"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("no such thing"), "{}", text(&output.stderr));
}

#[test]
fn a_server_of_ones_own_choice_is_used_as_it_is() {
    let here = Installed::new("server", STAND_IN);
    let output = here.run(&["--server", "tcp:node:7411", "sh", "-c", "echo $ORION_SERVER $ORION_TOKEN_FILE"]);
    assert_eq!(text(&output.stdout), "tcp:node:7411\n");
    assert_eq!(here.oriond_saw(), "");
}

#[test]
fn the_environment_and_the_command_line_mean_the_same() {
    let here = Installed::new("same", STAND_IN);
    let script = &["sh", "-c", "echo $ORION_SERVER $ORION_TOKEN"];
    let output = here.run_with(script, &[("ORION_SERVER", "node:7411"), ("ORION_TOKEN", "of that node")]);
    assert_eq!((text(&output.stdout), here.oriond_saw()), ("tcp:node:7411 of that node\n".into(), String::new()));
    let output = here.run_with(&["--software-gpu", script[0], script[1], script[2]], &[("ORION_TRANSPORT", "tcp")]);
    assert_eq!(text(&output.stdout), "tcp:127.0.0.1:4242\n");
}

#[test]
fn a_share_of_the_gpus_time_reaches_oriond() {
    let here = Installed::new("share", STAND_IN);
    let output = here.run(&["--software-gpu", "--share", "30", "--throttle-level", "0", "sh", "-c", ASKED]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let saw = here.oriond_saw();
    assert!(saw.contains("--share 30 --throttle-level 0"), "{saw}");
}

#[test]
fn contradictions_and_what_is_no_address_are_refused_before_anything_starts() {
    let here = Installed::new("contradictions", STAND_IN);
    let server = ("ORION_SERVER", "tcp:node:7411");
    for (arguments, environment, words) in [
        (&["--server", "tcp:other:7411", "true"][..], server, "contradicts ORION_SERVER=tcp:node:7411"),
        (&["--software-gpu", "true"][..], server, "ORION_SERVER names another one"),
        (&["--share", "30", "true"][..], server, "--share is for the server that is started for this run"),
        (&["--share", "30", "true"][..], ("ORION_CONTROLLER", "pool"), "--share is about one; leave one of them out"),
        (&["--transport", "shm", "true"][..], server, "--transport shm needs a server address"),
        (&["--transport", "tcp", "true"][..], ("ORION_TRANSPORT", "pcie"), "ORION_TRANSPORT=pcie is none of shm, tcp"),
        (&["true"][..], ("ORION_SERVER", "http://node:7411"), "it is one of unix:/path, tcp:host:port"),
        (&["--server", "http://node:7411", "true"][..], ("UNUSED", ""), "it is one of unix:/path, tcp:host:port"),
    ] {
        let output = here.run_with(arguments, &[environment]);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(125) && said.contains(words), "{arguments:?} {environment:?}: {said}");
        assert_eq!(here.oriond_saw(), "");
    }
}

/// As if ORION_SERVER named nobody, it would begin a server of its own.
#[test]
fn what_is_no_text_is_refused_and_not_taken_for_nothing() {
    let here = Installed::new("bytes", STAND_IN);
    let _alone = FORKING.lock().unwrap_or_else(PoisonError::into_inner);
    for name in ["ORION_SERVER", "ORION_CONTROLLER", "ORION_TRANSPORT", "ORION_TLS", "ORION_GMEM"] {
        let mut run = Command::new(here.0.join("orion-run"));
        run.arg("true").env(name, OsStr::from_bytes(b"tcp:\xff:1")).env("XDG_RUNTIME_DIR", here.0.join("runtime"));
        let output = run.output().expect("orion-run starts");
        let said = text(&output.stderr);
        let words = format!("{name} is not valid UTF-8");
        assert!(output.status.code() == Some(125) && said.contains(&words), "{said}");
        assert_eq!(here.oriond_saw(), "");
    }
}

#[test]
fn a_token_for_another_server_is_not_given_to_this_run_s() {
    let here = Installed::new("token", STAND_IN);
    let script = &["--software-gpu", "sh", "-c", "echo ${ORION_TOKEN-none}; cat $ORION_TOKEN_FILE"];
    let output = here.run_with(script, &[("ORION_TOKEN", "of another server")]);
    let out = text(&output.stdout);
    assert!(out.starts_with("none\n") && out.len() == "none\n".len() + 32, "{out}");
    assert!(text(&output.stderr).contains("ORION_TOKEN is for a server that is not named"));
}

#[test]
fn a_killed_run_leaves_no_folder_and_no_oriond() {
    let here = Installed::new("killed", STAND_IN);
    let theirs = ["--server", "unix:/nonexistent/socket"];
    for server in [&["--software-gpu"][..], &["--software-gpu", "--transport", "tcp"][..], &theirs[..]] {
        let arguments: Vec<&str> = server.iter().copied().chain(["sh", "-c", "echo $$; exec sleep 60"]).collect();
        let mut child = here.start(&arguments);
        let mut first = String::new();
        let mut lines = std::io::BufReader::new(child.stdout.take().expect("piped"));
        std::io::BufRead::read_line(&mut lines, &mut first).expect("the program's output");
        let left = || std::fs::read_dir(here.0.join("runtime")).expect("reading").count();
        assert_eq!(left(), 1);
        child.kill().expect("it runs");
        child.wait().expect("waiting");
        let program: i32 = first.trim().parse().expect("a number");
        // SAFETY: a signal to the program that orion-run started for us.
        unsafe { libc::kill(program, libc::SIGKILL) };
        let began = std::time::Instant::now();
        while left() != 0 || (server != theirs && !here.oriond_saw().contains("ended")) {
            assert!(began.elapsed().as_secs() < 20, "{server:?}: {} left, oriond: {}", left(), here.oriond_saw());
            std::thread::yield_now();
        }
        let _ = std::fs::remove_file(here.0.join("arguments"));
    }
}

#[test]
fn a_program_in_which_nothing_asked_for_a_gpu_is_named() {
    let here = Installed::new("unasked", STAND_IN);
    let words = "nothing in it has asked Orion for a GPU";
    let run = |arguments: &[&str]| said(&here.run(&[&["--software-gpu", "--"], arguments].concat()));
    assert!(run(&["env", "-i", "/bin/true"]).contains(words));
    assert!(run(&["sh", "-c", "exit 3"]).contains(words));
    assert!(run(&["sh", "-c", "kill -SEGV $$"]).contains(words));
    assert_eq!(run(&["sh", "-c", ASKED]), "");
    // Whoever interrupts a program knows that it had not come to that.
    assert_eq!(run(&["sh", "-c", "kill $$"]), "");
    assert_eq!(text(&here.run_with(&["--software-gpu", "true"], &[("ORION_QUIET", "1")]).stderr), "");
}

/// A program without a loader that ends with 7, and has these bytes in it.
fn static_program(path: &Path, bytes: &[u8]) {
    let word = |value: u64| value.to_le_bytes();
    // mov edi, 7; mov eax, 60 (exit); syscall
    let code = [0xbf, 7, 0, 0, 0, 0xb8, 60, 0, 0, 0, 0x0f, 0x05];
    let (base, code_at) = (0x40_0000, 120);
    let length = word((code_at + code.len() + bytes.len()) as u64);
    let program = [
        b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".as_slice(),
        // Where it begins; its program headers, of which there is one; no sections.
        &word(base + code_at as u64),
        &word(64),
        &word(0),
        &[0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0],
        // All of it is loaded, to be read and executed.
        &[1, 0, 0, 0, 5, 0, 0, 0],
        &word(0),
        &word(base),
        &word(base),
        &length,
        &length,
        &word(4096),
        &code,
        bytes,
    ];
    std::fs::write(path, program.concat()).expect("writing");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("chmod");
}

/// Such a program loads Orion's driver and ends in it by a fault, of which nobody there can say why.
#[test]
fn a_static_program_that_looks_for_cuda_is_told_before_it_is_started() {
    let installed = Installed::new("static", STAND_IN);
    let program = |name: &str, bytes: &[u8]| {
        let _alone = FORKING.lock().unwrap_or_else(PoisonError::into_inner);
        let path = installed.0.join(name);
        static_program(&path, bytes);
        path.display().to_string()
    };
    let cuda = program("cuda", b"\0libcuda.so.1\0");
    let output = installed.run(&["--software-gpu", &cuda]);
    assert_eq!(output.status.code(), Some(7));
    let expected = format!("orion-run: {cuda} is linked with -static: ");
    assert_eq!(said(&output).matches(&expected).count(), 1, "{}", said(&output));
    assert!(said(&output).contains("link it without -static"), "{}", said(&output));
    // One line about it is enough.
    assert!(!said(&output).contains("nothing in it has asked"), "{}", said(&output));
    let quiet = installed.run_with(&["--software-gpu", &cuda], &[("ORION_QUIET", "1")]);
    assert_eq!((quiet.status.code(), text(&quiet.stderr).as_str()), (Some(7), ""));
    // A shell, say, whose children are another matter.
    let other = installed.run(&["--software-gpu", &program("other", b"\0busybox\0")]);
    assert_eq!(other.status.code(), Some(7));
    assert!(!said(&other).contains("is linked with -static: "), "{}", said(&other));
}

#[test]
fn compilers_are_asked_for_ptx_on_the_software_gpu_alone() {
    let here = Installed::new("compilers", STAND_IN);
    let script = format!("{ASKED}; for name in {}; do eval \"echo \\${{$name-unset}}\"; done", FOR_COMPILERS.join(" "));
    let run = |server: &[&str], environment: &[(&str, &str)]| {
        let output = here.run_with(&[server, &["sh", "-c", &script]].concat(), environment);
        (text(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>(), text(&output.stderr))
    };
    let (values, line) = run(&["--software-gpu"], &[]);
    let [cupy, triton, blackwell, mojo, root, numba, trials, flags] = values.as_slice() else { panic!("{values:?}") };
    assert_eq!((cupy.as_str(), numba.as_str(), trials.as_str()), ("1", "orion_numba", "0"));
    assert_eq!([blackwell, mojo], [triton; 2]);
    assert_eq!(triton.strip_suffix("/bin/ptxas"), Some(root.as_str()));
    assert_eq!(
        *flags,
        format!("--xla_gpu_cuda_data_dir={root} --xla_gpu_enable_libnvjitlink=false --xla_gpu_autotune_level=0")
    );
    let wanted = format!(
        "orion-run: software GPU: compilers in the program are asked for PTX: CUPY_COMPILE_WITH_PTX=1, \
         TRITON_PTXAS_PATH={triton}, TRITON_PTXAS_BLACKWELL_PATH={triton}, MODULAR_NVPTX_COMPILER_PATH={triton}, \
         CUDA_ROOT={root}, NUMBA_CUDA_MEMORY_MANAGER=orion_numba, TF_CUDNN_USE_AUTOTUNE=0, XLA_FLAGS={flags}\n"
    );
    assert_eq!(line, wanted);
    // What the user has set stays.
    let (values, line) = run(&["--software-gpu"], &[("TRITON_PTXAS_PATH", "/theirs"), ("XLA_FLAGS", "--theirs")]);
    assert_eq!(values[1], "/theirs");
    assert!(values[7].starts_with("--theirs --xla_gpu_cuda_data_dir="), "{values:?}");
    assert!(line.ends_with("; yours stay: TRITON_PTXAS_PATH=/theirs\n"), "{line}");
    // Whatever GPU another server has, it may be a real one.
    let (values, line) = run(&["--server", "tcp:node:7411"], &[]);
    assert_eq!((values, line), (vec!["unset".to_owned(); FOR_COMPILERS.len()], String::new()));
    let output = here.run_with(&["--software-gpu", "true"], &[("ORION_QUIET", "1")]);
    assert_eq!(text(&output.stderr), "");
    std::fs::remove_file(here.0.join("orion-ptxas")).expect("it was there");
    let (values, line) = run(&["--software-gpu"], &[]);
    assert_eq!(values, vec!["unset".to_owned(); FOR_COMPILERS.len()]);
    assert!(line.contains("there is no orion-ptxas beside"), "{line}");
}

/// In a /dev of its own, with the file by which NVIDIA's driver is known, and a library in the driver's place.
#[test]
fn a_real_gpu_s_compilers_are_left_alone() {
    let here = Installed::new("real", STAND_IN);
    let theirs = here.0.join("theirs");
    std::fs::create_dir(&theirs).expect("creating a folder");
    std::fs::copy(c_library(), theirs.join("libcuda.so.1")).expect("copying");
    let values = FOR_COMPILERS.map(|name| format!("${{{name}-unset}}")).join(" ");
    let script = format!(
        "mount -t tmpfs none /dev && : > /dev/null && : > /dev/nvidiactl && mkdir /dev/shm && exec \"$0\" \"$@\" sh -c \
         '{ASKED}; echo {values}'"
    );
    let run = |option: &[&str]| {
        let _alone = FORKING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut command = Command::new("unshare");
        // SAFETY: getuid cannot fail.
        command.args(if unsafe { libc::getuid() } == 0 { &["-m"][..] } else { &["-r", "-m"][..] });
        command.args(["sh", "-c", &script]).arg(here.0.join("orion-run")).args(option);
        for name in FOR_COMPILERS.iter().chain(&["ORION_SERVER", "ORION_TRANSPORT", "ORION_QUIET", "LD_PRELOAD"]) {
            command.env_remove(name);
        }
        command.env("LD_LIBRARY_PATH", &theirs).env("XDG_RUNTIME_DIR", here.0.join("runtime"));
        let output = command.output().expect("unshare starts");
        assert!(output.status.success(), "{}", text(&output.stderr));
        (text(&output.stdout), text(&output.stderr))
    };
    let (values, line) = run(&[]);
    let driver = format!("--driver {}", theirs.join("libcuda.so.1").display());
    assert!(here.oriond_saw().contains(&driver), "{}", here.oriond_saw());
    assert_eq!((values.trim_end(), line.as_str()), (["unset"; FOR_COMPILERS.len()].join(" ").as_str(), ""));
    let (values, line) = run(&["--software-gpu"]);
    assert!(here.oriond_saw().contains("--driver soft"), "{}", here.oriond_saw());
    assert!(values.starts_with("1 /") && line.contains("compilers in the program are asked for PTX"), "{values}{line}");
}

#[test]
fn numba_finds_the_module_that_it_is_told_of() {
    let here = Installed::new("numba", STAND_IN);
    let script = format!("{ASKED}; cat ${{PYTHONPATH%%:*}}/$NUMBA_CUDA_MEMORY_MANAGER.py");
    let output = here.run_with(&["--software-gpu", "sh", "-c", &script], &[("PYTHONPATH", "/of/the/user")]);
    assert!(text(&output.stdout).contains("_numba_memory_manager"), "{}", text(&output.stderr));
}

/// Two of numba's, neither of which is there but for what the module uses of it: a program may have either, or both.
const DRIVERS: &str = r#"
import os, sys, types

BOTH = """
import importlib, os
class NumbaCUDAMemoryManager: pass
class ObjectCode:
    def __init__(self, code, code_type): self.code, self.code_type, self.name = code, code_type, ""
    from_ptx = staticmethod(lambda code: ObjectCode(code, "PTX for " + __name__))
class _Linker:
    def __init__(self, *codes): self._object_codes = codes
    def get_linked_ptx(self): return b"linked"
    def complete(self): return "machine code"
def manager(): return importlib.import_module(os.environ["NUMBA_CUDA_MEMORY_MANAGER"])._numba_memory_manager
"""

for name in sys.argv[1:]:
    driver = sys.modules[name] = types.ModuleType(name)
    exec(BOTH, driver.__dict__)
    for _ in range(2):
        assert driver.manager() is driver.NumbaCUDAMemoryManager, name
    for kind, code in ("ptx", b"a text"), ("ltoir", b"linked"):
        found = driver._Linker(driver.ObjectCode(b"a text", kind)).complete()
        assert (found.code, found.code_type) == (code, "PTX for " + name), vars(found)
    assert driver._Linker(driver.ObjectCode(b"", "cubin")).complete() == "machine code"
    print(name)
"#;

#[test]
fn each_of_numbas_keeps_its_memory_manager_and_hands_over_ptx() {
    let here = Installed::new("drivers", STAND_IN);
    let drivers = here.0.join("drivers.py");
    std::fs::write(&drivers, DRIVERS).expect("writing");
    let (numba, mlir) = ("numba.cuda.cudadrv.driver", "numba_cuda_mlir.numba_cuda.cudadrv.driver");
    for names in [format!("{numba} {mlir}"), format!("{mlir} {numba}"), mlir.to_owned()] {
        let script = format!("{ASKED}; python3 {} {names}", drivers.display());
        let output = here.run(&["--software-gpu", "sh", "-c", &script]);
        let said = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(said, names, "{}", text(&output.stderr));
    }
}

#[test]
fn the_stand_in_for_ptxas_passes_ptx_on() {
    let here = Installed::new("ptxas", STAND_IN);
    let (ptx, cubin) = (here.0.join("some.ptx"), here.0.join("some.cubin"));
    std::fs::write(&ptx, ".version 8.0\n.target sm_90\n").expect("writing");
    let script = format!("\"$TRITON_PTXAS_PATH\" -v --gpu-name=sm_90a {} -o {}", ptx.display(), cubin.display());
    let output = here.run(&["--software-gpu", "sh", "-c", &format!("{ASKED}; {script}")]);
    assert_eq!((output.status.code(), said(&output)), (Some(0), String::new()));
    assert_eq!(std::fs::read(&cubin).expect("it was written"), b".version 8.0\n.target sm_90\n\0");
    // What Triton and XLA look for, and what tells it from NVIDIA's.
    let output = here.run(&["--software-gpu", "sh", "-c", "\"$TRITON_PTXAS_PATH\" --version"]);
    let version = text(&output.stdout);
    assert!(version.contains("release 13.0, V13.0.88\n") && version.contains("Orion's stand-in"), "{version}");
    let output = here.run(&["--software-gpu", "sh", "-c", "\"$TRITON_PTXAS_PATH\" --gpu-name=sm_90 -o x"]);
    assert_eq!(output.status.code(), Some(255));
    assert!(text(&output.stderr).contains("orion-ptxas: there is no input"), "{}", text(&output.stderr));
}

#[test]
fn jax_is_given_a_plugin_where_it_would_not_look_for_a_gpu() {
    let here = Installed::new("jax", STAND_IN);
    let script = "echo $PYTHONPATH; cat ${PYTHONPATH%%:*}/jax_plugins/orion/__init__.py";
    let output = here.run_with(&["--software-gpu", "sh", "-c", script], &[("PYTHONPATH", "/of/the/user")]);
    let out = text(&output.stdout);
    if ["/dev/nvidia0", "/dev/nvidiactl", "/dev/dxg"].iter().any(|file| Path::new(file).exists()) {
        assert!(!out.contains("def initialize()"), "{out}");
    } else {
        let (path, plugin) = out.split_once('\n').expect("two parts");
        assert!(path.ends_with("/python:/of/the/user") && plugin.contains("def initialize()"), "{out}");
    }
}

#[test]
fn the_driver_is_preloaded_unless_told_otherwise() {
    let here = Installed::new("preload", STAND_IN);
    let output = here.run_with(&["--software-gpu", "sh", "-c", "echo $LD_PRELOAD"], &[("LD_PRELOAD", "")]);
    let (preloaded, driver) = (text(&output.stdout), here.0.join("libcuda.so").canonicalize().expect("it is there"));
    assert!(preloaded.trim_end().split(':').any(|path| Path::new(path) == driver), "{preloaded}");
    let output = here.run(&["--software-gpu", "--no-preload", "sh", "-c", "echo ${LD_PRELOAD-unset}"]);
    assert_eq!(text(&output.stdout), "unset\n");
}

/// It ends a program in which its own library is not the first, unless it is told not to look.
#[test]
fn address_sanitizer_is_told_that_orions_libraries_may_come_first() {
    let here = Installed::new("sanitizer", STAND_IN);
    let options = |theirs, ours: &[&str]| {
        let shown: Vec<&str> = ours.iter().chain(&["sh", "-c", "echo ${ASAN_OPTIONS-unset}"]).copied().collect();
        text(&here.run_with(&shown, &[("ASAN_OPTIONS", theirs)]).stdout)
    };
    let ours = &["--software-gpu"][..];
    assert_eq!(options("", ours), "verify_asan_link_order=0\n");
    assert_eq!(options("detect_leaks=1", ours), "verify_asan_link_order=0:detect_leaks=1\n");
    assert_eq!(options("detect_leaks=1", &["--software-gpu", "--no-preload"]), "detect_leaks=1\n");
}
