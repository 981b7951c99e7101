//! The interface to the network of services that programs call.

mod answers;
mod at_once;
mod base;
mod calls;
mod engine;
mod fetching;
mod finding;
mod lending;
mod outside;
mod partners;
mod pushing;
mod services;
mod whole;

use crate::content::{Content, Kept, Message, Part};
use crate::directory::{self, Instance, Kind as RecordKind, Record};
use crate::error::{CallError, ClaimError, OpenError, ReachError, SendError};
use crate::event::{Event, Request, Ticket};
use crate::handles::{CallId, Partner, Service};
use crate::limits::{ASK_AGAIN_NS_MAX, DIRECTORY_LOOK_NS, NAME_BYTES_MAX};
use crate::name::ServiceName;
use crate::options::Options;
use crate::wire::Kind;
use answers::Answers;
use at_once::AtOnce;
use base::{Base, keep};
use calls::{Call, Calls};
use cci::{Context, Endpoint, Event as Core, Memory, RegisterError, WaitError};
use cci_sys::{clock, random};
use engine::Engine;
use finding::Finding;
use lending::Lending;
use services::{Listing, Waiting};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Events of the endpoint that one call takes while none is for the service that asks.
const EVENTS_PER_CALL: usize = 64;
/// How long a waiting program keeps its core after a search has begun. A directory of this host or of its network answers in that
/// time.
const SEARCH_SPIN_NS: u64 = 200_000;
/// The longest sleep while a partner is being looked for in a directory without a descriptor.
const SEARCH_LOOK_NS: u64 = 2_000_000;
/// The longest sleep if every event wakes the program.
const SLEEP_NS_MAX: u64 = 3_600_000_000_000;

/// Options of a call.
#[derive(Copy, Clone, Debug)]
#[non_exhaustive]
pub struct CallOptions {
    /// The longest time until the call ends: 10 s.
    pub timeout: Duration,
    /// A number that comes back with the end of the call.
    pub context: u64,
    /// Whether the request may be sent again if the service died with it and was started anew. It may then be carried out twice.
    /// The default is yes. One instance of a service carries it out once in any case.
    pub is_repeatable: bool,
}

impl Default for CallOptions {
    fn default() -> CallOptions {
        CallOptions { timeout: Duration::from_secs(10), context: 0, is_repeatable: true }
    }
}

impl CallOptions {
    /// These options with another [`timeout`](field@CallOptions::timeout).
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> CallOptions {
        CallOptions { timeout, ..self }
    }

    /// These options with another [`context`](field@CallOptions::context).
    #[must_use]
    pub fn context(self, context: u64) -> CallOptions {
        CallOptions { context, ..self }
    }

    /// Forbids that a second instance of the service carries out the request. If the first one dies with it, the call ends with
    /// [`CallError::Lost`].
    #[must_use]
    pub fn once(self) -> CallOptions {
        CallOptions { is_repeatable: false, ..self }
    }
}

/// Counters of a node since it was opened, and what it holds.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that were dropped because their service did not receive them.
    pub dropped: u64,
    /// Connections that were closed because the partner broke the protocol.
    pub malformed: u64,
    /// Messages whose long items are lent.
    pub leases: u64,
    /// Return buffers that partners may still fill.
    pub return_buffers: u64,
}

/// A process's part in the network of services (RIPC-001, RIPC-043): it registers services, and reaches those of others by name, wherever
/// they are. Used from one thread at a time; it makes progress when its owner calls it.
///
/// ```
/// use cci_ripc::{CallOptions, Event, Node, Options, ServiceName, directory};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let directory = || directory::open(&format!("host:{}", folder.path().display()));
/// let mut server = Node::open(Options::default().directory(directory()?))?;
/// let clock = server.register(&ServiceName::new("clock")?)?;
/// let mut client = Node::open(Options::default().directory(directory()?))?;
/// let me = client.client()?;
/// let to = client.partner(me, &ServiceName::new("clock")?)?;
/// client.call(to, b"time?", CallOptions::default())?;
/// let answer = loop {
///     if let Some(Event::Request(request)) = server.next_event(clock) {
///         server.answer(request.ticket(), b"noon")?;
///     }
///     if let Some(Event::Answer { result, .. }) = client.next_event(me) {
///         break result?;
///     }
/// };
/// assert_eq!(answer.item(0), b"noon");
/// # Ok(())
/// # }
/// ```
pub struct Node {
    engine: Engine,
}

impl Node {
    /// Opens a node.
    ///
    /// # Errors
    /// [`OpenError`] says what stood in the way. Nothing is left behind.
    pub fn open(options: Options) -> Result<Node, OpenError> {
        let directory = match options.directory {
            Some(directory) => directory,
            None => directory::from_environment().map_err(OpenError::Directory)?,
        };
        let device = match options.device {
            Some(device) => device,
            None => Context::new().map_err(OpenError::Context)?.device_for_any(),
        };
        let endpoint = Endpoint::create(&device, options.endpoint).map_err(OpenError::Endpoint)?;
        let lease_ns = u64::try_from(options.lease.as_nanos()).unwrap_or(u64::MAX);
        let mut base = Base::new(endpoint, Lending::new(lease_ns));
        let mut finding = Finding::new(directory, options.resolve_timeout);
        finding.wake(&mut base);
        let mut engine = Engine::new(base, finding, options.policy, options.fetched_bytes_max);
        engine.fetches_on_receive = options.fetch_on_receive;
        Ok(Node { engine })
    }

    /// Registers a service under a name that nobody else has (RIPC-028). May block for as long as the directory takes.
    ///
    /// # Errors
    /// [`ClaimError`]: the name is taken, or the directory can't be used.
    pub fn register(&mut self, name: &ServiceName) -> Result<Service, ClaimError> {
        self.claim(name, Listing::Service)
    }

    /// Joins a group: any number of services have its name, and each gets what members [publish](Node::publish) (RIPC-041).
    ///
    /// # Errors
    /// Those of [`Node::register`].
    pub fn join(&mut self, group: &ServiceName) -> Result<Service, ClaimError> {
        self.claim(group, Listing::Member)
    }

    /// Makes a service that nobody can look up: it reaches others, and their answers reach it. Its name is random.
    ///
    /// # Errors
    /// [`ClaimError::TooMany`], or that the system has no random numbers.
    pub fn client(&mut self) -> Result<Service, ClaimError> {
        let name = self.random_name()?;
        self.engine.base.services.check(&name)?;
        Ok(self.insert(name, Listing::Unlisted)?.0)
    }

    fn random_name(&self) -> Result<ServiceName, ClaimError> {
        let unnamed = ServiceName::number(0);
        let text = format!("client-{}", self.instance(&unnamed)?);
        debug_assert!(text.len() <= NAME_BYTES_MAX);
        ServiceName::new(&text).map_err(|_| ClaimError::TooMany)
    }

    fn instance(&self, service: &ServiceName) -> Result<Instance, ClaimError> {
        let random = random::u64().map_err(|error| ClaimError::Directory {
            service: service.clone(),
            directory: self.engine.finding.directory.describe(),
            reason: error.to_string(),
        });
        random.map(Instance)
    }

    fn insert(&mut self, name: ServiceName, listing: Listing) -> Result<(Service, Instance), ClaimError> {
        let instance = self.instance(&name)?;
        let service = self.engine.base.services.insert(name, instance, listing);
        self.engine.calls.insert(service, Calls::new());
        self.engine.answers.insert(service, Answers::default());
        Ok((service, instance))
    }

    fn claim(&mut self, name: &ServiceName, listing: Listing) -> Result<Service, ClaimError> {
        self.engine.base.services.check(name)?;
        let (service, instance) = self.insert(name.clone(), listing)?;
        let kind = if listing == Listing::Member { RecordKind::Member } else { RecordKind::Service };
        let uris = vec![self.engine.base.endpoint.uri().to_owned()];
        let record = Record { service: name.clone(), instance, kind, uris };
        if let Err(error) = self.engine.finding.directory.claim(&record) {
            self.forget(service);
            return Err(error);
        }
        if listing == Listing::Member {
            let _asked_for_in_time = self.engine.finding.members(name, clock::now_ns());
        }
        Ok(service)
    }

    /// Withdraws a service. Its calls end without an event, and everything that it has lent ends as well.
    pub fn unregister(&mut self, service: Service) {
        let Some(state) = self.engine.base.services.get(service) else { return };
        let (name, instance, listing) = (state.name.clone(), state.instance, state.listing);
        if listing != Listing::Unlisted {
            self.engine.finding.directory.withdraw(&name, instance);
        }
        let Base { lending, endpoint, partners, .. } = &mut self.engine.base;
        lending.end_of_service(endpoint, service);
        let of_service: Vec<Partner> = partners
            .iter()
            .filter(|(_, state)| state.service == service)
            .map(|(partner, _)| partner)
            .collect();
        for partner in of_service {
            partners.remove(partner).into_iter().for_each(|connection| endpoint.disconnect(connection));
        }
        self.forget(service);
    }

    fn forget(&mut self, service: Service) {
        self.engine.base.services.remove(service);
        self.engine.calls.remove(service);
        self.engine.answers.remove(service);
    }

    /// The name of a service.
    pub fn name(&self, service: Service) -> Option<&ServiceName> {
        Some(&self.engine.base.services.get(service)?.name)
    }

    /// The service that has this name here.
    pub fn service(&self, name: &ServiceName) -> Option<Service> {
        self.engine.base.services.by_name(name)
    }

    /// Another service, as `service` sees it. Nothing is asked or sent before there is something to send.
    ///
    /// # Errors
    /// [`SendError::Unknown`] if there is no such `service`, [`SendError::WouldBlock`] if there are as many partners as there may be.
    pub fn partner(&mut self, service: Service, name: &ServiceName) -> Result<Partner, SendError> {
        if self.engine.base.services.get(service).is_none() {
            return Err(SendError::Unknown);
        }
        self.engine.base.partners.named(service, name, None).ok_or(SendError::WouldBlock)
    }

    /// Looks for a partner and connects to it, unless that is done. Waits for `timeout` at most.
    ///
    /// # Errors
    /// [`ReachError`] says what stood in the way.
    pub fn reach(&mut self, partner: Partner, timeout: Duration) -> Result<(), ReachError> {
        let until_ns = clock::now_ns().saturating_add(as_ns(timeout));
        loop {
            let now_ns = clock::now_ns();
            if self.try_reach(partner) {
                return Ok(());
            }
            if now_ns >= until_ns || !self.has_partner(partner) {
                return Err(self.reach_error(partner, timeout));
            }
            let _woken = self.sleep(Some(until_ns));
        }
    }

    /// Sends a message: its short items as one message, whole or not at all, and what describes the long ones (RIPC-016, RIPC-020). It does
    /// not wait for the partner, nor learn whether the message has arrived (RIPC-013, RIPC-017): as long as partner and path live, it
    /// arrives, in order with other messages without long items. A partner that is not known yet is looked for, and the message waits; if
    /// the partner is not found in time, [`Event::Unreachable`] says so. A partner's service that does not receive drops messages beyond
    /// its limits.
    ///
    /// # Errors
    /// After any [`SendError`], nothing was sent.
    pub fn send<'a>(&mut self, partner: Partner, content: impl Into<Content<'a>>) -> Result<(), SendError> {
        let content = content.into();
        let head = content.check(Kind::Message)?;
        let state = self.engine.base.partners.get(partner).ok_or(SendError::Unknown)?;
        if head.long_items == 0
            && head.offers == 0
            && state.waiting.is_empty()
            && let Some(connection) = state.connection()
        {
            return self.engine.base.send_short(connection, &head, content.items());
        }
        self.engine.base.check_len(partner, &head, content.items())?;
        self.engine.send(partner, Kept::new(head, &content))
    }

    /// Sends short items to all other members of a group that are known, and returns their number. Members that are not reached, or do not
    /// receive, miss the message.
    ///
    /// # Errors
    /// [`SendError::Unknown`] if `member` is no member of a group, and those that concern the content.
    pub fn publish(&mut self, member: Service, items: &[&[u8]]) -> Result<usize, SendError> {
        let content = Content::from(items);
        let head = content.check(Kind::Message)?;
        let state = self.engine.base.services.get(member).filter(|state| state.listing == Listing::Member);
        let state = state.ok_or(SendError::Unknown)?;
        let (name, own) = (state.name.clone(), state.instance);
        let now_ns = clock::now_ns();
        let members: Vec<Record> = self.engine.finding.members(&name, now_ns).to_vec();
        let mut sent_to = 0;
        for record in members.iter().filter(|record| record.instance != own) {
            let Some(partner) = self.engine.base.partners.named(member, &name, Some(record)) else {
                continue;
            };
            self.engine.base.check_len(partner, &head, items)?;
            if self.engine.send(partner, Kept::new(head, &content)).is_ok() {
                sent_to += 1;
            }
        }
        Ok(sent_to)
    }

    /// Sends a request to a service, and gets exactly one [`Event::Answer`]. The request goes to wherever the service is, now or until
    /// the deadline: if the service moves or is started anew, it is sent again, as far as `options` allow. A request that comes twice to
    /// one life of the service is carried out once, and answered from memory.
    ///
    /// # Errors
    /// After any [`SendError`], nothing was begun. [`SendError::WouldBlock`]: 256 calls of this service have no answer yet.
    pub fn call<'a>(
        &mut self,
        partner: Partner,
        content: impl Into<Content<'a>>,
        options: CallOptions,
    ) -> Result<CallId, SendError> {
        self.call_as(Kind::Request, partner, &content.into(), options)
    }

    fn call_as(
        &mut self,
        kind: Kind,
        partner: Partner,
        content: &Content<'_>,
        options: CallOptions,
    ) -> Result<CallId, SendError> {
        let state = self.engine.base.partners.get(partner).ok_or(SendError::Unknown)?;
        let calls = self.engine.calls.get_mut(state.service).ok_or(SendError::Unknown)?;
        if !calls.has_space() {
            return Err(SendError::WouldBlock);
        }
        let request = keep(kind, calls.numbers(), content)?;
        self.engine.base.check_len(partner, request.head(), content.items())?;
        let now_ns = clock::now_ns();
        let deadline_ns = now_ns.saturating_add(as_ns(options.timeout));
        let CallOptions { context, is_repeatable: repeatable, .. } = options;
        let id = calls.push(Call {
            partner,
            request,
            context,
            deadline_ns,
            sent_to: None,
            sent_ns: 0,
            again_ns: None,
            repeatable,
        });
        self.engine.calls_due_by(deadline_ns);
        self.engine.send_call(id, partner, now_ns);
        Ok(id)
    }

    /// Sends a request to a service, and waits for the answer. Other events of the service stay for
    /// [`Node::next_event`].
    ///
    /// # Errors
    /// [`CallError`], even if the call was not begun.
    pub fn call_blocking<'a>(
        &mut self,
        partner: Partner,
        content: impl Into<Content<'a>>,
        options: CallOptions,
    ) -> Result<Message, CallError> {
        let call = self.call(partner, content, options);
        self.wait_for(partner, call, options)
    }

    fn wait_for(
        &mut self,
        partner: Partner,
        call: Result<CallId, SendError>,
        options: CallOptions,
    ) -> Result<Message, CallError> {
        let call = call.map_err(|error| CallError::Fetch(error.to_string()))?;
        let service =
            self.engine.base.partners.get(partner).map(|state| state.service).ok_or(CallError::Closed)?;
        let until_ns = clock::now_ns().saturating_add(as_ns(options.timeout)).saturating_add(1_000_000);
        loop {
            if let Some(result) =
                self.engine.base.services.get_mut(service).and_then(|state| state.take_answer(call))
            {
                return result;
            }
            self.progress();
            if self.engine.base.services.get(service).is_none_or(services::State::is_idle) {
                let _woken = self.sleep(Some(until_ns));
            }
        }
    }

    /// Answers a request. The answer is kept in case the request is repeated. If the client is gone, it is kept until the client is forgotten.
    ///
    /// # Errors
    /// After any [`SendError`], the request has no answer yet. [`SendError::Gone`]: it was answered before, or its client is forgotten.
    pub fn answer<'a>(&mut self, ticket: Ticket, content: impl Into<Content<'a>>) -> Result<(), SendError> {
        self.answer_as(Kind::Answer, ticket, &content.into())
    }

    /// Answers that a request can't be carried out, and why.
    ///
    /// # Errors
    /// Those of [`Node::answer`].
    pub fn refuse(&mut self, ticket: Ticket, reason: &[u8]) -> Result<(), SendError> {
        self.answer_as(Kind::Refusal, ticket, &Content::from(reason))
    }

    fn answer_as(&mut self, kind: Kind, ticket: Ticket, content: &Content<'_>) -> Result<(), SendError> {
        let Ticket { service, client, number } = ticket;
        let answers = self.engine.answers.get_mut(service).ok_or(SendError::Unknown)?;
        let partner = answers.client_of(client, number).ok_or(SendError::Gone)?;
        let answer = keep(kind, (number, 0), content)?;
        let is_reachable =
            self.engine.base.partners.get(partner).is_some_and(|state| state.connection().is_some());
        if is_reachable {
            self.engine.base.check_len(partner, answer.head(), content.items())?;
        }
        if answer.as_plain().is_some() {
            if is_reachable {
                // If it can't be sent, the client repeats the request and gets the answer then.
                let _kept = self.engine.send_or_keep(partner, &answer);
            }
            if let Some(answers) = self.engine.answers.get_mut(service) {
                answers.answered(client, number, answer);
            }
            return Ok(());
        }
        if let Some(answers) = self.engine.answers.get_mut(service) {
            answers.answered(client, number, answer.clone());
        }
        if !answer.long_items().is_empty() {
            // Even if it is never sent, its memory belongs to the program again when the lease ends.
            let lease = (content.context, Some((client, number)));
            let Base { lending, endpoint, .. } = &mut self.engine.base;
            let number = lending.begin(endpoint, (service, partner), lease, is_reachable, clock::now_ns());
            lending.will_lend(number, answer.long_items());
        }
        if is_reachable {
            // If it can't be sent, the client repeats the request and gets the answer then.
            let _kept = self.engine.send(partner, answer);
        }
        Ok(())
    }

    /// Allocates memory for long items and return buffers, which partners on this host access directly.
    ///
    /// # Errors
    /// Those of [`Endpoint::allocate`].
    pub fn allocate(&mut self, len_bytes: usize) -> Result<Memory, RegisterError> {
        self.engine.base.endpoint.allocate(len_bytes)
    }

    /// Gives a window: memory that one long item of a message is fetched into (RIPC-022). The first that is large enough is used, those of
    /// the service before those for all services. Then it is the program's again, in the message. Without windows the library uses memory of
    /// its own.
    ///
    /// # Errors
    /// [`SendError::Unknown`] if there is no such service.
    pub fn give_window(&mut self, service: Option<Service>, window: &Memory) -> Result<(), SendError> {
        self.give_window_part(service, Part::all(window))
    }

    /// The next event of a service, if there is one; never blocks.
    #[inline]
    pub fn next_event(&mut self, service: Service) -> Option<Event> {
        for _ in 0..EVENTS_PER_CALL {
            let is_idle = self.engine.base.services.get(service).is_some_and(services::State::is_idle);
            if !is_idle && let Some(event) = self.pop(service) {
                return Some(event);
            }
            let Some(event) = self.engine.base.endpoint.next_event() else {
                self.engine.do_due();
                break;
            };
            let Core::Recv(frame) = event else {
                self.engine.on(event);
                continue;
            };
            let at_once = if is_idle { self.engine.at_once(&frame, service) } else { None };
            // The event is written to the caller's place, since moving a message costs more than taking it.
            match at_once {
                Some((partner, from, AtOnce::Message)) => {
                    return Some(Event::Message(Message::short(frame, from, partner)));
                }
                Some((partner, from, AtOnce::Request(ticket))) => {
                    let message = Message::short(frame, from, partner);
                    return Some(Event::Request(Request { message, ticket }));
                }
                Some((partner, from, AtOnce::Answer(call, context))) => {
                    let result = Ok(Message::short(frame, from, partner));
                    return Some(Event::Answer { call, context, result });
                }
                None => self.engine.received(frame),
            }
        }
        self.pop(service)
    }

    /// Takes the next event that waits for a service.
    #[inline]
    pub(crate) fn pop(&mut self, service: Service) -> Option<Event> {
        let (partner, waiting) = self.engine.base.services.get_mut(service)?.pop()?;
        if let Some(state) = partner.and_then(|partner| self.engine.base.partners.get_mut(partner)) {
            state.queued -= 1;
        }
        match waiting {
            Waiting::Event(event) => Some(event),
            Waiting::Unfetched(whole) => self.receive_unfetched(service, *whole),
        }
    }

    /// Waits for the next event of a service. `None` after `timeout`; without one it waits for ever.
    ///
    /// # Errors
    /// [`WaitError`] if the system refuses to wait.
    pub fn wait(&mut self, service: Service, timeout: Option<Duration>) -> Result<Option<Event>, WaitError> {
        let until_ns = timeout.map(|timeout| clock::now_ns().saturating_add(as_ns(timeout)));
        loop {
            if let Some(event) = self.next_event(service) {
                return Ok(Some(event));
            }
            if until_ns.is_some_and(|until_ns| clock::now_ns() >= until_ns) {
                return Ok(None);
            }
            self.sleep(until_ns)?;
        }
    }

    /// Sleeps until something happens or is due, or until `until_ns`.
    fn sleep(&mut self, until_ns: Option<u64>) -> Result<(), WaitError> {
        let now_ns = clock::now_ns();
        let look_ns = self.look_ns(now_ns);
        if look_ns == 0 {
            // A thread of the directory may need this core.
            std::thread::yield_now();
            return Ok(());
        }
        let wake_ns = self.engine.next_due_ns().min(now_ns + look_ns).min(until_ns.unwrap_or(u64::MAX));
        let timeout = Duration::from_nanos(wake_ns.saturating_sub(now_ns));
        self.engine.base.endpoint.wait_or_wake(Some(timeout))?;
        let finding = &self.engine.finding;
        let is_late = || clock::now_ns().saturating_sub(now_ns) >= ASK_AGAIN_NS_MAX;
        if finding.is_idle() && !finding.is_woken() && is_late() {
            self.engine.look(clock::now_ns());
        }
        Ok(())
    }

    /// How long a program may sleep and still learn in time what the directory reports. If no descriptor of the directory wakes
    /// it, it sleeps longer the longer it has searched.
    fn look_ns(&self, now_ns: u64) -> u64 {
        let finding = &self.engine.finding;
        let searched_ns = now_ns.saturating_sub(finding.began_ns());
        match (finding.is_idle(), finding.is_woken()) {
            (false, _) if searched_ns < SEARCH_SPIN_NS => 0,
            (_, true) => SLEEP_NS_MAX,
            (false, false) => (searched_ns / 2).min(SEARCH_LOOK_NS),
            (true, false) => DIRECTORY_LOOK_NS,
        }
    }

    /// Makes progress: takes what has come, and does what is due. Events wait for [`Node::next_event`].
    pub fn progress(&mut self) {
        let _has_more = self.turn();
    }

    /// Makes progress. Returns whether there may be more to take.
    pub(crate) fn turn(&mut self) -> bool {
        let mut has_more = true;
        for _ in 0..EVENTS_PER_CALL {
            match self.engine.base.endpoint.next_event() {
                Some(event) => self.engine.on(event),
                None => {
                    has_more = false;
                    break;
                }
            }
        }
        self.engine.do_due();
        has_more
    }

    /// How long a program may sleep on [`Node::os_handle`] before it calls [`Node::progress`] again.
    pub fn next_due(&self) -> Duration {
        let now_ns = clock::now_ns();
        let due_ns = self.engine.next_due_ns().saturating_sub(now_ns);
        Duration::from_nanos(due_ns.min(self.look_ns(now_ns)))
    }

    /// The descriptor for poll, select or epoll: readable whenever an event may have come. See also [`Node::next_due`].
    pub fn os_handle(&self) -> BorrowedFd<'_> {
        self.engine.base.endpoint.os_handle()
    }

    /// The node's URI.
    pub fn uri(&self) -> &str {
        self.engine.base.endpoint.uri()
    }

    /// The node's counters.
    pub fn counters(&self) -> Counters {
        let (leases, return_buffers) = self.engine.base.lending.len();
        Counters {
            dropped: self.engine.base.services.iter().map(|(_, state)| state.dropped).sum(),
            malformed: self.engine.malformed,
            leases: leases as u64,
            return_buffers: return_buffers as u64,
        }
    }

    /// Gives a service away to the process that asked for it ([`Event::TakeOver`]), with whatever `content` passes on to it. Clients send
    /// later requests to the new process; the program still answers those that it has.
    ///
    /// # Errors
    /// Those of [`Node::answer`]; the service is still this process's then.
    pub fn hand_over<'a>(
        &mut self,
        request: Request,
        content: impl Into<Content<'a>>,
    ) -> Result<(), SendError> {
        let ticket = request.ticket();
        let state = self.engine.base.services.get_mut(ticket.service).ok_or(SendError::Unknown)?;
        let (name, instance) = (state.name.clone(), state.instance);
        state.has_moved = true;
        self.engine.finding.directory.withdraw(&name, instance);
        self.answer(ticket, content)
    }

    /// Asks the process that has a service to hand it over. Returns the service, and what the other process has passed on. If nobody has
    /// the service, it is registered without waiting, and nothing was passed on.
    ///
    /// # Errors
    /// [`CallError`] if the other process did not give it away in time, or somebody else got the name.
    pub fn take_over(
        &mut self,
        name: &ServiceName,
        timeout: Duration,
    ) -> Result<(Service, Option<Message>), CallError> {
        let until_ns = clock::now_ns().saturating_add(as_ns(timeout));
        let closed = |error: ClaimError| CallError::Refused(error.to_string().into_bytes());
        match self.register(name) {
            Ok(service) => return Ok((service, None)),
            Err(ClaimError::Taken { .. }) => {}
            Err(error) => return Err(closed(error)),
        }
        let me = self.client().map_err(closed)?;
        let passed_on = self.ask_for(me, name, timeout);
        self.unregister(me);
        let passed_on = match passed_on {
            Ok(message) => Some(message),
            Err(CallError::TimedOut { reached: false, reason: Some(ReachError::Unknown { .. }) }) => None,
            Err(error) => return Err(error),
        };
        loop {
            match self.register(name) {
                Ok(service) => return Ok((service, passed_on)),
                Err(ClaimError::Taken { .. }) if clock::now_ns() < until_ns => {
                    let _woken = self.sleep(Some(clock::now_ns() + SEARCH_LOOK_NS));
                }
                Err(error) => return Err(closed(error)),
            }
        }
    }

    fn ask_for(&mut self, me: Service, name: &ServiceName, timeout: Duration) -> Result<Message, CallError> {
        let failed = |error: SendError| CallError::Fetch(error.to_string());
        let partner = self.partner(me, name).map_err(failed)?;
        let options = CallOptions::default().timeout(timeout).once();
        let call = self.call_as(Kind::TakeOver, partner, &Content::default(), options);
        self.wait_for(partner, call, options)
    }
}

fn as_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
