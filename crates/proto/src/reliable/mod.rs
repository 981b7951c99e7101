//! Loss recovery: the windows, round-trip times, and the congestion controller's place among them.

pub(crate) mod rtt;
pub(crate) mod rx;
pub(crate) mod sends;
pub(crate) mod tx;
