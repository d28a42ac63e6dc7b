//! Keys that nobody guesses: oriond's token, and those of controller.yaml.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use orion_transport::proof::fresh_nonce;

/// Puts one into a new file, which its owner alone may read. What was done, for people.
pub fn make(path: &Path) -> Result<String, String> {
    let name = path.display();
    let random = fresh_nonce().map_err(|e| format!("asking for random numbers failed: {e}"))?;
    let mut text = String::new();
    for byte in random {
        let _ = write!(text, "{byte:02x}");
    }
    text.push('\n');
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => format!("{name} is there already; move it away, or name another file"),
        _ => format!("making {name} failed: {e}"),
    })?;
    file.write_all(text.as_bytes()).map_err(|e| {
        let _ = std::fs::remove_file(path);
        format!("writing {name} failed: {e}")
    })?;
    Ok(format!("{name} has a new key, which its owner alone may read; who shows it is let in"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_is_its_owners_and_another_each_time() {
        let folder = std::env::temp_dir().join(format!("orion-token-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a new folder");
        let paths = ["one", "other"].map(|name| folder.join(name));
        let [one, other] = paths.each_ref().map(|path| {
            make(path).expect("a new file");
            assert_eq!(path.metadata().expect("it is there").permissions().mode() & 0o7777, 0o600);
            std::fs::read_to_string(path).expect("text")
        });
        let is_hex = |text: &str| text.len() == 65 && text.trim_end().bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(is_hex(&one) && is_hex(&other) && one != other, "{one}{other}");
        let why = make(&paths[0]).expect_err("it is there");
        assert!(
            why.contains("is there already") && std::fs::read_to_string(&paths[0]).is_ok_and(|text| text == one),
            "{why}"
        );
        std::fs::remove_dir_all(&folder).expect("removing");
    }
}
