//! Variables that Orion vGPU's manifests and documents set for a program and that do nothing here; those that a pool
//! has an answer to are in `wanted.rs`. Which they are, and what takes their place, is in `control/ORIGINAL.md`.

/// Name, the values that ask for nothing, and why another one is refused.
const REFUSED: &[(&str, &[&str], &str)] = &[
    ("ORION_DEVICE_TYPE", &["GPU", "gpu", "nvidia_cuda"], "there are NVIDIA GPUs alone; unset it"),
    ("ORION_ENABLE_LPC", &["0", "false"], "there is no such way to a server; unset it, or see ORION_TRANSPORT"),
];

/// Name, and why it changes nothing.
const WITHOUT_MEANING: &[(&str, &str)] = &[
    ("ORION_CLIENT_ID", "the controller names allocations itself"),
    ("ORION_K8S_POD_NAME", "ORION_GROUP_ID names what a program belongs to"),
    ("ORION_K8S_POD_UID", "ORION_GROUP_ID names what a program belongs to"),
    ("ORION_API_VERSION", "client and server compare their versions themselves"),
    ("ORION_DATA_VERSION", "client and server compare their versions themselves"),
    ("CONTROLLER_API_VERSION", "client and controller compare their versions themselves"),
    ("ORION_BIND_NET", "it is the server's: bind_net in server.conf"),
    ("ORION_BIND_ADDR", "it is the server's: bind_addr in server.conf"),
    ("ORION_SERVER_PORT", "it is the server's: listen_port in server.conf"),
    ("ORION_PORT", "it is the server's: listen_port in server.conf"),
    ("ORION_VGPU_COUNT", "it is the server's: orion-agent --vgpu-count"),
    ("ORION_RES_NAME", "it is a Kubernetes plugin's, which this version does not have"),
];

/// What cannot be had and was asked for. The error says what to do in its place.
pub fn refuse(variable: impl Fn(&str) -> Option<String>) -> Result<(), String> {
    for (name, neutral, why) in REFUSED {
        if let Some(value) = variable(name).filter(|value| !value.is_empty() && !neutral.contains(&value.as_str())) {
            return Err(format!("{name}={value}: {why}"));
        }
    }
    Ok(())
}

/// One line for each that is set and does nothing.
pub fn without_meaning(variable: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    let idle = WITHOUT_MEANING.iter().filter(|(name, _)| is_set(name));
    idle.map(|(name, why)| format!("{name} has no meaning here: {why}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_asks_for_something_is_refused_and_the_rest_is_told() {
        let of = |name: &'static str, value: &'static str| move |asked: &str| (asked == name).then(|| value.to_owned());
        for (name, neutral, _) in REFUSED {
            let why = refuse(of(name, "BOX")).expect_err(name);
            assert!(why.starts_with(&format!("{name}=BOX: ")), "{why}");
            assert!(neutral.iter().all(|value| refuse(of(name, value)).is_ok()) && refuse(of(name, "")).is_ok());
        }
        for (name, _) in WITHOUT_MEANING {
            assert!(refuse(of(name, "x")).is_ok());
            assert!(without_meaning(of(name, "x"))[0].starts_with(&format!("{name} has no meaning here: ")));
        }
        assert!(without_meaning(|_| None).is_empty());
    }
}
