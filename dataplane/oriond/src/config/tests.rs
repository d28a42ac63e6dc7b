use std::os::unix::ffi::OsStringExt;

use super::*;

fn options() -> Vec<Choice> {
    [
        ("socket", false),
        ("listen", false),
        (verbs_option(), false),
        ("rdma-device", false),
        ("token-file", false),
        ("memory-limit", false),
        ("insecure", true),
    ]
    .map(|(name, is_flag)| Choice { name: name.to_owned(), is_flag })
    .to_vec()
}

fn read(text: &str) -> Result<Settings, String> {
    File { path: "server.conf", text }.settings(&options())
}

#[track_caller]
fn arguments(text: &str) -> String {
    read(text).expect("it is right").arguments.join(" ")
}

/// As the first edition's documents give it.
const FIRST: &str = r#"[server]
    listen_port = 9960
    bind_addr = 127.0.0.1
    enable_shm = "true"
    enable_rdma = "false"
    enable_kvm = "false"

[server-log]
    log_with_time = 1
    log_to_screen = 0
    log_to_file = 1
    log_level = INFO
    file_log_level = INFO

[server-shm]
    shm_path_base = "/dev/shm/"
    shm_group_name = "kvm"
    shm_user_name = "libvirt-qemu"
    shm_buffer_size = 134217728

[controller]
    controller_addr = 127.0.0.1:9123
"#;

#[test]
fn a_file_of_whatever_editor_is_read() {
    let bytes = [b"\xef\xbb\xbf", FIRST.replace('\n', "\t;\u{1}\r\n").as_bytes()].concat();
    // Comments of the original's documents are Chinese, and not everybody's editor writes UTF-8.
    let bytes: Vec<u8> = bytes.into_iter().map(|byte| if byte == 1 { 0xb5 } else { byte }).collect();
    assert_eq!(read(&text_of(&bytes)), read(FIRST));
    let why = read(&text_of(b"[server]\nsocket = /\xb5\n")).unwrap_err();
    assert!(why.starts_with("server.conf:2: socket = ") && why.ends_with("save the file as UTF-8"), "{why}");
}

#[test]
fn the_first_editions_file_serves_the_socket_and_logs_to_its_file() {
    let settings = read(FIRST).unwrap();
    let said = "--no-log-screen --log-file /var/log/orion/server.log --session-log /var/log/orion/session \
                --log-level info --log-file-level info";
    assert_eq!(settings.arguments.join(" "), said);
    assert!(settings.notices.iter().any(|n| n.starts_with("server.conf:3: TCP on 127.0.0.1:9960 needs token_file")));
    assert_eq!(settings.notices.len(), 6, "{:?}", settings.notices);
}

#[test]
fn the_second_editions_file_is_refused_for_what_there_is_not_line_by_line() {
    let text = "[log]\nlog_level = DEBUG ; which\n[server]\n vgpu_count = 4\n;bind_net =\n enable_rdma = true  ; yes\n";
    assert_eq!(
        read(text).unwrap_err(),
        "server.conf:6: enable_rdma = true needs token_file = FILE, so that not everybody who reaches it is let in"
    );
    assert_eq!(arguments(&text.replace("true", "off")), "--log-level debug");
}

#[test]
fn virtual_machines_are_let_in_by_the_files_that_orion_shm_makes() {
    assert!(
        arguments(&FIRST.replace("enable_kvm = \"false\"", "enable_kvm = true")).contains("--guest-folder /dev/shm/")
    );
    assert_eq!(arguments("[server]\nenable_kvm = 1\n"), "--guest-folder /dev/shm");
    assert_eq!(arguments("[server]\nenable_kvm = 0\n"), "");
}

#[test]
fn rdma_is_offered_beside_tcp_and_by_the_device_that_is_named() {
    let text = "[server]\nbind_addr = 10.0.0.7\ntoken_file = /t\nenable_rdma = true\nibverbs_device = mlx5_0:1\n";
    let all = "--token-file /t --listen 10.0.0.7:9960 --rdma 10.0.0.7:9961 --rdma-device mlx5_0:1";
    assert_eq!(arguments(text), all);
    assert!(read(text).unwrap().notices.iter().any(|said| said.contains("RDMA is asked for at 10.0.0.7:9961")));
    assert_eq!(
        arguments("[server]\ntoken_file = /t\nrdma = 10.0.0.7:5\nenable_rdma = true\n"),
        "--rdma 10.0.0.7:5 --token-file /t"
    );
    let idle = read("[server]\nibverbs_device = mlx5_0\n").unwrap();
    assert!(idle.arguments.is_empty() && idle.notices[0].contains("ibverbs_device has no meaning here: "));
    for (text, words) in [
        ("[server]\nrdma = 10.0.0.7:5\nenable_rdma = false\n", "server.conf:3: enable_rdma = false contradicts rdma"),
        ("[server]\nrdma_device = a\nibverbs_device = b\n", "server.conf:3: ibverbs_device contradicts rdma_device"),
        (
            "[server]\nlisten_port = 65535\ntoken_file = /t\nenable_rdma = true\n",
            "server.conf:4: enable_rdma = true takes the port behind listen_port",
        ),
    ] {
        assert!(read(text).unwrap_err().starts_with(words), "{text}");
    }
}

#[test]
fn the_second_editions_throttle_divides_the_gpus_time() {
    let text =
        "[throttle]\nthrottle_level = 50\nenable_computation_throttle = true\ncomputation_throttle_mode2 = true\n";
    assert_eq!(arguments(text), "--computation-throttle on --throttle-level 50");
    assert_eq!(arguments("[throttle]\nthrottle_level = 0\n"), "--throttle-level 0");
    let settings =
        read(&text.replace("enable_computation_throttle = true", "enable_computation_throttle = off")).unwrap();
    assert_eq!(settings.arguments.join(" "), "--computation-throttle off");
    let said = |words: &str| settings.notices.iter().any(|notice| notice.starts_with(words));
    assert!(said("server.conf:2: throttle_level has no meaning here: ") && said("server.conf:4: computation_"));
    let refused = read("[throttle]\nthrottle_level = 101\n").unwrap_err();
    assert_eq!(refused, "server.conf:2: throttle_level = \"101\" is not a number from 0 to 100");
}

#[test]
fn options_have_their_own_names_and_stand_before_the_command_line() {
    let text = "[server]\nbind_addr = 10.0.0.7\ntoken_file = \"/etc/orion/a token\"\nmemory_limit = 4 GiB\n";
    let all = "--token-file /etc/orion/a token --memory-limit 4 GiB --listen 10.0.0.7:9960";
    assert_eq!(arguments(text), all);
    assert_eq!(arguments("[server]\nbind_addr = ::1\nlisten_port = 7\ninsecure = 1"), "--insecure --listen [::1]:7");
    assert_eq!(arguments("[server]\nlisten = 1.2.3.4:5\nbind_addr = 10.0.0.7\n"), "--listen 1.2.3.4:5");
    // Its name is any.
    let name = [format!("orion-config-{}-", std::process::id()).as_bytes(), b"\xff.conf"].concat();
    let path = std::env::temp_dir().join(OsStr::from_bytes(&name)).into_os_string();
    std::fs::write(&path, "[server]\nsocket = /a\n").unwrap();
    let joined = OsString::from_vec([b"--config=", path.as_bytes()].concat());
    for given in [vec!["--config".into(), path.clone()], vec![joined]] {
        let line = ["oriond", "serve", "--socket", "/b"].map(OsString::from).into_iter().chain(given);
        let (all, _) = expand(line.collect(), &options()).unwrap();
        assert_eq!(all[..6], ["oriond", "serve", "--socket", "/a", "--socket", "/b"]);
    }
    std::fs::remove_file(path).unwrap();
    let missing = ["oriond", "serve", "--config", "/nowhere.conf"].map(OsString::from).to_vec();
    assert!(expand(missing, &options()).unwrap_err().starts_with("reading --config /nowhere.conf failed: "));
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    for (text, said) in [
        ("[server]\n\nlisten_prot = 9960\n", "server.conf:3: nobody knows [server] listen_prot"),
        ("[sever]\nsocket = /a\n", "server.conf:2: nobody knows [sever] socket"),
        ("[server]\nlisten_port = 99600\n", "server.conf:2: listen_port = \"99600\" is not a port from 1 to 65535"),
        ("[server]\nbind_addr = here\n", "server.conf:2: bind_addr = \"here\" is not an IP address"),
        ("[server]\nbind_addr = 1.2.3.4\nbind_net = lo\n", "server.conf:3: bind_net contradicts bind_addr"),
        ("[server]\nbind_net = none0\n", "server.conf:2: bind_net = \"none0\": no such interface has an address"),
        ("[server]\nenable_shm = perhaps\n", "server.conf:2: enable_shm = \"perhaps\" is neither true nor false"),
        ("[server]\nsocket = /a\nenable_shm = false\n", "server.conf:2: socket contradicts enable_shm = false"),
        (
            "[server]\nsocket = /a\n[server]\nsocket = /b\n",
            "server.conf:4: socket is given a second time, after line 2",
        ),
        ("[log]\nlog_level = LOUD\n", "server.conf:2: log_level = \"LOUD\" is none of ERROR, WARNING"),
        ("[server\n", "reading server.conf: "),
    ] {
        let refused = read(text).expect_err(text);
        assert!(refused.starts_with(said), "{text:?}: {refused}");
    }
}

#[test]
fn an_interface_has_an_address() {
    assert_eq!(arguments("[server]\nbind_net = lo\ninsecure = true\n"), "--insecure --listen 127.0.0.1:9960");
}

#[test]
fn what_is_orion_agents_is_passed_over() {
    assert_eq!(arguments("[agent]\nnode = a\nreserve = 3\n[server]\nsocket = /s\n"), "--socket /s");
}

#[test]
fn a_reserve_is_orion_agents() {
    let settings = read("[server]\nreserve = 2\n").expect("it is understood");
    assert!(settings.notices[0].starts_with("server.conf:2: reserve has no meaning here: orion-agent keeps"));
}
