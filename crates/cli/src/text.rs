//! How values look to people, and how text leaves the process.

use crate::failure::{Failure, Outcome};
pub use cci_measure::units::{bytes, count, duration, si};
use std::io::{ErrorKind, Write};
use std::path::Path;

/// Writes to standard output. A reader that went away (`cci info | head`) ends the process quietly.
pub fn emit(bytes: &[u8]) -> Outcome {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(not_written("standard output", &error)),
    }
}

/// Writes a file, or says why that can't be done.
pub fn write_file(path: &Path, bytes: &[u8]) -> Outcome {
    std::fs::write(path, bytes).map_err(|error| not_written(&path.display().to_string(), &error))
}

fn not_written(what: &str, error: &std::io::Error) -> Failure {
    let failure = Failure::new(format!("{what}: {error}"));
    match error.kind() {
        ErrorKind::FileTooLarge => failure.remedy("raise the limit of file sizes (ulimit -f unlimited)"),
        _ => failure,
    }
}

/// A value as indented JSON on standard output.
pub fn emit_json(value: &impl serde::Serialize) -> Outcome {
    let mut text =
        serde_json::to_vec_pretty(value).map_err(|error| Failure::new(format!("JSON: {error}")))?;
    text.push(b'\n');
    emit(&text)
}
