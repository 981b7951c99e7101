//! What a campaign of tests did, in numbers: seeds, kills, inputs, floods. `cargo xtask reliability` collects them for
//! docs/reliability.md.

use std::fs::OpenOptions;
use std::io::Write;

/// The file to which figures are appended: a line each of name and value, with a tab between.
const FILE: &str = "CCI_FIGURES";

/// Notes that `value` more of `name` were done. Names are `area.what`, such as `sim.seeds`; figures of one name add up.
/// Nothing happens unless somebody collects them.
///
/// # Panics
/// When the file can't be written to: figures that are asked for must not be lost.
pub fn note(name: &str, value: u64) {
    let Some(path) = std::env::var_os(FILE) else { return };
    let file = OpenOptions::new().create(true).append(true).open(&path);
    // One write, so that lines of several processes do not mix.
    file.and_then(|mut file| file.write_all(format!("{name}\t{value}\n").as_bytes()))
        .unwrap_or_else(|error| panic!("{FILE}={}: {error}", path.display()));
}
