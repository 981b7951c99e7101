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

/// Rows in columns as wide as they need: the first `left` columns to the left, the rest to the right.
pub struct Table {
    left: usize,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// With its head.
    pub fn new(left: usize, head: &[&str]) -> Table {
        Table { left, rows: vec![head.iter().map(|&cell| cell.to_owned()).collect()] }
    }

    /// One more row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Each line indented by `indent` spaces.
    pub fn render(&self, indent: usize) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = " ".repeat(indent);
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let gap = if column == 0 { "" } else { "  " };
                let cell =
                    if column < self.left { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
                line.push_str(gap);
                line.push_str(&cell);
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(1, &["device", "p50"]);
        table.row(vec!["shm".into(), "1.28 µs".into()]);
        assert_eq!(table.render(1), " device      p50\n shm     1.28 µs\n");
    }
}
