//! What the environment and client.conf say, as a program would read them.

use std::path::PathBuf;

use orion_tls::trust::Trust;
use orion_wire::client_conf::ClientConf;

pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The controller that is configured, and which setting says so: the environment before the user's file, that before
/// the machine's.
pub fn controller_address() -> Result<Option<(String, String)>, String> {
    if let Some(address) = variable("ORION_CONTROLLER") {
        return Ok(Some((address, "environment variable".to_owned())));
    }
    let address = ClientConf::of_this_user()?.controller;
    Ok(address.map(|address| (address, "configuration file".to_owned())))
}

/// Whom a program would believe, and what it would show, when it asks the controller that is configured.
pub fn controller_trust() -> Result<Trust, String> {
    let mut said = Trust::of_this_process(|name| std::env::var(name))?;
    // That of the oriond which is named; a program then asks no controller.
    if variable("ORION_SERVER").is_some() {
        said.fingerprint = None;
    }
    if said.fingerprint.is_some() {
        return Err("ORION_FINGERPRINT is an oriond's; a controller is known by ORION_CA; unset it".to_owned());
    }
    let ClientConf { ca, certificate, key, .. } = ClientConf::of_this_user()?;
    let path = |text: Option<String>| text.map(PathBuf::from);
    Ok(said.or(Trust { ca: path(ca), certificate: path(certificate), key: path(key), ..Trust::default() }))
}
