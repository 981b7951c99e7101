//! Who this process is, and whether it still is the one that made something; and signals to others.

use crate::error::{Result, Tried};

/// Number of this process, as seen in its own PID namespace.
pub fn pid() -> u32 {
    std::process::id()
}

/// Effective user of this process.
pub fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Effective group of this process.
pub fn gid() -> u32 {
    rustix::process::getegid().as_raw()
}

/// What can be done to a process from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// It ends, and can do nothing about it (SIGKILL).
    Kill,
    /// It ends as after an access to memory that is not there (SIGSEGV).
    Segv,
    /// It stands still (SIGSTOP).
    Stop,
    /// It goes on (SIGCONT).
    Continue,
}

/// Sends a signal to a process. The caller knows that `pid` is still the process it means: a child that was not waited
/// for.
///
/// # Errors
/// There is no such process, or this one may not.
pub fn send_signal(pid: u32, signal: Signal) -> Result<()> {
    use rustix::process::{Pid, Signal as Os, kill_process};
    let signal = match signal {
        Signal::Kill => Os::KILL,
        Signal::Segv => Os::SEGV,
        Signal::Stop => Os::STOP,
        Signal::Continue => Os::CONT,
    };
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(rustix::io::Errno::SRCH);
    pid.and_then(|pid| kill_process(pid, signal)).tried("send a signal (kill)")
}

/// A descriptor of its own for what the parent has left open under `number`, such as the socket of a launcher.
///
/// # Errors
/// Nothing is open there.
pub fn inherited(number: i32) -> Result<std::os::fd::OwnedFd> {
    const WHAT: &str = "use an inherited descriptor (fcntl)";
    if number < 0 {
        return Err(rustix::io::Errno::BADF).tried(WHAT);
    }
    // SAFETY: the number is used only while it is duplicated; where nothing is open there, the kernel says so.
    let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_dupfd_cloexec(borrowed, 0).tried(WHAT)
}

/// Detects that a fork happened since, without handlers and without a system call per check.
///
/// The token lies in a page that the kernel wipes in a fork child (`MADV_WIPEONFORK`), so a child finds 0 there
/// and takes a new one.
pub mod fork {
    use std::io;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use crate::error::SysError;
    use crate::random;

    /// Stands for this process; a fork child's differs. 0 is never a token.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Token(u64);

    impl Token {
        /// Stands for no process: those of processes are odd.
        pub const NOBODY: Token = Token(2);
    }

    /// The token of the running process. The first call makes a few system calls, later ones read one word.
    pub fn token() -> Token {
        let Some(word) = wiped_word() else { return Token(pid_token()) };
        KNOWN.store(std::ptr::from_ref(word).cast_mut(), Ordering::Release);
        let known = word.load(Ordering::Relaxed);
        if known != 0 {
            return Token(known);
        }
        let fresh = random::u64().unwrap_or_else(|_| pid_token()) | 1;
        // Two threads may get here at once: the first one's token stands.
        match word.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Token(fresh),
            Err(other) => Token(other),
        }
    }

    /// Whether this is still the process that took `token`. Two loads and a comparison.
    #[inline]
    pub fn same_process(token: Token) -> bool {
        // Acquire pairs with the Release in `token`: who sees the address sees the page.
        let word = KNOWN.load(Ordering::Acquire);
        // SAFETY: `NOT_KNOWN`, or what `token` has stored here, a word that stays mapped until the process ends.
        unsafe { &*word }.load(Ordering::Relaxed) == token.0 || same_process_slowly(token)
    }

    #[cold]
    fn same_process_slowly(token: Token) -> bool {
        match wiped_word() {
            Some(word) => word.load(Ordering::Relaxed) == token.0,
            None => pid_token() == token.0,
        }
    }

    /// Says no to a fork child that uses what another process opened.
    ///
    /// # Errors
    /// `Unsupported`, where this is not the process that took `token`.
    pub fn check(token: Token) -> Result<(), SysError> {
        if same_process(token) {
            return Ok(());
        }
        let why = "it belongs to the process that opened it, and this is a fork child: open your own here";
        Err(SysError::new("use an endpoint", io::Error::new(io::ErrorKind::Unsupported, why)))
    }

    /// Where the wiped word is, once a token was taken. Else, or if there is none, it is `NOT_KNOWN`, so that nobody has to look whether it is.
    static KNOWN: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::from_ref(&NOT_KNOWN).cast_mut());

    /// No token is 0.
    static NOT_KNOWN: AtomicU64 = AtomicU64::new(0);

    /// Where the kernel cannot wipe a page (before 4.14): one `getpid` per check.
    fn pid_token() -> u64 {
        u64::from(std::process::id()) << 1 | 1
    }

    /// The word that is 0 in a new process. Relaxed everywhere: it guards no other memory.
    #[inline]
    fn wiped_word() -> Option<&'static AtomicU64> {
        static WORD: OnceLock<Option<&'static AtomicU64>> = OnceLock::new();
        *WORD.get_or_init(map_word)
    }

    fn map_word() -> Option<&'static AtomicU64> {
        // The C library's call for the same reason as in `clock`.
        // SAFETY: reads a constant of the system. Wherever it fails, any length below a page will do.
        let len = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private mapping at an address the kernel picks touches no memory that exists.
        let page = unsafe { mmap_anonymous(std::ptr::null_mut(), len, prot, MapFlags::PRIVATE) }.ok()?;
        // SAFETY: the advice concerns only the page mapped above, which nobody else knows yet.
        if unsafe { madvise(page, len, Advice::LinuxWipeOnFork) }.is_err() {
            // SAFETY: mapped above and never handed out. A failure leaves one unused page.
            let _ = unsafe { munmap(page, len) };
            return None;
        }
        // SAFETY: page-aligned, zeroed, writable, mapped until the process ends, and reached only as this atomic.
        Some(unsafe { AtomicU64::from_ptr(page.cast()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_stays_in_one_process() {
        let token = fork::token();
        assert_eq!(token, fork::token());
        assert!(std::thread::spawn(move || fork::same_process(token)).join().unwrap());
    }

    #[test]
    fn a_fork_child_sees_that_it_is_another_process() {
        let token = fork::token();
        // SAFETY: the child calls only async-signal-safe things (a load, maybe getrandom) and leaves by _exit.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let noticed =
                !fork::same_process(token) && fork::token() != token && fork::same_process(fork::token());
            // SAFETY: ends the child without running the test runner's exit handlers.
            unsafe { libc::_exit(if noticed { 0 } else { 1 }) };
        }
        let mut status = -1;
        // SAFETY: waits for the child made above; `status` outlives the call.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the child must not take itself for its parent");
        assert!(fork::same_process(token), "and the parent stays itself");
    }
}
