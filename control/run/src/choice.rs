//! Which server this run has: what the command line and the environment say together.

use std::path::absolute;

use orion_wire::address::{self, Carrier, Place, Server};

use crate::cli::Cli;
use crate::pool::Wanted;
use crate::transport;

#[derive(Debug, PartialEq, Eq)]
pub enum Choice {
    /// What the controller of a pool chooses.
    Pool(Wanted),
    /// One that somebody has started.
    Theirs(Server),
    /// One for this run.
    Own(&'static Carrier),
}

/// The command line and the environment mean the same. What contradicts itself is refused: whichever was followed, the
/// other was meant seriously.
pub fn choose(cli: &Cli, variable: impl Fn(&str) -> Option<String>) -> Result<Choice, String> {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    let transport = transport::asked(cli, variable("ORION_TRANSPORT"))?;
    let server = server(cli, variable("ORION_SERVER"))?;
    let Some((server, said)) = server else {
        return Ok(Choice::Own(transport.map_or(&address::CARRIERS[0], |(transport, _)| transport)));
    };
    if cli.software_gpu {
        return Err(format!(
            "--software-gpu starts a server for this run, but {said} names another one; leave one of them out"
        ));
    }
    if cli.capability.is_some() {
        return Err(format!(
            "--capability is for the server that is started for this run, but {said} names another one; its operator \
             chooses, by ORION_SOFT_CAPABILITY"
        ));
    }
    for (option, is_given) in [
        ("--heap", cli.heap.is_some()),
        ("--memory-limit", cli.memory_limit.is_some()),
        ("--gmem", cli.gmem.is_some()),
        ("--vgpu", cli.vgpu.is_some()),
        ("--share", cli.share.is_some()),
    ] {
        if is_given {
            return Err(format!(
                "{option} is for the server that is started for this run, but {said} names another one; its operator \
                 chooses"
            ));
        }
    }
    if let Some((transport, wanted)) = transport
        && transport != server.carrier
    {
        let form = transport.example;
        return Err(format!("{wanted} needs a server address such as {form}, but {said} is {server}"));
    }
    Ok(Choice::Theirs(server))
}

/// With the words by which it was chosen.
fn server(cli: &Cli, variable: Option<String>) -> Result<Option<(Server, String)>, String> {
    let parsed = |said: &str, text: &str| {
        let server = Server::parse(text).map_err(|why| format!("{said}: {why}"))?;
        // The program may change its folder before it connects.
        let place = match server.place {
            Place::Path(path) => Place::Path(absolute(&path).map_err(|e| format!("{said} {text}: {e}"))?),
            host => host,
        };
        let server = Server { place, ..server };
        Ok::<_, String>((server, said.to_owned()))
    };
    let option = cli.server.as_deref().map(|text| parsed("--server", text)).transpose()?;
    let variable = variable.map(|text| parsed("ORION_SERVER", &text)).transpose()?;
    match (option, variable) {
        (Some((one, _)), Some((other, _))) if one != other => {
            Err(format!("--server {one} contradicts ORION_SERVER={other}; leave one of them out"))
        }
        (option, variable) => Ok(option.or(variable)),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn chosen(arguments: &[&str], environment: &[(&str, &str)]) -> Result<Choice, String> {
        let command = ["orion-run"].iter().chain(arguments).chain(&["--", "true"]);
        let cli = Cli::try_parse_from(command).map_err(|e| e.to_string())?;
        choose(&cli, |name| environment.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned()))
    }

    fn tcp(address: &str) -> Result<Choice, String> {
        Ok(Choice::Theirs(Server::parse(&format!("tcp:{address}")).expect("an address")))
    }

    fn own(name: &str) -> Result<Choice, String> {
        Ok(Choice::Own(address::carrier(name).expect("a carrier")))
    }

    #[test]
    fn option_and_variable_mean_the_same() {
        assert_eq!(chosen(&["--server", "tcp:node:7411"], &[]), tcp("node:7411"));
        assert_eq!(chosen(&[], &[("ORION_SERVER", "tcp:node:7411")]), tcp("node:7411"));
        assert_eq!(chosen(&["--server", "node:7411"], &[("ORION_SERVER", "tcp:node:7411")]), tcp("node:7411"));
        assert_eq!(chosen(&[], &[("ORION_TRANSPORT", "tcp")]), own("tcp"));
        assert_eq!(chosen(&["--transport", "tcp"], &[("ORION_TRANSPORT", "tcp")]), own("tcp"));
        assert_eq!(chosen(&[], &[("ORION_SERVER", ""), ("ORION_TRANSPORT", "")]), own("shm"));
    }

    #[test]
    fn a_contradiction_is_refused_with_both_sides() {
        let refused = |arguments: &[&str], environment: &[(&str, &str)], words: [&str; 2]| {
            let said = chosen(arguments, environment).expect_err("it contradicts itself");
            assert!(words.iter().all(|word| said.contains(word)), "{said}");
        };
        let server = [("ORION_SERVER", "tcp:b:2")];
        refused(&["--server", "tcp:a:1"], &server, ["--server tcp:a:1", "ORION_SERVER=tcp:b:2"]);
        refused(&["--software-gpu"], &server, ["--software-gpu", "ORION_SERVER"]);
        refused(&["--capability", "13.0"], &server, ["--capability", "ORION_SERVER"]);
        refused(&["--share", "30", "--throttle-level", "0"], &server, ["--share", "ORION_SERVER"]);
        refused(&["--transport", "shm"], &server, ["--transport shm", "tcp:b:2"]);
        refused(&["--server", "unix:/s"], &[("ORION_TRANSPORT", "tcp")], ["ORION_TRANSPORT=tcp", "unix:/s"]);
        refused(&["--transport", "shm"], &[("ORION_TRANSPORT", "tcp")], ["--transport shm", "ORION_TRANSPORT=tcp"]);
        refused(&["--transport", "tcp"], &[("ORION_TRANSPORT", "pcie")], ["ORION_TRANSPORT=pcie", "none of shm, tcp"]);
    }

    #[test]
    fn a_level_is_one_of_a_share_and_neither_is_a_servers() {
        for (arguments, words) in [
            (&["--throttle-level", "0"][..], "--share <PERCENT>"),
            (&["--share", "30", "--server", "tcp:a:1"][..], "cannot be used with"),
            (&["--share", "0"][..], "invalid value '0' for '--share <PERCENT>'"),
            (&["--share", "30", "--throttle-level", "101"][..], "invalid value '101' for '--throttle-level <PERCENT>'"),
        ] {
            let why = chosen(arguments, &[]).expect_err(words);
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn an_address_that_is_none_is_told_the_forms() {
        let said = chosen(&["--server", "http://node:7411"], &[]).expect_err("a URL");
        assert!(said.contains("--server") && said.contains("unix:/path"), "{said}");
        let said = chosen(&[], &[("ORION_SERVER", "http://node:7411")]).expect_err("a URL");
        assert!(said.contains("ORION_SERVER") && said.contains("unix:/path"), "{said}");
    }
}
