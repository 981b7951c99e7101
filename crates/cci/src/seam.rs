//! The seam between the engine and transports, for transports that live outside this crate: the test kit has one that shows how a
//! transport is written. Behind a feature that nothing else turns on; it is no part of the public interface.

pub use crate::endpoint::seam::open;
pub use crate::engine::core::{Core, OperationOp, SendOp};
pub use crate::engine::peer::Peer;
pub use crate::engine::poller::Poller;
pub use crate::engine::regions::{Region, Regions, Source};
pub use crate::engine::requests::{Decision, RequestBody, RequestInbox, RequestInner};
pub use crate::transport::commitment::Commitment;
pub use crate::transport::{
    About, Action, Activity, Armed, AtomicRequest, Dial, LinkState, Operation, PeerState, RegionChange,
    Report, RmaRequest, Setting, Started, Transport,
};

/// The path that a connection takes, for [`Report::Explanation`]: its name, and the reason.
pub fn chosen_path(path: &str, reason: &str) -> crate::PathOption {
    crate::PathOption { path: path.to_owned(), chosen: true, reason: reason.to_owned() }
}
