//! The explanation of a connection: the path it takes, the paths it does not take and why, and what it waits for.

use crate::device::TransportKind;
use std::fmt;

/// A path that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathOption {
    /// Such as "shared memory ring" or "UDP with segmentation offload".
    pub path: String,
    /// True for the one in use.
    pub chosen: bool,
    /// Why it was chosen, or why not, and what would change that.
    pub reason: String,
}

/// The value of a fact. `Display` gives it with its unit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fact {
    /// A fact in words.
    Text(String),
    /// A fact that is true or false.
    Flag(bool),
    /// A number of things.
    Count(u64),
    /// A number of bytes.
    Bytes(u64),
    /// A number of nanoseconds.
    Ns(u64),
}

impl From<String> for Fact {
    fn from(text: String) -> Fact {
        Fact::Text(text)
    }
}

impl From<&str> for Fact {
    fn from(text: &str) -> Fact {
        Fact::Text(text.to_owned())
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fact::Text(text) => f.write_str(text),
            Fact::Flag(true) => f.write_str("yes"),
            Fact::Flag(false) => f.write_str("no"),
            Fact::Count(count) => write!(f, "{count}"),
            Fact::Bytes(bytes) => write!(f, "{bytes} bytes"),
            Fact::Ns(ns) => write!(f, "{:.1} us", *ns as f64 / 1e3),
        }
    }
}

/// Why a connection takes its path, and what holds it up. `Display` says it in plain words.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Explanation {
    /// "shm", "udp", ...; of a device `any`, also that it is one, or which of its devices was chosen.
    pub transport: String,
    /// What carries the connection: of a device `any`, the transport that was chosen.
    pub kind: Option<TransportKind>,
    /// The peer's address as the device has it.
    pub peer: String,
    /// The connection's attribute, "RO", "RU" or "UU".
    pub attribute: String,
    /// Every path looked at, the chosen one first.
    pub paths: Vec<PathOption>,
    /// What was measured, counted and agreed: name and value, e.g. ("largest message", 8192 bytes).
    pub facts: Vec<(&'static str, Fact)>,
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
