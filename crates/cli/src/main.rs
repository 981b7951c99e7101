//! The command `cci`: what this machine's devices are (`info`), whether a peer answers (`ping`), how fast messages
//! are (`perf`), the other side of both (`serve`), what lasts (`soak`), files by the name of a service (`files`, `get`), and jobs of several processes (`run`, `acprun`).
#![forbid(unsafe_code)]
// The one crate that prints.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod acprun;
mod args;
mod client;
mod devices;
mod dial;
mod failure;
mod files;
mod info;
mod memory;
mod pattern;
mod perf;
mod ping;
mod protocol;
mod run;
mod serve;
mod signals;
mod soak;
mod tally;
mod text;

use args::{Cli, Command};
use clap::{CommandFactory, Parser};
use failure::{Failure, Outcome, report};
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = env::args_os().collect();
    // A link with that name is enough for scripts that start programs for ACP.
    if arguments.first().is_some_and(|name| Path::new(name).file_name() == Some(OsStr::new(acprun::NAME))) {
        arguments.insert(1, acprun::NAME.into());
    }
    let command = Cli::parse_from(arguments).command;
    match signals::survive_file_size_limit().and_then(|()| run(command)) {
        Ok(code) => code,
        Err(failure) => report(&failure),
    }
}

fn run(command: Command) -> Outcome<ExitCode> {
    match command {
        Command::Run(args) => return run::run(&args),
        Command::Acprun { arguments } => return acprun::run(&arguments),
        Command::Info(args) => info::run(&args),
        Command::Ping(args) => ping::run(&args),
        Command::Perf(args) => perf::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Files(args) => files::serve(&args),
        Command::Get(args) => files::get(&args),
        Command::Soak(args) => soak::run(&args),
        Command::SoakPeer => soak::run_peer(),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "cci", &mut script);
            text::emit(&script)
        }
        Command::Man { subcommand } => manual(subcommand.as_deref()),
    }
    .map(|()| ExitCode::SUCCESS)
}

fn manual(subcommand: Option<&str>) -> Outcome {
    let mut command = Cli::command();
    // Gives the subcommands their full names.
    command.build();
    let wanted = match subcommand {
        None => Some(&command),
        Some(name) => command.find_subcommand(name),
    };
    let Some(wanted) = wanted else {
        return Err(Failure::usage("no such subcommand").remedy("`cci --help` lists them"));
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(wanted.clone())
        .render(&mut page)
        .map_err(|error| Failure::new(format!("the manual page: {error}")))?;
    text::emit(&page)
}
