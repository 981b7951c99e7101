//! TCP among simulated processes: streams whose bytes move when the simulation carries them.
//!
//! What a process sends waits in its *send buffer* until the simulation [carries](carry) it, as many bytes at a time as it likes,
//! to the other end's receive buffer. It asks [which streams](pending) have something to carry. Sockets are real
//! descriptors of nothing, by which processes name their ends here, and which [`Epoll`](crate::event::Epoll) knows. Errors, ends and
//! readiness are those of Linux.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, epoll::EventFlags, eventfd};
use rustix::io::Errno;

use super::{fault, is_entered, pass, reaches_others};

/// Streams that wait for one listener at most.
const BACKLOG: usize = 16;
/// Ports of those that connect begin here.
const PORT_FIRST: u16 = 32_768;
/// Where a listener is that names no port.
const PORT_CHOSEN: u16 = 4_791;
/// Buffers at their beginning, bytes.
const SEND_BUFFERS: [usize; 4] = [2_304, 4_608, 20_000, 200_000];
const RECEIVE_BUFFERS: [usize; 4] = [300, 2_304, 20_000, 200_000];
/// Of so many calls a signal interrupts one, and of so many that send much one takes less than there is space for.
const SIGNAL_PER_CALLS: u64 = 32;
const SHORT_PER_CALLS: u64 = 8;
const MUCH_BYTES: usize = 512;

/// One end of a stream, as the simulation names it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Direction {
    end: usize,
    /// From where to where it carries.
    pub from: IpAddr,
    /// To where.
    pub to: IpAddr,
}

/// What became of bytes that were to be carried.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Carried {
    /// There is no more, or it has to wait for space and will be [pending] then.
    All,
    /// There is more.
    Part,
    /// Nobody took it; later somebody may.
    Nothing,
}

/// A number below the one given, which is not 0.
type Chance = Box<dyn FnMut(u64) -> u64>;
type Done<T> = Result<T, Errno>;

/// One end of a stream.
struct End {
    local: SocketAddr,
    remote: SocketAddr,
    /// None: the other end has not answered yet.
    peer: Option<usize>,
    unsent: VecDeque<u8>,
    received: VecDeque<u8>,
    send_bytes_max: usize,
    receive_bytes_max: usize,
    wakeup_bytes: usize,
    /// After how long without an answer it breaks, nanoseconds; None: the system's own time.
    user_timeout_ns: Option<u64>,
    /// Nothing is sent behind what is.
    is_shut: bool,
    /// The other end knows that.
    end_is_known: bool,
    /// The other end sends no more.
    has_ended: bool,
    error: Option<Errno>,
    /// There is no stream any more.
    is_broken: bool,
    /// The process has no descriptor of it any more.
    is_closed: bool,
    /// It was closed with bytes unread: the other end learns of that as of an error.
    is_aborted: bool,
    /// Its host has forgotten it without a word.
    is_forgotten: bool,
    is_pending: bool,
}

impl End {
    fn is_connecting(&self) -> bool {
        self.peer.is_none() && !self.is_broken
    }

    fn break_with(&mut self, error: Errno) {
        if !self.is_broken {
            (self.error, self.is_broken) = (Some(error), true);
            self.unsent.clear();
        }
    }

    fn events(&self) -> EventFlags {
        let mut events = EventFlags::empty();
        if self.is_connecting() {
            return events;
        }
        events.set(
            EventFlags::IN,
            self.received.len() >= self.wakeup_bytes || self.has_ended || self.is_broken,
        );
        let space = self.send_bytes_max.saturating_sub(self.unsent.len());
        events.set(EventFlags::OUT, self.is_shut || self.is_broken || 2 * space >= self.unsent.len().max(1));
        events.set(EventFlags::RDHUP, self.has_ended || self.is_broken);
        events.set(EventFlags::ERR, self.error.is_some());
        events.set(EventFlags::HUP, self.is_broken || self.has_ended && self.is_shut);
        events
    }
}

/// What a descriptor stands for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Object {
    End(usize),
    Listener(usize),
    /// Another set.
    Set(RawFd),
}

struct Listener {
    local: SocketAddr,
    waiting: VecDeque<usize>,
    is_closed: bool,
}

/// What a set watches.
struct Watch {
    set: RawFd,
    object: Object,
    token: u64,
    flags: EventFlags,
}

struct Net {
    chance: Chance,
    ends: Vec<End>,
    listeners: Vec<Listener>,
    objects: HashMap<RawFd, Object>,
    watches: Vec<Watch>,
    pending: Vec<usize>,
    ports: u16,
}

thread_local! {
    static NET: RefCell<Option<Net>> = const { RefCell::new(None) };
}

/// From now on this thread's processes have a network. `chance` answers with a number below the one that it is given.
pub fn begin(chance: impl FnMut(u64) -> u64 + 'static) {
    NET.set(Some(Net {
        chance: Box::new(chance),
        ends: Vec::new(),
        listeners: Vec::new(),
        objects: HashMap::new(),
        watches: Vec::new(),
        pending: Vec::new(),
        ports: 0,
    }));
}

/// They have none any more.
pub fn end() {
    NET.set(None);
}

/// The streams that have something to carry since this was asked last.
pub fn pending() -> Vec<Direction> {
    with(|net| {
        let pending = std::mem::take(&mut net.pending);
        pending.into_iter().filter_map(|end| net.direction(end)).collect()
    })
    .unwrap_or_default()
}

/// Carries as many bytes, and what is behind them.
pub fn carry(direction: Direction, bytes_max: usize) -> Carried {
    with(|net| net.carry(direction.end, bytes_max)).unwrap_or(Carried::All)
}

/// After how long without an answer the stream breaks, nanoseconds; None: nothing is to be answered.
pub fn patience_ns(direction: Direction) -> Option<u64> {
    const SYSTEM_NS: u64 = 900_000_000_000;
    const CONNECTING_NS: u64 = 127_000_000_000;
    with(|net| {
        let end = net.ends.get(direction.end).filter(|end| !end.is_broken)?;
        Some(if end.is_connecting() { CONNECTING_NS } else { end.user_timeout_ns.unwrap_or(SYSTEM_NS) })
    })?
}

/// The stream breaks here, as the other end has not answered for too long.
pub fn time_out(direction: Direction) {
    with(|net| net.ends.get_mut(direction.end).map(|end| end.break_with(Errno::TIMEDOUT)));
}

/// Somebody between two hosts breaks all streams between them.
pub fn cut(one: IpAddr, other: IpAddr) {
    with(|net| {
        for end in net.ends.iter_mut().filter(|end| end.peer.is_some()) {
            let (local, remote) = (end.local.ip(), end.remote.ip());
            if (local, remote) == (one, other) || (local, remote) == (other, one) {
                end.break_with(Errno::CONNRESET);
            }
        }
    });
}

/// A host forgets all of its streams without a word. Answers the other ends of them, which learn of that once something is
/// carried from there.
pub fn forget(host: IpAddr) -> Vec<Direction> {
    with(|net| {
        let mut others = Vec::new();
        for end in net.ends.iter_mut().filter(|end| end.local.ip() == host) {
            if std::mem::take(&mut end.is_aborted) || !end.is_broken && !end.end_is_known {
                others.extend(end.peer);
            }
            end.break_with(Errno::NETDOWN);
            end.is_forgotten = true;
        }
        others.into_iter().filter_map(|end| net.direction(end)).collect()
    })
    .unwrap_or_default()
}

fn with<T>(what: impl FnOnce(&mut Net) -> T) -> Option<T> {
    NET.try_with(|net| net.try_borrow_mut().ok()?.as_mut().map(what)).ok()?
}

/// Whether the calling process's sockets are those here.
fn is_simulated() -> bool {
    is_entered() && NET.with_borrow(Option::is_some)
}

/// What a call does with the end that a descriptor stands for; None: it stands for none here.
fn on<T>(fd: RawFd, what: impl FnOnce(&mut Net, usize) -> T) -> Option<T> {
    with(|net| match net.objects.get(&fd) {
        Some(Object::End(end)) => Some(what(net, *end)),
        _ => None,
    })?
}

/// A call on a stream; others may come before it. A process that has died does nothing.
fn call<T>(
    fd: &impl AsRawFd,
    dead: Done<T>,
    what: impl FnOnce(&mut Net, usize) -> Done<T>,
) -> Option<Done<T>> {
    let fd = fd.as_raw_fd();
    on(fd, |_, _| ())?;
    pass();
    if !reaches_others() {
        return Some(dead);
    }
    on(fd, |net, end| {
        if (net.chance)(SIGNAL_PER_CALLS) == 0 {
            return Err(Errno::INTR);
        }
        what(net, end)
    })
}

/// Whether a descriptor stands for an end here.
pub(crate) fn is_end(fd: BorrowedFd<'_>) -> bool {
    on(fd.as_raw_fd(), |_, _| ()).is_some()
}

/// Repeats a call on such a descriptor that a signal interrupted.
pub(crate) fn repeat<T>(mut call: impl FnMut() -> Option<Done<T>>) -> std::io::Result<T> {
    loop {
        match call().unwrap_or(Err(Errno::BADF)) {
            Err(Errno::INTR) => {}
            done => return Ok(done?),
        }
    }
}

fn descriptor() -> Done<OwnedFd> {
    fault("socket")?;
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

pub(crate) fn listen(local: SocketAddr) -> Option<Done<(OwnedFd, SocketAddr)>> {
    is_simulated().then(|| {
        let fd = descriptor()?;
        let mut local = local;
        if local.port() == 0 {
            local.set_port(PORT_CHOSEN);
        }
        with(|net| {
            if net.listener_at(local).is_some() {
                return Err(Errno::ADDRINUSE);
            }
            net.objects.insert(fd.as_raw_fd(), Object::Listener(net.listeners.len()));
            net.listeners.push(Listener { local, waiting: VecDeque::new(), is_closed: false });
            Ok((fd, local))
        })
        .unwrap_or(Err(Errno::NETDOWN))
    })
}

pub(crate) fn accept(listener: &OwnedFd) -> Option<Done<(OwnedFd, SocketAddr)>> {
    let number = with(|net| match net.objects.get(&listener.as_raw_fd()) {
        Some(Object::Listener(number)) => Some(*number),
        _ => None,
    })??;
    pass();
    if !reaches_others() {
        return Some(Err(Errno::AGAIN));
    }
    let waits = with(|net| net.listeners.get(number).is_some_and(|listener| !listener.waiting.is_empty()));
    if waits != Some(true) {
        return Some(Err(Errno::AGAIN));
    }
    Some(descriptor().and_then(|fd| {
        with(|net| {
            let end = net.listeners.get_mut(number).and_then(|listener| listener.waiting.pop_front());
            let end = end.ok_or(Errno::AGAIN)?;
            net.objects.insert(fd.as_raw_fd(), Object::End(end));
            let remote = net.ends.get(end).ok_or(Errno::AGAIN)?.remote;
            Ok((fd, remote))
        })
        .unwrap_or(Err(Errno::AGAIN))
    }))
}

pub(crate) fn connect(from: SocketAddr, to: SocketAddr) -> Option<Done<OwnedFd>> {
    is_simulated().then(|| {
        let fd = descriptor()?;
        pass();
        if !reaches_others() {
            return Err(Errno::CONNREFUSED);
        }
        with(|net| {
            net.ports = (net.ports + 1) % (u16::MAX - PORT_FIRST);
            let from = SocketAddr::new(from.ip(), PORT_FIRST + net.ports);
            let end = net.add(from, to, None);
            net.objects.insert(fd.as_raw_fd(), Object::End(end));
            net.has_something(end);
        });
        Ok(fd)
    })
}

pub(crate) fn take_error(fd: &OwnedFd) -> Option<Done<()>> {
    on(fd.as_raw_fd(), |net, end| net.end(end)?.error.take().map_or(Ok(()), Err))
}

pub(crate) fn local_addr(fd: &OwnedFd) -> Option<Done<SocketAddr>> {
    on(fd.as_raw_fd(), |net, end| Ok(net.end(end)?.local))
}

pub(crate) fn peer_addr(fd: &OwnedFd) -> Option<Done<SocketAddr>> {
    on(fd.as_raw_fd(), |net, end| {
        let end = net.end(end)?;
        if end.peer.is_none() || end.is_broken { Err(Errno::NOTCONN) } else { Ok(end.remote) }
    })
}

pub(crate) fn recv(fd: &impl AsRawFd, into: &mut [u8], leaves: bool) -> Option<Done<usize>> {
    call(fd, Err(Errno::AGAIN), |net, number| {
        let end = net.end(number)?;
        let len = end.received.len().min(into.len());
        if len == 0 && !into.is_empty() {
            return match end.error.take() {
                _ if end.has_ended => Ok(0),
                Some(error) => Err(error),
                None if end.is_broken => Ok(0),
                None => Err(Errno::AGAIN),
            };
        }
        into.iter_mut().zip(&end.received).for_each(|(to, from)| *to = *from);
        if !leaves {
            end.received.drain(..len);
            if let Some(peer) = end.peer {
                net.has_something(peer);
            }
        }
        Ok(len)
    })
}

pub(crate) fn send<'a>(
    fd: &impl AsRawFd,
    parts: impl Iterator<Item = &'a [u8]> + Clone,
) -> Option<Done<usize>> {
    let len: usize = parts.clone().map(<[u8]>::len).sum();
    call(fd, Ok(len), |net, number| {
        fault("send")?;
        let is_short = len > MUCH_BYTES && (net.chance)(SHORT_PER_CALLS) == 0;
        let draw = (net.chance)(len.max(1) as u64) as usize;
        let end = net.end(number)?;
        if let Some(error) = end.error.take() {
            return Err(error);
        }
        if end.is_broken || end.is_shut {
            return Err(Errno::PIPE);
        }
        let space = if end.is_connecting() { 0 } else { end.send_bytes_max.saturating_sub(end.unsent.len()) };
        if space == 0 && len > 0 {
            return Err(Errno::AGAIN);
        }
        let taken = len.min(space).min(if is_short { draw + 1 } else { usize::MAX });
        end.unsent.extend(parts.flatten().take(taken));
        net.has_something(number);
        Ok(taken)
    })
}

pub(crate) fn shut(fd: &OwnedFd) -> Option<Done<()>> {
    call(fd, Ok(()), |net, number| {
        let end = net.end(number)?;
        if end.is_connecting() || end.is_broken {
            return Err(Errno::NOTCONN);
        }
        end.is_shut = true;
        net.has_something(number);
        Ok(())
    })
}

pub(crate) fn set_user_timeout_ms(fd: &OwnedFd, timeout_ms: u32) -> Option<Done<()>> {
    on(fd.as_raw_fd(), |net, end| {
        net.end(end)?.user_timeout_ns = Some(u64::from(timeout_ms) * 1_000_000).filter(|ns| *ns > 0);
        Ok(())
    })
}

pub(crate) fn set_wakeup_bytes(fd: &OwnedFd, bytes: u32) -> Option<Done<()>> {
    on(fd.as_raw_fd(), |net, number| {
        let end = net.end(number)?;
        end.wakeup_bytes = (bytes as usize).max(1);
        // As the kernel does, so that as much can come.
        if end.receive_bytes_max < 2 * end.wakeup_bytes {
            end.receive_bytes_max = 2 * end.wakeup_bytes;
            if let Some(peer) = end.peer {
                net.has_something(peer);
            }
        }
        Ok(())
    })
}

pub(crate) fn has_ended(fd: &OwnedFd) -> Option<bool> {
    on(fd.as_raw_fd(), |net, end| net.end(end).is_ok_and(|end| end.has_ended || end.is_broken))
}

/// A descriptor is closed.
pub(crate) fn close(fd: &OwnedFd) {
    with(|net| match net.objects.remove(&fd.as_raw_fd()) {
        Some(Object::End(end)) => net.close(end),
        Some(Object::Listener(number)) => {
            net.watches.retain(|watch| watch.object != Object::Listener(number));
            let Some(listener) = net.listeners.get_mut(number) else { return };
            listener.is_closed = true;
            for end in std::mem::take(&mut listener.waiting) {
                net.abort(end);
            }
        }
        _ => {}
    });
}

/// A set is there.
pub(crate) fn note_set(set: &OwnedFd) {
    with(|net| net.objects.insert(set.as_raw_fd(), Object::Set(set.as_raw_fd())));
}

/// A set is gone.
pub(crate) fn forget_set(set: &OwnedFd) {
    let set = set.as_raw_fd();
    with(|net| {
        net.objects.remove(&set);
        net.watches.retain(|watch| watch.set != set && watch.object != Object::Set(set));
    });
}

/// A set watches a descriptor from now on. None: the kernel has to watch it.
pub(crate) fn watch(set: &OwnedFd, fd: BorrowedFd<'_>, token: u64, flags: EventFlags) -> Option<Done<()>> {
    on_watch(set, fd, |watches, set, object, at| match at {
        Some(_) => Err(Errno::EXIST),
        None => {
            watches.push(Watch { set, object, token, flags });
            Ok(())
        }
    })
}

/// What a set watches of a descriptor changes; `flags` None: it watches it no more. None: the kernel has to do that.
pub(crate) fn rewatch(set: &OwnedFd, fd: BorrowedFd<'_>, flags: Option<EventFlags>) -> Option<Done<()>> {
    on_watch(set, fd, |watches, _, _, at| {
        let at = at.ok_or(Errno::NOENT)?;
        match flags {
            Some(flags) => watches.get_mut(at).into_iter().for_each(|watch| watch.flags = flags),
            None => drop(watches.remove(at)),
        }
        Ok(())
    })
}

/// Does something to what is watched: all of that, the set, the object, and where its entry is. The kernel has to do as much with
/// another set.
fn on_watch(
    set: &OwnedFd,
    fd: BorrowedFd<'_>,
    what: impl FnOnce(&mut Vec<Watch>, RawFd, Object, Option<usize>) -> Done<()>,
) -> Option<Done<()>> {
    let set = set.as_raw_fd();
    with(|net| {
        let object = *net.objects.get(&fd.as_raw_fd())?;
        let at = net.watches.iter().position(|watch| watch.set == set && watch.object == object);
        let done = what(&mut net.watches, set, object, at);
        (!matches!(object, Object::Set(_))).then_some(done)
    })?
}

/// What a set has to report of descriptors here: tokens and flags, so many at most, in any order.
pub(crate) fn ready(set: &OwnedFd, most: usize) -> Vec<(u64, EventFlags)> {
    with(|net| {
        let mut ready = net.ready(set.as_raw_fd());
        if ready.len() > 1 {
            let first = (net.chance)(ready.len() as u64) as usize;
            ready.rotate_left(first);
        }
        ready.truncate(most);
        ready
    })
    .unwrap_or_default()
}

impl Net {
    fn end(&mut self, end: usize) -> Done<&mut End> {
        self.ends.get_mut(end).ok_or(Errno::BADF)
    }

    fn direction(&self, end: usize) -> Option<Direction> {
        let this = self.ends.get(end)?;
        Some(Direction { end, from: this.local.ip(), to: this.remote.ip() })
    }

    fn listener_at(&self, local: SocketAddr) -> Option<usize> {
        self.listeners.iter().position(|listener| listener.local == local && !listener.is_closed)
    }

    fn add(&mut self, local: SocketAddr, remote: SocketAddr, peer: Option<usize>) -> usize {
        let mut pick = |sizes: &[usize; 4]| sizes[(self.chance)(4) as usize % 4];
        let (send_bytes_max, receive_bytes_max) = (pick(&SEND_BUFFERS), pick(&RECEIVE_BUFFERS));
        self.ends.push(End {
            local,
            remote,
            peer,
            unsent: VecDeque::new(),
            received: VecDeque::new(),
            send_bytes_max,
            receive_bytes_max,
            wakeup_bytes: 1,
            user_timeout_ns: None,
            is_shut: false,
            end_is_known: false,
            has_ended: false,
            error: None,
            is_broken: false,
            is_closed: false,
            is_aborted: false,
            is_forgotten: false,
            is_pending: false,
        });
        self.ends.len() - 1
    }

    /// Notes that an end has something to carry.
    fn has_something(&mut self, number: usize) {
        let Some(end) = self.ends.get_mut(number) else { return };
        let has_something = end.is_connecting()
            || end.is_aborted
            || !end.is_broken && (!end.unsent.is_empty() || end.is_shut && !end.end_is_known);
        if has_something && !end.is_pending {
            end.is_pending = true;
            self.pending.push(number);
        }
    }

    fn close(&mut self, number: usize) {
        self.watches.retain(|watch| watch.object != Object::End(number));
        let Some(end) = self.ends.get_mut(number) else { return };
        end.is_closed = true;
        if end.is_connecting() || end.is_broken {
            end.is_broken = true;
        } else if end.received.is_empty() {
            end.is_shut = true;
            self.has_something(number);
        } else {
            self.abort(number);
        }
    }

    /// The end is gone, and the other one learns of that as of an error.
    fn abort(&mut self, number: usize) {
        let Some(end) = self.ends.get_mut(number) else { return };
        end.break_with(Errno::CONNRESET);
        (end.is_closed, end.is_aborted) = (true, true);
        self.has_something(number);
    }

    fn carry(&mut self, number: usize, bytes_max: usize) -> Carried {
        let Some(end) = self.ends.get_mut(number) else { return Carried::All };
        end.is_pending = false;
        if end.is_connecting() {
            return self.carry_request(number);
        }
        let Some(other) = end.peer.filter(|other| *other != number) else { return Carried::All };
        let Ok([end, peer]) = self.ends.get_disjoint_mut([number, other]) else { return Carried::All };
        if std::mem::take(&mut end.is_aborted) {
            peer.break_with(Errno::CONNRESET);
            return Carried::All;
        }
        if end.is_broken {
            return Carried::All;
        }
        if peer.is_forgotten || peer.is_closed && !end.unsent.is_empty() || peer.is_broken && peer.is_closed {
            // Nobody there knows the stream.
            end.break_with(Errno::CONNRESET);
            return Carried::All;
        }
        let space = peer.receive_bytes_max.saturating_sub(peer.received.len());
        let len = end.unsent.len().min(bytes_max).min(space);
        peer.received.extend(end.unsent.drain(..len));
        if end.unsent.is_empty() {
            if end.is_shut {
                (end.end_is_known, peer.has_ended) = (true, true);
            }
            Carried::All
        } else if space > len {
            Carried::Part
        } else {
            // Reading makes it pending again.
            Carried::All
        }
    }

    /// A request to connect comes to where it is for.
    fn carry_request(&mut self, number: usize) -> Carried {
        let Some(end) = self.ends.get_mut(number) else { return Carried::All };
        let (local, remote) = (end.local, end.remote);
        let Some(listener) = self.listener_at(remote) else {
            if let Some(end) = self.ends.get_mut(number) {
                end.break_with(Errno::CONNREFUSED);
            }
            return Carried::All;
        };
        if self.listeners.get(listener).is_none_or(|listener| listener.waiting.len() >= BACKLOG) {
            return Carried::Nothing;
        }
        let other = self.add(remote, local, Some(number));
        if let Some(listener) = self.listeners.get_mut(listener) {
            listener.waiting.push_back(other);
        }
        if let Some(end) = self.ends.get_mut(number) {
            end.peer = Some(other);
        }
        Carried::All
    }

    fn ready(&self, set: RawFd) -> Vec<(u64, EventFlags)> {
        let of = |watch: &Watch| {
            let events = match watch.object {
                Object::End(end) => self.ends.get(end)?.events(),
                Object::Listener(number) => {
                    let waits =
                        self.listeners.get(number).is_some_and(|listener| !listener.waiting.is_empty());
                    if waits { EventFlags::IN } else { EventFlags::empty() }
                }
                Object::Set(inner) if self.ready(inner).is_empty() => EventFlags::empty(),
                Object::Set(_) => EventFlags::IN,
            };
            let events = events & (watch.flags | EventFlags::HUP | EventFlags::ERR);
            (!events.is_empty()).then_some((watch.token, events))
        };
        self.watches.iter().filter(|watch| watch.set == set).filter_map(of).collect()
    }
}
