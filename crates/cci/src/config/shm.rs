//! A shared-memory device.

use super::syntax::{Section, Wrong};
use crate::device::{Cma, DeviceInfo, TransportKind, Unavailable};
use crate::transport;
use std::path::PathBuf;

/// The device without a configuration.
pub(super) fn info(name: String) -> DeviceInfo {
    DeviceInfo {
        info: "shared memory between processes of this host".to_owned(),
        conf_argv: vec!["transport=shm".to_owned()],
        max_send_size: transport::shm::MESSAGE_BYTES_MAX,
        ..DeviceInfo::new(name, TransportKind::Shm)
    }
}

/// The device of a section.
pub(super) fn from_section(section: &Section<'_>) -> Result<DeviceInfo, Wrong> {
    let mut info = info(section.name.to_owned());
    if let Some(pair) = section.get("directory") {
        let directory = PathBuf::from(pair.value);
        if !directory.is_absolute() {
            return Err(pair.wrong(format!("directory {:?} is not an absolute path; write one", pair.value)));
        }
        if !directory.is_dir() {
            info.up = false;
            info.unavailable.push(Unavailable {
                what: "shared memory".to_owned(),
                reason: format!("the folder {}, which its key `directory` names, does not exist", pair.value),
                remedy: format!("make it (mkdir -p {}), or name another", pair.value),
            });
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

#[cfg(test)]
mod tests {
    use crate::{Context, CreateError, Endpoint, Options};
    use std::path::Path;

    /// The device is down and says why, and so does an endpoint that is opened on it.
    #[test]
    fn a_folder_that_is_not_there_is_told() {
        let text =
            "[here]\ntransport = shm\n[there]\ntransport = shm\ndirectory = /nonexist/x\npriority = 90\n";
        let context = Context::from_text(text, Path::new("test.ini")).unwrap();
        let device = context.device("there").unwrap();
        assert!(!device.is_up() && device.unavailable()[0].reason.contains("/nonexist/x"), "{device:?}");
        assert_eq!(context.default_device().name(), "here");
        let error = Endpoint::create(device, Options::default()).map(drop).unwrap_err();
        assert!(matches!(error, CreateError::BadService { .. }), "{error}");
        assert!(error.to_string().contains("mkdir -p /nonexist/x"), "{error}");
    }
}
