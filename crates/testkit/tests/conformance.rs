//! The conformance suite through the Rust API, on every device.
#![forbid(unsafe_code)]

use cci_testkit::conformance::{Rust, SHM, UDP4, UDP6};

mod shm {
    use super::{Rust, SHM};
    cci_testkit::conformance!(Rust, SHM);
}

mod udp4 {
    use super::{Rust, UDP4};
    cci_testkit::conformance!(Rust, UDP4);
}

mod udp6 {
    use super::{Rust, UDP6};
    cci_testkit::conformance!(Rust, UDP6);
}

mod shm_memory {
    use super::{Rust, SHM};
    cci_testkit::conformance!(remote memory: Rust, SHM);
}

mod udp4_memory {
    use super::{Rust, UDP4};
    cci_testkit::conformance!(remote memory: Rust, UDP4);
}

mod udp6_memory {
    use super::{Rust, UDP6};
    cci_testkit::conformance!(remote memory: Rust, UDP6);
}
