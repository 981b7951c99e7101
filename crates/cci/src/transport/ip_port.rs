//! The port of an endpoint on IP: which it is to be, and why it cannot be had.

use crate::device::DeviceInfo;
use crate::error::{CreateError, SysError};
use crate::options::Options;
use std::io::ErrorKind;

/// The service is a port; without one the device's, or any. `protocol` is for the error.
pub(crate) fn port(protocol: &str, device: &DeviceInfo, options: &Options) -> Result<u16, CreateError> {
    let Some(service) = &options.service else { return Ok(device.port) };
    service.parse().map_err(|_| CreateError::BadService {
        service: service.clone(),
        reason: format!("a {protocol} service is a port number from 1 to 65535, or 0 for any"),
    })
}

/// What it means that a socket could not be bound to the port.
pub(crate) fn bind_error(error: SysError, options: &Options, port: u16) -> CreateError {
    let service = options.service.clone().unwrap_or_else(|| port.to_string());
    match error.kind() {
        ErrorKind::AddrInUse => CreateError::InUse { service },
        ErrorKind::PermissionDenied => CreateError::BadService {
            service,
            reason: "this process may not bind it; choose a port from 1024 on".to_owned(),
        },
        ErrorKind::AddrNotAvailable => CreateError::DeviceDown,
        _ => CreateError::System(error),
    }
}
