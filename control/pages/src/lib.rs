//! Man pages and shell completions of a program, made from its own command line.
//!
//! Each program of Orion's answers `PROGRAM --write-pages FOLDER`, where a package's files are put together; the
//! option is not in its help. What is written lies below FOLDER where systems look for it, below `/usr` as below a
//! user's `~/.local`:
//!
//! ```text
//! share/man/man1/orion-run.1   and one page for each command of it, such as orionctl-drain.1
//! share/bash-completion/completions/orion-run
//! share/zsh/site-functions/_orion-run
//! share/fish/vendor_completions.d/orion-run.fish
//! ```

#![forbid(unsafe_code)]

pub mod output;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

const ASKED: &str = "--write-pages";
/// What runs as a service is in the section for administrators.
const OF_THE_SYSTEM: [&str; 3] = ["oriond", "orion-controller", "orion-agent"];

/// Where the first argument is `--write-pages`, writes the pages into the folder behind it; then the program is done.
#[must_use]
pub fn were_asked_for(command: impl FnOnce() -> Command) -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|first| first != ASKED) {
        return None;
    }
    let folder = arguments.next().map(PathBuf::from);
    let written = match &folder {
        Some(folder) => write(command(), folder).map_err(|e| format!("writing pages to {}: {e}", folder.display())),
        None => Err(format!("{ASKED} needs a folder, such as /usr")),
    };
    Some(match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    })
}

/// Writes all of a program's pages below a folder.
///
/// # Errors
///
/// What the file system answers.
pub fn write(mut command: Command, folder: &Path) -> io::Result<()> {
    let program = command.get_name().to_owned();
    let mut whole = command.clone().disable_help_subcommand(true);
    for (shell, place) in [
        (Shell::Bash, "share/bash-completion/completions"),
        (Shell::Zsh, "share/zsh/site-functions"),
        (Shell::Fish, "share/fish/vendor_completions.d"),
    ] {
        let place = folder.join(place);
        std::fs::create_dir_all(&place)?;
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command, &program, &mut text);
        std::fs::write(place.join(file_name(shell, &program)), text)?;
    }
    let section = if OF_THE_SYSTEM.contains(&program.as_str()) { "8" } else { "1" };
    let manuals = folder.join("share/man").join(format!("man{section}"));
    std::fs::create_dir_all(&manuals)?;
    // Sub-commands learn what they are called, and which options are everybody's.
    whole.build();
    write_manuals(&whole, section, &manuals)
}

fn file_name(shell: Shell, program: &str) -> String {
    match shell {
        Shell::Zsh => format!("_{program}"),
        Shell::Fish => format!("{program}.fish"),
        _ => program.to_owned(),
    }
}

fn write_manuals(command: &Command, section: &str, folder: &Path) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let mut page = Vec::new();
    Man::new(command.clone().name(name.clone())).section(section).manual("Orion").render(&mut page)?;
    std::fs::write(folder.join(format!("{name}.{section}")), page)?;
    command
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .try_for_each(|command| write_manuals(command, section, folder))
}
