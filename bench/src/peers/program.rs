//! Peers that are one program of `bench/peers`, which does one turn and reports it as a [`Reading`].

use super::leftovers;
use crate::child;
use crate::contestant::{Contestant, Role};
use crate::reading::{Reading, Unit};
use crate::shape::Shape;
use crate::work::Work;
use cci_measure::failure::{Failure, Outcome};
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
            Failure::new(format!("{name} is not installed{why}"))
                .remedy(format!("bench/install-peers {}", self.0.display()))
        })
    }

    /// Where a peer's program is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

/// A program of `bench/peers`, and what it is set up for.
#[derive(Clone, Copy)]
pub struct Program {
    /// Its name in the tables.
    pub name: &'static str,
    /// Its file's name, in the folder.
    pub program: &'static str,
    /// Its name for the way the messages go.
    pub transport: &'static str,
    /// How it was set up, for the table's notes.
    pub set_up: &'static str,
    /// What starts it, with its options, for this work: nothing, or a launcher such as `mpirun`.
    pub launcher: fn(Work) -> Vec<&'static str>,
    /// The environment it is given.
    pub variables: &'static [(&'static str, &'static str)],
    /// How the names of its files begin, before its process's number. They are cleared away after a turn that failed;
    /// after a good one it has done so itself.
    pub files: Option<&'static str>,
}

/// A peer that is one program of `bench/peers`.
pub struct Peer {
    /// The program.
    pub program: Program,
    /// Where it is installed.
    pub installed: Installed,
}

impl Peer {
    fn command(&self, work: Work, count: u64) -> Outcome<Command> {
        let Program { name, program, transport, launcher, variables, .. } = self.program;
        let (word, len) = word_and_len(work)
            .ok_or_else(|| Failure::new(format!("{name} has no program that does {work}")))?;
        let mut words: Vec<OsString> = launcher(work).into_iter().map(OsString::from).collect();
        words.push(self.installed.path(program).into());
        let mut words = words.into_iter();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        command.args([word, &len.to_string(), &count.max(1).to_string(), transport]);
        command.envs(variables.iter().copied());
        Ok(command)
    }
}

impl Contestant for Peer {
    fn name(&self) -> String {
        self.program.name.to_owned()
    }

    fn role(&self) -> Role {
        Role::Peer
    }

    fn about(&self) -> Outcome<String> {
        Ok(format!("{}: {}", self.installed.version(self.program.program)?, self.program.set_up))
    }

    fn turn(&self, work: Work, count: u64) -> Outcome<Reading> {
        let reading = child::reading(self.command(work, count)?).and_then(|reading| match work {
            // To the programs, these are messages as others.
            Work::Long { len } => Ok(reading.in_unit(Unit::PerSecond)?.of_messages(len)),
            _ => reading.in_unit(work.unit()),
        });
        if let (Err(_), Some(prefix)) = (&reading, self.program.files) {
            leftovers::sweep_all(prefix);
        }
        reading
    }
}

/// How many clients the programs have that do calls.
pub const CLIENTS: u32 = 64;

/// How the programs of `bench/peers` call it; None of what they don't do.
fn word_and_len(work: Work) -> Option<(&'static str, u32)> {
    match work {
        Work::HalfTrip { len } => Some(("half-trip", len)),
        Work::Call { len } => Some(("half-trip", len)),
        Work::Rate { len } | Work::Long { len } => Some(("rate", len)),
        Work::Calls { len, clients: CLIENTS } => Some(("calls", len)),
        Work::Write { len } => Some(("put", len)),
        Work::PutFence { len } => Some(("put-fence", len)),
        Work::PutFenceHeap { len } => Some(("put-fence-heap", len)),
        Work::GetFence { len } => Some(("get-fence", len)),
        Work::Pack { shape } => Some((pack_word(shape), shape.packed_bytes())),
        Work::Unpack { shape } => Some((unpack_word(shape), shape.packed_bytes())),
        Work::FetchAdd => Some(("fetch-add", 8)),
        Work::FetchAddAll { .. } => Some(("fetch-add-all", 8)),
        Work::Barrier { .. } => Some(("barrier", 1)),
        Work::Start { .. } => Some(("start", 1)),
        Work::Allreduce { len, .. } => Some(("allreduce", len)),
        _ => None,
    }
}

const fn pack_word(shape: Shape) -> &'static str {
    match shape {
        Shape::Vector => "pack-vector",
        Shape::Face => "pack-face",
        Shape::Indexed => "pack-indexed",
        Shape::Struct => "pack-struct",
        Shape::Contiguous => "pack-contiguous",
    }
}

const fn unpack_word(shape: Shape) -> &'static str {
    match shape {
        Shape::Vector => "unpack-vector",
        Shape::Face => "unpack-face",
        Shape::Indexed => "unpack-indexed",
        Shape::Struct => "unpack-struct",
        Shape::Contiguous => "unpack-contiguous",
    }
}

/// Of a program that is started as it is.
pub const fn no_launcher(_: Work) -> Vec<&'static str> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::programs::{AERON_UDP, ICEORYX2, NNG_IPC, OPEN_MPI_SHM};

    fn peer(program: Program) -> Peer {
        Peer { program, installed: Installed::new(PathBuf::from("p")) }
    }

    /// The command of a program as one line.
    fn line(program: Program, work: Work) -> String {
        let command = peer(program).command(work, 1_000).unwrap();
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
    fn programs_are_called_as_they_expect_and_only_for_what_they_do() {
        assert_eq!(line(NNG_IPC, Work::Rate { len: 64 }), "p/nng rate 64 1000 ipc");
        assert_eq!(line(ICEORYX2, Work::HalfTrip { len: 8 }), "p/iceoryx2 half-trip 8 1000 ipc");
        assert_eq!(line(AERON_UDP, Work::Rate { len: 64 }), "p/aeron rate 64 1000 udp");
        let error = peer(NNG_IPC).command(Work::Connect, 1).unwrap_err().to_string();
        assert!(error.contains("connect"), "{error}");
    }

    #[test]
    fn each_work_takes_the_way_that_is_better_at_it() {
        let (trip, rate) =
            (line(OPEN_MPI_SHM, Work::HalfTrip { len: 8 }), line(OPEN_MPI_SHM, Work::Rate { len: 8 }));
        assert!(
            trip.contains("-n 2 --mca pml ob1") && trip.ends_with("p/openmpi half-trip 8 1000 shm"),
            "{trip}"
        );
        assert!(rate.contains("--mca pml ucx") && rate.ends_with("p/openmpi rate 8 1000 shm"), "{rate}");
    }

    #[test]
    fn what_programs_say_is_understood() {
        // As iceoryx2, Aeron (half trip, rate) and gRPC printed them.
        for (printed, value) in [
            (r#"{"value": 157.8, "unit": "ns"}"#, 157.8),
            (r#"{"value": 81.5, "unit": "ns"}"#, 81.5),
            (r#"{"value": 86302901.1, "unit": "1/s"}"#, 86_302_901.1),
            (r#"{"value": 10514641, "unit": "1/s"}"#, 10_514_641.0),
        ] {
            assert_eq!(serde_json::from_str::<Reading>(printed).unwrap().value, value);
        }
    }

    #[test]
    fn figures_in_another_unit_are_refused() {
        let printed: Reading = serde_json::from_str(r#"{"value": 19000000, "unit": "B/s"}"#).unwrap();
        let refused = printed.clone().in_unit(Work::GetFence { len: 8 }.unit()).unwrap_err().to_string();
        assert_eq!(refused, "a figure in BytesPerSecond, where Nanoseconds are expected");
        assert_eq!(printed.in_unit(Unit::BytesPerSecond).unwrap(), Reading::of(19_000_000.0));
    }
}
