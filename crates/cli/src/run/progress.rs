//! How far a job is with its start, for people who wait at a terminal; nobody else reads it.

use std::io::{IsTerminal, Write, stderr};

/// Back to the beginning of the line, which is cleared.
const CLEAR: &str = "\r\x1b[K";

/// Shows how many ranks have done something, until all have.
pub fn show(count: u32, ranks: u32, what: &str) {
    write(&line(count, ranks, what));
}

/// Takes the line away.
pub fn clear() {
    write(CLEAR);
}

fn line(count: u32, ranks: u32, what: &str) -> String {
    if count >= ranks { CLEAR.to_owned() } else { format!("{CLEAR}cci run: {count} of {ranks} ranks {what}") }
}

fn write(text: &str) {
    let mut terminal = stderr();
    if terminal.is_terminal() {
        let _ = terminal.write_all(text.as_bytes()).and_then(|()| terminal.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::{CLEAR, line};

    #[test]
    fn the_line_goes_when_all_ranks_are_there() {
        assert_eq!(line(1, 2, "joined"), format!("{CLEAR}cci run: 1 of 2 ranks joined"));
        assert_eq!(line(2, 2, "joined"), CLEAR);
    }
}
