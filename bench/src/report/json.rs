//! Results as a file, one row a line, so that two runs can be compared by `diff`.

use crate::results::Results;
use cci_measure::failure::{Failure, Outcome};
use serde::Serialize;
use std::fs;
use std::path::Path;

/// The results as JSON text.
pub fn render(results: &Results) -> Outcome<String> {
    let mut lines = Vec::new();
    for row in &results.rows {
        lines.push(line(row)?);
    }
    Ok(format!("{{\"run\":{},\n\"rows\":[\n{}\n]}}\n", line(&results.run)?, lines.join(",\n")))
}

fn line(what: &impl Serialize) -> Outcome<String> {
    serde_json::to_string(what).map_err(|error| Failure::new(format!("results as JSON: {error}")))
}

/// From a file.
pub fn read(file: &Path) -> Outcome<Results> {
    let text = fs::read_to_string(file).map_err(|error| super::failed(file, &error))?;
    serde_json::from_str(&text).map_err(|error| super::failed(file, &error))
}

/// To a file, as a whole or not at all.
pub fn write(file: &Path, results: &Results) -> Outcome {
    let (new, text) = (file.with_extension("new"), render(results)?);
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).map_err(|error| super::failed(folder, &error))?;
    }
    fs::write(&new, text).map_err(|error| super::failed(&new, &error))?;
    fs::rename(&new, file).map_err(|error| super::failed(file, &error))
}
