//! The original's third scene as its users type it: `server0` has no GPU and nothing of Orion but what a program loads
//! and the tools, `server1` has oriond and its agent with one server.conf, and a controller is between them. Then the
//! GPU is taken away.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::net::{Machine, Net, Way};
use crate::scene::{Process, built, wait_until};

/// Whoever loses his GPU is told within 11 s, which is how long silence is borne; and the line comes a moment later.
const TOLD: Duration = Duration::from_secs(12);

/// Everybody's files lie below one folder; nobody looks into another's.
struct Scene {
    folder: PathBuf,
    between: Machine,
    server0: Machine,
    server1: Machine,
    _net: Net,
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Scene {
    fn new() -> Scene {
        let folder = std::env::temp_dir().join(format!("orion-remote-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        for name in ["", "controller", "server0", "server1"] {
            std::fs::DirBuilder::new().mode(0o700).create(folder.join(name)).expect("a new folder");
        }
        let mut net = Net::new();
        let both = [Way::Data, Way::Management];
        let (between, server0, server1) = (net.machine(&both), net.machine(&both[..1]), net.machine(&both));
        Scene { folder, between, server0, server1, _net: net }
    }

    fn home(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A shell on this machine, in its own home and with no more of an environment than a login has.
    fn shell(&self, name: &str, line: &str) -> Command {
        let home = self.home(name);
        let mut shell = Command::new("sh");
        let path = std::env::var("PATH").unwrap_or_default();
        shell.env_clear().env("HOME", &home).env("XDG_RUNTIME_DIR", &home).env("TMPDIR", &home);
        let tools = if name == "server0" { home.join("orion/bin") } else { built().to_owned() };
        shell.env("PATH", format!("{}:{path}", tools.display())).current_dir(&home).args(["-c", line]);
        shell
    }

    fn on(&self, name: &str) -> &Machine {
        match name {
            "server0" => &self.server0,
            "server1" => &self.server1,
            _ => &self.between,
        }
    }

    /// What a command prints that ends by itself, and whether it ended well.
    fn typed(&self, name: &str, line: &str) -> (bool, String) {
        let output = self.on(name).run(|| self.shell(name, &format!("{line} 2>&1")).output()).expect("sh starts");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// One that stays.
    fn started(&self, name: &str, line: &str) -> Process {
        let log = self.home(name).join(format!("{}.log", line.split(' ').next().expect("a word")));
        self.on(name).run(|| Process::start(&mut self.shell(name, &format!("exec {line}")), &log))
    }

    fn write(&self, place: &str, text: &str) {
        let path = self.folder.join(place);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a new folder");
        std::fs::write(path, text).expect("writing");
    }

    /// As `install.sh FOLDER` lays it out, without what only a server needs.
    fn install_client(&self) {
        for (from, to) in [
            ("libcuda.so", "lib/orion/libcuda.so.1"),
            ("orion-run", "bin/orion-run"),
            ("orion-check", "bin/orion-check"),
            ("orion-smi", "bin/orion-smi"),
        ] {
            let to = self.home("server0").join("orion").join(to);
            std::fs::create_dir_all(to.parent().expect("a folder")).expect("a new folder");
            // By a program of its own: what we write to ourselves a fork beside it has open, too, and then it is busy.
            let copied = Command::new("cp").arg(built().join(from)).arg(to).status().expect("cp starts");
            assert!(copied.success(), "copying {from}");
        }
    }

    /// What of Orion runs on `server0`: names of its processes.
    fn processes(&self) -> Vec<String> {
        let namespace = |pid: &Path| std::fs::read_link(pid.join("ns/net")).ok();
        let own = self.server0.run(|| namespace(Path::new("/proc/thread-self"))).expect("its namespace");
        let all = std::fs::read_dir("/proc").expect("it is there").flatten().map(|entry| entry.path());
        let here = all.filter(|pid| namespace(pid).as_ref() == Some(&own));
        let name = |pid: PathBuf| std::fs::read_to_string(pid.join("comm")).unwrap_or_default().trim().to_owned();
        here.map(name).collect()
    }

    fn program(&self, line: &str) -> Program {
        let mut command = self.shell("server0", &format!("exec {line} 2>&1"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = self.server0.run(|| command.spawn()).expect("it starts");
        let (tell, lines) = channel();
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        std::thread::spawn(move || output.lines().map_while(Result::ok).all(|line| tell.send(line).is_ok()));
        let mut program = Program { child, lines, said: String::new() };
        program.says("attached");
        program
    }
}

/// One that works until its standard input ends.
struct Program {
    child: Child,
    lines: Receiver<String>,
    said: String,
}

impl Program {
    fn says(&mut self, words: &str) -> Duration {
        wait_until(&format!("{words:?} in {:?}", self.said), || {
            self.lines.try_iter().for_each(|line| self.said += &format!("{line}\n"));
            self.said.contains(words)
        })
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        self.child.wait().expect("it ends");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn all_in(said: &str, words: &[&str]) {
    assert!(words.iter().all(|word| said.contains(word)), "{words:?} are not all in\n{said}");
}

/// Certificates, a controller, and `server1`'s oriond and agent with one file.
fn serve(scene: &Scene) -> [Process; 3] {
    let (data, management) = (scene.between.address(Way::Data), scene.between.address(Way::Management));
    let certificates = format!("orionctl certificate ca && orionctl certificate server controller {data} {management}");
    assert!(scene.typed("controller", &certificates).0);
    let yaml = "controller:\n  listen_ip: 0.0.0.0\n  certificate: controller.pem\n  key: controller.key\n\
                database:\n  data-dir: data\n";
    scene.write("controller/controller.yaml", yaml);
    let controller = scene.started("controller", "orion-controller start --config-file controller.yaml");
    controller.says("Controller is launching, listening on ");
    // The original's file, and below it what is Orion's own.
    let conf = format!(
        "[server]\n    listen_port = 9960\n    bind_addr = {}\n    enable_shm = \"false\"\n\
         \x20   enable_rdma = \"false\"\n\
         \x20   enable_kvm = \"false\"\n    vgpu_count = 4\n    driver = soft\n    pool = pool.sock\n    heap = 1 GiB\n\
         [controller]\n    controller_addr = {management}\n[agent]\n    node = server1\n\
         \x20   ca = ../controller/ca.pem\n",
        scene.server1.address(Way::Data)
    );
    scene.write("server1/server.conf", &conf);
    // RDMA is asked for and cannot be had: nothing is served over TCP instead.
    scene.write("server1/rdma.conf", &conf.replace("enable_rdma = \"false\"", "enable_rdma = \"true\""));
    let (served, said) = scene.typed("server1", "timeout 30 oriond serve --config rdma.conf");
    assert!(!served && said.to_lowercase().contains("rdma") && !said.contains("serving addresses"), "{said}");
    let oriond = scene.started("server1", "oriond serve --config server.conf");
    oriond.says("serving addresses=");
    let agent = scene.started("server1", "orion-agent --config server.conf");
    agent.says("is reported to Orion Controller");
    [controller, oriond, agent]
}

#[test]
fn a_machine_without_a_gpu_uses_anothers_as_the_quick_start_says_and_is_told_when_it_is_gone() {
    let scene = Scene::new();
    let [_controller, mut oriond, _agent] = serve(&scene);
    scene.install_client();
    let controller = scene.between.address(Way::Data);
    let conf = format!("[controller]\n    controller_addr = {controller}:9123\n    ca = {}\n", "../controller/ca.pem");
    scene.write("server0/.orion/client.conf", &conf);

    let check = "export LD_LIBRARY_PATH=$HOME/orion/lib/orion:$LD_LIBRARY_PATH && orion-check runtime client";
    let (_, said) = scene.typed("server0", check);
    let vgpus = "There are 4 vGPU under management by Orion Controller. 4 vGPU are free now.";
    all_in(&said, &["libcuda.so.1 is Orion's", &format!("{controller}:9123 is reached"), vgpus]);

    // By its environment, and by orion-run.
    let show = built().join("examples/show_vgpus").display().to_string();
    let exports = "export LD_LIBRARY_PATH=$HOME/orion/lib/orion ORION_VGPU=2 ORION_GMEM=300";
    let (good, said) = scene.typed("server0", &format!("{exports} && {show}"));
    assert!(good, "{said}");
    all_in(&said, &["devices 2\n", "device 1 size 314572800 "]);
    let facts = built().join("orion-facts").display().to_string();
    let run = "orion-run --vgpu 1 --gmem 512 --wait 30 --";
    let (good, said) = scene.typed("server0", &format!("ORION_QUIET=1 {run} {facts} --quiet --only memory::,stream::"));
    assert!(good && said.contains(" 0 failed"), "{said}");
    // What the documents' RDMA scene would be: nobody of this pool has it, and nothing goes another way.
    let (good, said) = scene.typed("server0", &format!("ORION_TRANSPORT=rdma {run} {show}"));
    assert!(!good, "{said}");
    all_in(&said, &["no node of it is reached by rdma", "--rdma", "cuInit 100"]);

    // While one works it is seen from here, and nothing else of Orion runs here.
    let mut one = scene.program(&format!("{run} {show} work"));
    let (_, said) = scene.typed("server0", &format!("orion-smi --controller {controller} --ca ../controller/ca.pem"));
    all_in(&said, &["ORION-SMI", &scene.server1.address(Way::Data), "show_vgpus"]);
    let here = scene.processes();
    let expected = ["orion-run", "orion-run-clean", "show_vgpus"];
    assert!(here.iter().any(|name| name == "show_vgpus"), "{here:?}");
    assert!(here.iter().all(|name| expected.contains(&name.as_str())), "{here:?}");
    scene.server1.cut(Way::Data);
    let cut = one.says("the session is lost");
    assert!(cut < TOLD, "{cut:?} after the cable was cut: {}", one.said);
    one.end();
    scene.server1.heal(Way::Data);
    // A machine that was in vain looked for is looked for again a moment later.
    let oriond_at = (scene.server1.address(Way::Data), 9960);
    wait_until("the way to the server", || scene.server0.run(|| TcpStream::connect(&oriond_at).is_ok()));

    let mut two = scene.program(&format!("{run} {show} work"));
    oriond.kill();
    let killed = two.says("the session is lost");
    assert!(killed < TOLD, "{killed:?} after oriond was killed: {}", two.said);
    two.end();
    // Its agent tells the controller a moment later.
    let (mut good, mut said) = (true, String::new());
    wait_until("a pool without its node", || {
        (good, said) = scene.typed("server0", &format!("orion-run {show}"));
        said.contains("no node with a GPU has reported")
    });
    assert!(!good, "{said}");
    all_in(&said, &["cuInit 100"]);
    wait_until("an empty machine, as its programs have ended", || scene.processes().is_empty());
    println!("told {cut:?} after the cable was cut, {killed:?} after oriond was killed");
}
