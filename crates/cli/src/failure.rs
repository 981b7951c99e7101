//! What ends a command early, and what the user can do about it.

pub use cci_measure::failure::{Failure, Outcome};
use std::process::ExitCode;

/// The thing asked for failed.
const EXIT_FAILED: u8 = 1;
/// It was asked for in a way that can't be understood; clap uses the same number.
const EXIT_USAGE: u8 = 2;

/// Tells the user and says how the process ends.
pub fn report(failure: &Failure) -> ExitCode {
    eprintln!("cci: {}", failure.message);
    if let Some(remedy) = &failure.remedy {
        eprintln!("  try: {remedy}");
    }
    ExitCode::from(if failure.is_usage { EXIT_USAGE } else { EXIT_FAILED })
}
