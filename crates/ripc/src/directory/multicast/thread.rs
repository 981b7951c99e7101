//! The thread of a multicast directory, and what it shares with the directory's owner.

use super::outbox::Refusal;
use super::sockets::Sockets;
use super::state::{MulticastCounters, State};
use crate::directory::limits::NEWS_MAX;
use crate::directory::mailbox::Mailbox;
use crate::directory::{Instance, News, Record};
use crate::name::ServiceName;
use cci_sys::event::{Epoll, EventFd, Events, Interest, Trigger};
use cci_sys::thread::spawn_quiet;
use std::collections::{HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a claim waits for its end, which comes much earlier unless this machine is very busy.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a wait that the system refused.
const PAUSE: Duration = Duration::from_millis(10);

/// What the owner asks of the thread.
pub(super) enum Command {
    Claim(Record, SyncSender<Result<(), Refusal>>),
    Withdraw(ServiceName, Instance),
    Ask(ServiceName),
    End,
}

struct Shared {
    commands: Mutex<VecDeque<Command>>,
    wake: EventFd,
    mailbox: Mailbox,
    counters: Mutex<MulticastCounters>,
}

/// The running thread. Dropping it says goodbye for all services, and waits for the thread's end.
pub(super) struct Responder {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Responder {
    pub fn start(state: State, sockets: Sockets) -> Result<Responder, String> {
        let refused = |error: cci_sys::SysError| error.to_string();
        let shared = Arc::new(Shared {
            commands: Mutex::default(),
            wake: EventFd::new().map_err(refused)?,
            mailbox: Mailbox::new().map_err(refused)?,
            counters: Mutex::default(),
        });
        let epoll = Epoll::new().map_err(refused)?;
        sockets.watch(&epoll, 0).map_err(refused)?;
        epoll.add(&shared.wake, 0, Interest::Read, Trigger::Level).map_err(refused)?;
        let work = Work { state, sockets, shared: shared.clone(), claims: HashMap::new(), claim: 0 };
        let thread =
            spawn_quiet("cci-directory", move || work.run(&epoll)).map_err(|error| error.to_string())?;
        Ok(Responder { shared, thread: Some(thread) })
    }

    /// Claims a name, and waits for the end of the claim.
    pub fn claim(&self, record: Record) -> Result<(), Refusal> {
        let (done, end) = mpsc::sync_channel(1);
        self.command(Command::Claim(record, done));
        end.recv_timeout(CLAIM_TIMEOUT)
            .unwrap_or_else(|_| Err(Refusal::Failed("the directory's thread does not answer".to_owned())))
    }

    pub fn command(&self, command: Command) {
        let mut commands = lock(&self.shared.commands);
        // What is asked may be lost, as datagrams may.
        if commands.len() >= NEWS_MAX && matches!(command, Command::Ask(_)) {
            return;
        }
        commands.push_back(command);
        let _signalled = self.shared.wake.signal();
    }

    pub fn poll(&self) -> Option<News> {
        self.shared.mailbox.pop()
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.shared.mailbox.descriptor()
    }

    pub fn counters(&self) -> MulticastCounters {
        *lock(&self.shared.counters)
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.command(Command::End);
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

/// What the thread works with.
struct Work {
    state: State,
    sockets: Sockets,
    shared: Arc<Shared>,
    /// Who waits for the end of which claim.
    claims: HashMap<u64, SyncSender<Result<(), Refusal>>>,
    /// The number of the latest claim.
    claim: u64,
}

impl Work {
    fn run(mut self, epoll: &Epoll) {
        let began = Instant::now();
        let now = || u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut events = Events::with_capacity(8);
        loop {
            let timeout_ns = self.state.next().map(|next| next.saturating_sub(now()));
            if epoll.wait(&mut events, timeout_ns).is_err() {
                std::thread::sleep(PAUSE);
            }
            // First what others say: a claim must not end before an objection that has come is seen.
            let at = now();
            self.sockets.receive(|source, bytes| self.state.on_datagram(at, source, bytes));
            let goes_on = self.obey(at);
            self.state.on_time(at);
            self.deliver();
            if !goes_on {
                return;
            }
        }
    }

    /// Does what the owner asks. False: to end.
    fn obey(&mut self, now: u64) -> bool {
        let _was_signalled = self.shared.wake.drain();
        let commands = std::mem::take(&mut *lock(&self.shared.commands));
        for command in commands {
            match command {
                Command::Claim(record, done) => {
                    self.claim += 1;
                    self.claims.insert(self.claim, done);
                    self.state.claim(now, self.claim, record);
                }
                Command::Withdraw(service, instance) => self.state.withdraw(&service, instance),
                Command::Ask(service) => self.state.ask(now, &service),
                Command::End => {
                    self.state.withdraw_all();
                    return false;
                }
            }
        }
        true
    }

    fn deliver(&mut self) {
        for (to, packet) in std::mem::take(&mut self.state.out.packets) {
            let sent = self.sockets.send(to, &packet.write());
            match to {
                super::outbox::To::Group => self.state.out.fault = sent.err(),
                // Whoever asked has gone, or can't be reached.
                super::outbox::To::One(_) => {}
            }
        }
        for news in std::mem::take(&mut self.state.out.news) {
            self.shared.mailbox.push(news);
        }
        for (number, verdict) in std::mem::take(&mut self.state.out.verdicts) {
            if let Some(done) = self.claims.remove(&number) {
                let _nobody_waits = done.send(verdict);
            }
        }
        *lock(&self.shared.counters) = self.state.counters;
    }
}
