//! What people see of a run: a page with tables and plots, a file with everything, lines on a terminal.

pub mod figures;
mod goals;
mod groups;
pub mod json;
mod page;
mod plots;
mod summary;
mod tables;
pub mod text;

use crate::results::Results;
use cci_measure::failure::{Failure, Outcome};
use std::fs;
use std::path::{Path, PathBuf};

/// The page.
const PAGE: &str = "performance.md";
/// Plots and results, beside it.
const FOLDER: &str = "performance";
/// In that folder.
const RESULTS: &str = "results.json";

/// Goals or JSON on standard output, and the page where a folder for it is given.
pub fn emit(results: &Results, as_json: bool, folder: Option<&Path>) -> Outcome {
    if as_json {
        print!("{}", json::render(results)?);
    } else {
        print!("{}", text::goals(results));
    }
    let Some(folder) = folder else { return Ok(()) };
    write(results, folder)?;
    eprintln!("written: {}", folder.join(PAGE).display());
    Ok(())
}

/// The page, its plots and the results, in place of those of an earlier run.
fn write(results: &Results, folder: &Path) -> Outcome {
    let plots_folder = folder.join(FOLDER);
    fs::create_dir_all(&plots_folder).map_err(|error| failed(&plots_folder, &error))?;
    for old in old_plots(&plots_folder) {
        fs::remove_file(&old).map_err(|error| failed(&old, &error))?;
    }
    for (name, content) in files(results)? {
        let path = folder.join(name);
        fs::write(&path, content).map_err(|error| failed(&path, &error))?;
    }
    Ok(())
}

/// Path below the folder, content: what the results determine.
fn files(results: &Results) -> Outcome<Vec<(PathBuf, String)>> {
    let mut files = vec![
        (PathBuf::from(PAGE), page::page(results)?),
        (Path::new(FOLDER).join(RESULTS), json::render(results)?),
    ];
    for plot in plots::all(results)? {
        files.push((Path::new(FOLDER).join(plot.file), plot.svg));
    }
    Ok(files)
}

/// Those that the new results may not have.
fn old_plots(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "svg")).collect()
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests;
