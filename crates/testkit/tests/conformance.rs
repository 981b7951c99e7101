//! The conformance suite through the Rust API, on every device.
#![forbid(unsafe_code)]

mod shm {
    cci_testkit::conformance!(cci_testkit::conformance::Rust, cci_testkit::conformance::SHM);
}

mod udp4 {
    cci_testkit::conformance!(cci_testkit::conformance::Rust, cci_testkit::conformance::UDP4);
}

mod udp6 {
    cci_testkit::conformance!(cci_testkit::conformance::Rust, cci_testkit::conformance::UDP6);
}

mod tcp4 {
    cci_testkit::conformance!(cci_testkit::conformance::Rust, cci_testkit::conformance::TCP4);
}

mod tcp6 {
    cci_testkit::conformance!(cci_testkit::conformance::Rust, cci_testkit::conformance::TCP6);
}

mod eth {
    cci_testkit::conformance!(cci_testkit::conformance::Rust, cci_testkit::conformance::ETH);
}

mod eth_driver {
    cci_testkit::conformance!(cci_testkit::conformance::Rust, cci_testkit::conformance::ETH_DRIVER);
}

mod eth_packet {
    cci_testkit::conformance!(cci_testkit::conformance::Rust, cci_testkit::conformance::ETH_PACKET);
}

mod eth_jumbo {
    cci_testkit::conformance!(cci_testkit::conformance::Rust, cci_testkit::conformance::ETH_JUMBO);
}

mod any {
    cci_testkit::conformance!(cci_testkit::conformance::Rust, cci_testkit::conformance::ANY);
}

mod udp_bonded {
    cci_testkit::conformance!(cci_testkit::conformance::Rust, cci_testkit::conformance::UDP_BONDED);
}

mod udp_psk {
    cci_testkit::conformance!(cci_testkit::conformance::Rust, cci_testkit::conformance::UDP_PSK);
}

mod udp_certificates {
    cci_testkit::conformance!(cci_testkit::conformance::Rust, cci_testkit::conformance::UDP_CERTIFICATES);
}

mod tcp_psk {
    cci_testkit::conformance!(cci_testkit::conformance::Rust, cci_testkit::conformance::TCP_PSK);
}

mod tcp_certificates {
    cci_testkit::conformance!(cci_testkit::conformance::Rust, cci_testkit::conformance::TCP_CERTIFICATES);
}

mod any_far_psk {
    cci_testkit::conformance!(cci_testkit::conformance::Rust, cci_testkit::conformance::ANY_FAR_PSK);
}

mod eth_psk {
    cci_testkit::conformance!(cci_testkit::conformance::Rust, cci_testkit::conformance::ETH_PSK);
}

mod within_the_process {
    cci_testkit::conformance!(cci_testkit::conformance::Rust, cci_testkit::conformance::LOOP);
}

mod within_the_process_memory {
    cci_testkit::conformance!(remote memory: cci_testkit::conformance::Rust, cci_testkit::conformance::LOOP);
}

mod shm_memory {
    cci_testkit::conformance!(remote memory: cci_testkit::conformance::Rust, cci_testkit::conformance::SHM);
}

mod shm_pull_memory {
    cci_testkit::conformance!(remote memory: cci_testkit::conformance::Rust, cci_testkit::conformance::SHM_PULL);
}

mod shm_ring_memory {
    cci_testkit::conformance!(remote memory: cci_testkit::conformance::Rust, cci_testkit::conformance::SHM_RING);
}

mod udp4_memory {
    cci_testkit::conformance!(remote memory: cci_testkit::conformance::Rust, cci_testkit::conformance::UDP4);
}

mod udp6_memory {
    cci_testkit::conformance!(remote memory: cci_testkit::conformance::Rust, cci_testkit::conformance::UDP6);
}

mod tcp4_memory {
    cci_testkit::conformance!(remote memory: cci_testkit::conformance::Rust, cci_testkit::conformance::TCP4);
}

mod tcp6_memory {
    cci_testkit::conformance!(remote memory: cci_testkit::conformance::Rust, cci_testkit::conformance::TCP6);
}

mod eth_memory {
    cci_testkit::conformance!(remote memory: cci_testkit::conformance::Rust, cci_testkit::conformance::ETH);
}

mod eth_driver_memory {
    cci_testkit::conformance!(remote memory: cci_testkit::conformance::Rust, cci_testkit::conformance::ETH_DRIVER);
}

mod eth_packet_memory {
    cci_testkit::conformance!(remote memory: cci_testkit::conformance::Rust, cci_testkit::conformance::ETH_PACKET);
}

mod eth_jumbo_memory {
    cci_testkit::conformance!(remote memory: cci_testkit::conformance::Rust, cci_testkit::conformance::ETH_JUMBO);
}

mod any_memory {
    cci_testkit::conformance!(remote memory: cci_testkit::conformance::Rust, cci_testkit::conformance::ANY);
}

mod udp_bonded_memory {
    cci_testkit::conformance!(remote memory: cci_testkit::conformance::Rust, cci_testkit::conformance::UDP_BONDED);
}

mod udp_psk_memory {
    cci_testkit::conformance!(remote memory: cci_testkit::conformance::Rust, cci_testkit::conformance::UDP_PSK);
}

mod udp_certificates_memory {
    cci_testkit::conformance!(remote memory: cci_testkit::conformance::Rust, cci_testkit::conformance::UDP_CERTIFICATES);
}

mod tcp_psk_memory {
    cci_testkit::conformance!(remote memory: cci_testkit::conformance::Rust, cci_testkit::conformance::TCP_PSK);
}

mod tcp_certificates_memory {
    cci_testkit::conformance!(remote memory: cci_testkit::conformance::Rust, cci_testkit::conformance::TCP_CERTIFICATES);
}

mod any_far_psk_memory {
    cci_testkit::conformance!(remote memory: cci_testkit::conformance::Rust, cci_testkit::conformance::ANY_FAR_PSK);
}

mod eth_psk_memory {
    cci_testkit::conformance!(remote memory: cci_testkit::conformance::Rust, cci_testkit::conformance::ETH_PSK);
}

mod udp4_multicast {
    cci_testkit::conformance!(multicast: cci_testkit::conformance::Rust, cci_testkit::conformance::UDP4);
}

mod udp6_multicast {
    cci_testkit::conformance!(multicast: cci_testkit::conformance::Rust, cci_testkit::conformance::UDP6_WIRE);
}

mod shm_messengers {
    cci_testkit::conformance!(messengers: cci_testkit::conformance::Rust, cci_testkit::conformance::SHM);
}

mod shm_pull_messengers {
    cci_testkit::conformance!(messengers: cci_testkit::conformance::Rust, cci_testkit::conformance::SHM_PULL);
}

mod shm_ring_messengers {
    cci_testkit::conformance!(messengers: cci_testkit::conformance::Rust, cci_testkit::conformance::SHM_RING);
}

mod udp4_messengers {
    cci_testkit::conformance!(messengers: cci_testkit::conformance::Rust, cci_testkit::conformance::UDP4);
}

mod udp6_messengers {
    cci_testkit::conformance!(messengers: cci_testkit::conformance::Rust, cci_testkit::conformance::UDP6);
}

mod tcp4_messengers {
    cci_testkit::conformance!(messengers: cci_testkit::conformance::Rust, cci_testkit::conformance::TCP4);
}

mod tcp6_messengers {
    cci_testkit::conformance!(messengers: cci_testkit::conformance::Rust, cci_testkit::conformance::TCP6);
}

mod eth_messengers {
    cci_testkit::conformance!(messengers: cci_testkit::conformance::Rust, cci_testkit::conformance::ETH);
}

mod eth_driver_messengers {
    cci_testkit::conformance!(messengers: cci_testkit::conformance::Rust, cci_testkit::conformance::ETH_DRIVER);
}

mod eth_packet_messengers {
    cci_testkit::conformance!(messengers: cci_testkit::conformance::Rust, cci_testkit::conformance::ETH_PACKET);
}

mod eth_jumbo_messengers {
    cci_testkit::conformance!(messengers: cci_testkit::conformance::Rust, cci_testkit::conformance::ETH_JUMBO);
}

mod any_messengers {
    cci_testkit::conformance!(messengers: cci_testkit::conformance::Rust, cci_testkit::conformance::ANY);
}

mod udp_bonded_messengers {
    cci_testkit::conformance!(messengers: cci_testkit::conformance::Rust, cci_testkit::conformance::UDP_BONDED);
}

mod udp_psk_messengers {
    cci_testkit::conformance!(messengers: cci_testkit::conformance::Rust, cci_testkit::conformance::UDP_PSK);
}

mod udp_certificates_messengers {
    cci_testkit::conformance!(messengers: cci_testkit::conformance::Rust, cci_testkit::conformance::UDP_CERTIFICATES);
}

mod tcp_psk_messengers {
    cci_testkit::conformance!(messengers: cci_testkit::conformance::Rust, cci_testkit::conformance::TCP_PSK);
}

mod tcp_certificates_messengers {
    cci_testkit::conformance!(messengers: cci_testkit::conformance::Rust, cci_testkit::conformance::TCP_CERTIFICATES);
}

mod any_far_psk_messengers {
    cci_testkit::conformance!(messengers: cci_testkit::conformance::Rust, cci_testkit::conformance::ANY_FAR_PSK);
}

mod eth_psk_messengers {
    cci_testkit::conformance!(messengers: cci_testkit::conformance::Rust, cci_testkit::conformance::ETH_PSK);
}

mod within_the_process_messengers {
    cci_testkit::conformance!(messengers: cci_testkit::conformance::Rust, cci_testkit::conformance::LOOP);
}
