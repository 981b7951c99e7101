//! A connection explains itself: the path chosen, the paths not chosen and why, and what it waits for.

use std::fmt;

/// A path that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathOption {
    /// Such as "shared memory ring" or "UDP with segmentation offload".
    pub path: String,
    /// True for the one in use.
    pub chosen: bool,
    /// Why it was chosen, or why not, and what would change that.
    pub reason: String,
}

/// Why a connection goes where it goes and what holds it up. `Display` gives it in plain words.
#[derive(Clone, Debug, Default)]
pub struct Explanation {
    /// "shm", "udp", ...
    pub transport: String,
    /// The peer's address as the device has it.
    pub peer: String,
    /// The connection's attribute, "RO", "RU" or "UU".
    pub attribute: String,
    /// Every path looked at, the chosen one first.
    pub paths: Vec<PathOption>,
    /// Measured facts: name and value with its unit, e.g. ("rtt", "23.4 us").
    pub facts: Vec<(&'static str, String)>,
    /// What keeps it from sending right now, if it has something to send.
    pub blocked_on: Option<String>,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} connection to {} over {}", self.attribute, self.peer, self.transport)?;
        for option in &self.paths {
            let mark = if option.chosen { "uses" } else { "not " };
            writeln!(f, "  {mark} {}: {}", option.path, option.reason)?;
        }
        for (name, value) in &self.facts {
            writeln!(f, "  {name}: {value}")?;
        }
        match &self.blocked_on {
            Some(reason) => writeln!(f, "  held up by: {reason}"),
            None => writeln!(f, "  held up by nothing"),
        }
    }
}
