//! Memory that one process of a host keeps for others there, who open it by its process and descriptor.

use rustix::fs::{Mode, OFlags, SealFlags, fcntl_get_seals, open};
use std::fs::File;
use std::os::fd::AsRawFd;

/// Bytes of a place.
pub const PLACE_BYTES: usize = 2 * size_of::<u32>();

/// Where others find a descriptor of this process, for as long as it is open.
pub fn place(file: &File) -> Vec<u8> {
    [std::process::id().to_le_bytes(), file.as_raw_fd().to_le_bytes()].concat()
}

/// The memory that a process has published, for reading, if nobody can do to it any more what `seals` forbid.
pub fn find(place: &[u8], seals: SealFlags) -> Option<File> {
    let (process, descriptor) = place.split_at_checked(size_of::<u32>())?;
    let process = u32::from_le_bytes(process.try_into().ok()?);
    let descriptor = i32::from_le_bytes(descriptor.try_into().ok()?);
    // Whatever else the descriptor is, opening it neither waits nor takes a terminal.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = open(format!("/proc/{process}/fd/{descriptor}"), flags, Mode::empty()).ok()?;
    fcntl_get_seals(&file).is_ok_and(|has| has.contains(seals)).then(|| File::from(file))
}
