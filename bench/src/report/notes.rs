//! What stands in the way where a goal is not met, in words, with where it was measured: the one part of the page that a
//! person writes.

/// By the row's name. Shown below the goals as long as a goal of that row is not met.
pub const NOTES: &[(&str, &str)] = &[];
