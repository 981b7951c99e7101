//! The client's side of calls: what was asked and has not been answered.

use super::call::{CallFailure, CallId};
use super::event::Event;
use super::send::SendId;
use super::wire::CallNumber;
use crate::connection::Connection;
use crate::limits::CALLS_ALL_MAX;
use cci_memory::slab::{Key, Slab};

/// Calls that end by their deadlines in one turn. All calls are looked through for them.
const EXPIRED_PER_TURN: usize = 1_024;

/// All calls of a messenger that have not ended.
pub struct Calls {
    all: Slab<Call>,
    /// No deadline is earlier; there may be none any more. `u64::MAX`: there is none.
    first_deadline_ns: u64,
}

/// One call.
pub struct Call {
    pub connection: Connection,
    /// The program's.
    context: u64,
    /// By the endpoint's clock; `u64::MAX`: none.
    deadline_ns: u64,
    /// The request, if it is long.
    pub send: SendId,
    pub stage: Stage,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The server's answer is awaited.
    Waiting,
    /// It is awaited, but the program knows the end of the call: it was given up.
    GivenUp,
    /// The reply is long, and is being fetched.
    Receiving(Key),
}

impl Calls {
    pub fn new() -> Calls {
        Calls { all: Slab::new(CALLS_ALL_MAX), first_deadline_ns: u64::MAX }
    }

    /// Enters a call. `None`: there is no space for more.
    pub fn begin(&mut self, connection: Connection, context: u64, deadline_ns: u64) -> Option<Key> {
        let call = Call { connection, context, deadline_ns, send: SendId(None), stage: Stage::Waiting };
        let key = self.all.insert(call).ok()?;
        self.first_deadline_ns = self.first_deadline_ns.min(deadline_ns);
        Some(key)
    }

    /// Takes a call back that could not be sent.
    pub fn forget(&mut self, key: Key) {
        self.all.remove(key);
    }

    /// The call that a server answers.
    pub fn find(&self, connection: Connection, number: CallNumber) -> Option<Key> {
        let (key, call) = self.all.at(number.index())?;
        (number.is_of(key) && call.connection == connection).then_some(key)
    }

    pub fn get_mut(&mut self, key: Key) -> Option<&mut Call> {
        self.all.get_mut(key)
    }

    pub fn get(&self, CallId(key): CallId) -> Option<&Call> {
        self.all.get(key)
    }

    /// A call has ended. What the program gets, unless it knows already.
    pub fn end(&mut self, key: Key, result: Result<super::Message, CallFailure>) -> Option<Event> {
        let (connection, context) = self.remove(key)?;
        Some(Event::Reply { connection, context, result })
    }

    /// A call has ended. Its connection and the program's context, unless the program knows already.
    #[inline]
    pub fn remove(&mut self, key: Key) -> Option<(Connection, u64)> {
        let call = self.all.remove(key)?;
        (call.stage != Stage::GivenUp).then_some((call.connection, call.context))
    }

    /// The program does not wait for a call any more. What it gets.
    pub fn give_up(&mut self, key: Key, failure: CallFailure) -> Option<Event> {
        let call = self.all.get_mut(key)?;
        call.stage = Stage::GivenUp;
        Some(Event::Reply { connection: call.connection, context: call.context, result: Err(failure) })
    }

    /// When the first deadline may be.
    #[inline]
    pub fn first_deadline_ns(&self) -> Option<u64> {
        (self.first_deadline_ns != u64::MAX).then_some(self.first_deadline_ns)
    }

    /// Calls whose deadlines have passed, as many as are ended in one turn. Afterwards it is known when the next turn is due.
    #[cold]
    pub fn expired(&mut self, now_ns: u64) -> Vec<Key> {
        let (mut expired, mut first_ns) = (Vec::new(), u64::MAX);
        for (key, call) in self.all.iter().filter(|(_, call)| call.stage != Stage::GivenUp) {
            if call.deadline_ns <= now_ns && expired.len() < EXPIRED_PER_TURN {
                expired.push(key);
            } else {
                first_ns = first_ns.min(call.deadline_ns);
            }
        }
        self.first_deadline_ns = first_ns;
        expired
    }
}
