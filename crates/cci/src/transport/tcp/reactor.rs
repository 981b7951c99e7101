//! A poll: it reads streams, asks the kernel what has come, and passes it on.
//!
//! - *Active* connections, one or two that had input last, are read in every poll. Nothing is faster than a read of the stream
//!   itself.
//! - The kernel reports all others. It is asked [from time to time](super::pace).

use super::conn::Conn;
use super::dial::Dialler;
use super::established::Stage;
use super::handshakes::Handshakes;
use super::lend;
use super::links::Links;
use super::shared::Shared;
use crate::connection::DisconnectReason;
use crate::engine::core::Core;
use crate::engine::lent::Lender;
use crate::limits;
use crate::transport::{Armed, token};
use cci_memory::slab::Key;
use cci_sys::clock;
use cci_sys::event::Events;

/// After this many successful reads since the last sleep, an active connection leaves the epoll set until the next sleep. The
/// kernel's work for the set with each segment costs more than these two calls.
const ACTIVE_READS: u32 = 64;
/// The most reports that one call takes from the kernel.
const KERNEL_EVENTS: usize = 32;
/// The most such calls in one poll.
const KERNEL_ROUNDS_MAX: u32 = 4;
/// The most steps of clients' handshakes in one poll. With certificates, each costs a signature, which a stranger can cause at no
/// cost.
const SHAKES_MAX: u32 = 4;
/// The shortest time between two reads while a quick program takes its events. A read may bring a thousand messages. A program
/// that had to take these as events while others come would never be lent messages again.
const READ_BETWEEN_EVENTS_NS: u64 = 500_000;
/// Time after which a call that the system refused is tried again.
const AGAIN_NS: u64 = 10_000_000;

/// All streams of an endpoint, with a connection or without one yet.
pub(super) struct Reactor {
    pub handshakes: Handshakes,
    pub links: Links,
    /// `None` while the events are being handled.
    events: Option<Events>,
    /// The place of the active connection whose messages are lent next.
    lent_at: usize,
    /// When input was last read.
    read_ns: u64,
    /// Whether that read left many events for the program.
    has_left_many: bool,
}

impl Reactor {
    pub fn new(handshakes: Handshakes, links: Links) -> Reactor {
        Reactor {
            handshakes,
            links,
            events: Some(Events::with_capacity(KERNEL_EVENTS)),
            lent_at: 0,
            read_ns: 0,
            has_left_many: false,
        }
    }

    /// Polls once. With a lender, messages of active connections may be lent.
    #[inline(always)]
    pub fn poll(&mut self, core: &mut Core, mut lender: Option<&mut Lender<'_>>) {
        let Shared { pace, now_ns, streams, .. } = &mut self.links.shared;
        pace.begin_poll(now_ns);
        if streams.has_unwritten() {
            self.links.flush_unwritten(core);
        }
        let reads = !self.has_left_many || !core.is_between_events() || self.reads_between_events();
        if reads && self.links.shared.streams.starved() > 0 {
            self.links.feed(core);
            self.note_read(core);
        }
        if self.links.rest.is_some() {
            match &mut lender {
                Some(lender) => lend::lend(&mut self.links, core, lender),
                None => {
                    self.links.finish_rest(core);
                }
            }
        }
        // The read buffer is free while no rest is in it.
        if reads && self.links.rest.is_none() {
            let asked = self.links.shared.pace.is_time_to_ask(self.links.shared.now_ns);
            if asked {
                self.ask_kernel(core, lender.is_some());
            }
            match lender {
                Some(lender) => self.lend_active(core, lender),
                None => {
                    let mut at = 0;
                    while let Some(&key) = self.links.shared.streams.active().get(at) {
                        self.read_active(core, key, asked, Links::read);
                        at += 1;
                    }
                }
            }
        }
        if self.links.shared.streams.has_unacknowledged() {
            self.links.acknowledge(core, false);
        }
        self.links.transfer(core);
        if self.links.shared.now_ns >= self.due_ns() {
            self.time_out(core);
        }
        if !self.links.seconds_wanted.is_empty() {
            self.handshakes.dial_seconds(core, &mut self.links);
        }
    }

    /// Notes that input was read, or that there was some to deliver.
    #[inline]
    fn note_read(&mut self, core: &Core) {
        self.read_ns = self.links.shared.now_ns;
        self.has_left_many = core.events_queued() > limits::EVENTS_MANY;
    }

    /// Whether to read streams now, although the program has events to take.
    #[cold]
    fn reads_between_events(&mut self) -> bool {
        self.links.shared.now_ns.saturating_sub(self.read_ns) >= READ_BETWEEN_EVENTS_NS
    }

    /// Reads the active connections and lends what comes, as much as the lender takes. If a connection has more than that, the
    /// next poll that reads begins with the other one.
    #[inline]
    fn lend_active(&mut self, core: &mut Core, lender: &mut Lender<'_>) {
        let count = self.links.shared.streams.active().len();
        for _ in 0..count {
            let at = if self.lent_at < count { self.lent_at } else { 0 };
            self.lent_at = at + 1;
            let Some(&key) = self.links.shared.streams.active().get(at) else { return };
            self.read_active(core, key, false, |links, core, key| lend::read(links, core, key, lender));
            if self.links.rest.is_some() {
                return;
            }
        }
    }

    /// Reads an active connection. If the kernel was `asked` just before, it has reported the streams in its set, and only a
    /// stream outside of the set is read.
    #[inline(always)]
    fn read_active(
        &mut self,
        core: &mut Core,
        key: Key,
        asked: bool,
        read: impl FnOnce(&mut Links, &mut Core, Key) -> bool,
    ) {
        if asked && self.links.conns.established(key).is_none_or(|conn| conn.stream.interest().is_some()) {
            return;
        }
        if !read(&mut self.links, core, key) {
            return;
        }
        self.note_read(core);
        if let Some(conn) = self.links.conns.established_mut(key) {
            conn.active_reads = conn.active_reads.saturating_add(1);
            if conn.active_reads == ACTIVE_READS && !conn.out.blocked {
                conn.unwatch(core);
            }
        }
    }

    /// Handles the kernel's reports. `lends` says whether messages of active connections are lent afterwards.
    fn ask_kernel(&mut self, core: &mut Core, lends: bool) {
        let now_ns = self.links.shared.now_ns;
        self.handshakes.begin_round(SHAKES_MAX);
        self.links.shared.counts.kernel_polls += 1;
        let Some(mut events) = self.events.take() else { return };
        let mut found_idle = false;
        for _ in 0..KERNEL_ROUNDS_MAX {
            core.poller.ready(&mut events);
            for event in events.iter() {
                found_idle |= self.kernel_reports(core, event.token, (event.readable, event.hung_up), lends);
            }
            if events.len() < KERNEL_EVENTS {
                break;
            }
        }
        self.events = Some(events);
        self.links.shared.pace.asked(now_ns, found_idle);
    }

    /// Handles one report. Returns whether it was about a connection that polls do not read.
    fn kernel_reports(
        &mut self,
        core: &mut Core,
        token_bits: u64,
        (readable, hung_up): (bool, bool),
        lends: bool,
    ) -> bool {
        let index = token::index(token_bits);
        match token::kind(token_bits) {
            token::LISTENER => self.handshakes.let_in(core, &mut self.links),
            token::HANDSHAKE => {
                if let Some(key) = self.handshakes.named(token_bits) {
                    self.handshakes.handshake_ready(core, &mut self.links, key);
                }
            }
            token::CONN => {
                if let Some(key) = self.links.conns.key_at(index).filter(|key| token::names(token_bits, *key))
                {
                    return self.conn_ready(core, key, (readable, hung_up), lends);
                }
            }
            token::SECOND_STREAM => {
                if let Some(key) = self.links.conns.key_at(index).filter(|key| token::names(token_bits, *key))
                {
                    return self.links.second_ready(core, key, hung_up);
                }
            }
            // The engine handles this token.
            _ => {}
        }
        false
    }

    fn conn_ready(
        &mut self,
        core: &mut Core,
        key: Key,
        (readable, hung_up): (bool, bool),
        lends: bool,
    ) -> bool {
        let conn = match self.links.conns.get_mut(key) {
            Some(Conn::Established(conn)) => conn,
            Some(Conn::Dialling(_)) => {
                self.dialler(core).ready(key, readable || hung_up);
                return false;
            }
            Some(Conn::Gone(_)) | None => return false,
        };
        if conn.out.blocked && conn.stream.is_watched_for_space() {
            // The write is tried at once. If there is no space, it reports that.
            conn.out.blocked = false;
            self.links.flush(core, key);
        }
        let is_active = self.links.shared.streams.active().contains(&key);
        if is_active && lends && !hung_up {
            return false;
        }
        let came = self.links.read_apart(core, key);
        if came {
            self.note_read(core);
        }
        if came && !is_active {
            self.links.activate(core, key);
            return true;
        }
        if !came && hung_up {
            self.end_of_part(core, key);
        }
        false
    }

    /// Handles the end of a stream on which nothing was read: what is left is a record that stays incomplete.
    fn end_of_part(&mut self, core: &mut Core, key: Key) {
        let Some(conn) = self.links.conns.established(key) else { return };
        if !matches!(conn.stage, Stage::PeerClosed { .. } | Stage::Lingering { .. })
            && !conn.input.is_holding()
        {
            self.links.end(core, key, DisconnectReason::Died);
        }
    }

    /// Prepares for sleep: writes and acknowledges everything, and has the kernel wake the program for everything else.
    pub fn arm(&mut self, core: &mut Core) -> Armed {
        let events_before = core.events_queued();
        self.links.finish_rest(core);
        self.handshakes.dial_seconds(core, &mut self.links);
        self.links.shared.now_ns = clock::now_ns();
        self.links.acknowledge(core, true);
        self.links.flush_unwritten(core);
        if self.links.shared.now_ns >= self.due_ns() {
            self.time_out(core);
            self.links.flush_unwritten(core);
        }
        self.links.shared.pace.sleep();
        let mut deadline_ns = self.due_ns();
        for at in 0..self.links.shared.streams.active().len() {
            if let Some(&key) = self.links.shared.streams.active().get(at) {
                self.links.watch_again(core, key);
            }
        }
        if self.links.shared.streams.starved() > 0 {
            // No report wakes the endpoint when another thread gives a buffer back.
            deadline_ns = deadline_ns.min(self.links.shared.now_ns + limits::SPACE_POLL_NS);
        }
        let Links { transfers, shared, conns, .. } = &mut self.links;
        match transfers.arm(shared, core, conns) {
            Armed::Pending => return Armed::Pending,
            Armed::Sleep { deadline_ns: Some(at_ns) } => deadline_ns = deadline_ns.min(at_ns),
            Armed::Sleep { deadline_ns: None } => {}
        }
        if self.links.shared.streams.unwritten().iter().any(|key| self.can_write(*key)) {
            deadline_ns = deadline_ns.min(self.links.shared.now_ns + AGAIN_NS);
        }
        if core.events_queued() > events_before {
            return Armed::Pending;
        }
        Armed::Sleep { deadline_ns: (deadline_ns != u64::MAX).then_some(deadline_ns) }
    }

    fn can_write(&self, key: Key) -> bool {
        self.links.conns.established(key).is_some_and(|conn| conn.out.wants() && !conn.out.blocked)
    }

    /// The latest time at which something must be done.
    #[inline]
    fn due_ns(&self) -> u64 {
        self.links.due_ns().min(self.handshakes.due_ns())
    }

    /// Does what is due.
    #[cold]
    fn time_out(&mut self, core: &mut Core) {
        // Input that has come in time counts.
        self.links.finish_rest(core);
        self.handshakes.time_out(core, &mut self.links);
        if self.links.deadlines.due_ns <= self.links.shared.now_ns {
            self.dialler(core).time_out();
        }
        self.links.time_out(core);
    }

    pub fn dialler<'a>(&'a mut self, core: &'a mut Core) -> Dialler<'a> {
        Dialler { local: &self.handshakes.local, links: &mut self.links, core }
    }
}
