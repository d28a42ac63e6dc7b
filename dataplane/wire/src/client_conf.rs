//! client.conf: where a program's controller is, and what the program asks for if its environment does not say it.
//!
//! The form is the original's: sections, `key = value`, quotes or none, and what follows `;` or `#` outside of quotes
//! is for people, in whatever encoding.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
use std::path::{Path, PathBuf};

/// Where it lies, below the user's home and below the root of the system. A line of the first counts more.
pub const BELOW_HOME: &str = ".orion/client.conf";
pub const OF_THE_SYSTEM: &str = "/etc/orion/client.conf";

const FILE_BYTES_MAX: u64 = 1 << 20;

/// What a file says, each as it stands there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientConf {
    /// `controller_addr` in `[controller]`.
    pub controller: Option<String>,
    /// `client_key` in `[controller]`.
    pub client_key: Option<String>,
    /// `ca`, `certificate` and `key` in `[controller]`: files, as in `ORION_CA` and the like.
    pub ca: Option<String>,
    pub certificate: Option<String>,
    pub key: Option<String>,
    /// `vgpu`, `gmem` (MiB) and `ratio` (percent) in `[client]`.
    pub vgpu: Option<String>,
    pub gmem: Option<String>,
    pub ratio: Option<String>,
    pub log: LogConf,
    /// Keys of the original that have no meaning here.
    pub idle: Vec<String>,
}

/// `[log]`, or `[client-log]`: each edition of the original calls it otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogConf {
    /// `log_with_time`.
    pub with_time: Option<bool>,
    /// `log_to_screen`: true shows what is worth a line, false keeps what is said to users away, too.
    pub to_screen: Option<bool>,
    /// `log_to_file`, in `~/.orion/log`.
    pub to_file: Option<bool>,
    /// `log_level`, of the screen.
    pub level: Option<Level>,
    /// `file_log_level`.
    pub file_level: Option<Level>,
}

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Error,
    Warning,
    Info,
    Debug,
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Level::Error => "ERROR",
            Level::Warning => "WARNING",
            Level::Info => "INFO",
            Level::Debug => "DEBUG",
        })
    }
}

/// Of the original: which way it took.
const IDLE: [(&str, &[&str]); 2] = [("client-shm", &["shm_path_base"]), ("client", &["enable_net"])];

impl LogConf {
    /// Whether there is such a key.
    fn take(&mut self, key: &str, value: &str) -> Result<bool, String> {
        match key {
            "log_with_time" => self.with_time = Some(flag(key, value)?),
            "log_to_screen" => self.to_screen = Some(flag(key, value)?),
            "log_to_file" => self.to_file = Some(flag(key, value)?),
            "log_level" => self.level = Some(level(key, value)?),
            "file_log_level" => self.file_level = Some(level(key, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn or(self, other: LogConf) -> LogConf {
        LogConf {
            with_time: self.with_time.or(other.with_time),
            to_screen: self.to_screen.or(other.to_screen),
            to_file: self.to_file.or(other.to_file),
            level: self.level.or(other.level),
            file_level: self.file_level.or(other.file_level),
        }
    }
}

/// The user's home, where there is one. A relative one would be another folder wherever the program is.
pub fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute())
}

/// A pipe of that name would keep the program waiting, and a device would never end.
fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    let file = std::fs::metadata(path)?;
    if !file.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"));
    }
    if file.len() > FILE_BYTES_MAX {
        let text = format!("it has {} bytes, and {FILE_BYTES_MAX} at most are read", file.len());
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    std::fs::read(path)
}

fn is_kept_from_us(path: &Path) -> bool {
    bytes_of(path).is_err_and(|e| e.kind() == PermissionDenied)
}

/// What a configuration file says, whatever editor has written it: without the mark that those of Windows put in front,
/// and with comments in any encoding. Whoever takes a value of it asks [`is_text`].
pub fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes))
}

/// Whether a value was written in UTF-8. The error says what to try.
pub fn is_text(key: &str, value: &str) -> Result<(), String> {
    match value.contains(char::REPLACEMENT_CHARACTER) {
        true => Err(format!("{key} = {value:?} is not valid UTF-8; save the file as UTF-8")),
        false => Ok(()),
    }
}

/// The line up to the first `;` or `#` that is not between quotes.
fn without_comment(line: &str) -> &str {
    let mut is_quoted = false;
    let end = line.find(|c| {
        is_quoted ^= c == '"';
        matches!(c, ';' | '#') && !is_quoted
    });
    &line[..end.unwrap_or(line.len())]
}

fn flag(key: &str, value: &str) -> Result<bool, String> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err(format!("{key} = {value:?} is neither true nor false")),
    }
}

fn level(key: &str, value: &str) -> Result<Level, String> {
    let all = [Level::Error, Level::Warning, Level::Info, Level::Debug];
    let found = all.into_iter().find(|level| level.to_string().eq_ignore_ascii_case(value));
    found.ok_or_else(|| format!("{key} = {value:?} is none of ERROR, WARNING, INFO or DEBUG"))
}

impl ClientConf {
    /// The error names the line, and what may stand there.
    pub fn parse(text: &str) -> Result<ClientConf, String> {
        let mut conf = ClientConf::default();
        let mut section = String::new();
        let mut given = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            let wrong = |why: String| Err(format!("line {}: {why}", index + 1));
            let line = without_comment(line).trim();
            if line.contains(char::REPLACEMENT_CHARACTER) {
                return wrong(format!("{line:?} is not valid UTF-8; save the file as UTF-8"));
            }
            if line.is_empty() {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                section = name.trim().to_owned();
                continue;
            }
            let Some((key, value)) = line.split_once('=') else {
                return wrong(format!("{line:?} is neither a [section] nor \"key = value\""));
            };
            let (key, value) = (key.trim(), value.trim());
            let value = match value.strip_prefix('"') {
                None => value,
                Some(rest) => match rest.strip_suffix('"') {
                    Some(inner) => inner,
                    None => return wrong(format!("{key} = {value} has a quote that does not end; end it with \"")),
                },
            };
            if let Some(first) = given.insert((section.clone(), key.to_owned()), index + 1) {
                return wrong(format!("{key} is given a second time, after line {first}"));
            }
            if matches!(section.as_str(), "log" | "client-log") {
                match conf.log.take(key, value) {
                    Ok(true) => continue,
                    Ok(false) => {}
                    Err(why) => return wrong(why),
                }
            }
            let place = match (section.as_str(), key) {
                ("controller", "controller_addr") => &mut conf.controller,
                ("controller", "client_key") => &mut conf.client_key,
                ("controller", "ca") => &mut conf.ca,
                ("controller", "certificate") => &mut conf.certificate,
                ("controller", "key") => &mut conf.key,
                ("client", "vgpu") => &mut conf.vgpu,
                ("client", "gmem") => &mut conf.gmem,
                ("client", "ratio") => &mut conf.ratio,
                _ if IDLE.iter().any(|(of, keys)| *of == section && keys.contains(&key)) => {
                    conf.idle.push(key.to_owned());
                    continue;
                }
                _ => {
                    let place = if section.is_empty() { "no section".to_owned() } else { format!("[{section}]") };
                    return wrong(format!(
                        "there is no {key:?} in {place}; there are controller_addr, client_key, ca, certificate \
                         and key in [controller], vgpu, gmem and ratio in [client], and log_with_time, log_to_screen, \
                         log_to_file, log_level and file_log_level in [log]"
                    ));
                }
            };
            *place = Some(value.to_owned()).filter(|value| !value.is_empty());
        }
        Ok(conf)
    }

    /// What the files say, the user's before the system's.
    pub fn of_this_user() -> Result<ClientConf, String> {
        ClientConf::below(home())
    }

    /// The same for a user with this folder, or none.
    pub fn below(home: Option<PathBuf>) -> Result<ClientConf, String> {
        // A home that this user cannot look into is as good as none.
        let own = home.map(|home| home.join(BELOW_HOME)).filter(|path| !is_kept_from_us(path));
        let own = own.map_or(Ok(ClientConf::default()), |path| ClientConf::read(&path))?;
        Ok(own.or(ClientConf::read(Path::new(OF_THE_SYSTEM))?))
    }

    /// A file that is not there says nothing.
    pub fn read(path: &Path) -> Result<ClientConf, String> {
        ClientConf::of(path, bytes_of(path))
    }

    fn of(path: &Path, found: io::Result<Vec<u8>>) -> Result<ClientConf, String> {
        let name = path.display();
        match found {
            Ok(bytes) => ClientConf::parse(&text_of(&bytes)).map_err(|why| format!("{name}: {why}")),
            Err(e) if matches!(e.kind(), NotFound | NotADirectory) => Ok(ClientConf::default()),
            Err(e) if e.kind() == PermissionDenied => {
                Err(format!("reading {name} failed: {e}; let this user read it (chmod a+r), or remove it"))
            }
            Err(e) => Err(format!("reading {name} failed: {e}")),
        }
    }

    /// What is not said here is as it is there.
    pub fn or(self, other: ClientConf) -> ClientConf {
        ClientConf {
            controller: self.controller.or(other.controller),
            client_key: self.client_key.or(other.client_key),
            ca: self.ca.or(other.ca),
            // A certificate of one file and a key of another would not go together.
            key: if self.certificate.is_some() { self.key } else { self.key.or(other.key) },
            certificate: self.certificate.or(other.certificate),
            vgpu: self.vgpu.or(other.vgpu),
            gmem: self.gmem.or(other.gmem),
            ratio: self.ratio.or(other.ratio),
            log: self.log.or(other.log),
            idle: [self.idle, other.idle].concat(),
        }
    }
}

/// The port that an address of a controller has if it names none.
pub const CONTROLLER_PORT: u16 = 9123;

/// One or several with commas between, each with its port.
pub fn controller_addresses(text: &str) -> Result<Vec<String>, String> {
    text.split(',').map(|address| controller_address(address.trim())).collect()
}

/// `host`, `host:port`, `[::1]` or `[::1]:port`, with the port.
pub fn controller_address(text: &str) -> Result<String, String> {
    let wrong = || {
        Err(format!(
            "{text:?} is no address of a controller; it is HOST or HOST:PORT, such as gpu-pool:{CONTROLLER_PORT}, of \
             several controllers all with commas between"
        ))
    };
    let (host, port) = match text.rsplit_once(':') {
        // Within brackets it is the address's own.
        Some((host, port)) if !port.ends_with(']') => match port.parse::<u16>() {
            Ok(port) if port != 0 => (host, port),
            _ => return wrong(),
        },
        _ => (text, CONTROLLER_PORT),
    };
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    if host.is_empty()
        || host.chars().any(|c| c == '/' || c.is_whitespace() || c.is_control())
        || host.contains(':') && !is_bracketed
    {
        return wrong();
    }
    Ok(format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_originals_files_are_read() {
        let text = "
[log]
    log_with_time = true    ; whether lines have the time
    log_level = INFO

[controller]
    controller_addr = 127.0.0.1:9123    ; where it listens

[client]
\tenable_net = \"false\"
\tgmem = \"4096\"
";
        let conf = ClientConf::parse(text).expect("the original's form");
        assert_eq!(conf.controller.as_deref(), Some("127.0.0.1:9123"));
        assert_eq!((conf.gmem.as_deref(), conf.vgpu.as_deref()), (Some("4096"), None));
        assert_eq!((conf.log.with_time, conf.log.level, conf.log.to_file), (Some(true), Some(Level::Info), None));
        assert_eq!(conf.idle, ["enable_net"]);
    }

    #[test]
    fn a_file_of_whatever_editor_is_read_and_a_quoted_value_is_whole() {
        let text = b"\xef\xbb\xbf[controller]\r\n\tcontroller_addr\t=\tpool:9123;\xb5\xd8\xd6\xb7\r\n\
            client_key = \"a;b#c\" # k\r\n";
        let conf = ClientConf::parse(&text_of(text)).expect("sound");
        assert_eq!((conf.controller.as_deref(), conf.client_key.as_deref()), (Some("pool:9123"), Some("a;b#c")));
        // Other bytes are no harm where nobody reads them.
        let why = ClientConf::parse(&text_of(b"[controller]\nca = /\xb5\n")).expect_err("no path");
        assert!(why.contains("line 2: ") && why.contains("is not valid UTF-8; save"), "{why}");
        let why = ClientConf::parse("[client]\nvgpu = \"2 ; two\n").expect_err("an open quote");
        assert!(why.contains("line 2: vgpu = \"2 ; two has a quote that does not end"), "{why}");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, words) in [
            ("[client]\nvgpus = 2\n", "line 2: there is no \"vgpus\" in [client]"),
            ("[log]\nlog_level = LOUD\n", "line 2: log_level = \"LOUD\" is none of ERROR"),
            ("[client-log]\nlog_to_file = 2\n", "line 2: log_to_file = \"2\" is neither true nor false"),
            ("[log]\nlog_colour = 1\n", "line 2: there is no \"log_colour\" in [log]"),
            ("controller_addr = a\n", "line 1: there is no \"controller_addr\" in no section"),
            ("[client]\nvgpu = 2\n[log]\n[client]\nvgpu =\n", "line 5: vgpu is given a second time, after line 2"),
            ("[client]\nvgpu: 2\n", "line 2: \"vgpu: 2\" is neither"),
            ("[controller]\n\nnonsense\n", "line 3: \"nonsense\" is neither"),
        ] {
            let why = ClientConf::parse(text).expect_err(text);
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_says_nothing_and_one_that_is_no_text_is_an_error() {
        for nowhere in ["/nonexistent/client.conf", "/dev/null/client.conf"] {
            assert_eq!(ClientConf::read(Path::new(nowhere)), Ok(ClientConf::default()));
        }
        // Who may not read the system's file would go where it does not lead; a home is another thing.
        let why = ClientConf::of(Path::new(OF_THE_SYSTEM), Err(PermissionDenied.into())).expect_err("it is there");
        assert!(why.contains(OF_THE_SYSTEM) && why.contains("chmod a+r"), "{why}");
        for other in ["/", "/dev/zero"] {
            let why = ClientConf::read(Path::new(other)).expect_err(other);
            assert!(why.contains(&format!("reading {other} failed: it is no file")), "{why}");
        }
    }

    #[test]
    fn the_nearer_file_counts_more() {
        let of = |text| ClientConf::parse(text).expect("sound");
        let home = of("[controller]\ncontroller_addr = home\n[client]\nratio =\n");
        let system = of("[controller]\ncontroller_addr = system\n[client]\nratio = 100\nvgpu = 2\n");
        let both = home.or(system);
        let said = (both.controller.as_deref(), both.ratio.as_deref(), both.vgpu.as_deref());
        assert_eq!(said, (Some("home"), Some("100"), Some("2")));
    }

    #[test]
    fn an_address_gets_the_port_that_it_lacks() {
        for (text, address) in [
            ("pool", "pool:9123"),
            ("10.0.0.1:15500", "10.0.0.1:15500"),
            ("[::1]", "[::1]:9123"),
            ("[::1]:1", "[::1]:1"),
        ] {
            assert_eq!(controller_address(text).as_deref(), Ok(address));
        }
        let several = controller_addresses("pool, [::1]:1").expect("two of them");
        assert_eq!(several, ["pool:9123", "[::1]:1"]);
        assert!(controller_addresses("pool,").expect_err("one is empty").contains("\"\" is no address"));
        for text in ["", ":9123", "pool:", "pool:0", "pool:http", "http://pool", "a b", "::1", "::1:9123"] {
            let why = controller_address(text).expect_err(text);
            assert!(why.contains("HOST:PORT"), "{why}");
        }
    }
}
