//! CCI's turns.

mod dial;
pub mod half_trip;
