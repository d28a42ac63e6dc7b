//! A controller in a process of its own.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Each file of tests adds what it asks of it.
pub struct Controller {
    folder: PathBuf,
    pub address: SocketAddr,
    pub child: Child,
}

impl Controller {
    /// `command` starts it with the configuration of that path.
    pub fn started(name: &str, command: impl FnOnce(&Path) -> Command) -> Controller {
        let folder = std::env::temp_dir().join(format!("orion-controller-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a new folder");
        let config = folder.join("controller.yaml");
        let data = folder.join("data");
        let text = format!("controller:\n  listen_port: 0\ndatabase:\n  data-dir: {}\n", data.display());
        std::fs::write(&config, text).expect("writing");
        let mut child = command(&config).stdout(Stdio::piped()).spawn().expect("the controller starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
        let line = lines.find(|line| line.contains("listening on ")).expect("it says where it listens");
        std::thread::spawn(move || lines.for_each(drop));
        let port: u16 = line.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
        Controller { folder, address: (Ipv4Addr::LOCALHOST, port).into(), child }
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
