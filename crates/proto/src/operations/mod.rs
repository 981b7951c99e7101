//! Remote memory access under way: the operations of an endpoint, and what a connection keeps while there are any. What
//! moves their records over the network is in `endpoint/rma`.

pub(crate) mod deadline;
pub(crate) mod exchange;
pub(crate) mod state;
pub(crate) mod table;
