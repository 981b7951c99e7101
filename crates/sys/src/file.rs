//! Open files whose bytes are read straight into memory of any kind, and those that came from a peer.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use cci_memory::bytes::Bytes;
use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat};

use crate::error::{Result, SysError, Tried};

/// Reads `len` bytes of a file, from byte `offset` of the file on, to `to_offset` of `to`. `Ok(false)`: the file ends before that; what is
/// there of it was read. It blocks while the bytes are not in memory yet.
///
/// # Errors
/// `InvalidInput`: out of range in `to`, or beyond what a file can have. Otherwise those of `pread`.
pub fn read_at(file: &File, offset: u64, to: &Bytes, to_offset: usize, len: usize) -> io::Result<bool> {
    let to = to.part(to_offset, len).ok_or(io::ErrorKind::InvalidInput)?;
    let mut done = 0;
    while done < len {
        let Some(rest) = to.part(done, len - done) else { break };
        let at = offset.checked_add(done as u64).and_then(|at| libc::off_t::try_from(at).ok());
        let at = at.ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: the kernel writes no more than that to `rest`, which is a part of `Bytes`: mapped for writing as long as those are, and
        // open to system calls by their contract.
        let count = unsafe { libc::pread(file.as_raw_fd(), rest.as_ptr().as_ptr().cast(), rest.len(), at) };
        match usize::try_from(count) {
            Ok(0) => return Ok(false),
            Ok(count) => done += count,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(true)
}

/// Checks that a file is a regular one that is open for reading. Returns how long it is now, bytes.
///
/// # Errors
/// `InvalidData`: it is something else, such as a pipe or a device, whose bytes may never come.
pub fn check_regular(fd: BorrowedFd<'_>) -> Result<u64> {
    const WHAT: &str = "use a file (fstat)";
    let stat = fstat(fd).tried(WHAT)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(SysError::refused(WHAT, "it is not a regular file"));
    }
    let flags = fcntl_getfl(fd).tried("use a file (F_GETFL)")?;
    let mode = flags & OFlags::RWMODE;
    if flags.contains(OFlags::PATH) || (mode != OFlags::RDONLY && mode != OFlags::RDWR) {
        return Err(SysError::refused(WHAT, "it is not open for reading"));
    }
    Ok(u64::try_from(stat.st_size).unwrap_or(0))
}

/// Takes a file whose descriptor a peer has sent, after the checks of [`check_regular`].
///
/// # Errors
/// Those of [`check_regular`].
pub fn open_of_peer(fd: OwnedFd) -> Result<File> {
    use std::os::fd::AsFd;
    check_regular(fd.as_fd())?;
    Ok(File::from(fd))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cci_memory::bytes::{Backing, Foreign};
    use std::io::Write;
    use std::os::fd::AsFd;

    fn file_of(bytes: &[u8]) -> File {
        let name = format!("cci-sys-file-{}-{:?}", std::process::id(), std::thread::current().id());
        let path = std::env::temp_dir().join(name);
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn bytes_go_where_they_are_wanted_and_nowhere_else() {
        let file = file_of(b"0123456789");
        let memory = Foreign::owned(vec![b'.'; 8].into_boxed_slice());
        let bytes = memory.bytes();
        assert!(read_at(&file, 3, &bytes, 2, 4).unwrap());
        let mut all = [0; 8];
        assert!(bytes.read(0, &mut all));
        assert_eq!(&all, b"..3456..");
        assert!(!read_at(&file, 8, &bytes, 0, 4).unwrap(), "the file ends there");
        assert!(read_at(&file, 8, &bytes, 5, 4).is_err() && read_at(&file, u64::MAX, &bytes, 0, 4).is_err());
        assert!(bytes.read(0, &mut all));
        assert_eq!(&all, b"893456..");
    }

    #[test]
    fn only_regular_files_that_can_be_read_will_do() {
        let file = file_of(b"12");
        assert_eq!(check_regular(file.as_fd()).unwrap(), 2);
        let (reader, writer) = std::io::pipe().unwrap();
        assert!(check_regular(reader.as_fd()).is_err() && check_regular(writer.as_fd()).is_err());
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let write_only = File::options().write(true).open(&path).unwrap();
        assert!(open_of_peer(write_only.into()).is_err());
        let read_only = File::open(&path).unwrap();
        assert!(open_of_peer(read_only.into()).is_ok());
        let device = File::open("/dev/zero").unwrap();
        assert!(open_of_peer(device.into()).is_err());
    }
}
