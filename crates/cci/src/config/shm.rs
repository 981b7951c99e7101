//! A shared-memory device.

use super::syntax::{Section, Wrong};
use crate::device::{Cma, DeviceInfo, TransportKind};
use crate::transport;
use std::path::PathBuf;

/// With nothing configured.
pub(super) fn info(name: String) -> DeviceInfo {
    DeviceInfo {
        info: "shared memory between processes of this host".to_owned(),
        conf_argv: vec!["transport=shm".to_owned()],
        max_send_size: transport::shm::MESSAGE_BYTES_MAX,
        ..DeviceInfo::new(name, TransportKind::Shm)
    }
}

/// What a section asks for.
pub(super) fn from_section(section: &Section<'_>) -> Result<DeviceInfo, Wrong> {
    let mut info = info(section.name.to_owned());
    if let Some(pair) = section.get("directory") {
        let directory = PathBuf::from(pair.value);
        if !directory.is_absolute() {
            return Err(pair.wrong(format!("directory {:?} is not an absolute path; write one", pair.value)));
        }
        info.shm.directory = Some(directory);
    }
    if let Some(pair) = section.get("all_users") {
        info.shm.all_users = pair.value == "on";
        let security = section.get("security").filter(|security| security.value != "off");
        if let Some(security) = security.filter(|_| info.shm.all_users) {
            return Err(pair.wrong(format!(
                "all_users = on with security = {}: shared memory proves no names, so with security it is for \
                 processes of one user; take one of the two out",
                security.value
            )));
        }
    }
    info.shm.direct = section.is_on("direct").unwrap_or(info.shm.direct);
    info.shm.cma = match section.get("cma").map(|pair| pair.value) {
        Some("off") => Cma::Off,
        Some("always") => Cma::Always,
        _ => Cma::On,
    };
    Ok(info)
}
