//! What is said of a configuration file that is read without an error.

use std::fmt;

/// Something in a configuration file that is no error, and may not be what its author meant: a key of CCI 2.x that has no
/// effect, an old name of a key, a section that gives no device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigNote {
    /// The section's name.
    pub section: String,
    /// Line, from 1.
    pub line: usize,
    /// What is to be known, in a line.
    pub text: String,
}

impl fmt::Display for ConfigNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} ([{}]): {}", self.line, self.section, self.text)
    }
}
