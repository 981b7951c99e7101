//! Names of UNIX sockets.

use std::fmt;
use std::path::PathBuf;

use rustix::net::SocketAddrUnix;

/// Where a listener is found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Name {
    /// A name without a file, in the network namespace; 1 to 107 bytes. Anybody there can connect: check who it is.
    Abstract(Vec<u8>),
    /// A file, at most 107 bytes of path; reaches across network namespaces and obeys file permissions.
    Path(PathBuf),
}

impl Name {
    /// As the kernel takes it; `ENAMETOOLONG`, `EINVAL`.
    pub(super) fn to_addr(&self) -> rustix::io::Result<SocketAddrUnix> {
        match self {
            // An empty abstract name would ask the kernel to pick one; an empty path is no file.
            Name::Abstract(name) if name.is_empty() => Err(rustix::io::Errno::INVAL),
            Name::Path(path) if path.as_os_str().is_empty() => Err(rustix::io::Errno::INVAL),
            Name::Abstract(name) => SocketAddrUnix::new_abstract_name(name),
            Name::Path(path) => SocketAddrUnix::new(path.as_path()),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Abstract(name) => write!(f, "@{}", name.escape_ascii()),
            Name::Path(path) => write!(f, "{}", path.display()),
        }
    }
}
