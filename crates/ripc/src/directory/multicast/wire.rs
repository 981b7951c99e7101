//! The datagrams of a multicast directory.

use super::limits::{DATAGRAM_BYTES_MAX, QUESTION_BYTES_MIN, RECORDS_MAX};
use crate::directory::Record;
use crate::name::ServiceName;

//= wire.md R-DIR-1
const MAGIC: [u8; 4] = *b"CCId";
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 24;

/// The content of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// Which service has this name?
    Question(ServiceName),
    /// These services have it, of those that the answering side knows: 1 or more.
    Answer(Vec<Record>),
    /// Does anybody object to this claim?
    Probe(Record),
    /// These are services of the sender: 1 or more.
    Announcement(Vec<Record>),
    /// These are no longer services of the sender: 1 or more.
    Goodbye(Vec<Record>),
}

/// A datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    /// The sending directory: 64 random bits.
    pub sender: u64,
    /// A number that the answer repeats: 64 random bits, or 0 if no answer is expected.
    pub nonce: u64,
    pub body: Body,
}

/// The length of a record in a datagram, bytes.
pub(super) fn record_bytes(record: &Record) -> usize {
    2 + record.to_string().len()
}

/// Whether a datagram can carry a record.
pub(super) fn fits(record: &Record) -> bool {
    HEADER_BYTES + record_bytes(record) <= DATAGRAM_BYTES_MAX
}

/// The first records that fit into a datagram, at least one.
pub(super) fn first_that_fit(records: &[Record]) -> &[Record] {
    let mut left_bytes = DATAGRAM_BYTES_MAX - HEADER_BYTES;
    let mut count = 0;
    for record in records.iter().take(RECORDS_MAX) {
        let Some(left) = left_bytes.checked_sub(record_bytes(record)) else { break };
        left_bytes = left;
        count += 1;
    }
    records.get(..count.max(1)).unwrap_or(records)
}

impl Packet {
    /// The datagram as it is sent.
    pub fn write(&self) -> Vec<u8> {
        let (kind, texts): (u8, Vec<String>) = match &self.body {
            Body::Question(name) => (1, vec![name.to_string()]),
            Body::Answer(records) => (2, records.iter().map(Record::to_string).collect()),
            Body::Probe(record) => (3, vec![record.to_string()]),
            Body::Announcement(records) => (4, records.iter().map(Record::to_string).collect()),
            Body::Goodbye(records) => (5, records.iter().map(Record::to_string).collect()),
        };
        let mut bytes = Vec::with_capacity(QUESTION_BYTES_MIN);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[VERSION, kind, texts.len() as u8, 0]);
        bytes.extend_from_slice(&self.sender.to_le_bytes());
        bytes.extend_from_slice(&self.nonce.to_le_bytes());
        for text in &texts {
            bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        //= wire.md R-DIR-3
        if matches!(self.body, Body::Question(_) | Body::Probe(_)) && bytes.len() < QUESTION_BYTES_MIN {
            bytes.resize(QUESTION_BYTES_MIN, 0);
        }
        bytes
    }

    /// Parses a datagram, which may contain anything. `None` if it is none of these.
    //= wire.md R-DIR-2
    pub fn read(bytes: &[u8]) -> Option<Packet> {
        if bytes.len() > DATAGRAM_BYTES_MAX {
            return None;
        }
        let (header, mut texts) = bytes.split_at_checked(HEADER_BYTES)?;
        let [magic @ .., version, kind, count, zero] = header.first_chunk::<8>()?;
        if *magic != MAGIC || *version != VERSION || *zero != 0 {
            return None;
        }
        let sender = u64::from_le_bytes(header.get(8..16)?.try_into().ok()?);
        let nonce = u64::from_le_bytes(header.get(16..24)?.try_into().ok()?);
        let count = usize::from(*count);
        let is_question = matches!(kind, 1 | 3);
        let is_one_or_more = if is_question { count == 1 } else { (1..=RECORDS_MAX).contains(&count) };
        if !is_one_or_more || (is_question && bytes.len() < QUESTION_BYTES_MIN) {
            return None;
        }
        let mut text = || -> Option<&str> {
            let (len_bytes, rest) = texts.split_first_chunk::<2>()?;
            let (text, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len_bytes)))?;
            texts = rest;
            std::str::from_utf8(text).ok()
        };
        let body = if *kind == 1 {
            Body::Question(ServiceName::new(text()?).ok()?)
        } else {
            let records: Option<Vec<Record>> =
                (0..count).map(|_| text().and_then(|text| Record::parse(text).ok())).collect();
            let mut records = records?;
            match kind {
                2 => Body::Answer(records),
                3 => Body::Probe(records.pop()?),
                4 => Body::Announcement(records),
                5 => Body::Goodbye(records),
                _ => return None,
            }
        };
        Some(Packet { sender, nonce, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::{Instance, Kind};
    use proptest::prelude::*;

    fn record(name: &str, instance: u64, uris: Vec<String>) -> Record {
        Record {
            service: ServiceName::new(name).unwrap(),
            instance: Instance(instance),
            kind: Kind::Service,
            uris,
        }
    }

    fn bodies() -> impl Strategy<Value = Body> {
        let one = ("[a-z0-9]{1,63}", any::<u64>(), prop::collection::vec("[a-z]{1,4}://[!-~]{1,40}", 1..=4))
            .prop_map(|(name, instance, uris)| record(&name, instance, uris));
        let some = prop::collection::vec(one.clone(), 1..=4);
        prop_oneof![
            "[a-z0-9]{1,63}".prop_map(|name| Body::Question(ServiceName::new(&name).unwrap())),
            some.clone().prop_map(Body::Answer),
            one.prop_map(Body::Probe),
            some.clone().prop_map(Body::Announcement),
            some.prop_map(Body::Goodbye),
        ]
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(sender: u64, nonce: u64, body in bodies()) {
            let packet = Packet { sender, nonce, body };
            let bytes = packet.write();
            let is_question = matches!(packet.body, Body::Question(_) | Body::Probe(_));
            prop_assert!(!is_question || bytes.len() >= QUESTION_BYTES_MIN);
            prop_assert_eq!(Packet::read(&bytes), Some(packet));
        }

        #[test]
        fn any_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _is_read = Packet::read(&bytes);
        }

        #[test]
        fn changed_bytes_are_refused_or_read(body in bodies(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
                                             keep in any::<prop::sample::Index>()) {
            let mut bytes = Packet { sender: 1, nonce: 2, body }.write();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Some(packet) = Packet::read(&bytes) {
                prop_assert_eq!(Packet::read(&packet.write()), Some(packet));
            }
            let cut = keep.index(bytes.len());
            let _is_read = Packet::read(&bytes[..cut]);
        }
    }

    #[test]
    fn records_are_divided_by_what_fits() {
        let long = |instance| record("long", instance, vec![format!("shm://{}", "x".repeat(400))]);
        let many: Vec<Record> = (0..5).map(long).collect();
        let first = first_that_fit(&many);
        assert_eq!(first.len(), 3);
        let bytes = Packet { sender: 1, nonce: 2, body: Body::Answer(first.to_vec()) }.write();
        assert!(bytes.len() <= DATAGRAM_BYTES_MAX);
        let short: Vec<Record> = (0..100).map(|n| record("s", n, vec!["s://a".to_owned()])).collect();
        assert!(first_that_fit(&short).len() <= RECORDS_MAX);
        assert!(fits(&long(1)));
        let too_long = format!("shm://{}", "x".repeat(500));
        assert!(!fits(&record("long", 1, vec![too_long.clone(), too_long.clone(), too_long])));
    }

    #[test]
    fn short_questions_are_not_answered() {
        let question = Packet { sender: 1, nonce: 2, body: Body::Question(ServiceName::new("a").unwrap()) };
        let bytes = question.write();
        assert_eq!(bytes.len(), QUESTION_BYTES_MIN);
        assert_eq!(Packet::read(&bytes[..QUESTION_BYTES_MIN - 1]), None);
    }
}
