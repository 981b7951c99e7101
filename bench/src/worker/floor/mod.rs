//! The exchanges by hand: nothing above the primitive.

pub mod cache_line;
