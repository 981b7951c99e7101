//! Another process's memory, read and written by one system call for each transfer.

use crate::transfer::Direction;
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;
use std::io::{self, IoSlice, IoSliceMut};

/// Another process, whose memory this one may be allowed to reach.
#[derive(Debug)]
pub struct Process(Pid);

impl Process {
    /// The process with that number.
    ///
    /// # Errors
    /// `InvalidInput` for this process and its threads, whose memory safe code may not change from under itself.
    pub fn of(pid: u32) -> io::Result<Process> {
        let own_thread = std::path::Path::new("/proc/self/task").join(pid.to_string());
        match i32::try_from(pid) {
            Ok(number) if number > 0 && pid != std::process::id() && !own_thread.exists() => {
                Ok(Process(Pid::from_raw(number)))
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Moves `chunk` to or from `address` of the process, in one system call.
    ///
    /// # Errors
    /// Those of [`Process::write`] and [`Process::read`].
    #[inline]
    pub fn transfer(&self, direction: Direction, address: u64, chunk: &mut [u8]) -> io::Result<()> {
        match direction {
            Direction::Write => self.write(address, chunk),
            Direction::Read => self.read(address, chunk),
        }
    }

    /// Writes all of `data` at `address` of the process, where it replaces whatever is there (`process_vm_writev`).
    ///
    /// # Errors
    /// The errno; `WriteZero` where only a part could be written.
    pub fn write(&self, address: u64, data: &[u8]) -> io::Result<()> {
        let written = process_vm_writev(self.0, &[IoSlice::new(data)], &[remote(address, data.len())?])?;
        all(written, data.len())
    }

    /// Fills `out` from `address` of the process on (`process_vm_readv`).
    ///
    /// # Errors
    /// The errno; `WriteZero` where only a part could be read.
    pub fn read(&self, address: u64, out: &mut [u8]) -> io::Result<()> {
        let len = out.len();
        let read = process_vm_readv(self.0, &mut [IoSliceMut::new(out)], &[remote(address, len)?])?;
        all(read, len)
    }
}

fn remote(address: u64, len: usize) -> io::Result<RemoteIoVec> {
    let base = usize::try_from(address).map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok(RemoteIoVec { base, len })
}

fn all(transferred: usize, len: usize) -> io::Result<()> {
    if transferred == len { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    /// Set for a copy of this program that is the other process.
    const OTHER: &str = "CCI_MEASURE_OTHER_PROCESS";

    #[test]
    fn own_memory_is_not_reached() {
        let here = std::process::id();
        for pid in [here, 0, u32::MAX] {
            assert_eq!(Process::of(pid).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{pid}");
        }
        assert!(Process::of(nix::unistd::gettid().as_raw() as u32).is_err());
    }

    #[test]
    fn a_childs_memory_is_read_and_written() {
        if std::env::var_os(OTHER).is_some() {
            let word = Box::new(7u64);
            println!("\nword {}", std::ptr::from_ref(&*word) as u64);
            let _ = std::io::stdin().read_line(&mut String::new());
            return drop(std::hint::black_box(word));
        }
        let name = "baseline::process::tests::a_childs_memory_is_read_and_written";
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(OTHER, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Kept until the child has ended, so that what it prints last finds a reader.
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let address: u64 = lines
            .by_ref()
            .take(50)
            .find_map(|line| line.strip_prefix("word ")?.parse().ok())
            .expect("an address");
        let (process, mut found, mut again) = (Process::of(child.id()).unwrap(), [0; 8], [0; 8]);
        let read = process.read(address, &mut found);
        let written = process.write(address, &9u64.to_ne_bytes());
        let reread = process.read(address, &mut again);
        let beyond = process.write(0, &[1]);
        drop(child.stdin.take());
        child.wait().unwrap();
        if read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
            println!("skipped: this system forbids it");
            return;
        }
        read.and(written).and(reread).unwrap();
        assert_eq!((u64::from_ne_bytes(found), u64::from_ne_bytes(again)), (7, 9));
        assert!(beyond.is_err());
    }
}
