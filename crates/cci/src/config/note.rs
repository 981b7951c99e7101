//! Remarks about a configuration file that was read without an error.

use std::fmt;

/// A remark about a configuration file that is no error, where the author may have meant something else: a key of CCI 2.x that
/// has no effect, an old name of a key, or a section that gives no device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigNote {
    /// The section's name.
    pub section: String,
    /// The line, from 1.
    pub line: usize,
    /// The remark, in one line.
    pub text: String,
}

impl fmt::Display for ConfigNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} ([{}]): {}", self.line, self.section, self.text)
    }
}
