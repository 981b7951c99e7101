//! What was started and how it has ended: the oracle of messengers in simulation.

use super::super::contents;
use cci::Status;
use cci::messages::{CallFailure, SendFailure};

/// What a message is for: the first half of its name.
pub(super) const MESSAGE: u32 = 1;
pub(super) const REQUEST: u32 = 2;
pub(super) const REPLY: u32 = 3;
pub(super) const ERROR: u32 = 4;
/// With what programs refuse.
pub(super) const REFUSAL: u32 = 77;

/// A send or a call.
struct Entry {
    kind: u32,
    from: usize,
    /// The client of its connection.
    link: usize,
    len: usize,
    has_timeout: bool,
    is_cancelled: bool,
    is_refused: bool,
    came: bool,
    /// What the server has answered, and how long that is.
    answered: Option<(u32, usize)>,
    is_dropped: bool,
    /// `Some`: it has ended, well or not.
    ended: Option<bool>,
}

pub(super) struct Ledger {
    pub is_ordered: bool,
    entries: Vec<Entry>,
    dead: Option<usize>,
    /// By client: its connection to the server is over, or about to be.
    over: [bool; 2],
    /// By client and by whether it is the client that receives: what came last.
    last: [[usize; 2]; 2],
}

impl Ledger {
    pub fn new(is_ordered: bool) -> Ledger {
        Ledger { is_ordered, entries: Vec::new(), dead: None, over: [false; 2], last: [[0; 2]; 2] }
    }

    /// The number that the next send or call will have.
    pub fn next(&self) -> usize {
        self.entries.len()
    }

    pub fn begin(&mut self, kind: u32, from: usize, link: usize, len: usize, has_timeout: bool) {
        self.entries.push(Entry {
            kind,
            from,
            link,
            len,
            has_timeout,
            is_cancelled: false,
            is_refused: false,
            came: false,
            answered: None,
            is_dropped: false,
            ended: None,
        });
    }

    pub fn cancel(&mut self, id: usize) {
        self.entries[id].is_cancelled = true;
    }

    /// Some message of this link and to this machine was refused.
    pub fn refuse(&mut self, link: usize, to: usize, len: u64) {
        for entry in &mut self.entries {
            if entry.link == link && entry.from != to && entry.len as u64 == len {
                entry.is_refused = true;
            }
        }
    }

    pub fn closes(&mut self, link: usize) {
        self.over[link] = true;
    }

    /// A machine dies, and its connections with it.
    pub fn dies(&mut self, machine: usize) {
        self.dead = Some(machine);
        for link in 0..2 {
            self.over[link] |= machine == link || machine == super::SERVER;
        }
    }

    pub fn is_over(&self, link: usize) -> bool {
        self.over[link]
    }

    /// A message or a request has come. Returns its number.
    pub fn came(&mut self, kind: u32, to: usize, link: usize, bytes: &[u8]) -> Result<usize, String> {
        let named = contents::identify(bytes).ok_or(format!("{} bytes that nobody sent so", bytes.len()))?;
        let id = named.1 as usize;
        let entry = self.entries.get_mut(id).ok_or(format!("{id} was never sent"))?;
        let fits = named.0 == kind && entry.kind == kind && entry.link == link && entry.from != to;
        if !fits || entry.len != bytes.len() {
            return Err(format!("{id} came as another one"));
        }
        if std::mem::replace(&mut entry.came, true) {
            return Err(format!("{id} came twice"));
        }
        let last = &mut self.last[link][usize::from(to == link)];
        if self.is_ordered && *last > id {
            return Err(format!("{id} came behind {last}"));
        }
        *last = id;
        Ok(id)
    }

    pub fn answer(&mut self, id: usize, kind: u32, len: usize) {
        self.entries[id].answered = Some((kind, len));
    }

    pub fn drop_request(&mut self, id: usize) {
        self.entries[id].is_dropped = true;
    }

    fn end(&mut self, id: u64, from: usize, kind: u32, is_well: bool) -> Result<&Entry, String> {
        let entry = self.entries.get_mut(id as usize).ok_or(format!("{id}: an end of nothing"))?;
        if entry.from != from || entry.kind != kind {
            return Err(format!("{id}: the end of another one"));
        }
        if entry.ended.replace(is_well).is_some() {
            return Err(format!("{id} ended twice"));
        }
        Ok(entry)
    }

    pub fn sent(&mut self, id: u64, from: usize, result: Result<(), SendFailure>) -> Result<(), String> {
        let over = self.over;
        let entry = self.end(id, from, MESSAGE, result.is_ok())?;
        let is_fair = match result {
            Ok(()) => true,
            Err(SendFailure::Cancelled) => entry.is_cancelled,
            Err(SendFailure::Refused(REFUSAL)) => entry.is_refused,
            Err(SendFailure::Failed(Status::Disconnected | Status::TimedOut)) => over[entry.link],
            Err(SendFailure::Failed(Status::ReceiverNotReady)) => true,
            Err(_) => false,
        };
        is_fair.then_some(()).ok_or(format!("{id} ended with {result:?} for no reason, over: {over:?}"))
    }

    pub fn replied(
        &mut self,
        id: u64,
        from: usize,
        result: Result<&[u8], &CallFailure>,
    ) -> Result<(), String> {
        let over = self.over;
        let entry = self.end(id, from, REQUEST, result.is_ok())?;
        let is_answer = |kind: u32, bytes: &[u8]| {
            entry.answered == Some((kind, bytes.len()))
                && contents::identify(bytes) == Some((kind, id as u32))
        };
        let is_fair = match result {
            Ok(bytes) => is_answer(REPLY, bytes),
            Err(CallFailure::Error { code, message }) => u64::from(*code) == id && is_answer(ERROR, message),
            Err(CallFailure::Dropped) => entry.is_dropped,
            Err(CallFailure::TimedOut) => entry.has_timeout,
            Err(CallFailure::Cancelled) => entry.is_cancelled,
            Err(CallFailure::Failed(Status::Disconnected | Status::TimedOut)) => over[entry.link],
            Err(CallFailure::NotSent(SendFailure::Failed(Status::ReceiverNotReady))) => !entry.came,
            Err(CallFailure::NotSent(SendFailure::Failed(_))) => over[entry.link],
            Err(CallFailure::ReplyLost) => entry.answered.is_some(),
            Err(_) => false,
        };
        is_fair.then_some(()).ok_or(format!("call {id} ended with {result:?} for no reason, over: {over:?}"))
    }

    /// A machine heard of the end of a connection: everything of its on it has ended.
    pub fn disconnected(&self, machine: usize, link: usize) -> Result<(), String> {
        if !self.over[link] {
            return Err(format!("the connection of {link} ended for no reason at {machine}"));
        }
        let is_left = |entry: &Entry| entry.from == machine && entry.link == link && entry.ended.is_none();
        let left = self.entries.iter().position(is_left);
        left.map_or(Ok(()), |id| Err(format!("{id} outlives its connection")))
    }

    /// Everything of those who live has ended, and what was received has come, unless its connection was closed.
    pub fn check_all_ended(&self) -> Result<(), String> {
        for (id, entry) in self.entries.iter().enumerate() {
            if self.dead == Some(entry.from) {
                continue;
            }
            if entry.ended.is_none() {
                return Err(format!("{id} never ended ({} bytes from {})", entry.len, entry.from));
            }
            if entry.ended == Some(true) && !entry.came && !self.over[entry.link] {
                return Err(format!("{id} was lost"));
            }
        }
        Ok(())
    }

    pub fn explain(&self) -> String {
        let left = self.entries.iter().filter(|entry| entry.ended.is_none()).count();
        format!("{left} of {} have not ended", self.entries.len())
    }

    /// Messages that came, calls that were answered, and those that ended otherwise.
    pub fn counts(&self) -> (u64, u64, u64) {
        let count =
            |fits: &dyn Fn(&Entry) -> bool| self.entries.iter().filter(|entry| fits(entry)).count() as u64;
        (
            count(&|entry| entry.kind == MESSAGE && entry.came),
            count(&|entry| entry.kind == REQUEST && entry.ended == Some(true)),
            count(&|entry| entry.ended == Some(false)),
        )
    }
}
