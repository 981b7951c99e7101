//! Seeded network, conformance suite and fault injection for CCI's tests.
#![forbid(unsafe_code)]

pub use cci_measure::held;
use cci_measure::iproute;

pub mod conformance;
pub mod credentials;
pub mod figures;
#[cfg(test)]
mod full;
pub mod fuzz;
pub mod hostile;
pub mod loopback;
pub mod net;
pub mod pair;
pub mod relay;
pub mod rng;
pub mod traffic;
#[cfg(feature = "simulation")]
pub mod whole;
