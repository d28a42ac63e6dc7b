//! By which carrier a server is to be reached: what the command line and the environment say together.

use orion_wire::address::{self, Carrier};

use crate::cli::Cli;

/// With the words by which it was chosen.
pub fn asked(cli: &Cli, variable: Option<String>) -> Result<Option<(&'static Carrier, String)>, String> {
    let named = |said: String, name: &str| match address::carrier(name) {
        Some(carrier) => Ok((carrier, said)),
        None => Err(format!("{said} is none of {}", address::carrier_names())),
    };
    let variable = variable.map(|name| named(format!("ORION_TRANSPORT={name}"), &name)).transpose()?;
    let option = cli.transport.as_ref().map(|name| named(format!("--transport {name}"), name)).transpose()?;
    match (option, variable) {
        (Some((one, option)), Some((other, variable))) if one != other => {
            Err(format!("{option} contradicts {variable}; leave one of them out"))
        }
        (option, variable) => Ok(option.or(variable)),
    }
}
