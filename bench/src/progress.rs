//! What a person sees while it runs, on standard error.

use crate::pinned::on_a_pinned_thread;
use crate::rounds::Watch;
use cci_measure::cache_line;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// A bar on a terminal; elsewhere only what went wrong.
pub struct Progress(ProgressBar);

impl Progress {
    /// Of so many turns.
    pub fn new(turns: u64) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(turns), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{bar:40} {percent:>3} %  {left}{msg}");
        let left = |state: &ProgressState, to: &mut dyn std::fmt::Write| {
            // Before the first turn there is nothing to estimate it from. A bar that can't be drawn is no failure.
            if state.pos() > 0 {
                let _ = write!(to, "{} min left  ", state.eta().as_secs().div_ceil(60));
            }
        };
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).with_key("left", left));
        Progress(bar)
    }

    /// A result, on standard output.
    pub fn note(&self, text: &str) {
        self.0.suspend(|| println!("{text}"));
    }

    /// The bar goes away.
    pub fn end(&self) {
        self.0.finish_and_clear();
    }
}

impl Watch for Progress {
    fn turn(&mut self, row: &str, contestant: &str) {
        self.0.set_message(format!("{row}: {contestant}"));
    }

    fn done(&mut self, turns: u64) {
        self.0.inc(turns);
    }

    fn out(&mut self, row: &str, contestant: &str, why: &str) {
        self.0.suspend(|| eprintln!("{row}: without {contestant}: {why}"));
    }

    fn cache_line_ns(&mut self) -> Option<f64> {
        on_a_pinned_thread(cache_line::half_round_trip_ns).flatten()
    }
}
