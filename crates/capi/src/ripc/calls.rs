//! Calls whose ends the program has not taken yet, and requests that it has not answered.

use cci_ripc::{CallError, Message, Ticket};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Calls that have not ended, or whose ends the program has not taken.
const CALLS_MAX: usize = 1_024;
/// Requests that the program has not answered.
const REQUESTS_MAX: usize = 65_536;

/// Answers whose program is notified when their long items are its own again, and has not been yet.
const LENT_MAX: usize = 4_096;

/// How a call has ended.
pub(super) type Reply = Result<Message, CallError>;

struct Call {
    service: u16,
    reply: Option<Reply>,
}

/// A process's calls and requests, by numbers that are never 0 and never used again.
#[derive(Default)]
pub(super) struct Calls {
    calls: BTreeMap<u64, Call>,
    requests: HashMap<u64, (u16, Ticket)>,
    /// The services of requests whose answers lend.
    lent: HashMap<u64, u16>,
    /// Requests whose answers lend no more, with their services, and whether their long items were fetched.
    returned: VecDeque<(u16, u64, bool)>,
    last: u64,
}

impl Calls {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// The number of the next call of a service. `None`: the program must take the ends of others first.
    pub fn begin(&mut self, service: u16) -> Option<u64> {
        if self.calls.len() >= CALLS_MAX {
            return None;
        }
        let number = self.number();
        self.calls.insert(number, Call { service, reply: None });
        Some(number)
    }

    /// A call was not begun after all.
    pub fn not_begun(&mut self, number: u64) {
        self.calls.remove(&number);
    }

    /// A call has ended.
    pub fn ended(&mut self, number: u64, reply: Reply) {
        if let Some(call) = self.calls.get_mut(&number) {
            call.reply = Some(reply);
        }
    }

    /// Whether the end of a call of this service can be taken.
    pub fn has_ended(&self, service: u16) -> bool {
        self.calls.values().any(|call| call.service == service && call.reply.is_some())
    }

    /// Whether a service has this call, or any if it is 0.
    pub fn has(&self, service: u16, number: u64) -> bool {
        match number {
            0 => self.calls.values().any(|call| call.service == service),
            number => self.calls.get(&number).is_some_and(|call| call.service == service),
        }
    }

    /// Takes the end of this call, or, if it is 0, of the oldest of the service's that has ended.
    pub fn take(&mut self, service: u16, number: u64) -> Option<(u64, Reply)> {
        let has_ended = |call: &Call| call.service == service && call.reply.is_some();
        let number = match number {
            0 => *self.calls.iter().find(|(_, call)| has_ended(call))?.0,
            number => self.calls.get(&number).filter(|call| has_ended(call)).map(|_| number)?,
        };
        Some((number, self.calls.remove(&number)?.reply?))
    }

    /// Whether one more request may be without an answer.
    pub fn has_space(&self) -> bool {
        self.requests.len() < REQUESTS_MAX
    }

    /// The number of a request that the program gets.
    pub fn asked(&mut self, service: u16, ticket: Ticket) -> u64 {
        let number = self.number();
        self.requests.insert(number, (service, ticket));
        number
    }

    /// A request that has no answer yet.
    pub fn request(&self, number: u64) -> Option<Ticket> {
        self.requests.get(&number).map(|(_, ticket)| *ticket)
    }

    /// A request has its answer.
    pub fn answered(&mut self, number: u64) {
        self.requests.remove(&number);
    }

    /// An answer to this request will lend, and the program is to be notified when it does no more. False: it must take what has returned first.
    pub fn will_lend(&mut self, number: u64) -> bool {
        let has_space = self.lent.len() + self.returned.len() < LENT_MAX;
        if has_space && let Some((service, _)) = self.requests.get(&number) {
            self.lent.insert(number, *service);
        }
        has_space
    }

    /// The answer was not sent after all.
    pub fn not_lent(&mut self, number: u64) {
        self.lent.remove(&number);
    }

    /// What was lent is the program's again, which is notified if it wants to know.
    pub fn returned(&mut self, number: u64, fetched: bool) {
        if let Some(service) = self.lent.remove(&number) {
            self.returned.push_back((service, number, fetched));
        }
    }

    /// Whether something of a service's has returned.
    pub fn has_returned(&self, service: u16) -> bool {
        self.returned.iter().any(|(of, ..)| *of == service)
    }

    /// Takes the first request of a service whose answer's long items have returned, and whether they were fetched.
    pub fn take_returned(&mut self, service: u16) -> Option<(u64, bool)> {
        let index = self.returned.iter().position(|(of, ..)| *of == service)?;
        self.returned.remove(index).map(|(_, number, fetched)| (number, fetched))
    }

    /// A service is gone.
    pub fn forget(&mut self, service: u16) {
        self.lent.retain(|_, of| *of != service);
        self.returned.retain(|(of, ..)| *of != service);
        self.calls.retain(|_, call| call.service != service);
        self.requests.retain(|_, (of, _)| *of != service);
    }
}
