//! Developer tasks, so that what CI runs is what a person runs: `cargo xtask help` lists them.
#![forbid(unsafe_code)]

mod bench;
mod bpf;
mod counts;
mod devices;
mod etcd;
mod features;
mod form;
mod fuzz;
mod install;
mod java;
mod lint;
mod miri;
mod netem;
mod process;
mod programs;
mod reliability;
mod sanitize;
mod share;
mod sim;
mod test;
mod tidy;
mod toolchain;
mod workspace;

use clap::{Parser, Subcommand};
use form::Form;
use std::path::PathBuf;
use std::process::ExitCode;

/// Developer tasks of CCI.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Lint, then test: everything a change must pass
    Ci,
    /// Run rustfmt, clippy, tidy, bpf --check, rustdoc and cargo-deny
    Lint,
    /// Run all tests: unit, integration, documentation, C and Java tests, loom, miri, fuzzing, sanitizers and counts
    Test {
        /// As much as a night allows, with properties from a new seed
        #[arg(long)]
        long: bool,
        /// Run a few minutes of the long form, too, of another kind for each commit
        #[arg(long, conflicts_with = "long")]
        share: bool,
        /// Run these steps alone
        #[arg(value_parser = test::names(), value_name = "STEP")]
        steps: Vec<String>,
    },
    /// Check the project's own rules: crate arrows, homes of unsafe code, file lengths, cited clauses
    Tidy,
    /// Run the conformance suite and write the table in docs/devices.md
    Devices {
        /// Write it from what an earlier run of all tests left in target/conformance-report.tsv
        #[arg(long, value_name = "REPORT")]
        from: Option<PathBuf>,
    },
    /// Run CCI beside the baseline and its peers, in turns on two cores; peers come by bench/install-peers
    #[command(disable_help_flag = true)]
    Bench {
        /// Options of the benchmark: `--help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Count the instructions of one operation on each device (valgrind) and compare them with bench/instructions
    Counts {
        /// Write them there
        #[arg(long)]
        bless: bool,
        /// Only these scenarios, named as their files are
        #[arg(value_name = "SCENARIO")]
        only: Vec<String>,
    },
    /// Run the campaigns of docs/reliability.md at length, hours of them, and write the figures into it
    Reliability {
        /// Write the figures that an earlier run of tests left in target/figures.tsv
        #[arg(long, value_name = "FIGURES")]
        from: Option<PathBuf>,
    },
    /// Run CCI beside TCP on a network that loses packets, into docs/reliability/netem.md; needs netem or a testbed
    Netem,
    /// Run whole endpoints in simulation; a failure is shrunk
    Sim(sim::Arguments),
    /// Give any bytes to every parser and state machine (cargo-fuzz, nightly)
    Fuzz(fuzz::Arguments),
    /// Run the C test programs and the library with sanitizers (nightly)
    Sanitize {
        /// Only this one
        #[arg(value_parser = sanitize::names())]
        sanitizer: Option<String>,
    },
    /// Build the kernel's part of raw Ethernet anew (needs clang)
    Bpf {
        /// Check that it is up to date instead
        #[arg(long)]
        check: bool,
    },
    /// Build for release and install libraries, header, cci.pc and the command `cci`
    Install {
        /// Where
        #[arg(long, value_name = "DIR")]
        prefix: PathBuf,
        /// How it is built: `profiling` is the same with line tables, for perf
        #[arg(long, default_value = "release")]
        profile: String,
        /// Build nothing: install what was built with this profile
        #[arg(long)]
        built: bool,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Ci => ci(),
        Task::Lint => lint::run(),
        Task::Test { long, share, steps } => {
            test::run(if long { Form::Long } else { Form::Short }, share, &steps)
        }
        Task::Tidy => tidy::run(),
        Task::Devices { from: None } => devices::run(java::conformance),
        Task::Devices { from: Some(report) } => devices::from(&report),
        Task::Bench { options } => bench::run(&options),
        Task::Counts { bless, only } => counts::run_task(bless, &only),
        Task::Reliability { from: None } => reliability::run(),
        Task::Reliability { from: Some(figures) } => reliability::from(&figures),
        Task::Netem => netem::run(),
        Task::Sim(arguments) => sim::run(&arguments),
        Task::Fuzz(arguments) => fuzz::run(&arguments),
        Task::Sanitize { sanitizer } => sanitize::run(sanitizer.as_deref()),
        Task::Bpf { check: false } => bpf::build(),
        Task::Bpf { check: true } => bpf::check(),
        Task::Install { prefix, profile, built } => install::run(&prefix, &profile, built),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Tests run although a lint failed: one run should show everything that is wrong. They come last, so that the last
/// line on standard output is their tally.
fn ci() -> Result<(), String> {
    let linted = lint::run();
    if let Err(message) = &linted {
        eprintln!("xtask: {message}");
    }
    test::run(Form::Short, true, &[])?;
    linted.map_err(|_| "tests passed, lints failed".to_owned())
}
