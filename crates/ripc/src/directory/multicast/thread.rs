//! The thread of a multicast directory, and what it shares with the directory's owner.
//!
//! Where it can, the owner sends its questions and receives their answers in its own calls. To wake the thread and to be woken by
//! it would take as long as the question and its answer. But the owner never waits for the thread, which may have many datagrams
//! to read. Then the thread does the work.

use super::outbox::{Refusal, Time};
use super::sockets::Sockets;
use super::state::{MulticastCounters, State};
use crate::directory::limits::NEWS_MAX;
use crate::directory::mailbox::Mailbox;
use crate::directory::{Instance, News, Record};
use crate::name::ServiceName;
use cci_sys::clock;
use cci_sys::event::{Epoll, EventFd, Events, Interest, TimerFd, Trigger};
use cci_sys::thread::spawn_quiet;
use std::collections::{HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a claim waits for its end, which comes much earlier unless this machine is very busy.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a wait that the system refused.
const PAUSE: Duration = Duration::from_millis(10);

/// A command of the owner to the thread.
pub(super) enum Command {
    Claim(Record, SyncSender<Result<(), Refusal>>),
    Withdraw(ServiceName, Instance),
    Ask(ServiceName),
    End,
}

struct Shared {
    work: Mutex<Work>,
    commands: Mutex<VecDeque<Command>>,
    wake: EventFd,
    mailbox: Mailbox,
    /// Whether there are questions without an end. It is written with the lock of the work.
    is_asking: AtomicBool,
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
        let epoll = Epoll::new().map_err(refused)?;
        sockets.watch(&epoll, 0).map_err(refused)?;
        let timer = TimerFd::new().map_err(refused)?;
        epoll.add(&timer, 0, Interest::Read, Trigger::Level).map_err(refused)?;
        let began_ns = clock::now_ns();
        let work = Work { state, sockets, timer, timer_at: None, began_ns, claims: HashMap::new(), claim: 0 };
        let shared = Arc::new(Shared {
            work: Mutex::new(work),
            commands: Mutex::default(),
            wake: EventFd::new().map_err(refused)?,
            mailbox: Mailbox::new().map_err(refused)?,
            is_asking: AtomicBool::new(false),
        });
        epoll.add(&shared.wake, 0, Interest::Read, Trigger::Level).map_err(refused)?;
        let of_thread = shared.clone();
        let thread =
            spawn_quiet("cci-directory", move || of_thread.run(&epoll)).map_err(|error| error.to_string())?;
        Ok(Responder { shared, thread: Some(thread) })
    }

    /// Claims a name, and waits for the end of the claim.
    pub fn claim(&self, record: Record) -> Result<(), Refusal> {
        let (done, end) = mpsc::sync_channel(1);
        self.command(Command::Claim(record, done));
        end.recv_timeout(CLAIM_TIMEOUT)
            .unwrap_or_else(|_| Err(Refusal::Failed("the directory's thread does not answer".to_owned())))
    }

    /// Asks for a service. Does not wait for the thread.
    pub fn ask(&self, service: &ServiceName) {
        match self.shared.try_work() {
            Some(mut work) => {
                let now = work.now();
                work.state.ask(now, service);
                work.deliver(&self.shared);
            }
            None => self.command(Command::Ask(service.clone())),
        }
    }

    pub fn command(&self, command: Command) {
        {
            let mut commands = lock(&self.shared.commands);
            // A question may be lost, as datagrams may.
            if commands.len() >= NEWS_MAX && matches!(command, Command::Ask(_)) {
                return;
            }
            commands.push_back(command);
        }
        // This is done without the lock, which the thread takes first of all.
        let _signalled = self.shared.wake.signal();
    }

    /// Returns the next news, after receiving answers. Does not wait for the thread.
    pub fn poll(&self) -> Option<News> {
        let news = self.shared.mailbox.pop();
        // Relaxed: this is a guess. If it is wrong, the thread receives the answers.
        if news.is_some() || !self.shared.is_asking.load(Ordering::Relaxed) {
            return news;
        }
        let mut work = self.shared.try_work()?;
        if work.receive_answers() {
            work.deliver(&self.shared);
        }
        self.shared.mailbox.pop()
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.shared.mailbox.descriptor()
    }

    pub fn counters(&self) -> MulticastCounters {
        lock(&self.shared.work).state.counters
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

impl Shared {
    /// The state of the thread, unless the thread is using it.
    fn try_work(&self) -> Option<MutexGuard<'_, Work>> {
        match self.work.try_lock() {
            Ok(work) => Some(work),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Runs the thread.
    fn run(&self, epoll: &Epoll) {
        let mut events = Events::with_capacity(8);
        loop {
            if epoll.wait(&mut events, None).is_err() {
                std::thread::sleep(PAUSE);
            }
            let _was_signalled = self.wake.drain();
            let mut work = lock(&self.work);
            // First the datagrams: a claim must not end before an objection that has come is seen.
            work.receive();
            let goes_on = work.obey(std::mem::take(&mut *lock(&self.commands)));
            let now = work.now();
            work.state.on_time(now);
            work.deliver(self);
            if !goes_on {
                return;
            }
        }
    }
}

/// The state of the thread, which the owner uses while the thread does not.
struct Work {
    state: State,
    sockets: Sockets,
    /// Wakes the thread when something is due.
    timer: TimerFd,
    /// When it is set to go off; `None` if it is not set.
    timer_at: Option<Time>,
    /// The time from which times are counted.
    began_ns: u64,
    /// Who waits for the end of each claim.
    claims: HashMap<u64, SyncSender<Result<(), Refusal>>>,
    /// The number of the latest claim.
    claim: u64,
}

impl Work {
    fn now(&self) -> Time {
        clock::now_ns().saturating_sub(self.began_ns)
    }

    fn receive(&mut self) {
        let now = self.now();
        let Work { state, sockets, .. } = self;
        sockets.receive(|source, bytes| state.on_datagram(now, source, bytes));
    }

    /// Receives from the sockets that send questions. Returns whether anything had come.
    fn receive_answers(&mut self) -> bool {
        let now = self.now();
        let Work { state, sockets, .. } = self;
        let mut has_come = false;
        sockets.receive_answers(|source, bytes| {
            has_come = true;
            state.on_datagram(now, source, bytes);
        });
        has_come
    }

    /// Carries out the owner's commands. Returns false if the thread is to end.
    fn obey(&mut self, commands: VecDeque<Command>) -> bool {
        for command in commands {
            let now = self.now();
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

    /// Sends datagrams, passes on news, and sets the timer.
    fn deliver(&mut self, shared: &Shared) {
        for (to, packet) in std::mem::take(&mut self.state.out.packets) {
            let sent = self.sockets.send(to, &packet.write());
            match to {
                super::outbox::To::Group => self.state.out.fault = sent.err(),
                // The one who asked has gone, or can't be reached.
                super::outbox::To::One(_) => {}
            }
        }
        for news in std::mem::take(&mut self.state.out.news) {
            shared.mailbox.push(news);
        }
        for (number, verdict) in std::mem::take(&mut self.state.out.verdicts) {
            if let Some(done) = self.claims.remove(&number) {
                let _nobody_waits = done.send(verdict);
            }
        }
        shared.is_asking.store(self.state.is_asking(), Ordering::Relaxed);
        self.set_timer();
    }

    /// Sets the timer that wakes the thread when something is due.
    fn set_timer(&mut self) {
        let next = self.state.next();
        // A timer that goes off too early does no harm, but it stays readable until it is set anew.
        let stays = self.timer_at.is_some_and(|set| set > self.now() && next.is_none_or(|next| next >= set));
        if stays || (next.is_none() && self.timer_at.is_none()) {
            return;
        }
        let set = match next {
            Some(next) => self.timer.arm(self.began_ns.saturating_add(next)),
            None => self.timer.disarm(),
        };
        // A timer of this process can't be refused.
        debug_assert!(set.is_ok(), "{set:?}");
        self.timer_at = next;
    }
}
