//! Jetty over RIPC beside Jetty over TCP, as in figure 3 of libRIPC's paper: `cargo xtask bench fetch`. The benchmark of `bindings/jetty` measures,
//! and writes its readings to a file for each place where the two sides are; here they become a page with tables and plots.

mod page;
mod plots;
mod readings;
#[cfg(test)]
mod tests;

use cci_measure::failure::{Failure, Outcome};
use readings::Readings;
use std::fs;
use std::path::{Path, PathBuf};

/// The page.
const PAGE: &str = "jetty.md";
/// Plots and readings, beside it.
const FOLDER: &str = "jetty";

/// The page on standard output, or written into a folder, with its plots and the readings.
pub fn emit(files: &[PathBuf], folder: Option<&Path>) -> Outcome {
    let readings: Vec<Readings> = files.iter().map(|file| read(file)).collect::<Outcome<_>>()?;
    let Some(folder) = folder else {
        print!("{}", page::page(&readings));
        return Ok(());
    };
    let beside = folder.join(FOLDER);
    fs::create_dir_all(&beside).map_err(|error| failed(&beside, &error))?;
    for (name, content) in drawn(&readings)? {
        write(&folder.join(name), content)?;
    }
    for (file, readings) in files.iter().zip(&readings) {
        // Read whole before it is written: it may be the kept file itself.
        write(&beside.join(readings.site.file("json")), text(file)?)?;
    }
    eprintln!("written: {}", folder.join(PAGE).display());
    Ok(())
}

/// Path below the folder, content: what the readings determine.
fn drawn(readings: &[Readings]) -> Outcome<Vec<(PathBuf, String)>> {
    let mut files = vec![(PathBuf::from(PAGE), page::page(readings))];
    for readings in readings {
        files.push((Path::new(FOLDER).join(readings.site.file("svg")), plots::draw(readings)?));
    }
    Ok(files)
}

fn read(file: &Path) -> Outcome<Readings> {
    readings::parse(&text(file)?).map_err(|error| failed(file, &error))
}

fn text(file: &Path) -> Outcome<String> {
    fs::read_to_string(file).map_err(|error| failed(file, &error))
}

fn write(path: &Path, content: String) -> Outcome {
    fs::write(path, content).map_err(|error| failed(path, &error))
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}
