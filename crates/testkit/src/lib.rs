//! Seeded network, conformance suite and fault injection for CCI's tests.
#![forbid(unsafe_code)]

pub mod conformance;
pub mod sim;
