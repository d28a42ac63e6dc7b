//! What this run asks a pool's controller for. The question itself is the program's, at its first use of CUDA.

use orion_wire::client_conf::{ClientConf, controller_addresses};

use crate::cli::Cli;
use crate::transport;

/// Variables for the program.
#[derive(Debug, PartialEq, Eq)]
pub struct Wanted {
    pub variables: Vec<(&'static str, String)>,
}

/// Nothing if this run has a server. `conf` is client.conf, which is read if neither the command line nor the
/// environment says where to go.
pub fn wanted(
    cli: &Cli,
    variable: impl Fn(&str) -> Option<String>,
    conf: impl FnOnce() -> Result<ClientConf, String>,
) -> Result<Option<Wanted>, String> {
    let asked = [
        ("--vgpu", "ORION_VGPU", cli.vgpu.map(|count| count.to_string())),
        ("--gmem", "ORION_GMEM", cli.gmem.map(|mib| mib.to_string())),
        ("--ratio", "ORION_RATIO", cli.ratio.map(|percent| percent.to_string())),
        ("--wait", "ORION_WAIT", cli.wait.map(|seconds| seconds.to_string())),
    ];
    let mut variables = Vec::new();
    let mut first = None;
    for (option, name, value) in asked {
        let set = variable(name);
        if let (Some(value), Some(set)) = (&value, &set)
            && value != set
        {
            return Err(format!("{option} {value} contradicts {name}={set}; leave one of them out"));
        }
        // A server of this run's own has vGPUs and memory to give as well, if they are asked for here.
        let is_of_a_pool = set.is_some() || matches!(option, "--ratio" | "--wait") && value.is_some();
        first = first.or(is_of_a_pool.then_some(if set.is_some() { name } else { option }));
        variables.extend(value.map(|value| (name, value)));
    }
    let named = match (&cli.controller, variable("ORION_CONTROLLER")) {
        (Some(option), Some(set)) if *option != set => {
            return Err(format!("--controller {option} contradicts ORION_CONTROLLER={set}; leave one of them out"));
        }
        (Some(option), _) => Some((format!("--controller {option}"), option.clone())),
        (None, Some(set)) => Some((format!("ORION_CONTROLLER={set}"), set)),
        (None, None) => None,
    };
    transport::asked(cli, variable("ORION_TRANSPORT"))?;
    let server = about_a_server(cli, &variable);
    match (named, server, first) {
        (Some((said, _)), Some(server), _) => Err(format!(
            "{said} names a pool, whose controller chooses the server, and {server} is about one; leave one of \
                         them out"
        )),
        (Some((said, controller)), None, _) => {
            controller_addresses(&controller).map_err(|why| format!("{said}: {why}"))?;
            variables.push(("ORION_CONTROLLER", controller));
            Ok(Some(Wanted { variables }))
        }
        (None, Some(server), Some(asked)) => Err(format!(
            "{asked} is asked of a pool's controller, and {server} is about a server; leave one of them out"
        )),
        (None, Some(_), None) => Ok(None),
        // The program reads the file too, and finds there what is not set.
        (None, None, asked) => match (conf()?.controller, asked) {
            (Some(_), _) => Ok(Some(Wanted { variables })),
            (None, None) => Ok(None),
            (None, Some(asked)) => Err(format!(
                "{asked} is asked of a pool's controller, and none is named; give --controller HOST, or set \
                 ORION_CONTROLLER or controller_addr in client.conf"
            )),
        },
    }
}

/// Which word is about a server of this run's own choice, if one is. By what it is reached is asked of a pool, too.
fn about_a_server(cli: &Cli, variable: &impl Fn(&str) -> Option<String>) -> Option<String> {
    let options = [
        ("--server", cli.server.is_some()),
        ("--software-gpu", cli.software_gpu),
        ("--capability", cli.capability.is_some()),
        ("--heap", cli.heap.is_some()),
        ("--memory-limit", cli.memory_limit.is_some()),
        ("--share", cli.share.is_some()),
    ];
    let option = options.iter().find(|(_, is_given)| *is_given).map(|(name, _)| (*name).to_owned());
    let set = |name: &'static str| variable(name).map(|value| format!("{name}={value}"));
    option.or_else(|| set("ORION_SERVER"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn of(arguments: &[&str], environment: &[(&str, &str)], conf: &str) -> Result<Option<Vec<String>>, String> {
        let command = ["orion-run"].iter().chain(arguments).chain(&["--", "true"]);
        let cli = Cli::try_parse_from(command).map_err(|e| e.to_string())?;
        let variable = |name: &str| environment.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        let found = wanted(&cli, variable, || ClientConf::parse(conf))?;
        Ok(found.map(|w| w.variables.into_iter().map(|(name, value)| format!("{name}={value}")).collect()))
    }

    #[test]
    fn options_become_the_programs_environment() {
        let options = ["--vgpu", "2", "--gmem", "8GiB", "--ratio", "50", "--controller", "pool"];
        let set = ["ORION_VGPU=2", "ORION_GMEM=8192", "ORION_RATIO=50", "ORION_CONTROLLER=pool"];
        assert_eq!(of(&options, &[], ""), Ok(Some(set.map(str::to_owned).to_vec())));
        let conf = "[controller]\ncontroller_addr = pool\n";
        assert_eq!(of(&["--vgpu", "2"], &[], conf), Ok(Some(vec!["ORION_VGPU=2".to_owned()])));
        assert_eq!(of(&[], &[], conf), Ok(Some(Vec::new())));
        assert_eq!(of(&[], &[], ""), Ok(None));
        // Both spellings ask whoever gives this run its vGPUs: the pool, else a server of its own.
        assert_eq!(of(&["--vgpus", "2"], &[], conf), Ok(Some(vec!["ORION_VGPU=2".to_owned()])));
        assert_eq!(of(&["--vgpus", "2", "--gmem", "512"], &[], ""), Ok(None));
        assert_eq!(of(&["--vgpu", "2", "--software-gpu"], &[], conf), Ok(None));
        // How it is reached is asked of a pool, where there is one.
        assert_eq!(
            of(&["--transport", "rdma", "--controller", "a"], &[], ""),
            Ok(Some(vec!["ORION_CONTROLLER=a".to_owned()]))
        );
        assert_eq!(of(&[], &[("ORION_TRANSPORT", "rdma")], conf), Ok(Some(Vec::new())));
        assert_eq!(of(&[], &[("ORION_TRANSPORT", "rdma")], ""), Ok(None));
        assert_eq!(of(&["--transport", "rdma"], &[], conf), Ok(Some(Vec::new())));
        assert_eq!(of(&["--transport", "rdma"], &[], ""), Ok(None));
        assert_eq!(of(&["--transport", "rdma", "--software-gpu"], &[], conf), Ok(None));
        // Who names a server has no pool, whatever a file says.
        assert_eq!(of(&["--software-gpu"], &[], conf), Ok(None));
        assert_eq!(of(&[], &[("ORION_SERVER", "tcp:node:7411")], conf), Ok(None));
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for (arguments, environment, words) in [
            (&["--controller", "a"][..], ("ORION_CONTROLLER", "b"), "--controller a contradicts ORION_CONTROLLER=b"),
            (&["--vgpu", "2"][..], ("ORION_VGPU", "4"), "--vgpu 2 contradicts ORION_VGPU=4"),
            (
                &["--transport", "tcp", "--controller", "a"][..],
                ("ORION_TRANSPORT", "rdma"),
                "--transport tcp contradicts",
            ),
            (&["--ratio", "50"][..], ("UNUSED", ""), "--ratio is asked of a pool's controller, and none is named"),
            (&[][..], ("ORION_GMEM", "4"), "ORION_GMEM is asked of a pool's controller, and none is named"),
            (&["--ratio", "4"][..], ("ORION_SERVER", "tcp:a:1"), "ORION_SERVER=tcp:a:1 is about a server"),
            (&["--software-gpu"][..], ("ORION_CONTROLLER", "a"), "ORION_CONTROLLER=a names a pool"),
            (&["--controller", "a", "--heap", "2"][..], ("UNUSED", ""), "--heap is about one"),
            (&["--share", "30"][..], ("ORION_CONTROLLER", "a"), "--share is about one"),
            (&["--controller", "a", "--share", "30"][..], ("UNUSED", ""), "cannot be used with"),
            (&["--ratio", "30", "--share", "30"][..], ("UNUSED", ""), "--share is about a server"),
            (&["--gmem", "4", "--memory-limit", "4"][..], ("UNUSED", ""), "cannot be used with"),
            (&["--controller", "http://a"][..], ("UNUSED", ""), "HOST:PORT"),
        ] {
            let why = of(arguments, &[environment], "").expect_err(words);
            assert!(why.contains(words), "{why}");
        }
    }
}
