//! What the environment and client.conf say.

use std::path::{Path, PathBuf};

use orion_tls::trust::Trust;

pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The controller that is configured, and which setting says so: the environment before the user's file, that before
/// the machine's.
pub fn controller_address() -> Result<Option<(String, String)>, String> {
    if let Some(address) = variable("ORION_CONTROLLER") {
        return Ok(Some((address, "environment variable".to_owned())));
    }
    for path in files() {
        if let Some(address) = controller_key(&path, "controller_addr")? {
            return Ok(Some((address, "configuration file".to_owned())));
        }
    }
    Ok(None)
}

/// Whom a program would believe, and what it would show, when it asks the controller that is configured.
pub fn controller_trust() -> Result<Trust, String> {
    let mut trust = Trust::from_environment(variable)?;
    for path in files() {
        let key = |name| controller_key(&path, name).map(|text| text.map(PathBuf::from));
        let (ca, certificate, key) = (key("ca")?, key("certificate")?, key("key")?);
        trust = trust.or(Trust { ca, certificate, key, ..Trust::default() });
    }
    Ok(trust)
}

/// The user's, and the machine's.
fn files() -> impl Iterator<Item = PathBuf> {
    let home = variable("HOME").map(|home| Path::new(&home).join(".orion/client.conf"));
    home.into_iter().chain(["/etc/orion/client.conf".into()])
}

/// What a file says in `[controller]`, if it is there and says it.
fn controller_key(path: &Path, name: &str) -> Result<Option<String>, String> {
    let Ok(text) = std::fs::read_to_string(path) else { return Ok(None) };
    let how = ini::ParseOption { enabled_escape: false, ..ini::ParseOption::default() };
    let ini = ini::Ini::load_from_str_opt(&text, how).map_err(|e| format!("reading {}: {e}", path.display()))?;
    Ok(ini.get_from(Some("controller"), name).filter(|value| !value.is_empty()).map(str::to_owned))
}
