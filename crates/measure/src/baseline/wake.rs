//! Sleeping until another process writes: an eventfd, and a shared word with `futex`.

use cci_sys::SysError;
use cci_sys::shared_memory::SharedMemory;
use rustix::event::EventfdFlags;
use rustix::fs::Timespec;
use rustix::io::Errno;
use rustix::thread::futex;
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const PAGE_BYTES: usize = 4096;

/// A new eventfd, as a file whose `read` sleeps until something was written.
pub fn eventfd() -> io::Result<File> {
    Ok(File::from(rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?))
}

/// A number that two processes share, one of which may sleep until the other changes it (`futex`).
#[derive(Debug)]
pub struct SharedWord(SharedMemory);

impl SharedWord {
    /// A new one, 0.
    pub fn create() -> Result<SharedWord, SysError> {
        SharedMemory::create("cci-baseline", PAGE_BYTES).map(SharedWord)
    }

    /// Another process's, by its descriptor.
    pub fn open(fd: OwnedFd) -> Result<SharedWord, SysError> {
        SharedMemory::open(fd, PAGE_BYTES).map(SharedWord)
    }

    /// What to give to the other process. None in a child that `fork` made.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.fd()
    }

    fn word(&self) -> io::Result<&AtomicU32> {
        self.0.first_word().ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// Stores a value, and wakes whoever sleeps.
    #[inline]
    pub fn store(&self, value: u32) -> io::Result<()> {
        let word = self.word()?;
        word.store(value, Ordering::Release);
        futex::wake(word, futex::Flags::empty(), 1)?;
        Ok(())
    }

    /// Sleeps until the word has this value. False: it did not get it within `timeout`.
    #[inline]
    pub fn sleep_until(&self, value: u32, timeout: Duration) -> io::Result<bool> {
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        let word = self.word()?;
        loop {
            let found = word.load(Ordering::Acquire);
            if found == value {
                return Ok(true);
            }
            match futex::wait(word, futex::Flags::empty(), found, Some(&timeout)) {
                // Again: it changed before the kernel looked.
                Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::TIMEDOUT) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn a_word_is_seen_through_another_mapping() {
        let word = SharedWord::create().unwrap();
        let other = SharedWord::open(word.fd().unwrap().try_clone_to_owned().unwrap()).unwrap();
        assert!(!other.sleep_until(7, Duration::from_millis(1)).unwrap());
        let sleeper = std::thread::spawn(move || other.sleep_until(7, Duration::from_secs(10)));
        word.store(7).unwrap();
        assert!(sleeper.join().unwrap().unwrap());
    }

    #[test]
    fn an_eventfd_sleeps_until_it_is_written() {
        let mut ours = eventfd().unwrap();
        let mut theirs = ours.try_clone().unwrap();
        let sleeper = std::thread::spawn(move || theirs.read(&mut [0; 8]));
        ours.write_all(&1u64.to_ne_bytes()).unwrap();
        assert_eq!(sleeper.join().unwrap().unwrap(), 8);
    }
}
