//! Developer tasks, so that what CI runs is what a person runs: `cargo xtask ci|lint|test|tidy|devices|bench|counts|reliability|sim|netem|fuzz|sanitize|bpf|install`.
#![forbid(unsafe_code)]

mod bench;
mod bpf;
mod counts;
mod devices;
mod features;
mod form;
mod fuzz;
mod install;
mod lint;
mod netem;
mod process;
mod reliability;
mod sanitize;
mod sim;
mod test;
mod tidy;
mod toolchain;
mod workspace;

use form::Form;
use std::process::ExitCode;

const USAGE: &str = "\
Usage: cargo xtask TASK

  ci                     lint, then test: everything a change must pass
  lint                   rustfmt, clippy, tidy, bpf --check, rustdoc and cargo-deny
  test [--long]          all tests: unit, integration, documentation and C tests, then loom and miri on cci-memory, fuzzing,
                         sanitizers and counts; with --long for a night, with properties from a new seed
  tidy                   the project's own rules: crate arrows, homes of unsafe code, file lengths, cited clauses
  devices                run the conformance suite and write the table in docs/devices.md; with --from REPORT, write it
                         from what an earlier run of all tests left in target/conformance-report.tsv
  bench [OPTION...]      CCI beside the baseline and its peers, in turns on two cores (`bench --help`; peers come by
                         bench/install-peers)
  counts [--bless]       count the instructions of one operation on each device (valgrind) and compare them with
                         bench/instructions; with --bless, write them there
  reliability            the campaigns of docs/reliability.md at length, hours of them, and the figures into it; with
                         --from FILE, the figures that an earlier run of tests left in target/figures.tsv
  netem                  CCI beside TCP on a network that loses packets, into docs/reliability/netem.md; needs netem or a testbed
  sim [--seeds N] [--first S] [--seed S] [--trace]
                         whole endpoints in simulation: 10,000 seeds unless told otherwise, or one; a failure is shrunk
  fuzz [--seconds N | --bounded] [TARGET...]
                         give any bytes to every parser and state machine (cargo-fuzz, nightly), each target for N
                         seconds, 60 unless told otherwise; or as `test` does: a fixed number of inputs from a fixed seed
  sanitize [address|undefined|thread]
                         the C test programs and the library with sanitizers (nightly); all of them unless one is named
  bpf [--check]          build the kernel's part of raw Ethernet anew (needs clang), or check that it is up to date
  install --prefix DIR   build for release and install libraries, header, cci.pc and the command `cci` below DIR
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["ci"] => ci(),
        ["lint"] => lint::run(),
        ["test"] => test::run(Form::Short),
        ["test", "--long"] => test::run(Form::Long),
        ["tidy"] => tidy::run(),
        ["devices"] => devices::run(),
        ["devices", "--from", report] => devices::from(report),
        ["bench", arguments @ ..] => bench::run(arguments),
        ["counts"] => counts::run_task(false),
        ["counts", "--bless"] => counts::run_task(true),
        ["reliability"] => reliability::run(),
        ["reliability", "--from", figures] => reliability::from(figures),
        ["sim", arguments @ ..] => sim::run(arguments),
        ["netem"] => netem::run(),
        ["fuzz", arguments @ ..] => fuzz::run(arguments),
        ["sanitize"] => sanitize::run(None),
        ["sanitize", name] => sanitize::run(Some(name)),
        ["bpf"] => bpf::build(),
        ["bpf", "--check"] => bpf::check(),
        ["install", "--prefix", prefix] => install::run(prefix.as_ref()),
        ["install", prefix] if prefix.starts_with("--prefix=") => {
            install::run(prefix["--prefix=".len()..].as_ref())
        }
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Tests run although a lint failed: one run should tell everything that is wrong. They come last, so that the last
/// line on standard output is their tally.
fn ci() -> Result<(), String> {
    let linted = lint::run();
    if let Err(message) = &linted {
        eprintln!("xtask: {message}");
    }
    test::run(Form::Short)?;
    linted.map_err(|_| "tests passed, lints failed".to_owned())
}
