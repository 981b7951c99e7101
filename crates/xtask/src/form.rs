//! The forms of all tests.

/// How much is tried of what could be tried for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A bounded amount, and properties on the same inputs in each run: a change that passes once passes again.
    Short,
    /// The amounts of `cargo xtask reliability`, every sanitizer, and properties from a new seed, which is printed.
    Long,
}
