//! Waiting on many descriptors at once.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::{fmt, io};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::Timespec;

use super::timerfd::timespec;
use crate::error::{Result, Tried};
#[cfg(feature = "simulated")]
use crate::simulated::streams;

const NS_PER_MS: u64 = 1_000_000;

/// Which changes of a descriptor are reported. Hang-up and error always are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Interest {
    /// It can be read.
    Read,
    /// It can be written.
    Write,
    /// Readable or writable.
    Both,
    /// Only hang-up and error.
    HangUp,
}

/// How often a change is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// As long as it is so.
    Level,
    /// When it becomes so.
    Edge,
}

/// What happened to one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The number it was added with.
    pub token: u64,
    /// It can be read (also: the end can).
    pub readable: bool,
    /// It can be written.
    pub writable: bool,
    /// The other end is closed, or the descriptor is in an error state.
    pub hung_up: bool,
}

/// Room for what one wait reports.
pub struct Events {
    raw: Box<[epoll::Event]>,
    len: usize,
}

// SAFETY: a raw event is a set of flags and the token given to `Epoll::add`, plain numbers. That rustix offers to read the
// token as a pointer makes its type neither Send nor Sync; it is never read as one here.
unsafe impl Send for Events {}
// SAFETY: as above.
unsafe impl Sync for Events {}

impl Events {
    /// Room for `capacity` events, at least one; more come with the next wait.
    pub fn with_capacity(capacity: usize) -> Events {
        let none = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        Events { raw: vec![none; capacity.max(1)].into_boxed_slice(), len: 0 }
    }

    /// Adds what a simulation reports, for which there is room.
    #[cfg(feature = "simulated")]
    fn add(&mut self, ready: Vec<(u64, epoll::EventFlags)>) {
        for (token, flags) in ready {
            if let Some(raw) = self.raw.get_mut(self.len) {
                *raw = epoll::Event { flags, data: epoll::EventData::new_u64(token) };
                self.len += 1;
            }
        }
    }

    /// How many the last wait reported.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the last wait reported none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What the last wait reported.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.raw.iter().take(self.len).map(|raw| {
            // Copied out: the kernel's structure is packed.
            let (flags, data) = (raw.flags, raw.data);
            Event {
                token: data.u64(),
                readable: flags.intersects(epoll::EventFlags::IN),
                writable: flags.intersects(epoll::EventFlags::OUT),
                hung_up: flags
                    .intersects(epoll::EventFlags::HUP | epoll::EventFlags::RDHUP | epoll::EventFlags::ERR),
            }
        })
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// An epoll descriptor; itself pollable, so that it can be handed to a program's own loop.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

impl Epoll {
    /// A new one that watches nothing.
    pub fn new() -> Result<Epoll> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).tried("make a waiter (epoll_create1)")?;
        #[cfg(feature = "simulated")]
        streams::note_set(&set);
        Ok(Epoll(set))
    }

    /// Watches `fd`. The kernel forgets it when the last copy of it is closed.
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest, trigger: Trigger) -> Result<()> {
        #[cfg(feature = "simulated")]
        crate::simulated::fault("epoll_ctl").tried("watch a descriptor (EPOLL_CTL_ADD)")?;
        #[cfg(feature = "simulated")]
        if let Some(done) = streams::watch(&self.0, fd.as_fd(), token, flags(interest, trigger)) {
            return done.tried("watch a descriptor (EPOLL_CTL_ADD)");
        }
        epoll::add(&self.0, fd, epoll::EventData::new_u64(token), flags(interest, trigger))
            .tried("watch a descriptor (EPOLL_CTL_ADD)")
    }

    /// Changes what is watched of `fd`.
    pub fn modify(&self, fd: impl AsFd, token: u64, interest: Interest, trigger: Trigger) -> Result<()> {
        #[cfg(feature = "simulated")]
        if let Some(done) = streams::rewatch(&self.0, fd.as_fd(), Some(flags(interest, trigger))) {
            return done.tried("change what is watched of a descriptor (EPOLL_CTL_MOD)");
        }
        epoll::modify(&self.0, fd, epoll::EventData::new_u64(token), flags(interest, trigger))
            .tried("change what is watched of a descriptor (EPOLL_CTL_MOD)")
    }

    /// Watches `fd` no more.
    pub fn remove(&self, fd: impl AsFd) -> Result<()> {
        #[cfg(feature = "simulated")]
        if let Some(done) = streams::rewatch(&self.0, fd.as_fd(), None) {
            return done.tried("stop watching a descriptor (EPOLL_CTL_DEL)");
        }
        epoll::delete(&self.0, fd).tried("stop watching a descriptor (EPOLL_CTL_DEL)")
    }

    /// Waits until something happens, or `timeout_ns` has passed (`None`: for ever; `Some(0)`: not at all), and
    /// says how much happened. **Blocks.** A signal ends the wait with no events.
    ///
    /// The timeout is exact to the kernel's timer where it has `epoll_pwait2` (5.11), else rounded up to 1 ms.
    pub fn wait(&self, events: &mut Events, timeout_ns: Option<u64>) -> io::Result<usize> {
        events.len = 0;
        let timeout = timeout_ns.map(timespec);
        let mut done = epoll::wait(&self.0, &mut *events.raw, timeout.as_ref());
        if let (Err(Errno::NOSYS | Errno::PERM), Some(ns)) = (&done, timeout_ns) {
            // No epoll_pwait2 (an old kernel, or a filter): whole milliseconds go by the older call. Up, not down:
            // waking early would make the caller spin for the rest. It counts in an i32, hence the cap (24 days).
            let rounded: Timespec = timespec(ns.div_ceil(NS_PER_MS).min(i32::MAX as u64) * NS_PER_MS);
            done = epoll::wait(&self.0, &mut *events.raw, Some(&rounded));
        }
        match done {
            Ok(count) => {
                events.len = count;
                #[cfg(feature = "simulated")]
                events.add(streams::ready(&self.0, events.raw.len().saturating_sub(count)));
                Ok(events.len)
            }
            Err(Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(feature = "simulated")]
impl Drop for Epoll {
    fn drop(&mut self) {
        streams::forget_set(&self.0);
    }
}

fn flags(interest: Interest, trigger: Trigger) -> epoll::EventFlags {
    let wanted = match interest {
        Interest::Read => epoll::EventFlags::IN,
        Interest::Write => epoll::EventFlags::OUT,
        Interest::Both => epoll::EventFlags::IN | epoll::EventFlags::OUT,
        Interest::HangUp => epoll::EventFlags::empty(),
    };
    let often = match trigger {
        Trigger::Level => epoll::EventFlags::empty(),
        Trigger::Edge => epoll::EventFlags::ET,
    };
    wanted | often | epoll::EventFlags::RDHUP
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now_ns;
    use crate::event::{EventFd, TimerFd};

    fn tokens(events: &Events) -> Vec<u64> {
        events.iter().map(|event| event.token).collect()
    }

    #[test]
    fn level_repeats_and_edge_does_not() {
        let (epoll, mut events) = (Epoll::new().unwrap(), Events::with_capacity(4));
        let (level, edge) = (EventFd::new().unwrap(), EventFd::new().unwrap());
        epoll.add(&level, 1, Interest::Read, Trigger::Level).unwrap();
        epoll.add(&edge, u64::MAX, Interest::Read, Trigger::Edge).unwrap();
        assert_eq!(epoll.wait(&mut events, Some(0)).unwrap(), 0);
        level.signal().unwrap();
        edge.signal().unwrap();
        assert_eq!(epoll.wait(&mut events, None).unwrap(), 2);
        assert_eq!(epoll.wait(&mut events, Some(0)).unwrap(), 1);
        assert_eq!(tokens(&events), [1]);
        epoll.modify(&level, 9, Interest::Write, Trigger::Level).unwrap();
        epoll.wait(&mut events, Some(0)).unwrap();
        assert_eq!(
            events.iter().next(),
            Some(Event { token: 9, readable: false, writable: true, hung_up: false })
        );
        epoll.remove(&level).unwrap();
        assert_eq!(epoll.wait(&mut events, Some(0)).unwrap(), 0);
        assert!(epoll.remove(&level).is_err());
    }

    #[test]
    fn timeouts_are_kept_to_the_microsecond_and_never_early() {
        let (epoll, mut events) = (Epoll::new().unwrap(), Events::with_capacity(1));
        for timeout_ns in [1, 50_000, 1_500_000] {
            let start_ns = now_ns();
            assert_eq!(epoll.wait(&mut events, Some(timeout_ns)).unwrap(), 0);
            assert!(now_ns() - start_ns >= timeout_ns);
        }
        let timer = TimerFd::new().unwrap();
        epoll.add(&timer, 5, Interest::Read, Trigger::Level).unwrap();
        timer.arm(now_ns() + 1_000_000).unwrap();
        assert_eq!(epoll.wait(&mut events, Some(u64::MAX)).unwrap(), 1);
        assert_eq!(tokens(&events), [5]);
    }

    /// Makes `epoll_pwait2` fail with `errno` for the calling thread, as old kernels and container filters do.
    fn forbid_pwait2(errno: i32) -> bool {
        let code = |class: u32| class as u16;
        let step = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
        let mut program = [
            // The system call's number is the first word of what a filter sees.
            step(code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS), 0),
            libc::sock_filter {
                jf: 1,
                ..step(code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K), libc::SYS_epoll_pwait2 as u32)
            },
            step(code(libc::BPF_RET | libc::BPF_K), libc::SECCOMP_RET_ERRNO | errno as u32),
            step(code(libc::BPF_RET | libc::BPF_K), libc::SECCOMP_RET_ALLOW),
        ];
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY: both concern this thread only; the filter outlives the call, which copies it.
        unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
        }
    }

    #[test]
    fn without_epoll_pwait2_timeouts_are_rounded_up() {
        for errno in [libc::ENOSYS, libc::EPERM] {
            let inside = move || {
                if !forbid_pwait2(errno) {
                    println!("skipped: no system call filter here: {}", io::Error::last_os_error());
                    return;
                }
                let (epoll, mut events) = (Epoll::new().unwrap(), Events::with_capacity(1));
                let event = EventFd::new().unwrap();
                epoll.add(&event, 3, Interest::Read, Trigger::Level).unwrap();
                let start_ns = now_ns();
                assert_eq!(epoll.wait(&mut events, Some(1_200_000)).unwrap(), 0);
                assert!(now_ns() - start_ns >= 2 * NS_PER_MS, "up, to 2 ms");
                event.signal().unwrap();
                for timeout_ns in [Some(1), Some(u64::MAX), Some(0), None] {
                    assert_eq!(epoll.wait(&mut events, timeout_ns).unwrap(), 1);
                }
            };
            std::thread::spawn(inside).join().unwrap();
        }
    }
}
