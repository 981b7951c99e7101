//! A byte stream straight from and into memory that others may change meanwhile ([`Bytes`]): nothing is copied on the
//! way between that memory and the kernel. For stream sockets; no call waits.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use cci_memory::bytes::Bytes;

#[cfg(feature = "simulated")]
use crate::simulated::streams;

/// Sends `head`, then `data`, as far as the kernel takes them; answers how many bytes of both that is. `head` may be empty,
/// so may `data`.
///
/// # Errors
///
/// `WouldBlock`: there is no room now. Everything else is the end of the stream; no signal is raised.
pub fn send(fd: BorrowedFd<'_>, head: &[u8], data: Option<&Bytes>) -> io::Result<usize> {
    #[cfg(feature = "simulated")]
    if streams::is_end(fd) {
        let mut bytes = vec![0; data.map_or(0, Bytes::len)];
        data.map(|data| data.read(0, &mut bytes));
        return streams::repeat(|| streams::send(&fd, [head, &bytes].into_iter()));
    }
    let (start, len) = data.map_or((std::ptr::null_mut(), 0), |data| (data.as_ptr().as_ptr(), data.len()));
    let mut parts = [
        libc::iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() },
        libc::iovec { iov_base: start.cast(), iov_len: len },
    ];
    let message = header(&mut parts);
    loop {
        // SAFETY: the kernel reads `head`, which is borrowed, and `data`, which is mapped for reading as long as the value is
        // used and open to system calls, by the contract of `Bytes`.
        let count =
            unsafe { libc::sendmsg(fd.as_raw_fd(), &message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
        match usize::try_from(count) {
            Ok(count) => return Ok(count),
            Err(_) => retry_if_interrupted()?,
        }
    }
}

/// Receives into `to`, and what comes behind it into `buffer`; answers how many bytes came, 0 at the end of the stream.
///
/// # Errors
///
/// `WouldBlock`: nothing is there now. Everything else is the end of the stream.
pub fn recv(fd: BorrowedFd<'_>, to: Option<&Bytes>, buffer: &mut [u8]) -> io::Result<usize> {
    #[cfg(feature = "simulated")]
    if streams::is_end(fd) {
        let mut bytes = vec![0; to.map_or(0, Bytes::len) + buffer.len()];
        let count = streams::repeat(|| streams::recv(&fd, &mut bytes, false))?;
        let (placed, behind) = bytes.split_at(count).0.split_at(count.min(to.map_or(0, Bytes::len)));
        to.map(|to| to.write(0, placed));
        buffer.iter_mut().zip(behind).for_each(|(to, from)| *to = *from);
        return Ok(count);
    }
    let (start, len) = to.map_or((std::ptr::null_mut(), 0), |to| (to.as_ptr().as_ptr(), to.len()));
    let mut parts = [
        libc::iovec { iov_base: start.cast(), iov_len: len },
        libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() },
    ];
    let mut message = header(&mut parts);
    loop {
        // SAFETY: the kernel writes to `buffer`, which is ours alone, and to `to`, which is mapped for writing as long as
        // the value is used and open to system calls, by the contract of `Bytes`.
        let count = unsafe { libc::recvmsg(fd.as_raw_fd(), &mut message, libc::MSG_DONTWAIT) };
        match usize::try_from(count) {
            Ok(count) => return Ok(count),
            Err(_) => retry_if_interrupted()?,
        }
    }
}

/// A message of these parts and nothing else.
fn header(parts: &mut [libc::iovec; 2]) -> libc::msghdr {
    // SAFETY: all zero is a message without address, parts or control data.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    (message.msg_iov, message.msg_iovlen) = (parts.as_mut_ptr(), parts.len() as _);
    message
}

fn retry_if_interrupted() -> io::Result<()> {
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cci_memory::bytes::{Backing, Foreign};
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, listener.accept().unwrap().0)
    }

    fn memory(bytes: &[u8]) -> Foreign {
        Foreign::owned(bytes.into())
    }

    #[test]
    fn parts_leave_and_come_in_order() {
        let (one, mut other) = pair();
        let data = memory(b"and data");
        assert_eq!(send(one.as_fd(), b"head ", Some(&data.bytes())).unwrap(), 13);
        assert_eq!(send(one.as_fd(), b"", Some(&data.bytes().part(3, 5).unwrap())).unwrap(), 5);
        assert_eq!(send(one.as_fd(), b"!", None).unwrap(), 1);
        let mut got = [0; 19];
        other.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"head and data data!");

        assert_eq!(recv(one.as_fd(), None, &mut got).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        other.write_all(b"placed, not placed").unwrap();
        let (target, mut buffer) = (memory(&[0; 6]), [0; 12]);
        let mut came = recv(one.as_fd(), Some(&target.bytes()), &mut buffer).unwrap();
        while came < 18 {
            came += recv(one.as_fd(), None, &mut buffer[came - 6..]).unwrap_or(0);
        }
        let mut placed = [0; 6];
        assert!(target.bytes().read(0, &mut placed));
        assert_eq!((&placed, &buffer), (b"placed", b", not placed"));
        drop(other);
        while let Err(error) = recv(one.as_fd(), Some(&target.bytes()), &mut buffer) {
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        }
    }

    #[test]
    fn a_full_socket_takes_a_part_and_a_closed_one_raises_no_signal() {
        let (one, other) = pair();
        let data = memory(&vec![1; 32 << 20]);
        let taken = send(one.as_fd(), b"head", Some(&data.bytes())).unwrap();
        assert!(taken < 32 << 20);
        drop(other);
        for _ in 0..1_000 {
            match send(one.as_fd(), b"x", None) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return,
                _ => std::thread::sleep(std::time::Duration::from_millis(1)),
            }
        }
        panic!("nobody reads any more, and that is not said");
    }
}
