//! The seeded simulator: whole networks of protocol endpoints in one process and in virtual time.
//!
//! [`Net`] says what happens to datagrams, [`Plan`] what the nodes are, what they say to each other and what goes wrong,
//! [`World`] runs it and judges every step against what the protocol promises ([`Ledger`] has the list). Everything
//! follows from the seed: the same seed gives the same [`Report::trace`].

mod adversary;
mod ledger;
mod net;
mod node;
mod operator;
mod plan;
mod reader;
mod rma;
mod scenario;
mod talks;
mod world;

pub use ledger::{Flow, Ledger, Msg, Role, Side, SideState};
pub use net::{Link, Net, NetCounts, OVERHEAD_BYTES, Outage, Path, SECOND};
pub use node::{address_of, node_at};
pub use plan::{Fault, HangUp, NodePlan, Plan, Sizes, Talk, Workload};
pub use reader::Reading;
pub use rma::{Exposed, Operation, Region, Regions, Rma, RmaCounts, RmaSide, RmaWork, What};
pub use scenario::{Kind, Scenario};
pub use world::{Report, World};
