//! A stream of messages whose lengths and bytes follow from a seed: the receiver knows each before it comes.

use super::super::random::mix;
use crate::pattern::Pattern;
use cci::Attribute;
use std::collections::{BTreeSet, HashMap, VecDeque};

/// Messages as long as this, or longer, carry their kind and number.
pub const HEAD_BYTES: usize = 8;
/// Kind of a message of the stream. Others, with another first byte, are at least [`HEAD_BYTES`] + 1 long.
const DATA: u8 = 0;

/// What a stream consists of.
#[derive(Copy, Clone, Debug)]
pub struct Script {
    /// Makes the lengths and the bytes.
    pub seed: u64,
    /// The longest message.
    pub longest: usize,
    /// How many there are.
    pub count: u64,
}

impl Script {
    /// The length of a message: of every magnitude, the longest and none among them.
    pub fn len(&self, number: u64) -> usize {
        let random = mix(self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let rest = random >> 8;
        let limit = match random % 32 {
            0 => return self.longest,
            1..=4 => return (rest % HEAD_BYTES as u64) as usize,
            5..=20 => 128,
            21..=28 => 1500,
            _ => self.longest,
        };
        let limit = limit.min(self.longest).max(HEAD_BYTES);
        HEAD_BYTES + (rest % (limit - HEAD_BYTES + 1) as u64) as usize
    }

    /// Makes a message.
    pub fn make(&self, number: u64, pattern: &Pattern, into: &mut Vec<u8>) {
        let len = self.len(number);
        into.clear();
        if len < HEAD_BYTES {
            into.resize(len, self.short(len));
            return;
        }
        into.extend_from_slice(&(number << 8 | u64::from(DATA)).to_le_bytes());
        into.extend_from_slice(pattern.body(self.phase(number), len));
    }

    fn phase(&self, number: u64) -> u64 {
        mix(self.seed).wrapping_add(number)
    }

    /// The bytes of a message that has no room for a number.
    fn short(&self, len: usize) -> u8 {
        (mix(self.seed) as u8) ^ len as u8
    }

    fn check(&self, number: u64, message: &[u8], pattern: &Pattern) -> Result<(), String> {
        let len = self.len(number);
        if message.len() != len {
            return Err(format!("message {number} has {} bytes instead of {len}", message.len()));
        }
        let body = message.get(HEAD_BYTES..).unwrap_or_default();
        let wanted = pattern.body(self.phase(number), len);
        match body.iter().zip(wanted).position(|(got, want)| got != want) {
            None => Ok(()),
            Some(at) => Err(format!("message {number} of {len} bytes differs at byte {}", at + HEAD_BYTES)),
        }
    }
}

/// True for messages of the stream, false for those about it.
pub fn is_data(message: &[u8]) -> bool {
    message.len() < HEAD_BYTES || message.first() == Some(&DATA)
}

/// The receiving end of a stream.
pub struct Inflow {
    script: Script,
    attribute: Attribute,
    /// All messages below this came.
    next: u64,
    /// Those above that came.
    beyond: BTreeSet<u64>,
    /// Messages by length that carry no number: how many came, and how many there are below `next`.
    shorts: [(u64, u64); HEAD_BYTES],
    /// Messages that came.
    pub received: u64,
}

impl Inflow {
    /// Nothing came yet.
    pub fn new(script: Script, attribute: Attribute) -> Inflow {
        let shorts = [(0, 0); HEAD_BYTES];
        Inflow { script, attribute, next: 0, beyond: BTreeSet::new(), shorts, received: 0 }
    }

    /// A message came: says what is wrong with it.
    pub fn take(&mut self, message: &[u8], pattern: &Pattern) -> Result<(), String> {
        self.received += 1;
        let ordered = self.attribute == Attribute::ReliableOrdered;
        if self.received > self.script.count && !ordered {
            return Err(format!("{} messages came of {}", self.received, self.script.count));
        }
        let len = message.len();
        if len < HEAD_BYTES {
            if message.iter().any(|&byte| byte != self.script.short(len)) {
                return Err(format!("a message of {len} bytes has other bytes than were sent"));
            }
            if ordered && (self.next == self.script.count || self.script.len(self.next) != len) {
                return Err(format!("a message of {len} bytes came where {}", self.due()));
            }
            if let Some((came, _)) = self.shorts.get_mut(len) {
                *came += 1;
            }
            if ordered {
                self.pass(self.next);
            }
            return Ok(());
        }
        let number = message.first_chunk().map_or(0, |&head| u64::from_le_bytes(head) >> 8);
        if number >= self.script.count {
            return Err(format!("message {number} came of {}", self.script.count));
        }
        if ordered && number != self.next {
            return Err(format!("message {number} came where {}", self.due()));
        }
        self.script.check(number, message, pattern)?;
        if number < self.next || !self.beyond.insert(number) {
            return Err(format!("message {number} came twice"));
        }
        while self.next < self.script.count {
            let is_short = self.script.len(self.next) < HEAD_BYTES;
            if ordered && is_short || !is_short && !self.beyond.remove(&self.next) {
                break;
            }
            self.pass(self.next);
        }
        Ok(())
    }

    /// What comes next on RO.
    fn due(&self) -> String {
        if self.next == self.script.count {
            "the end was due".to_owned()
        } else {
            format!("message {} was due", self.next)
        }
    }

    /// The sender has sent everything: on RO, everything has come before this.
    pub fn end(&self) -> Result<(), String> {
        if self.attribute == Attribute::ReliableOrdered && self.next < self.script.count {
            return Err(format!("the end came where {}", self.due()));
        }
        Ok(())
    }

    fn pass(&mut self, number: u64) {
        let len = self.script.len(number);
        if let Some((_, due)) = self.shorts.get_mut(len) {
            *due += 1;
        }
        self.next = number + 1;
    }

    /// True once all of it came; an error where more came than there is.
    pub fn is_complete(&mut self) -> Result<bool, String> {
        // Where the last ones carry no number, nothing else passes them.
        while self.attribute != Attribute::ReliableOrdered
            && self.next < self.script.count
            && self.script.len(self.next) < HEAD_BYTES
        {
            self.pass(self.next);
        }
        if self.next < self.script.count {
            return Ok(false);
        }
        for (len, (came, due)) in self.shorts.iter().enumerate() {
            if came > due {
                return Err(format!("{came} messages of {len} bytes came, and {due} were sent"));
            }
        }
        Ok(self.received == self.script.count)
    }

    /// What has not come.
    pub fn missing(&self) -> u64 {
        self.script.count.saturating_sub(self.received)
    }

    /// For people.
    pub fn describe(&self) -> String {
        format!("{} of {} messages came, all below {}", self.received, self.script.count, self.next)
    }
}

/// What was started and has not completed: everything completes once, and in order on RO, but for what has no place in the order.
pub struct Flight<T> {
    ordered: bool,
    line: VecDeque<u32>,
    /// What is under way, and whether it is in line.
    open: HashMap<u32, (T, bool)>,
    next: u32,
}

impl<T> Flight<T> {
    /// Nothing was started.
    pub fn new(attribute: Attribute) -> Flight<T> {
        let ordered = attribute == Attribute::ReliableOrdered;
        Flight { ordered, line: VecDeque::new(), open: HashMap::new(), next: 0 }
    }

    /// The number of what is started next.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// It was started.
    pub fn start(&mut self, what: T) {
        if self.ordered {
            self.line.push_back(self.next);
        }
        self.enter(what, self.ordered);
    }

    /// It was started, and completes at any time.
    pub fn start_apart(&mut self, what: T) {
        self.enter(what, false);
    }

    fn enter(&mut self, what: T, is_in_line: bool) {
        self.open.insert(self.next, (what, is_in_line));
        self.next = self.next.wrapping_add(1);
    }

    /// It completed.
    pub fn end(&mut self, number: u32) -> Result<T, String> {
        let ended = self.open.remove(&number);
        let (what, is_in_line) =
            ended.ok_or_else(|| format!("operation {number} completed and was not under way"))?;
        if is_in_line
            && let Some(due) = self.line.pop_front()
            && due != number
        {
            return Err(format!("operation {number} completed where {due} was due"));
        }
        Ok(what)
    }

    /// How many are under way.
    pub fn len(&self) -> usize {
        self.open.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: Script = Script { seed: 7, longest: 8192, count: 500 };

    fn stream(pattern: &Pattern) -> Vec<Vec<u8>> {
        (0..SCRIPT.count)
            .map(|number| {
                let mut message = Vec::new();
                SCRIPT.make(number, pattern, &mut message);
                assert!(message.len() == SCRIPT.len(number) && is_data(&message));
                message
            })
            .collect()
    }

    fn run(attribute: Attribute, messages: &[Vec<u8>], pattern: &Pattern) -> Result<bool, String> {
        let mut inflow = Inflow::new(SCRIPT, attribute);
        for message in messages {
            inflow.take(message, pattern)?;
        }
        inflow.is_complete()
    }

    #[test]
    fn a_stream_is_taken_as_it_was_sent_and_not_otherwise() {
        let pattern = Pattern::new();
        let good = stream(&pattern);
        let (ro, ru) = (Attribute::ReliableOrdered, Attribute::ReliableUnordered);
        assert_eq!(run(ro, &good, &pattern), Ok(true));
        let mut turned = good.clone();
        turned.reverse();
        assert_eq!(run(ru, &turned, &pattern), Ok(true));
        assert!(run(ro, &turned, &pattern).is_err());
        for at in 0..good.len() {
            let mut without = good.clone();
            let message = without.remove(at);
            assert_eq!(run(ru, &without, &pattern), Ok(false), "without {at}");
            assert_ne!(run(ro, &without, &pattern), Ok(true), "without {at}");
            let mut twice = without;
            let other = usize::from(at == 0);
            twice.push(good[other].clone());
            assert_ne!(run(ru, &twice, &pattern), Ok(true), "{at} lost and {other} twice");
            if let Some(last) = message.len().checked_sub(1) {
                let mut damaged = good.clone();
                damaged[at][last] ^= 1;
                assert!(run(ru, &damaged, &pattern).is_err(), "{at} damaged");
            }
        }
    }

    #[test]
    fn completions_are_counted_and_ordered() {
        let mut flight = Flight::new(Attribute::ReliableOrdered);
        (0..3).for_each(|what| flight.start(what));
        assert_eq!(flight.end(0), Ok(0));
        assert!(flight.end(2).is_err());
        let mut flight = Flight::new(Attribute::ReliableUnordered);
        (0..3).for_each(|what| flight.start(what));
        assert_eq!((flight.end(2), flight.len()), (Ok(2), 2));
        assert!(flight.end(2).is_err());
        // What has no place in the order completes before what was started earlier, or after what was started later.
        let mut flight = Flight::new(Attribute::ReliableOrdered);
        flight.start(0);
        flight.start_apart(1);
        flight.start(2);
        flight.start_apart(3);
        assert_eq!(
            [flight.end(3), flight.end(0), flight.end(2), flight.end(1)],
            [Ok(3), Ok(0), Ok(2), Ok(1)]
        );
        assert!(flight.end(3).is_err() && flight.len() == 0);
    }
}
