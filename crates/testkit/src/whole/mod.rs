//! Whole endpoints in simulation: many [`cci::Endpoint`]s in one thread, with their engine, buffers, events, transport and protocol, on a
//! network and on clocks that follow from a seed.
//!
//! A [`Scenario`] is a list of explicit [`Step`]s: who connects to whom, who says what, what goes wrong when. [`run`] carries
//! it out and judges every step against what a program is promised; [`shrink()`] takes a scenario that fails and leaves out
//! whatever it fails without. Everything follows from the scenario: the same one gives the same [`Report::trace`].
//!
//! [`run_messengers`] does the same for what lies above endpoints, [`cci::messages`], and [`run_ranks`] for active messages, memory and
//! collectives of jobs, `cci_am`. [`run_global`] is for copies and atomics of global memory, `cci_acp`.
//!
//! [`run_watched`] lets a test look at a run, in a network made for the purpose (`tests/simulated`).

mod broken;
mod clock;
mod contents;
mod dissect;
mod draw;
mod draw_rare;
mod forger;
mod global;
mod guard;
mod held;
mod judge;
mod machine;
mod mail;
mod memory;
mod messengers;
mod network;
mod program;
mod ranks;
mod scenario;
mod sent;
mod shared;
mod shrink;
mod side;
mod speaker;
mod steps;
mod streams;
mod watch;
mod words;
mod world;

pub use broken::Broken;
pub use global::{GlobalReport, run_global};
pub use guard::{catch_panic, replay};
pub use messengers::{Death, MessengerReport, run_messengers, run_messengers_until_death};
pub use ranks::{RankPlan, RankReport, run_ranks};
pub use scenario::{
    Act, Answer, End, Fabric, Hold, Job, Kinds, Machine, Operating, Sabotage, Scenario, Step, Talk, Weather,
};
pub use shrink::{Limits, Shrunk, shrink};
pub use watch::Watched;
pub use world::{Report, run, run_watched, run_with_trace};
