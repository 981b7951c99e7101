//! Sleeping until another process says so.

use crate::error::{Result, SysError, Tried};
use crate::segment::Segment;
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

/// A new eventfd whose `read` sleeps until something was written.
pub fn eventfd() -> Result<File> {
    let fd = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).tried("make a wake-up counter (eventfd)")?;
    Ok(File::from(fd))
}

/// A number that two processes share, one of which may sleep until the other changes it (`futex`).
#[derive(Debug)]
pub struct SharedWord(Segment);

impl SharedWord {
    /// A new one, 0.
    pub fn create() -> Result<SharedWord> {
        Segment::create("cci-floor", PAGE_BYTES).map(SharedWord)
    }

    /// Another process's, by its descriptor.
    pub fn open(fd: OwnedFd) -> Result<SharedWord> {
        Segment::open(fd, PAGE_BYTES).map(SharedWord)
    }

    /// What to give to the other process.
    pub fn fd(&self) -> Result<BorrowedFd<'_>> {
        self.0.fd().ok_or_else(|| SysError::refused("share a word", "its descriptor is closed"))
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: page-aligned, mapped as long as `self`, and everybody who shares it uses it as an atomic.
        unsafe { &*self.0.as_ptr().cast::<AtomicU32>().as_ptr() }
    }

    /// Sets it, and wakes whoever sleeps.
    #[inline]
    pub fn say(&self, value: u32) -> io::Result<()> {
        self.word().store(value, Ordering::Release);
        futex::wake(self.word(), futex::Flags::empty(), 1)?;
        Ok(())
    }

    /// Sleeps until it has this value. False: it had not for `timeout`.
    #[inline]
    pub fn sleep_until(&self, value: u32, timeout: Duration) -> io::Result<bool> {
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        loop {
            let found = self.word().load(Ordering::Acquire);
            if found == value {
                return Ok(true);
            }
            match futex::wait(self.word(), futex::Flags::empty(), found, Some(&timeout)) {
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
    fn a_word_is_heard_through_another_mapping() {
        let word = SharedWord::create().unwrap();
        let other = SharedWord::open(word.fd().unwrap().try_clone_to_owned().unwrap()).unwrap();
        assert!(!other.sleep_until(7, Duration::from_millis(1)).unwrap());
        let sleeper = std::thread::spawn(move || other.sleep_until(7, Duration::from_secs(10)));
        word.say(7).unwrap();
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
