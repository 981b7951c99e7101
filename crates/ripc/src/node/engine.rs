//! How a node handles what happens: events of its endpoint, frames of partners, and deadlines.

use super::answers::{Answers, Verdict};
use super::base::Base;
use super::calls::Calls;
use super::fetching::Fetching;
use super::finding::{Finding, Found};
use super::lending::Ended;
use super::pushing::{PUSH, Pushing};
use super::whole::Whole;
use crate::content::{Kept, Message};
use crate::error::{CallError, ReachError, SendError};
use crate::event::Event;
use crate::handles::{CallId, Partner, Service};
use crate::limits::{BUSY_NS, CLIENTS_MAX, ELSEWHERE_KEEPALIVE_NS, LATE_NS, WATCH_NS};
use crate::policy::Policy;
use crate::wire::{Head, Hello, Kind, short_items};
use cci::{ConnectRequest, Connection, Event as Core};
use cci_sys::clock;
use rustc_hash::FxHashMap;
use slotmap::{KeyData, SecondaryMap};
use std::time::Duration;

/// A node without its public interface.
pub struct Engine {
    pub base: Base,
    pub finding: Finding,
    pub pushing: Pushing,
    pub policy: Policy,
    pub calls: SecondaryMap<Service, Calls>,
    pub answers: SecondaryMap<Service, Answers>,
    fetching: Fetching,
    /// Whether long items are fetched when their message is received, instead of when it comes.
    pub fetches_on_receive: bool,
    /// The partners that are being accepted, by the context of the accept.
    accepting: FxHashMap<u64, Hello>,
    next_accept: u64,
    /// Partners that are connected and still have waiting frames.
    blocked: Vec<Partner>,
    found: Vec<Found>,
    /// When to ask again for services whose answers do not come.
    watch_at_ns: u64,
    /// Before this time no call ends or is sent again, and no service is asked for again.
    calls_due_ns: u64,
    /// Malformed frames. Their connections were closed.
    pub malformed: u64,
}

impl Engine {
    pub fn new(base: Base, finding: Finding, policy: Policy, fetched_bytes_max: u64) -> Engine {
        Engine {
            base,
            finding,
            pushing: Pushing::default(),
            policy,
            calls: SecondaryMap::new(),
            answers: SecondaryMap::new(),
            fetching: Fetching::new(fetched_bytes_max),
            fetches_on_receive: false,
            accepting: FxHashMap::default(),
            next_accept: 0,
            blocked: Vec::new(),
            found: Vec::new(),
            watch_at_ns: 0,
            calls_due_ns: u64::MAX,
            malformed: 0,
        }
    }

    pub fn on(&mut self, event: Core) {
        match event {
            Core::Recv(message) => self.received(message),
            Core::Send { context, status, .. } => {
                if context & PUSH != 0 {
                    if let Some((partner, frame)) = self.pushing.ended(&mut self.base, context, status) {
                        self.never_lent(partner, &[frame]);
                    }
                } else if let Some(whole) = self.fetching.ended(&mut self.base, context, status) {
                    self.fetched(whole);
                }
            }
            Core::ConnectRequest(request) => self.on_request(request),
            Core::Accept { context, result } => {
                let hello = self.accepting.remove(&context);
                if let (Some(hello), Ok(connection)) = (hello, result) {
                    self.accepted(&hello, connection);
                }
            }
            Core::Connect { context, result } => {
                let partner = Partner::from(KeyData::from_ffi(context));
                let now_ns = clock::now_ns();
                let found = self.finding.dialled(&mut self.base, &self.policy, partner, result, now_ns);
                self.found.extend(found);
                self.on_found(now_ns);
            }
            Core::Disconnected { connection, .. } => self.disconnected(connection),
            // The process is gone without a word, or stopped. It is looked for anew, and knows what it has done already.
            Core::KeepaliveTimedOut { connection } => {
                self.base.endpoint.disconnect(connection);
                self.disconnected(connection);
            }
            Core::DeviceFailed => {
                self.base.services.iter_mut().for_each(|(_, state)| state.push(Event::DeviceFailed))
            }
            _ => {}
        }
    }

    /// Handles a request to connect to a service.
    fn on_request(&mut self, request: ConnectRequest) {
        let hello = Hello::parse(request.data());
        let Some(hello) = hello.filter(|_| self.accepting.len() < CLIENTS_MAX) else {
            return request.reject();
        };
        let identity = request.peer_identity();
        let is_permitted = self.policy.may_reach(&hello.to, identity)
            && (!hello.is_listed || self.policy.may_register(&hello.from, identity));
        let is_here =
            self.base.services.by_name(&hello.to).and_then(|service| self.base.services.get(service));
        if !is_permitted || is_here.is_none_or(|service| service.has_moved) {
            return request.reject();
        }
        self.next_accept += 1;
        if self.base.endpoint.accept(request, self.next_accept).is_ok() {
            self.accepting.insert(self.next_accept, hello);
        }
    }

    fn accepted(&mut self, hello: &Hello, connection: Connection) {
        let service = self.base.services.by_name(&hello.to);
        let partner = service.and_then(|service| {
            let partners = &mut self.base.partners;
            let named = hello.is_listed.then(|| partners.named(service, &hello.from, None)).flatten();
            let is_it =
                |partner: &Partner| partners.get(*partner).is_some_and(|state| state.may_be(hello.instance));
            // Another instance, or a process that claims to be one, is a partner of its own, with its own calls.
            if let Some(partner) = named.filter(is_it) {
                Some(partner)
            } else {
                partners.nameless(service, hello.from.clone())
            }
        });
        let Some(partner) = partner else { return self.base.endpoint.disconnect(connection) };
        self.base.partners.connected(partner, connection, hello.instance, false);
        self.reached(partner, clock::now_ns());
    }

    /// Sends what waits for a partner that is connected now.
    fn reached(&mut self, partner: Partner, now_ns: u64) {
        self.flush(partner);
        let Some(state) = self.base.partners.get(partner) else { return };
        let Some(calls) = self.calls.get(state.service) else { return };
        for call in calls.of(partner) {
            self.send_call(call, partner, now_ns);
        }
    }

    /// Sends a call's request, unless it was sent to this instance of the partner.
    pub fn send_call(&mut self, id: CallId, partner: Partner, now_ns: u64) {
        let Some(state) = self.base.partners.get(partner) else { return };
        let (service, instance, is_connected) = (state.service, state.instance, state.connection().is_some());
        let Some(calls) = self.calls.get_mut(service) else { return };
        let oldest = calls.numbers().1;
        let Some(call) = calls.get_mut(id) else { return };
        if call.sent_to.is_some() {
            return;
        }
        call.request.set_oldest(oldest);
        call.again_ns = None;
        match self.base.send_now(partner, &call.request) {
            Ok(()) => (call.sent_to, call.sent_ns) = (instance, now_ns),
            Err(SendError::WouldBlock | SendError::Gone) => {
                if is_connected {
                    calls.again_at(id, now_ns + BUSY_NS);
                    self.calls_due_by(now_ns + BUSY_NS);
                } else {
                    self.finding.search(&mut self.base, partner, None, now_ns);
                }
            }
            Err(error) => self.end_call(service, id, Err(CallError::Fetch(error.to_string()))),
        }
    }

    fn flush(&mut self, partner: Partner) {
        for (frame, error) in self.base.flush(partner) {
            self.not_sent(partner, &frame, &error);
        }
        let is_blocked = self.base.partners.get(partner).is_some_and(|state| !state.waiting.is_empty());
        if is_blocked && !self.blocked.contains(&partner) {
            self.blocked.push(partner);
        }
    }

    /// Handles a waiting frame that can't be sent: its partner's path takes less, or its memory can't be lent.
    fn not_sent(&mut self, partner: Partner, frame: &Kept, error: &SendError) {
        let Some(state) = self.base.partners.get(partner) else { return };
        let (service, name) = (state.service, state.name.clone());
        if !matches!(frame.head().kind, Kind::Message) {
            return;
        }
        self.never_lent(partner, std::slice::from_ref(frame));
        let (uri, waited) = (String::new(), Duration::ZERO);
        let error = ReachError::NotThere { service: name.clone(), uri, reason: error.to_string(), waited };
        self.raise(service, Event::Unreachable { partner, name, error, messages: 1 });
    }

    /// Returns the memory of long items of messages that will not be sent. That of answers is reported when their leases end.
    fn never_lent(&mut self, partner: Partner, frames: &[Kept]) {
        let Some(service) = self.base.partners.get(partner).map(|state| state.service) else { return };
        for frame in
            frames.iter().filter(|frame| frame.head().kind == Kind::Message && !frame.long_items().is_empty())
        {
            self.raise(service, Event::Returned { partner, context: frame.context(), fetched: false });
        }
    }

    /// Sends a frame to a partner, or lets it wait. A partner that is not connected is looked for.
    pub fn send(&mut self, partner: Partner, frame: Kept) -> Result<(), SendError> {
        if !frame.long_items().is_empty() {
            self.pushing.send(&mut self.base, partner, frame)?;
        } else {
            self.base.send_or_wait(partner, frame)?;
        }
        self.sees_to(partner);
        Ok(())
    }

    /// Sends a frame to a partner that is connected, or lets a copy of it wait. Nothing is lent with it.
    #[inline]
    pub fn send_or_keep(&mut self, partner: Partner, frame: &Kept) -> Result<(), SendError> {
        let state = self.base.partners.get(partner).ok_or(SendError::Unknown)?;
        if let (true, Some(connection), Some(plain)) =
            (state.waiting.is_empty(), state.connection(), frame.as_plain())
        {
            match self.base.send_plain(connection, plain) {
                Err(SendError::WouldBlock) => {}
                sent => return sent,
            }
        }
        self.send(partner, frame.clone())
    }

    /// Ensures that what waits for a partner does not wait for ever.
    pub fn sees_to(&mut self, partner: Partner) {
        let Some(state) = self.base.partners.get(partner) else { return };
        if state.connection().is_none() {
            self.finding.search(&mut self.base, partner, None, clock::now_ns());
        } else if !state.waiting.is_empty() && !self.blocked.contains(&partner) {
            self.blocked.push(partner);
        }
    }

    fn disconnected(&mut self, connection: Connection) {
        let now_ns = clock::now_ns();
        let Some((partner, was_last)) = self.base.partners.disconnected(connection) else { return };
        if !was_last {
            return;
        }
        let Base { lending, endpoint, services, .. } = &mut self.base;
        lending.end_of_partner(endpoint, partner, now_ns, |service, event| {
            if let Some(state) = services.get_mut(service) {
                state.push(event);
            }
        });
        let Some(state) = self.base.partners.get_mut(partner) else { return };
        let service = state.service;
        let is_wanted_again = state.is_named && state.pinned.is_none();
        let has_waiting = !state.waiting.is_empty();
        for id in self.calls.get(service).map(|calls| calls.of(partner)).unwrap_or_default() {
            let Some(call) = self.calls.get_mut(service).and_then(|calls| calls.get_mut(id)) else {
                continue;
            };
            let was_sent = call.sent_to.take().is_some();
            if was_sent && !call.repeatable {
                self.end_call(service, id, Err(CallError::Lost));
            }
        }
        let has_calls = self.calls.get(service).is_some_and(|calls| !calls.of(partner).is_empty());
        if is_wanted_again {
            if has_waiting || has_calls {
                self.finding.search(&mut self.base, partner, None, now_ns);
            }
            return;
        }
        let waiting =
            self.base.partners.get_mut(partner).map(|state| state.waiting.drain(..).collect::<Vec<Kept>>());
        self.never_lent(partner, &waiting.unwrap_or_default());
        self.base.partners.remove(partner);
    }

    /// Handles a frame that came. Its event waits for its service.
    pub fn received(&mut self, frame: cci::Message) {
        let connection = frame.connection();
        let Some(partner) = self.base.partners.of(connection) else { return };
        let Some(head) = Head::parse(&frame) else { return self.refuse(connection) };
        let Some(state) = self.base.partners.get(partner) else { return };
        let (service, from) = (state.service, state.name.clone());
        let whole = Whole::new((partner, connection), from, head, frame);
        self.on_frame(service, whole);
    }

    /// Closes the connection of a partner that breaks the protocol.
    fn refuse(&mut self, connection: Connection) {
        self.malformed += 1;
        self.base.endpoint.disconnect(connection);
        self.disconnected(connection);
    }

    fn on_frame(&mut self, service: Service, whole: Whole) {
        let (head, partner) = (whole.head, whole.partner);
        if let Some(state) = self.base.partners.get_mut(partner) {
            head.offers(&whole.frame).for_each(|offer| state.keep_offer(offer));
        }
        match head.kind {
            Kind::Message | Kind::Answer => self.fetch(whole),
            Kind::Request | Kind::TakeOver => self.on_asked(service, whole),
            Kind::Refusal => {
                let reason = short_items(&whole.frame).next().unwrap_or_default().to_vec();
                self.end_call_of(service, partner, head.number, Err(CallError::Refused(reason)));
            }
            Kind::Busy => self.call_again(service, partner, head.number, false),
            Kind::Moved => self.call_again(service, partner, head.number, true),
            Kind::Fetched => {
                let fetched = head.number == 1;
                let ended = self.base.lending.fetched(&mut self.base.endpoint, partner, head.lease, fetched);
                if let Some(ended) = ended {
                    self.lease_ended(ended, fetched);
                }
            }
        }
    }

    /// Handles the end of a lease: the memory belongs to the program again.
    fn lease_ended(&mut self, Ended { service, event, answer }: Ended, fetched: bool) {
        if let (Some((client, number)), Some(answers)) = (answer, self.answers.get_mut(service)) {
            answers.returned(client, number, fetched);
            // The answer may still wait to be sent, and must not be sent any more.
            self.base.partners.forget_answer(&event, number);
        }
        self.raise(service, event);
    }

    /// Sends a request again that was not taken, later or elsewhere.
    fn call_again(&mut self, service: Service, partner: Partner, number: u64, has_moved: bool) {
        let now_ns = clock::now_ns();
        let Some(calls) = self.calls.get_mut(service) else { return };
        let Some(call) = calls.get_mut(CallId(number)).filter(|call| call.partner == partner) else { return };
        let was_sent_to = call.sent_to.take();
        if !has_moved {
            calls.again_at(CallId(number), now_ns + BUSY_NS);
            return self.calls_due_by(now_ns + BUSY_NS);
        }
        if let Some(state) = self.base.partners.get_mut(partner)
            && was_sent_to.is_some()
            && state.instance == was_sent_to
        {
            state.has_moved = true;
        }
        self.finding.search(&mut self.base, partner, was_sent_to, now_ns);
        self.send_call(CallId(number), partner, now_ns);
    }

    fn fetch(&mut self, whole: Whole) {
        if whole.head.long_items == 0 {
            return self.deliver(whole);
        }
        let waits_for_program = matches!(whole.head.kind, Kind::Message | Kind::Request);
        if self.fetches_on_receive && waits_for_program && whole.is_to_be_fetched() {
            return self.fetch_later(whole);
        }
        if let Some(whole) = self.fetching.begin(&mut self.base, whole) {
            self.fetched(whole);
        }
    }

    /// Keeps a message whose long items will be fetched when the program receives it.
    fn fetch_later(&mut self, whole: Whole) {
        let partner = whole.partner;
        let Some(state) = self.base.partners.get_mut(partner) else { return };
        let Some(to) = self.base.services.get_mut(state.service) else { return };
        if to.has_space(state.queued) {
            to.push_unfetched(partner, whole);
            state.queued += 1;
        } else {
            to.dropped += 1;
            self.report_fetched(&whole, false);
        }
    }

    /// Fetches the long items of a message that the program receives. The message is the service's next event, now or later.
    pub fn fetch_received(&mut self, service: Service, mut whole: Whole) {
        let Some(state) = self.base.services.get_mut(service) else { return };
        if self.base.partners.of(whole.connection).is_none() {
            if whole.client.is_some() {
                return self.not_taken(service, &whole);
            }
            return state.push_fetched(Event::Message(whole.into_message_without()));
        }
        state.is_fetching = true;
        whole.received_by = Some(service);
        if let Some(whole) = self.fetching.begin(&mut self.base, whole) {
            self.fetched(whole);
        }
    }

    /// Delivers a message whose long items are here, or will not come. Its sender is notified.
    fn fetched(&mut self, whole: Whole) {
        let is_complete = whole.long_items.iter().all(Option::is_some);
        self.fetching.delivered(&whole);
        self.report_fetched(&whole, is_complete);
        self.deliver(whole);
    }

    /// Handles a request whose client is gone with the long items. The client may send it again.
    fn not_taken(&mut self, service: Service, whole: &Whole) {
        if let (Some(client), Some(answers)) = (whole.client, self.answers.get_mut(service)) {
            answers.not_taken(client, whole.head.number);
        }
        if let Some(state) = self.base.services.get_mut(service).filter(|_| whole.received_by.is_some()) {
            state.is_fetching = false;
        }
    }

    /// Notifies the sender of long items that they are not needed any more.
    fn report_fetched(&mut self, whole: &Whole, is_complete: bool) {
        if whole.head.lease == 0 {
            return;
        }
        let mut head = Head::bare(Kind::Fetched, u64::from(is_complete));
        head.lease = whole.head.lease;
        // It is sent on the connection on which the items came. If that is not possible, the lease ends by itself.
        if self.base.send_short(whole.connection, &head, &[]).is_err() {
            let _ends_by_itself = self.base.wait(whole.partner, Kept::bare(head));
            self.sees_to(whole.partner);
        }
    }

    fn deliver(&mut self, whole: Whole) {
        if let Some(service) = whole.received_by {
            if whole.is_lost && whole.client.is_some() {
                return self.not_taken(service, &whole);
            }
            // Its partner may be gone meanwhile.
            if let Some(state) = self.base.services.get_mut(service) {
                state.push_fetched(whole.into_event(service));
            }
            return;
        }
        let partner = whole.partner;
        let Some(state) = self.base.partners.get_mut(partner) else { return };
        let service = state.service;
        match whole.head.kind {
            Kind::Answer => {
                let number = whole.head.number;
                if whole.is_lost && self.asks_again(service, partner, number) {
                    return;
                }
                let message = whole.into_message();
                let fetch = || {
                    Err(CallError::Fetch(
                        "the service is gone, its lease has ended, or no window is large enough".to_owned(),
                    ))
                };
                let result = if message.is_complete() { Ok(message) } else { fetch() };
                self.end_call_of(service, partner, number, result);
            }
            Kind::Request if whole.is_lost => self.not_taken(service, &whole),
            Kind::Request | Kind::TakeOver => self.deliver_request(service, whole),
            _ => {
                let queued = state.queued;
                let Some(to) = self.base.services.get_mut(service) else { return };
                if !to.has_space(queued) {
                    to.dropped += 1;
                    return;
                }
                to.push_from(partner, Event::Message(whole.into_message()));
                if let Some(state) = self.base.partners.get_mut(partner) {
                    state.queued += 1;
                }
            }
        }
    }

    /// Handles an answer that was lost while its data were fetched. If the call may be repeated, it is. Returns whether that is
    /// so.
    fn asks_again(&mut self, service: Service, partner: Partner, number: u64) -> bool {
        let Some(calls) = self.calls.get_mut(service) else { return false };
        let call = calls.get_mut(CallId(number)).filter(|call| call.partner == partner && call.repeatable);
        let Some(call) = call else { return false };
        call.sent_to = None;
        let again_ns = clock::now_ns() + BUSY_NS;
        calls.again_at(CallId(number), again_ns);
        self.calls_due_by(again_ns);
        true
    }

    /// Handles a request. A new one is fetched and given to the program.
    fn on_asked(&mut self, service: Service, mut whole: Whole) {
        let (partner, number) = (whole.partner, whole.head.number);
        let Some(state) = self.base.partners.get(partner) else { return };
        let Some(client) = state.instance else { return };
        whole.client = Some(client);
        let queued = state.queued;
        let Some(to) = self.base.services.get(service) else { return };
        let (has_moved, has_space) = (to.has_moved, to.has_space(queued));
        let Some(answers) = self.answers.get_mut(service) else { return };
        let verdict = answers.asked(client, partner, (number, whole.head.oldest));
        let mut reply = |kind, items: &[&[u8]]| {
            let mut head = Head::bare(kind, number);
            head.items = items.len() as u8;
            // If it can't be sent, the client repeats the request, or its deadline ends the call.
            let _repeated = self.base.send_short(whole.connection, &head, items);
        };
        match verdict {
            Verdict::New if has_moved || !has_space => {
                answers.not_taken(client, number);
                reply(if has_moved { Kind::Moved } else { Kind::Busy }, &[]);
            }
            Verdict::New => self.fetch(whole),
            Verdict::Repeated => {}
            Verdict::Answered(answer) => {
                let _repeated = self.send(partner, answer);
            }
            Verdict::Forgotten => {
                reply(Kind::Refusal, &[b"the answer has been forgotten; the request was carried out before"])
            }
            Verdict::Busy => reply(Kind::Busy, &[]),
        }
    }

    fn deliver_request(&mut self, service: Service, whole: Whole) {
        let (partner, is_take_over) = (whole.partner, whole.head.kind == Kind::TakeOver);
        let Some(state) = self.base.partners.get_mut(partner) else { return };
        state.queued += 1;
        let event = match whole.into_event(service) {
            Event::Request(request) if is_take_over => Event::TakeOver(request),
            event => event,
        };
        if let Some(to) = self.base.services.get_mut(service) {
            to.push_from(partner, event);
        }
    }

    fn end_call_of(
        &mut self,
        service: Service,
        partner: Partner,
        number: u64,
        result: Result<Message, CallError>,
    ) {
        let call = self.calls.get_mut(service).and_then(|calls| calls.get_mut(CallId(number)));
        // Only the partner that was asked may answer.
        if call.is_some_and(|call| call.partner == partner) {
            self.end_call(service, CallId(number), result);
        }
    }

    pub fn end_call(&mut self, service: Service, id: CallId, result: Result<Message, CallError>) {
        let ended = self.calls.get_mut(service).and_then(|calls| calls.remove(id));
        let Some(context) = ended else { return };
        self.raise(service, Event::Answer { call: id, context, result });
    }

    pub fn raise(&mut self, service: Service, event: Event) {
        if let Some(state) = self.base.services.get_mut(service) {
            state.push(event);
        }
    }

    /// Does what is due: searches, deadlines, leases, and frames that found no space.
    pub fn do_due(&mut self) {
        let is_idle = self.finding.is_idle() && self.fetching.is_idle() && self.blocked.is_empty();
        if is_idle && self.next_end_ns() == u64::MAX && !self.finding.is_woken() {
            return;
        }
        let now_ns = clock::now_ns();
        if !self.fetching.is_idle() {
            let mut whole = Vec::new();
            self.fetching.progress(&mut self.base, |_, message| whole.push(message));
            whole.into_iter().for_each(|message| self.fetched(message));
        }
        for partner in std::mem::take(&mut self.blocked) {
            self.flush(partner);
        }
        if !self.finding.is_idle() || self.finding.is_woken() {
            self.look(now_ns);
        }
        if self.next_end_ns() <= now_ns {
            self.end_due(now_ns);
        }
    }

    /// Looks for partners, and takes news of the directory.
    pub fn look(&mut self, now_ns: u64) {
        let calls = &self.calls;
        let is_wanted = |base: &Base, partner: Partner| {
            let service = base.partners.get(partner).map(|state| state.service);
            service.and_then(|service| calls.get(service)).is_some_and(|calls| !calls.of(partner).is_empty())
        };
        self.finding.progress(&mut self.base, now_ns, is_wanted, &mut self.found);
        self.on_found(now_ns);
    }

    fn on_found(&mut self, now_ns: u64) {
        for found in std::mem::take(&mut self.found) {
            match found {
                Found::Connected(partner) => self.reached(partner, now_ns),
                Found::Unreached(partner, error) => self.unreached(partner, error),
                Found::Elsewhere(connection) => {
                    let soon = Some(Duration::from_nanos(ELSEWHERE_KEEPALIVE_NS));
                    let _gone_meanwhile = self.base.endpoint.set_keepalive(connection, soon);
                }
                Found::Lost(service, to) => {
                    if let Some(state) = self.base.services.get_mut(service) {
                        state.has_moved = true;
                        state.push(Event::NameLost { to });
                    }
                }
            }
        }
    }

    fn unreached(&mut self, partner: Partner, error: ReachError) {
        let Some(state) = self.base.partners.get_mut(partner) else { return };
        let waiting: Vec<Kept> = state.waiting.drain(..).collect();
        let messages = waiting.len();
        let (service, name, pinned) = (state.service, state.name.clone(), state.pinned.is_some());
        if pinned {
            // A member of a group is gone. The other members have the message.
            self.base.partners.remove(partner);
        } else if messages > 0 {
            self.raise(service, Event::Unreachable { partner, name, error, messages });
            self.never_lent(partner, &waiting);
        }
    }

    fn end_due(&mut self, now_ns: u64) {
        let mut ended = Vec::new();
        self.base.lending.end_due(&mut self.base.endpoint, now_ns, |lease| ended.push(lease));
        ended.into_iter().for_each(|lease| self.lease_ended(lease, false));
        self.watch(now_ns);
        let due: Vec<(Service, CallId)> = self
            .calls
            .iter_mut()
            .flat_map(|(service, calls)| calls.due(now_ns).into_iter().map(move |id| (service, id)))
            .collect();
        for (service, id) in due {
            let Some(call) = self.calls.get_mut(service).and_then(|calls| calls.get_mut(id)) else {
                continue;
            };
            let partner = call.partner;
            if now_ns < call.deadline_ns {
                self.send_call(id, partner, now_ns);
                continue;
            }
            let reached = call.sent_to.is_some();
            let search = self.base.partners.get(partner).and_then(|state| state.search.as_ref());
            let reason = search.and_then(|search| search.reach_error.clone()).filter(|_| !reached);
            self.end_call(service, id, Err(CallError::TimedOut { reached, reason }));
        }
        let calls_ns = self.calls.values().map(Calls::next_due_ns).min().unwrap_or(u64::MAX);
        self.calls_due_ns = u64::MAX;
        if calls_ns != u64::MAX {
            self.calls_due_by(calls_ns);
        }
    }

    /// Notes that a call has something due at this time. Until then its service is asked for from time to time.
    #[inline]
    pub fn calls_due_by(&mut self, at_ns: u64) {
        self.calls_due_ns = self.calls_due_ns.min(at_ns).min(self.watch_at_ns);
    }

    /// Asks from time to time where the services are whose answers do not come.
    fn watch(&mut self, now_ns: u64) {
        if now_ns < self.watch_at_ns {
            return;
        }
        self.watch_at_ns = now_ns + WATCH_NS;
        for calls in self.calls.values() {
            for partner in calls.sent_before(now_ns.saturating_sub(LATE_NS)) {
                if let Some(state) =
                    self.base.partners.get(partner).filter(|state| state.is_named && state.pinned.is_none())
                {
                    self.finding.directory.ask(&state.name);
                }
            }
        }
        self.look(now_ns);
    }

    /// When a lease or a call ends next.
    fn next_end_ns(&self) -> u64 {
        self.calls_due_ns.min(self.base.lending.next_end_ns())
    }

    /// When something is due next.
    pub fn next_due_ns(&self) -> u64 {
        let soon = if self.fetching.is_idle() && self.blocked.is_empty() { u64::MAX } else { 0 };
        self.next_end_ns().min(self.finding.next_due_ns(&self.base)).min(soon)
    }
}
