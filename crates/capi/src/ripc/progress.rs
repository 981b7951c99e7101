//! The thread that makes progress while the program makes no calls.
//!
//! It keeps out of the way of the program: it naps while calls come, and rests while a thread of the program's sleeps in one, which wakes by
//! itself when something comes. Otherwise it sleeps until something comes for the node. So an idle process costs nothing but a look at the directory now
//! and then, a busy one a look for each nap, and a partner waits for a nap at most once the program has stopped calling.

use super::live::Doing;
use super::shared::{begin_rest, calls, lock_apart, rest};
use super::system::{EventFd, Woken, sleep};
use std::io;
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

const NAME: &str = "ripc-progress";
const NAP: Duration = Duration::from_millis(1);
/// Rounds of progress without a break, when there is always something to do.
const ROUNDS_MAX: u32 = 64;

/// What comes next for the thread.
enum Next {
    Nap,
    Rest,
    Watch([i32; 2], Duration),
    End,
}

/// Starts the thread. It handles no signals.
pub(super) fn start(wake: Arc<EventFd>) -> io::Result<()> {
    let masked = super::system::Masked::new();
    let started = Builder::new().name(NAME.to_owned()).spawn(move || run(&wake));
    drop(masked);
    started.map(drop)
}

fn run(wake: &EventFd) {
    let mut calls_seen = 0;
    let mut rounds = 0;
    let mut is_late = false;
    loop {
        match step(wake, &mut calls_seen, is_late) {
            Next::Nap => std::thread::sleep(NAP),
            Next::Rest => rest(),
            Next::Watch(fds, due) => {
                rounds += 1;
                if due.is_zero() && rounds % ROUNDS_MAX == 0 {
                    std::thread::sleep(NAP);
                }
                is_late = sleep(&fds, due, None) == Woken::TimedOut;
                continue;
            }
            Next::End => return,
        }
        is_late = false;
    }
}

fn step(wake: &EventFd, calls_seen: &mut u64, is_late: bool) -> Next {
    let calls_now = calls();
    if calls_now != *calls_seen {
        *calls_seen = calls_now;
        return Next::Nap;
    }
    let mut locked = lock_apart();
    let Some(live) = &mut *locked else { return Next::End };
    live.doing = Doing::Naps;
    if calls() != *calls_seen {
        return Next::Nap;
    }
    if !live.waiters.is_empty() {
        begin_rest(live);
        return Next::Rest;
    }
    wake.drain();
    if is_late {
        live.node.check_directory();
    }
    live.node.progress();
    live.take_notices();
    live.doing = Doing::Watches;
    Next::Watch([live.epoll(), wake.raw()], live.node.next_due())
}
