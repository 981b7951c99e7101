//! The conformance suite through the Rust API, on every device.
#![forbid(unsafe_code)]

use cci_testkit::conformance::{Rust, SHM};

mod shm {
    use super::{Rust, SHM};
    cci_testkit::conformance!(Rust, SHM);
}
