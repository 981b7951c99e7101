//! The conformance suite through the Rust API, on every device.
#![forbid(unsafe_code)]

use cci_testkit::conformance::{
    ETH, ETH_JUMBO, ETH_PACKET, Rust, SHM, SHM_PULL, SHM_RING, TCP4, TCP6, UDP4, UDP6,
};

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

mod tcp4 {
    use super::{Rust, TCP4};
    cci_testkit::conformance!(Rust, TCP4);
}

mod tcp6 {
    use super::{Rust, TCP6};
    cci_testkit::conformance!(Rust, TCP6);
}

mod shm_memory {
    use super::{Rust, SHM};
    cci_testkit::conformance!(remote memory: Rust, SHM);
}

mod shm_pull_memory {
    use super::{Rust, SHM_PULL};
    cci_testkit::conformance!(remote memory: Rust, SHM_PULL);
}

mod shm_ring_memory {
    use super::{Rust, SHM_RING};
    cci_testkit::conformance!(remote memory: Rust, SHM_RING);
}

mod udp4_memory {
    use super::{Rust, UDP4};
    cci_testkit::conformance!(remote memory: Rust, UDP4);
}

mod udp6_memory {
    use super::{Rust, UDP6};
    cci_testkit::conformance!(remote memory: Rust, UDP6);
}

mod eth {
    use super::{ETH, Rust};
    cci_testkit::conformance!(Rust, ETH);
}

mod eth_memory {
    use super::{ETH, Rust};
    cci_testkit::conformance!(remote memory: Rust, ETH);
}

mod eth_packet {
    use super::{ETH_PACKET, Rust};
    cci_testkit::conformance!(Rust, ETH_PACKET);
}

mod eth_packet_memory {
    use super::{ETH_PACKET, Rust};
    cci_testkit::conformance!(remote memory: Rust, ETH_PACKET);
}

mod eth_jumbo {
    use super::{ETH_JUMBO, Rust};
    cci_testkit::conformance!(Rust, ETH_JUMBO);
}

mod eth_jumbo_memory {
    use super::{ETH_JUMBO, Rust};
    cci_testkit::conformance!(remote memory: Rust, ETH_JUMBO);
}

mod tcp4_memory {
    use super::{Rust, TCP4};
    cci_testkit::conformance!(remote memory: Rust, TCP4);
}

mod tcp6_memory {
    use super::{Rust, TCP6};
    cci_testkit::conformance!(remote memory: Rust, TCP6);
}
