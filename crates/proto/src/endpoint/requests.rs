//! What a listening endpoint remembers of requests: so that a repeat is not a second request.

use std::collections::{HashMap, VecDeque};

use crate::limits::{ACCEPT_TIMEOUT_NS, HANDSHAKES_SHARE};
use crate::secret::{COOKIE_NS_MAX, KeyedHash};
use crate::{Address, ConnKey, RequestTicket, Time};

/// What became of a request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The program has it; its payload is this long.
    Waiting {
        payload_bytes: u16,
    },
    /// Accepted by this endpoint.
    Accepted(ConnKey),
    Rejected,
    /// Accepted by another endpoint, which answers for it. Kept for so many lives of a cookie more, because that answer
    /// may be under way for as long as an acceptance may be pending.
    Taken {
        lives: u8,
    },
}

/// Requests for which memory is kept.
const KEPT_MIN: usize = 1024;

/// All requests remembered. One is kept as long as a cookie can be good, counted from the program's answer: then no
/// repeat, however late, can pass for a new request.
pub(crate) struct Requests {
    requests: HashMap<RequestTicket, Decision, KeyedHash>,
    /// Answered ones, in the order in which they may be forgotten.
    answered: VecDeque<(Time, RequestTicket)>,
    waiting: u32,
    waiting_max: u32,
    requests_max: usize,
    by_host: HashMap<Address, Counts, KeyedHash>,
}

/// How many requests one host has.
#[derive(Copy, Clone, Default)]
struct Counts {
    /// Requests that wait for the program.
    waiting: u32,
    /// All requests that are remembered.
    all: u32,
}

impl Requests {
    /// Lives of a cookie in which an acceptance by another endpoint is over.
    pub const TAKEN: Decision = Decision::Taken { lives: (ACCEPT_TIMEOUT_NS / COOKIE_NS_MAX + 2) as u8 };

    /// What one remembered request costs: its place in the map, twice for the map's free places, in the queue, and its host's.
    pub const COST_BYTES: u64 = (2 * size_of::<(RequestTicket, Decision)>()
        + size_of::<(Time, RequestTicket)>()
        + 2 * size_of::<(Address, Counts)>()) as u64;

    /// For an endpoint with this cap on its memory, of which `waiting_max` requests may wait for the program.
    pub fn new(hash: KeyedHash, waiting_max: u32, memory_bytes_max: u64) -> Requests {
        Requests {
            requests: HashMap::with_hasher(hash.clone()),
            answered: VecDeque::new(),
            waiting: 0,
            waiting_max,
            requests_max: (memory_bytes_max / HANDSHAKES_SHARE / Requests::COST_BYTES) as usize,
            by_host: HashMap::with_hasher(hash),
        }
    }

    pub fn decision(&self, ticket: RequestTicket) -> Option<Decision> {
        self.requests.get(&ticket).copied()
    }

    /// Whether one more request from there may be shown to the program: fewer of its host's wait than more may wait,
    /// and fewer are remembered, so that a host that asks again and again leaves half to others, whether the program answers
    /// soon or not. The cookie has shown that it is there. False as well if there is no memory for it.
    pub fn has_capacity_for(&mut self, from: Address) -> bool {
        let may_wait = self.waiting_max.saturating_sub(self.waiting);
        let may_be_kept = self.requests_max.saturating_sub(self.requests.len());
        let answers = (self.requests.len() + 1).saturating_sub(self.answered.len());
        let counts = self.by_host.get(&from.host()).copied().unwrap_or_default();
        counts.waiting < may_wait
            && (counts.all as usize) < may_be_kept
            && self.by_host.try_reserve(1).is_ok()
            && self.requests.try_reserve(1).is_ok()
            && self.answered.try_reserve(answers).is_ok()
    }

    /// A new request goes to the program.
    pub fn add(&mut self, ticket: RequestTicket, payload_bytes: u16) {
        self.requests.insert(ticket, Decision::Waiting { payload_bytes });
        self.waiting += 1;
        let counts = self.by_host.entry(ticket.peer.host()).or_default();
        (counts.waiting, counts.all) = (counts.waiting + 1, counts.all + 1);
    }

    /// The program has answered. Returns how many bytes of payload are no longer held; `None`: not one of ours.
    pub fn answer(&mut self, ticket: RequestTicket, decision: Decision, now: Time) -> Option<u16> {
        let slot = self.requests.get_mut(&ticket)?;
        let Decision::Waiting { payload_bytes } = *slot else { return None };
        *slot = decision;
        self.waiting -= 1;
        if let Some(counts) = self.by_host.get_mut(&ticket.peer.host()) {
            counts.waiting -= 1;
        }
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
                Some(Decision::Accepted(key)) => pending(*key),
                Some(Decision::Taken { lives }) => {
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
            if let Some(counts) = self.by_host.get_mut(&ticket.peer.host()) {
                counts.all -= 1;
                if counts.all == 0 {
                    self.by_host.remove(&ticket.peer.host());
                }
            }
            count += 1;
        }
        if count != 0 {
            self.give_back();
        }
        count
    }

    /// Gives memory back to the system once most of it is no longer used: after many clients came at once. What is left is copied,
    /// which costs less than forgetting the others did.
    fn give_back(&mut self) {
        let is_sparse = |len: usize, capacity: usize| capacity > KEPT_MIN && len < capacity / 8;
        if is_sparse(self.requests.len(), self.requests.capacity()) {
            self.requests.shrink_to(KEPT_MIN);
        }
        if is_sparse(self.answered.len(), self.answered.capacity()) {
            self.answered.shrink_to(KEPT_MIN);
        }
        if is_sparse(self.by_host.len(), self.by_host.capacity()) {
            self.by_host.shrink_to(KEPT_MIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    #[test]
    fn what_many_requests_took_is_given_back() {
        let mut requests = Requests::new(KeyedHash::new(7, 8), 100_000, 1 << 30);
        let from = Address::from("10.1.2.3:5".parse::<SocketAddr>().unwrap());
        for nonce in 0..50_000 {
            let ticket = RequestTicket { peer: from, nonce };
            assert!(requests.has_capacity_for(from));
            requests.add(ticket, 0);
            requests.answer(ticket, Decision::Rejected, Time(nonce));
        }
        assert!(requests.requests.capacity() >= 50_000);
        assert_eq!(requests.expire(Time(COOKIE_NS_MAX + 49_998), |_| false), 49_999);
        assert!(requests.requests.capacity() < 2 * KEPT_MIN && requests.answered.capacity() < 2 * KEPT_MIN);
        // The youngest is still known, and there is space for more.
        let last = RequestTicket { peer: from, nonce: 49_999 };
        assert_eq!(requests.decision(last), Some(Decision::Rejected));
        assert!(requests.has_capacity_for(from));
    }
}
