//! What the user sees while it is measured: each line as soon as it is there, above a bar that says how long it will take.

use super::results::Target;
use super::table;
use crate::failure::Outcome;
use crate::text;
use cci_measure::table::Table;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// The progress bar and the rows that are shown while measuring goes on.
pub struct Live {
    bar: ProgressBar,
    /// Standard output is for JSON alone.
    silent: bool,
}

impl Live {
    /// For so many measurements. The bar is shown on a terminal only.
    pub fn new(steps: u64, silent: bool) -> Live {
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {left}{msg}");
        let left = |state: &ProgressState, to: &mut dyn std::fmt::Write| {
            // Before the first step there is nothing to estimate it from. A bar that can't be drawn is no failure.
            if state.pos() > 0 {
                let _ = write!(to, "{} s left, Ctrl-C ends it  ", state.eta().as_secs());
            }
        };
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).with_key("left", left));
        Live { bar, silent }
    }

    /// Text above the bar.
    pub fn print(&self, text: &str) -> Outcome {
        if self.silent { Ok(()) } else { self.bar.suspend(|| text::emit(text.as_bytes())) }
    }

    /// A device begins.
    pub fn device(&self, target: &Target) -> Outcome {
        self.print(&table::head(target))
    }

    /// What is measured now.
    pub fn doing(&self, what: String) {
        self.bar.set_message(what);
    }

    /// A measurement is done.
    pub fn step(&self) {
        self.bar.inc(1);
    }

    /// Measurements done so far.
    pub fn steps(&self) -> u64 {
        self.bar.position()
    }

    /// A device has ended, perhaps before its last step.
    pub fn skip_to(&self, steps: u64) {
        self.bar.set_position(steps);
    }

    /// The row that a table got last; with the first one its titles, below `head`.
    pub fn row(&self, table: &Table, head: &str) -> Outcome {
        let head = if table.rows().len() == 1 { format!("{head}{}", table.titles()) } else { String::new() };
        self.print(&(head + &table.last_line()))
    }

    /// Takes the bar away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}
