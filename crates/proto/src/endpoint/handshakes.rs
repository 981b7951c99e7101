//! What a listening endpoint remembers of requests: so that a repeat is not a second request.

use std::collections::{HashMap, VecDeque};

use crate::limits::ACCEPT_TIMEOUT_NS;
use crate::secret::{COOKIE_NS_MAX, KeyedHash};
use crate::{ConnKey, RequestTicket, Time};

/// What became of a request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The program has it; its payload is this long.
    Waiting {
        payload_bytes: u16,
    },
    /// Accepted here.
    Accepted(ConnKey),
    Rejected,
    /// Accepted by another endpoint, which answers for it. Kept for so many lives of a cookie more, because that answer
    /// may be under way for as long as an acceptance may be pending.
    Taken {
        lives: u8,
    },
}

/// All requests remembered. One is kept as long as a cookie can be good, counted from the program's answer: then no
/// repeat, however late, can pass for a new request.
pub(crate) struct Handshakes {
    requests: HashMap<RequestTicket, Fate, KeyedHash>,
    /// Answered ones, in the order in which they may be forgotten.
    answered: VecDeque<(Time, RequestTicket)>,
    waiting: u32,
    waiting_max: u32,
}

impl Handshakes {
    /// Lives of a cookie in which an acceptance by another endpoint is over.
    pub const TAKEN: Fate = Fate::Taken { lives: (ACCEPT_TIMEOUT_NS / COOKIE_NS_MAX + 2) as u8 };

    /// What one remembered request costs: its place in the map, twice for the map's free places, and in the queue.
    pub const COST_BYTES: u64 =
        (2 * size_of::<(RequestTicket, Fate)>() + size_of::<(Time, RequestTicket)>()) as u64;

    pub fn new(hash: KeyedHash, waiting_max: u32) -> Handshakes {
        Handshakes {
            requests: HashMap::with_hasher(hash),
            answered: VecDeque::new(),
            waiting: 0,
            waiting_max,
        }
    }

    pub fn fate(&self, ticket: RequestTicket) -> Option<Fate> {
        self.requests.get(&ticket).copied()
    }

    /// True if as many requests wait for the program as may.
    pub fn is_full(&self) -> bool {
        self.waiting >= self.waiting_max
    }

    /// A new request goes to the program.
    pub fn add(&mut self, ticket: RequestTicket, payload_bytes: u16) {
        self.requests.insert(ticket, Fate::Waiting { payload_bytes });
        self.waiting += 1;
    }

    /// The program has answered. Returns how many bytes of payload are no longer held; `None`: not one of ours.
    pub fn answer(&mut self, ticket: RequestTicket, fate: Fate, now: Time) -> Option<u16> {
        let place = self.requests.get_mut(&ticket)?;
        let Fate::Waiting { payload_bytes } = *place else { return None };
        *place = fate;
        self.waiting -= 1;
        self.answered.push_back((now.plus(COOKIE_NS_MAX), ticket));
        Some(payload_bytes)
    }

    /// Forgets what can no longer be repeated; returns how many. A client whose acceptance is `pending` still asks, with
    /// new cookies, so that one is kept.
    pub fn expire(&mut self, now: Time, pending: impl Fn(ConnKey) -> bool) -> u64 {
        let mut count = 0;
        while let Some(&(when, ticket)) = self.answered.front() {
            if when > now {
                break;
            }
            self.answered.pop_front();
            let kept = match self.requests.get_mut(&ticket) {
                Some(Fate::Accepted(key)) => pending(*key),
                Some(Fate::Taken { lives }) => {
                    *lives = lives.saturating_sub(1);
                    *lives != 0
                }
                _ => false,
            };
            if kept {
                self.answered.push_back((now.plus(COOKIE_NS_MAX), ticket));
                continue;
            }
            self.requests.remove(&ticket);
            count += 1;
        }
        count
    }
}
