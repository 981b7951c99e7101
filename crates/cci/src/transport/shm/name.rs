//! URIs and names: `shm://name` is an abstract UNIX socket, `shm:///abs/path` a socket file.

use crate::device::DeviceInfo;
use crate::error::{ConnectError, CreateError, SysError};
use cci_sys::unix::Name;
use cci_sys::{process, random};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

const SCHEME: &str = "shm://";
/// The beginning of every abstract name. It keeps names of other programs apart from ours.
const PREFIX: &str = "cci/";
/// The longest name that the kernel takes, less the prefix.
const NAME_BYTES_MAX: usize = 107 - PREFIX.len();
const PATH_BYTES_MAX: usize = 107;

/// An address to listen at or to connect to: a socket's name and its URI.
pub(super) struct Address {
    pub name: Name,
    pub uri: String,
}

/// The address at which an endpoint listens. A service is a name or an absolute path. Without one, the name is `u<uid>-<64 random
/// bits>`. If the device has a directory, a name becomes a file there.
pub(super) fn listen_address(device: &DeviceInfo, service: Option<&str>) -> Result<Address, CreateError> {
    let bad = |reason: &str| CreateError::BadService {
        service: service.unwrap_or_default().to_owned(),
        reason: reason.to_owned(),
    };
    let service_name = match service {
        Some(path) if path.starts_with('/') => return path_address(Path::new(path)).map_err(bad),
        Some(name) => name.to_owned(),
        None => unique()?,
    };
    let address = abstract_address(&service_name).map_err(bad)?;
    match &device.shm.directory {
        Some(directory) if service_name.contains('/') => {
            Err(bad(&format!("in directory {} a service is a name without '/'", directory.display())))
        }
        Some(directory) => path_address(&directory.join(service_name)).map_err(bad),
        None => Ok(address),
    }
}

/// The error if no socket can be made in the folder of an address.
pub(super) fn no_folder(device: &DeviceInfo, address: &Address, error: &SysError) -> CreateError {
    let Name::Path(path) = &address.name else {
        return CreateError::BadService { service: address.uri.clone(), reason: error.to_string() };
    };
    let folder = path.parent().unwrap_or(Path::new("/"));
    let shown = folder.display();
    let of_device = if device.shm.directory.as_deref() == Some(folder) {
        ", which the device's key `directory` names,"
    } else {
        ""
    };
    let reason = match error.kind() {
        ErrorKind::NotFound => format!(
            "the folder {shown}{of_device} does not exist: make it (mkdir -p {shown}), or choose another"
        ),
        ErrorKind::NotADirectory => format!("{shown}{of_device} is not a folder: choose another"),
        _ => format!(
            "user {} may not write to the folder {shown}{of_device}: choose another, or change its rights",
            process::uid()
        ),
    };
    CreateError::BadService { service: path.display().to_string(), reason }
}

/// The address of a URI.
pub(super) fn parse_uri(uri: &str) -> Result<Address, ConnectError> {
    let parsed = match uri.strip_prefix(SCHEME) {
        Some(path) if path.starts_with('/') => path_address(Path::new(path)),
        Some(name) => abstract_address(name),
        None => Err("a shared-memory URI is shm://name or shm:///absolute/path"),
    };
    parsed.map_err(|reason| ConnectError::BadUri { uri: uri.to_owned(), reason: reason.to_owned() })
}

fn unique() -> Result<String, SysError> {
    Ok(format!("u{}-{:016x}", process::uid(), random::u64()?))
}

/// The user whose number is in a name that [`unique`] made.
pub(super) fn named_uid(name: &Name) -> Option<u32> {
    let Name::Abstract(socket) = name else { return None };
    let name = std::str::from_utf8(socket.strip_prefix(PREFIX.as_bytes())?).ok()?;
    let (uid, random) = name.strip_prefix('u')?.split_once('-')?;
    let is_random = random.len() == 16 && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    uid.parse().ok().filter(|_| is_random)
}

fn abstract_address(name: &str) -> Result<Address, &'static str> {
    check_characters(name)?;
    if name.len() > NAME_BYTES_MAX {
        return Err("the name is longer than 103 bytes");
    }
    let socket = [PREFIX.as_bytes(), name.as_bytes()].concat();
    Ok(Address { name: Name::Abstract(socket), uri: format!("{SCHEME}{name}") })
}

fn path_address(path: &Path) -> Result<Address, &'static str> {
    let text = path.to_str().ok_or("the path is not UTF-8")?;
    check_characters(text)?;
    if text.len() > PATH_BYTES_MAX {
        return Err("the path is longer than 107 bytes, the most that a socket's name can be");
    }
    if text.ends_with('/') {
        return Err("the path names a directory: add a file name");
    }
    Ok(Address { name: Name::Path(PathBuf::from(text)), uri: format!("{SCHEME}{text}") })
}

/// Refuses characters that would need escaping in a URI, a shell or a configuration file.
fn check_characters(name: &str) -> Result<(), &'static str> {
    if name.is_empty() {
        return Err("the name is empty");
    }
    if name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._+@:,/".contains(&byte)) {
        Ok(())
    } else {
        Err("only letters, digits and - . _ + @ : , / can be used")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::builtin;

    fn device(directory: Option<&str>) -> DeviceInfo {
        let mut info = (*builtin::shm("shm").0).clone();
        info.shm.directory = directory.map(PathBuf::from);
        info
    }

    #[test]
    fn what_is_listened_at_can_be_connected_to() {
        for (directory, service) in [
            (None, None),
            (None, Some("a.service_1")),
            (None, Some("/tmp/x.sock")),
            (Some("/tmp"), None),
            (Some("/tmp"), Some("name")),
        ] {
            let address = listen_address(&device(directory), service).unwrap();
            let found = parse_uri(&address.uri).unwrap();
            assert_eq!((&found.name, &found.uri), (&address.name, &address.uri));
        }
        assert!(matches!(parse_uri("shm:///tmp/a").unwrap().name, Name::Path(_)));
        assert!(matches!(parse_uri("shm://tmp/a").unwrap().name, Name::Abstract(_)));
    }

    #[test]
    fn a_name_says_whose_it_is() {
        let uid = |service: Option<&str>| named_uid(&listen_address(&device(None), service).unwrap().name);
        assert_eq!(uid(None), Some(process::uid()));
        assert_eq!(uid(Some("u77-0123456789abcdef")), Some(77));
        for other in
            ["bench", "u77-bench", "u-0123456789abcdef", "77-0123456789abcdef", "/tmp/u77-0123456789abcdef"]
        {
            assert_eq!(uid(Some(other)), None, "{other}");
        }
    }

    #[test]
    fn names_that_cannot_be_are_refused_with_a_reason() {
        for uri in
            ["", "shm:", "shm://", "udp://1.2.3.4:5", "shm://a b", "shm://%41", "shm:///tmp/", "shm://ä\0"]
        {
            assert!(matches!(parse_uri(uri), Err(ConnectError::BadUri { reason, .. }) if !reason.is_empty()));
        }
        assert!(parse_uri(&format!("shm://{}", "x".repeat(103))).is_ok());
        assert!(parse_uri(&format!("shm://{}", "x".repeat(104))).is_err());
        assert!(parse_uri(&format!("shm:///{}", "x".repeat(106))).is_ok());
        assert!(parse_uri(&format!("shm:///{}", "x".repeat(107))).is_err());
        assert!(listen_address(&device(Some("/tmp")), Some("a/b")).is_err());
    }
}
