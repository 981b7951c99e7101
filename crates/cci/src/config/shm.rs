//! A shared-memory device.

use super::keys::on_off;
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
    if let Some(pair) = section.get("direct") {
        info.shm.direct = on_off(pair)?;
    }
    if let Some(pair) = section.get("cma") {
        info.shm.cma = match pair.value {
            "on" => Cma::On,
            "off" => Cma::Off,
            "always" => Cma::Always,
            other => return Err(pair.wrong(format!("cma = {other:?}: write on, off or always"))),
        };
    }
    Ok(info)
}
