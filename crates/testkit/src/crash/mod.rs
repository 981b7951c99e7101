//! Processes that die or stop at any instant, by the thousand and several at once, on every device.
//!
//! Three kinds of processes take part, all of them the test's own program started anew: the **hub**, which lives all the
//! time; a **bystander**, which is connected to it and must not notice anything; and **victims**. All run the same
//! `peer`: messages, remote memory and atomics both ways, and every one of them checked. Victims connect to the hub, are
//! connected to by it, own memory that it works on, and talk to each other.
//!
//! What is left of the dead is counted by the harness from outside (`outside`): what the hub holds of the system
//! (`/proc/PID`), and what the system holds of anybody.

mod campaign;
mod outside;
mod peer;
mod process;

pub use campaign::{Casualties, Plan, plans, run};
pub use outside::{Held, System};
pub use peer::victim;
