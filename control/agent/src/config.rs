//! What the agent finds in oriond's `server.conf`: where the controller is, how the GPUs are split, what of them is
//! the node's own reserve, where oriond listens; and in a section of its own, `[agent]`, any of its options by its
//! name (`server_key_file` for `--server-key-file`).
//!
//! A file becomes options that stand before those of the command line, which therefore decide.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ini::{Ini, ParseOption, Properties};
use orion_wire::client_conf::{is_text, text_of};

/// The original's, as oriond has it.
const PORT: &str = "9960";

/// An option that `[agent]` may have as a key.
pub struct Choice {
    /// Without the dashes in front.
    pub name: String,
    /// Given or not, in place of a value.
    pub is_flag: bool,
}

/// Why a file stands for no options.
#[derive(Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It says of no pool, and there is nothing to try again.
    NoPool(String),
    Other(String),
}

impl From<String> for Unfit {
    fn from(why: String) -> Unfit {
        Unfit::Other(why)
    }
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unfit::NoPool(why) | Unfit::Other(why) => f.write_str(why),
        }
    }
}

impl Unfit {
    fn of(self, path: &str) -> Unfit {
        match self {
            Unfit::NoPool(why) => Unfit::NoPool(format!("{path}: {why}")),
            Unfit::Other(why) => Unfit::Other(format!("{path}: {why}")),
        }
    }
}

/// The options with those of `--config FILE` put before them. `options` are those that `[agent]` may have.
pub fn expand(mut arguments: Vec<OsString>, options: &[Choice]) -> Result<Vec<OsString>, Unfit> {
    let after = |(i, argument): (usize, &OsString)| match argument.as_bytes().strip_prefix(b"--config")? {
        b"" => arguments.get(i + 1).cloned(),
        rest => rest.strip_prefix(b"=").map(|path| OsStr::from_bytes(path).to_owned()),
    };
    let Some(path) = arguments.iter().enumerate().filter_map(after).next_back() else { return Ok(arguments) };
    let path = PathBuf::from(path);
    let name = path.display();
    let bytes = std::fs::read(&path).map_err(|e| {
        format!("reading --config {name} failed: {e}; give the path of a server.conf, or leave the option out")
    })?;
    let found = read(&text_of(&bytes), options).map_err(|why| why.of(&name.to_string()))?;
    arguments.splice(1..1, found.into_iter().map(OsString::from));
    Ok(arguments)
}

/// The lines of `[agent]`'s keys. One that is given twice is an error, as it is to oriond in its sections.
fn lines(text: &str) -> Result<BTreeMap<&str, usize>, String> {
    let (mut section, mut lines) = ("", BTreeMap::new());
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            section = name.trim();
        } else if let Some((key, _)) = line.split_once(['=', ':']).filter(|_| section == "agent")
            && !line.starts_with([';', '#'])
            && let Some(first) = lines.insert(key.trim(), number)
        {
            return Err(format!("line {number}: [agent] {} is given a second time, after line {first}", key.trim()));
        }
    }
    Ok(lines)
}

/// The options that a file stands for.
fn read(text: &str, options: &[Choice]) -> Result<Vec<String>, Unfit> {
    let how = ParseOption { enabled_escape: false, ..ParseOption::default() };
    let ini = Ini::load_from_str_opt(text, how).map_err(|e| e.to_string())?;
    ini.iter().flat_map(|(_, keys)| keys.iter()).try_for_each(|(key, value)| is_text(key, value))?;
    let mut found = Vec::new();
    let add = |found: &mut Vec<String>, option: &str, value: &str| {
        found.extend([format!("--{option}"), value.to_owned()]);
    };
    let empty = Properties::new();
    let server = ini.section(Some("server")).unwrap_or(&empty);
    let controller = ini.get_from(Some("controller"), "controller_addr").filter(|value| !value.is_empty());
    for (option, value) in [
        ("controller", controller),
        ("pool", server.get("pool")),
        ("vgpu-count", server.get("vgpu_count")),
        ("reserve-vgpus", server.get("reserve").filter(|count| *count != "0")),
    ] {
        value.into_iter().for_each(|value| add(&mut found, option, value));
    }
    let own = ini.section(Some("agent")).unwrap_or(&empty);
    let lines = lines(text)?;
    if server.get("pool").is_none() && own.get("pool").is_none() {
        return Err(Unfit::NoPool(
            "[server] pool is not set, so the oriond of this file belongs to no pool; set it to a path, such as \
             /run/orion/pool.sock, and start oriond anew"
                .to_owned(),
        ));
    }
    if own.get("address").is_none() {
        let all: Vec<String> = [Some(address(server)?), verbs_address(server)?].into_iter().flatten().collect();
        add(&mut found, "address", &all.join(","));
    }
    for (key, value) in own.iter() {
        let option = key.replace('_', "-");
        let at = lines.get(key).map_or_else(String::new, |line| format!("line {line}: "));
        let Some(choice) = options.iter().find(|choice| choice.name == option) else {
            return Err(Unfit::Other(format!(
                "{at}nobody knows [agent] {key}; `orion-agent --help` lists the options that [agent] may have"
            )));
        };
        match (choice.is_flag, value.to_ascii_lowercase().as_str()) {
            (false, _) => found.extend([format!("--{option}"), value.to_owned()]),
            (true, "true" | "1" | "yes" | "on") => found.push(format!("--{option}")),
            (true, "false" | "0" | "no" | "off") => {}
            (true, _) => {
                return Err(Unfit::Other(format!("{at}[agent] {key} = {value:?} is neither true nor false")));
            }
        }
    }
    Ok(found)
}

/// Where oriond listens by this file, as programs reach it.
fn address(server: &Properties) -> Result<String, String> {
    let net = server.get("bind_net").filter(|net| !net.is_empty());
    let unclear = |what: &str| {
        Err(format!(
            "{what}, which is no address by which programs elsewhere reach this node; set [agent] address, such as \
             tcp:HOST:{PORT}"
        ))
    };
    match (server.get("bind_addr"), net, server.get("listen_port"), server.get("socket")) {
        (_, Some(net), ..) => unclear(&format!("bind_net is {net}")),
        (None, None, None, Some(socket)) if socket != "none" => Ok(format!("unix:{socket}")),
        (None, None, None, _) => unclear("[server] says neither bind_addr nor socket"),
        (bind, None, port, _) => {
            let bind = bind.unwrap_or("127.0.0.1");
            let port = port.unwrap_or(PORT);
            match bind.parse::<IpAddr>() {
                Ok(address) if address.is_unspecified() => unclear(&format!("bind_addr is {bind}")),
                Ok(IpAddr::V6(address)) => Ok(format!("tcp:[{address}]:{port}")),
                Ok(IpAddr::V4(address)) => Ok(format!("tcp:{address}:{port}")),
                Err(_) => Err(format!("bind_addr is {bind:?}, which is no IP address")),
            }
        }
    }
}

/// And where it offers RDMA, if it does: at an address of its own, or at the port behind TCP's.
fn verbs_address(server: &Properties) -> Result<Option<String>, String> {
    let is_yes = |value: &str| matches!(value.to_ascii_lowercase().as_str(), "true" | "1" | "yes" | "on");
    let asked = server.get("enable_rdma").is_some_and(is_yes);
    let place = match server.get("rdma") {
        Some("none") => return Ok(None),
        Some(place) => {
            let unclear = format!("rdma is {place}, which is no address by which programs elsewhere reach this node");
            match place.parse::<SocketAddr>() {
                Ok(address) if !address.ip().is_unspecified() => address,
                _ => return Err(format!("{unclear}; set [agent] address, such as tcp:HOST:{PORT},rdma:HOST:9961")),
            }
        }
        None if asked => {
            let tcp = address(server)?;
            let tcp = tcp.strip_prefix("tcp:").and_then(|place| place.parse::<SocketAddr>().ok());
            let behind = tcp.and_then(|tcp| Some(SocketAddr::new(tcp.ip(), tcp.port().checked_add(1)?)));
            behind.ok_or("enable_rdma = true takes the port behind listen_port, and there is none")?
        }
        None => return Ok(None),
    };
    Ok(Some(format!("rdma:{place}")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn options(text: &str) -> Result<String, String> {
        let known = ["address", "node", "server-key-file", "reserve", "insecure"];
        let known = known.map(|name| Choice { name: name.to_owned(), is_flag: name == "insecure" });
        read(text, &known).map(|found| found.join(" ")).map_err(|why| why.to_string())
    }

    #[test]
    fn orionds_file_says_what_the_agent_has_to_know() {
        let text = "[server]\n pool = /run/p ; here\n bind_addr = 10.0.0.7\n listen_port = 7411\n vgpu_count = 2\n\
                    [controller]\n controller_addr = pool:9123\n[agent]\n node = a\n server_key_file = /k\n";
        let said = "--controller pool:9123 --pool /run/p --vgpu-count 2 --address tcp:10.0.0.7:7411 --node a \
                    --server-key-file /k";
        assert_eq!(options(text).as_deref(), Ok(said));
        let text = "[server]\npool=/p\nsocket=/run/orion/oriond.sock\n";
        assert_eq!(options(text).as_deref(), Ok("--pool /p --address unix:/run/orion/oriond.sock"));
        let text = "[server]\npool=/p\nvgpu_count=4\nreserve=1\nsocket=/s\n";
        assert_eq!(options(text).as_deref(), Ok("--pool /p --vgpu-count 4 --reserve-vgpus 1 --address unix:/s"));
        let text = "[server]\npool=/p\nreserve=0\nsocket=/s\n";
        assert_eq!(options(text).as_deref(), Ok("--pool /p --address unix:/s"));
        let text = "[server]\npool=/p\nbind_addr=0.0.0.0\n[agent]\naddress=tcp:gpu-7:9960\n";
        assert_eq!(options(text).as_deref(), Ok("--pool /p --address tcp:gpu-7:9960"));
        let text = "[server]\npool=/p\nbind_addr=10.0.0.7\n[agent]\ninsecure = true\n";
        assert!(options(text).unwrap().ends_with("--insecure"));
        let text = "[server]\npool=/p\nbind_addr=10.0.0.7\nenable_rdma=\"true\"\n";
        let both = "--pool /p --address tcp:10.0.0.7:9960,rdma:10.0.0.7:9961";
        assert_eq!(options(text).as_deref(), Ok(both));
        let text = "[server]\npool=/p\nbind_addr=10.0.0.7\nrdma=10.1.0.7:5\n";
        assert_eq!(options(text).as_deref(), Ok("--pool /p --address tcp:10.0.0.7:9960,rdma:10.1.0.7:5"));
        let text = "[server]\npool=/p\nbind_addr=10.0.0.7\nenable_rdma=true\n[agent]\naddress=tcp:a:1,rdma:a:2\n";
        assert_eq!(options(text).as_deref(), Ok("--pool /p --address tcp:a:1,rdma:a:2"));
        assert!(options("[server]\npool=/p\nbind_addr=::1\n").unwrap().ends_with("--address tcp:[::1]:9960"));
    }

    #[test]
    fn what_is_missing_or_unknown_is_said() {
        for (text, words) in [
            ("[server]\nbind_addr = 127.0.0.1\n", "pool is not set"),
            ("[server]\npool=/p\nbind_addr = 0.0.0.0\n", "set [agent] address"),
            ("[server]\npool=/p\nbind_net = eth0\n", "bind_net is eth0"),
            ("[server]\npool=/p\nbind_addr = here\n", "\"here\", which is no IP address"),
            ("[server]\npool=/p\nbind_addr=10.0.0.7\nrdma=0.0.0.0:5\n", "rdma is 0.0.0.0:5"),
            ("[server]\npool=/p\nlisten_port=65535\nenable_rdma=true\n", "takes the port behind listen_port"),
            ("[server]\npool=/p\n", "neither bind_addr nor socket"),
            ("[server]\npool=/p\nlisten_port=1\n[agent]\nnodes = 3\n", "line 5: nobody knows [agent] nodes"),
            ("[server]\npool=/p\nsocket=/s\n[agent]\n# node = b\nnode = a\nnode=b\n", "line 7: [agent] node is given"),
            (
                "[server]\npool=/p\nlisten_port=1\n[agent]\ninsecure = 3\n",
                "line 5: [agent] insecure = \"3\" is neither true nor false",
            ),
            ("[server]\npool=/\u{fffd}\nlisten_port=1\n", "is not valid UTF-8; save the file as UTF-8"),
        ] {
            let why = options(text).expect_err(words);
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn a_file_may_have_any_name_and_one_without_a_pool_is_told_apart() {
        let folder = std::env::temp_dir().join(format!("orion-agent-config-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a new folder");
        let path = folder.join(OsStr::from_bytes(b"\xff.conf"));
        let joined = OsString::from_vec([b"--config=", path.as_os_str().as_bytes()].concat());
        let apart = vec!["orion-agent".into(), "--config".into(), path.clone().into_os_string()];
        for arguments in [apart, vec!["orion-agent".into(), joined]] {
            std::fs::write(&path, "[server]\npool=/p\nsocket=/s\n").expect("writing");
            let options = expand(arguments.clone(), &[]).expect("a file");
            assert_eq!(options[1..3], ["--pool", "/p"].map(OsString::from), "{options:?}");
            std::fs::write(&path, "[server]\nsocket=/s\n").expect("writing");
            assert!(matches!(expand(arguments.clone(), &[]), Err(Unfit::NoPool(_))));
            std::fs::remove_file(&path).expect("it is there");
            assert!(matches!(expand(arguments, &[]), Err(Unfit::Other(_))));
        }
        std::fs::remove_dir_all(&folder).expect("removing");
    }
}
