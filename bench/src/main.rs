//! CCI beside the baseline and beside what people would use instead: `cargo xtask bench`.
//!
//! A row of the benchmark is one piece of work and the **contestants** that do it: the baseline (the same exchange written by
//! hand, nothing above the primitive), CCI, and peers. They take turns on the same two cores, in several rounds; what
//! counts is the ratio within a round, and its median (`rounds`). Each turn is a process of its own (`contestant`): for
//! the baseline and CCI this program once more (`worker`), for peers their own benchmark or a program of `bench/peers`.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod args;
mod c_program;
mod child;
mod contestant;
mod fetch;
mod peers;
mod pinned;
mod plan;
mod progress;
mod reading;
mod report;
mod results;
mod rounds;
mod rows;
mod run;
mod shape;
mod work;
mod worker;

use args::{Args, Command};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match &args.command {
        Some(Command::Work(work)) => worker::run(work),
        Some(Command::Fetch { files, destination }) => fetch::emit(files, destination.folder().as_deref()),
        Some(Command::Report { file, destination }) => report::json::read(file)
            .and_then(|results| report::emit(&results, false, destination.folder().as_deref())),
        None => run::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench: {failure}");
            ExitCode::FAILURE
        }
    }
}
