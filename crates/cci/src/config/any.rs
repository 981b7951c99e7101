//! The device `any`: shared memory and a network address in one.

use crate::device::{DeviceInfo, TransportKind};
use crate::limits::MESSAGE_BYTES_MAX;

/// Makes the device of these two. It is up while there is shared memory, which is always. What the network part lacks is listed
/// in the device's `unavailable`.
pub(super) fn device(shm: DeviceInfo, udp: DeviceInfo) -> DeviceInfo {
    let network = match (&udp.interface, udp.ip) {
        (Some(interface), Some(ip)) => format!("UDP and TCP on {interface} ({ip})"),
        (None, Some(ip)) => format!("UDP and TCP ({ip})"),
        (_, None) => "no network here".to_owned(),
    };
    DeviceInfo {
        up: true,
        info: format!("shared memory, {network}: each connection by the best path"),
        conf_argv: vec!["transport=any".to_owned()],
        // Its receive buffers are used by all paths.
        max_send_size: MESSAGE_BYTES_MAX,
        shm: shm.shm,
        ..DeviceInfo { kind: TransportKind::Any, ..udp }
    }
}
