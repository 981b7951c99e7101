//! A thread of the library's own, for who asks for one, and how a thread gives up its processor.

use std::io;
use std::thread::{Builder, JoinHandle};

/// What the thread needs: it calls nothing of the program's.
const STACK_BYTES: usize = 256 << 10;

/// Starts a thread with every signal blocked, so that the program's signals go on reaching the program's threads: a
/// handler may count on where it runs, and `sigwait` on nobody else taking the signal.
pub fn spawn_quiet(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let masked = Masked::new()?;
    let spawned = Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(run);
    drop(masked);
    spawned
}

/// Gives up the processor to whoever else wants it. A simulated process has no other to wait for: on a busy machine each call would take as
/// long as all other programs take for their turns.
pub fn yield_now() {
    #[cfg(feature = "simulated")]
    if crate::simulated::is_entered() {
        return;
    }
    std::thread::yield_now();
}

/// Every signal is blocked on this thread as long as this lives; a thread started meanwhile inherits that.
struct Masked {
    before: libc::sigset_t,
}

impl Masked {
    fn new() -> io::Result<Masked> {
        // SAFETY: a signal set is plain bits, for which all zeros is a value; sigfillset sets them.
        let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
        let mut before = all;
        // SAFETY: writes the set it is given and nothing else.
        unsafe { libc::sigfillset(&mut all) };
        // SAFETY: both sets outlive the call; it changes this thread's mask only.
        match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before) } {
            0 => Ok(Masked { before }),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

impl Drop for Masked {
    fn drop(&mut self) {
        // SAFETY: as above. Setting a mask that was in force before can't fail.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn blocks(signal: i32) -> bool {
        // SAFETY: as in `Masked::new`; with no new set, the mask is only read.
        unsafe {
            let mut now: libc::sigset_t = std::mem::zeroed();
            assert_eq!(libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &mut now), 0);
            libc::sigismember(&now, signal) == 1
        }
    }

    #[test]
    fn the_thread_takes_no_signals_and_its_starter_still_does() {
        let (report, reports) = mpsc::channel();
        let thread = spawn_quiet("quiet", move || {
            let name = std::thread::current().name().map(str::to_owned);
            report.send((name, blocks(libc::SIGTERM), blocks(libc::SIGALRM))).unwrap();
        });
        thread.unwrap().join().unwrap();
        assert_eq!(reports.recv().unwrap(), (Some("quiet".to_owned()), true, true));
        assert!(!blocks(libc::SIGTERM));
    }
}
