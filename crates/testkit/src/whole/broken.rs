//! A promise that was broken in a run.

/// A promise that was not kept.
#[derive(Clone, Debug)]
pub struct Broken {
    /// Which kind of promise.
    pub rule: &'static str,
    /// When, by the simulation's clock.
    pub at_ns: u64,
    /// What happened.
    pub what: String,
    /// The trace, where one was asked for.
    pub lines: Vec<String>,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} broken at {} ns: {}", self.rule, self.at_ns, self.what)
    }
}
