//! A rank's channels to and from all others, beside its copies: each message comes whole, once, and in its order, also one that is longer than the slots, or than the
//! memory that waits for it.

use crate::rng::{Rng, mix};
use cci::{Foreign, Memory};
use cci_acp::{AcpError, ChannelRequest, GlobalMemory, Receiver, Sender, Slots};
use std::collections::VecDeque;

/// Messages of each channel.
const MESSAGES: u64 = 8;
const LENS: [u64; 6] = [0, 8, 100, 1_500, 6_000, 20_000];
/// The two ends have other slots.
const SENDER_SLOTS: Slots = Slots { count: 2, bytes: 700 };
const RECEIVER_SLOTS: Slots = Slots { count: 3, bytes: 2_064 };
/// Requests of an end that wait.
const REQUESTS_MAX: usize = 4;

/// What a rank has with each other one.
pub(super) struct Channels {
    rank: u32,
    rng: Rng,
    both: Vec<Both>,
    received: u64,
}

struct Both {
    other: u32,
    sender: Option<Sender>,
    receiver: Option<Receiver>,
    sent: u64,
    sending: VecDeque<ChannelRequest>,
    /// How many were started, and those that wait: the number of the message and its memory.
    received: u64,
    receiving: VecDeque<(ChannelRequest, u64, Memory)>,
}

/// A message of one rank to another.
fn message(from: u32, to: u32, number: u64) -> Vec<u8> {
    let seed = mix(u64::from(from) << 40 | u64::from(to) << 20 | number);
    let len = LENS[(seed % LENS.len() as u64) as usize];
    (0..len).map(|at| mix(seed ^ at) as u8).collect()
}

fn heap(bytes: Vec<u8>) -> Memory {
    Memory::foreign(Foreign::owned(bytes.into_boxed_slice()))
}

impl Channels {
    pub fn new(global: &mut GlobalMemory, seed: u64) -> Result<Channels, String> {
        let rank = global.rank();
        let mut both = Vec::new();
        for other in (0..global.size()).filter(|&other| other != rank) {
            let text = |error: AcpError| error.to_string();
            both.push(Both {
                other,
                sender: Some(Sender::create(global, other, SENDER_SLOTS).map_err(text)?),
                receiver: Some(Receiver::create(global, other, RECEIVER_SLOTS).map_err(text)?),
                sent: 0,
                sending: VecDeque::new(),
                received: 0,
                receiving: VecDeque::new(),
            });
        }
        Ok(Channels { rank, rng: Rng::new(mix(seed ^ 0x6368) ^ u64::from(rank)), both, received: 0 })
    }

    pub fn is_done(&self) -> bool {
        self.both.iter().all(Both::is_done)
    }

    /// Messages that came.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Looks at what has ended, and begins some of what is left. Returns whether anything happened.
    pub fn turn(&mut self, global: &mut GlobalMemory) -> Result<bool, String> {
        let mut happened = false;
        for both in &mut self.both {
            happened |=
                both.take_sent(global)? | both.take_received(global, self.rank, &mut self.received)?;
            if self.rng.pct(30.0) {
                happened |= both.send(global, self.rank).map_err(|error| error.to_string())?;
            }
            if self.rng.pct(30.0) {
                let is_short = self.rng.pct(20.0);
                let begun = both.receive(global, self.rank, is_short);
                happened |= begun.map_err(|error| error.to_string())?;
            }
        }
        Ok(happened)
    }
}

impl Both {
    fn is_done(&self) -> bool {
        let is_freed = self.sender.is_none() && self.receiver.is_none();
        is_freed && self.sending.is_empty() && self.receiving.is_empty()
    }

    /// Sends the next message, or frees the end behind the last one.
    fn send(&mut self, global: &mut GlobalMemory, rank: u32) -> Result<bool, AcpError> {
        if self.sending.len() >= REQUESTS_MAX {
            return Ok(false);
        }
        let request = if self.sent == MESSAGES {
            let Some(sender) = self.sender.take() else { return Ok(false) };
            sender.free(global)?
        } else {
            let Some(sender) = &self.sender else { return Ok(false) };
            let bytes = message(rank, self.other, self.sent);
            self.sent += 1;
            sender.start(global, &heap(bytes))?
        };
        self.sending.push_back(request);
        Ok(true)
    }

    /// Waits for the next message, or frees the end behind the last one.
    fn receive(&mut self, global: &mut GlobalMemory, rank: u32, is_short: bool) -> Result<bool, AcpError> {
        if self.receiving.len() >= REQUESTS_MAX {
            return Ok(false);
        }
        let number = self.received;
        let (request, memory) = if number == MESSAGES {
            let Some(receiver) = self.receiver.take() else { return Ok(false) };
            (receiver.free(global)?, heap(Vec::new()))
        } else {
            let Some(receiver) = &self.receiver else { return Ok(false) };
            let len = message(self.other, rank, number).len();
            let memory = heap(vec![0; if is_short { len / 2 } else { len + 5 }]);
            self.received += 1;
            (receiver.start(global, &memory)?, memory)
        };
        self.receiving.push_back((request, number, memory));
        Ok(true)
    }

    fn take_sent(&mut self, global: &mut GlobalMemory) -> Result<bool, String> {
        let mut some_ended = false;
        while let Some(request) = self.sending.front()
            && request.has_ended(global)
        {
            request.wait(global).map_err(|error| error.to_string())?;
            self.sending.pop_front();
            some_ended = true;
        }
        Ok(some_ended)
    }

    fn take_received(
        &mut self,
        global: &mut GlobalMemory,
        rank: u32,
        count: &mut u64,
    ) -> Result<bool, String> {
        let mut some_ended = false;
        while let Some((request, ..)) = self.receiving.front()
            && request.has_ended(global)
            && let Some((request, number, memory)) = self.receiving.pop_front()
        {
            some_ended = true;
            let result = request.wait(global);
            if number == MESSAGES {
                result.map_err(|error| error.to_string())?;
                continue;
            }
            *count += 1;
            let sent = message(self.other, rank, number);
            let len = match result {
                Ok(len) => len,
                Err(AcpError::Truncated { len_bytes, .. }) if sent.len() > memory.len() => len_bytes as usize,
                Err(error) => return Err(format!("message {number} of rank {}: {error}", self.other)),
            };
            let mut found = vec![0; memory.len()];
            let is_read = memory.read(0, &mut found);
            let kept = len.min(memory.len());
            if !is_read
                || len != sent.len()
                || found[..kept] != sent[..kept]
                || found[kept..].iter().any(|&byte| byte != 0)
            {
                return Err(format!("message {number} of rank {} to rank {rank} is another one", self.other));
            }
        }
        Ok(some_ended)
    }
}
