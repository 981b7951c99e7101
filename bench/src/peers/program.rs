//! Peers that are one program of `bench/peers`, which does one turn and tells it as a [`Reading`].

use crate::child;
use crate::contestant::{Contestant, Role};
use crate::reading::Reading;
use crate::work::Work;
use cci_measure::trouble::{Outcome, Trouble};
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// What `bench/install-peers` left in its folder: a program `NAME` a peer, and `NAME.version` or `NAME.why-not`.
#[derive(Clone)]
pub struct Installed(PathBuf);

impl Installed {
    /// In this folder.
    pub const fn new(folder: PathBuf) -> Installed {
        Installed(folder)
    }

    /// Name and version of what was installed. The error says why it wasn't, and how it is.
    pub fn version(&self, name: &str) -> Outcome<String> {
        let line = |ending: &str| {
            let text = fs::read_to_string(self.0.join(format!("{name}.{ending}"))).unwrap_or_default();
            let first = text.lines().next().unwrap_or_default().trim().to_owned();
            Some(first).filter(|line| !line.is_empty())
        };
        line("version").ok_or_else(|| {
            let why = line("why-not").map_or(String::new(), |why| format!(": {why}"));
            Trouble::new(format!("{name} is not installed{why}"))
                .remedy(format!("bench/install-peers {}", self.0.display()))
        })
    }

    /// Where a peer's program is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

/// A peer that is one program of `bench/peers`.
pub struct Program {
    /// Its name in the tables.
    pub name: &'static str,
    /// Its program's name, in the folder.
    pub program: &'static str,
    /// The program's name for the way the messages go.
    pub transport: &'static str,
    /// How it was set up, for the table's notes.
    pub set_up: &'static str,
    /// What starts it, with its options, for this work: nothing, or a launcher such as `mpirun`.
    pub launcher: fn(Work) -> Vec<&'static str>,
    /// The environment it is given.
    pub variables: &'static [(&'static str, &'static str)],
    /// Where it is installed.
    pub installed: Installed,
}

impl Program {
    fn command(&self, work: Work, count: u64) -> Outcome<Command> {
        let (word, len) = word_and_len(work)
            .ok_or_else(|| Trouble::new(format!("{} has no program that does {work}", self.name)))?;
        let mut words: Vec<OsString> = (self.launcher)(work).into_iter().map(OsString::from).collect();
        words.push(self.installed.path(self.program).into());
        let mut words = words.into_iter();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        command.args([word, &len.to_string(), &count.max(1).to_string(), self.transport]);
        command.envs(self.variables.iter().copied());
        Ok(command)
    }
}

impl Contestant for Program {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn role(&self) -> Role {
        Role::Peer
    }

    fn about(&self) -> Outcome<String> {
        Ok(format!("{}: {}", self.installed.version(self.program)?, self.set_up))
    }

    fn turn(&self, work: Work, count: u64) -> Outcome<Reading> {
        child::reading(self.command(work, count)?)
    }
}

/// How the programs of `bench/peers` call it; None of what they don't do.
const fn word_and_len(work: Work) -> Option<(&'static str, u32)> {
    match work {
        Work::HalfTrip { len } => Some(("half-trip", len)),
        Work::Rate { len } => Some(("rate", len)),
        Work::Write { len } => Some(("put", len)),
        _ => None,
    }
}

/// Of a program that is started as it is.
pub const fn no_launcher(_: Work) -> Vec<&'static str> {
    Vec::new()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// The command of a program as one line.
    pub fn line(program: &Program, work: Work) -> String {
        let command = program.command(work, 1_000).unwrap();
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_is_not_installed_tells_why_and_how_it_is() {
        let installed = Installed::new(PathBuf::from("/nowhere"));
        let error = installed.version("nng").unwrap_err().to_string();
        assert_eq!(error, "nng is not installed (bench/install-peers /nowhere)");
    }

    #[test]
    fn programs_are_asked_only_for_what_they_do() {
        let nng = super::super::nng::ipc(&Installed::new(PathBuf::from("p")));
        assert_eq!(line(&nng, Work::Rate { len: 64 }), "p/nng rate 64 1000 ipc");
        let error = nng.command(Work::Connect, 1).unwrap_err().to_string();
        assert!(error.contains("connect"), "{error}");
    }
}
