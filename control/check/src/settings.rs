//! What the environment and client.conf say.

use std::path::Path;

pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The controller that is configured, and which setting says so: the environment before the user's file, that before
/// the machine's.
pub fn controller_address() -> Result<Option<(String, String)>, String> {
    if let Some(address) = variable("ORION_CONTROLLER") {
        return Ok(Some((address, "environment variable".to_owned())));
    }
    let home = variable("HOME").map(|home| Path::new(&home).join(".orion/client.conf"));
    for path in home.into_iter().chain(["/etc/orion/client.conf".into()]) {
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let how = ini::ParseOption { enabled_escape: false, ..ini::ParseOption::default() };
        let ini = ini::Ini::load_from_str_opt(&text, how).map_err(|e| format!("reading {}: {e}", path.display()))?;
        if let Some(address) = ini.get_from(Some("controller"), "controller_addr") {
            return Ok(Some((address.to_owned(), "configuration file".to_owned())));
        }
    }
    Ok(None)
}
