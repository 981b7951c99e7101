//! The records that processes of a job exchange. Each is one message of the core, or several if the path takes no longer ones.
//! docs/wire.md, section "Active messages", has their layout.

mod counted;
mod large;
mod packed;
mod update;
mod whole;

pub(crate) use counted::CountedWord;
pub(crate) use large::{LARGE_BYTES, LargeOutcome, Offer};
pub(crate) use packed::{Packed, description_head, gathered_head};
pub(crate) use update::{Update, Updating};
pub(crate) use whole::WholeHead;

use crate::description::Description;
use crate::limits::{
    ARGS_MAX, COLLECTIVE_BYTES_MAX, CONTEXT_NAME_BYTES_MAX, CONTEXTS_MAX, DATA_BYTES_MAX,
    DESCRIPTION_BYTES_MAX, HEADER_BYTES, RECORD_BYTES_MAX,
};
use cci::RegionHandle;

/// The kind of a record.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// An active message.
    Message = 1,
    /// The rest of a record that did not fit in the message of the core before it.
    Part = 2,
    /// From now on, a number identifies a context.
    Context = 3,
    /// Only credits.
    Credits = 4,
    /// The sender waits for its credits. The receiver must not save them up.
    CreditsWanted = 5,
    /// The sender has arrived in a round of a barrier.
    Barrier = 6,
    /// The sender leaves, which is no failure. With the flag, it leaves because it has lost the rank `value`.
    Leaving = 7,
    /// The sender asks which region has an address of the receiver.
    Ask = 8,
    /// The answer to that question.
    Answer = 9,
    /// A part of a collective.
    Collective = 10,
    /// More of a collective may follow its first part.
    CollectiveFollow = 11,
    /// A collective has lost a member.
    CollectiveLost = 12,
    /// How many parts of collectives were taken.
    CollectivesTaken = 13,
    /// Asks the receiver to change elements of its memory.
    Accumulate = 14,
    /// Asks the receiver to write to the place to which one of its pointers points.
    IndexedPut = 15,
    /// The sender has made a change that the receiver has asked for, or has refused it.
    Updated = 16,
    /// A large message: a message whose data the receiver fetches.
    Large = 17,
    /// The data of a large message were fetched, or will not be.
    LargeEnded = 18,
    /// About barriers that are counted in memory.
    Counted = 19,
    /// From now on, a number identifies a description.
    Description = 20,
    /// Asks the receiver to write packed data to described memory.
    Scatter = 21,
    /// Asks the receiver for described data.
    Gather = 22,
    /// The packed data that the receiver has asked for.
    Gathered = 23,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        Some(match byte {
            1 => Kind::Message,
            2 => Kind::Part,
            3 => Kind::Context,
            4 => Kind::Credits,
            5 => Kind::CreditsWanted,
            6 => Kind::Barrier,
            7 => Kind::Leaving,
            8 => Kind::Ask,
            9 => Kind::Answer,
            10 => Kind::Collective,
            11 => Kind::CollectiveFollow,
            12 => Kind::CollectiveLost,
            13 => Kind::CollectivesTaken,
            14 => Kind::Accumulate,
            15 => Kind::IndexedPut,
            16 => Kind::Updated,
            17 => Kind::Large,
            18 => Kind::LargeEnded,
            19 => Kind::Counted,
            20 => Kind::Description,
            21 => Kind::Scatter,
            22 => Kind::Gather,
            23 => Kind::Gathered,
            _ => return None,
        })
    }
}

/// The beginning of a record.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub kind: Kind,
    /// Of a message: its credit belongs to the receiver, which gets it back by this. Of a barrier: a rank is not idle.
    pub flag: bool,
    /// Of a message: the number of arguments. Of a barrier: the round.
    pub count: u8,
    /// Of a message: the number of the handler.
    pub handler: u16,
    /// Of a message: the sender's number of the context. Of a context: the number that it gets.
    pub context: u16,
    /// Credits that the receiver gets back.
    pub credits: u16,
    /// Of a message: bytes of data. Of a context: bytes of its name. Of a barrier: its number.
    pub value: u32,
}

impl Header {
    /// A header of this kind, with zeros in all other fields.
    pub const fn new(kind: Kind) -> Header {
        Header { kind, flag: false, count: 0, handler: 0, context: 0, credits: 0, value: 0 }
    }

    /// The header of a message whose arguments and data were checked.
    #[inline(always)]
    pub fn message(flag: bool, context: u16, handler: u16, args: usize, data_bytes: usize) -> Header {
        let (count, value) = (args as u8, data_bytes as u32);
        Header { flag, count, handler, context, value, ..Header::new(Kind::Message) }
    }

    //= wire.md R-AM-1
    #[inline]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = self.kind as u8;
        bytes[1] = self.flag.into();
        bytes[2] = self.count;
        bytes[4..6].copy_from_slice(&self.handler.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.context.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.credits.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.value.to_le_bytes());
        bytes
    }

    /// Parses a header; `None` for a record that no process of this version sends.
    #[inline]
    pub fn decode(record: &[u8]) -> Option<Header> {
        let bytes: &[u8; HEADER_BYTES] = record.first_chunk()?;
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let header = Header {
            kind: Kind::of(bytes[0])?,
            flag: bytes[1] & 1 != 0,
            count: bytes[2],
            handler: half(4),
            context: half(6),
            credits: half(8),
            value: u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]),
        };
        let is_good = bytes[1] <= 1
            && bytes[3] == 0
            && half(10) == 0
            && match header.kind {
                Kind::Message => {
                    usize::from(header.count) <= ARGS_MAX && header.value as usize <= DATA_BYTES_MAX
                }
                Kind::Large => usize::from(header.count) <= ARGS_MAX && header.value as usize == LARGE_BYTES,
                Kind::Context => {
                    header.value as usize <= CONTEXT_NAME_BYTES_MAX + 4
                        && usize::from(header.context) < CONTEXTS_MAX
                }
                Kind::Accumulate
                | Kind::IndexedPut
                | Kind::Description
                | Kind::Scatter
                | Kind::Gather
                | Kind::Gathered => header.value as usize <= RECORD_BYTES_MAX - HEADER_BYTES,
                _ => true,
            };
        is_good.then_some(header)
    }

    //= wire.md R-AM-2
    /// Where the data of a message begins, bytes from the beginning of its record: a multiple of 16.
    #[inline]
    pub fn data_at(&self) -> usize {
        HEADER_BYTES + (usize::from(self.count) * 8).next_multiple_of(16)
    }

    /// Whether it belongs to a message, large or not, which has a credit and a handler.
    #[inline]
    pub fn is_message(&self) -> bool {
        matches!(self.kind, Kind::Message | Kind::Large)
    }

    /// Whether this record contains all of the message.
    #[inline]
    pub fn is_whole(&self, record: &[u8]) -> bool {
        self.is_message() && record.len() == self.record_bytes()
    }

    /// The length of the whole record, in one or several messages of the core.
    #[inline]
    pub fn record_bytes(&self) -> usize {
        match self.kind {
            Kind::Message | Kind::Large => self.data_at() + self.value as usize,
            Kind::Context
            | Kind::Accumulate
            | Kind::IndexedPut
            | Kind::Description
            | Kind::Scatter
            | Kind::Gather
            | Kind::Gathered => HEADER_BYTES + self.value as usize,
            _ => HEADER_BYTES,
        }
    }
}

/// The header and the arguments of a message, which are sent before its data.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    bytes: [u8; HEADER_BYTES + 8 * ARGS_MAX],
    len: usize,
}

impl Head {
    /// `header.count` is the number of arguments, up to 16.
    #[inline]
    pub fn new(header: &Header, args: &[i64]) -> Head {
        let mut bytes = [0; HEADER_BYTES + 8 * ARGS_MAX];
        if let Some(first) = bytes.first_chunk_mut() {
            *first = header.encode();
        }
        for (to, arg) in bytes[HEADER_BYTES..].chunks_exact_mut(8).zip(args) {
            to.copy_from_slice(&arg.to_le_bytes());
        }
        Head { bytes, len: header.data_at().min(HEADER_BYTES + 8 * ARGS_MAX) }
    }

    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&self.bytes)
    }
}

/// The arguments of a message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Args<'a>(&'a [[u8; 8]]);

impl<'a> Args<'a> {
    /// The arguments in a whole record.
    #[inline]
    pub(crate) fn of(header: &Header, record: &'a [u8]) -> Args<'a> {
        let end = HEADER_BYTES + 8 * usize::from(header.count);
        Args(record.get(HEADER_BYTES..end).unwrap_or_default().as_chunks().0)
    }

    /// The number of arguments.
    #[inline]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Copies the arguments to the beginning of a buffer, and returns them there.
    #[inline]
    pub fn decode<'b>(&self, buffer: &'b mut [i64; ARGS_MAX]) -> &'b [i64] {
        for (arg, bytes) in buffer.iter_mut().zip(self.0) {
            *arg = i64::from_le_bytes(*bytes);
        }
        buffer.get(..self.0.len()).unwrap_or_default()
    }
}

/// A record that does not wait for messages before it.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub(crate) enum Word {
    /// The header contains everything.
    Header(Header),
    Collected(Collected),
    Ask(Range),
    /// The answer about a range: its region, or `None` if no region has it.
    Answer(Range, Option<Region>),
    Update(Update),
    /// The answer to the update of this number. `None` if it was made, otherwise the address that is not registered.
    Updated(u64, Option<u64>),
    /// The answer to the large message of this number.
    LargeEnded(u64, LargeOutcome),
    Counted(CountedWord),
    /// From now on, this number identifies this description.
    Description(u16, Description),
    /// The data for the gather of this number.
    Gathered(u64, Box<[u8]>),
}

/// A record of a collective, by the team's number, and the collective's number in the team.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Collected {
    Data {
        team: u32,
        number: u32,
        /// Whether the sender has more for the receiver in this collective.
        follows: bool,
        data: Box<[u8]>,
    },
    /// The receiver may send more of it.
    Follow { team: u32, number: u32 },
    /// The collective has ended at the sender, which has lost a rank.
    Lost { team: u32, number: u32, rank: u32 },
}

/// Bytes before the data of a part of a collective.
pub(crate) const COLLECTED_HEAD_BYTES: usize = HEADER_BYTES + 8;

impl Collected {
    //= wire.md R-AM-11
    /// What comes before the data.
    pub fn encode_head(&self) -> [u8; COLLECTED_HEAD_BYTES] {
        match *self {
            Collected::Data { team, number, follows, .. } => {
                Collected::encode_data_head(team, number, follows)
            }
            Collected::Follow { team, number } => {
                Collected::head(&Header::new(Kind::CollectiveFollow), team, number)
            }
            Collected::Lost { team, number, rank } => {
                let header = Header { value: rank, ..Header::new(Kind::CollectiveLost) };
                Collected::head(&header, team, number)
            }
        }
    }

    /// The bytes before data that are not copied behind them.
    pub fn encode_data_head(team: u32, number: u32, follows: bool) -> [u8; COLLECTED_HEAD_BYTES] {
        Collected::head(&Header { flag: follows, ..Header::new(Kind::Collective) }, team, number)
    }

    fn head(header: &Header, team: u32, number: u32) -> [u8; COLLECTED_HEAD_BYTES] {
        let mut head = [0; COLLECTED_HEAD_BYTES];
        head[..HEADER_BYTES].copy_from_slice(&header.encode());
        head[HEADER_BYTES..HEADER_BYTES + 4].copy_from_slice(&team.to_le_bytes());
        head[HEADER_BYTES + 4..].copy_from_slice(&number.to_le_bytes());
        head
    }

    pub fn data(&self) -> &[u8] {
        match self {
            Collected::Data { data, .. } => data,
            _ => &[],
        }
    }

    fn decode(header: Header, body: &[u8]) -> Option<Collected> {
        let (words, data) = body.split_at_checked(8)?;
        let half = |at: usize| words.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        let (team, number) = (half(0)?, half(4)?);
        match header.kind {
            Kind::Collective if data.len() <= COLLECTIVE_BYTES_MAX => {
                Some(Collected::Data { team, number, follows: header.flag, data: data.into() })
            }
            Kind::CollectiveFollow if data.is_empty() => Some(Collected::Follow { team, number }),
            Kind::CollectiveLost if data.is_empty() => {
                Some(Collected::Lost { team, number, rank: header.value })
            }
            _ => None,
        }
    }
}

/// Addresses of a process.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Range {
    pub start: u64,
    pub len_bytes: u64,
}

/// Memory that a process has registered.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    /// The address of its first byte in its process.
    pub start: u64,
    pub handle: RegionHandle,
}

impl Range {
    pub fn end(&self) -> Option<u64> {
        self.start.checked_add(self.len_bytes)
    }

    fn encode(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.start.to_le_bytes());
        bytes[8..].copy_from_slice(&self.len_bytes.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Range> {
        let (start, len_bytes) = (word(bytes)?, word(bytes.get(8..)?)?);
        Some(Range { start, len_bytes }).filter(|range| range.len_bytes > 0 && range.end().is_some())
    }
}

impl Region {
    /// The offset of the range in the region, if all of it is inside.
    pub fn offset(&self, range: Range) -> Option<u64> {
        let offset = range.start.checked_sub(self.start)?;
        (offset.checked_add(range.len_bytes)? <= self.handle.len_bytes()).then_some(offset)
    }
}

impl Word {
    pub fn encode(&self) -> Vec<u8> {
        let header = |kind, value| Header { value, ..Header::new(kind) }.encode();
        match self {
            Word::Header(header) => header.encode().to_vec(),
            Word::Collected(collected) => [&collected.encode_head()[..], collected.data()].concat(),
            Word::Update(update) => update.encode(),
            Word::Counted(word) => word.encode(),
            Word::Description(slot, description) => {
                let encoded = description.encode(DESCRIPTION_BYTES_MAX).unwrap_or_default();
                [&description_head(*slot, encoded.len())[..], &encoded].concat()
            }
            Word::Gathered(id, data) => [&gathered_head(*id, data.len())[..], data].concat(),
            Word::Updated(id, refused) => {
                let head = Header { flag: refused.is_some(), ..Header::new(Kind::Updated) }.encode();
                [&head[..], &id.to_le_bytes(), &refused.unwrap_or_default().to_le_bytes()].concat()
            }
            Word::LargeEnded(number, outcome) => {
                [&header(Kind::LargeEnded, *outcome as u32)[..], &number.to_le_bytes()].concat()
            }
            Word::Ask(range) => [&header(Kind::Ask, 0)[..], &range.encode()].concat(),
            Word::Answer(range, None) => [&header(Kind::Answer, 0)[..], &range.encode()].concat(),
            Word::Answer(range, Some(Region { start, handle })) => {
                let (range, start) = (range.encode(), start.to_le_bytes());
                [&header(Kind::Answer, 1)[..], &range, &start, &handle.to_bytes()].concat()
            }
        }
    }

    //= wire.md R-AM-9
    /// None for what no process of this version sends.
    pub fn decode(header: Header, record: &[u8]) -> Option<Word> {
        let body = record.get(HEADER_BYTES..)?;
        let (range, rest) = match header.kind {
            Kind::Ask | Kind::Answer => (Range::decode(body)?, body.get(16..)?),
            Kind::Collective | Kind::CollectiveFollow | Kind::CollectiveLost => {
                return Collected::decode(header, body).map(Word::Collected);
            }
            Kind::Accumulate | Kind::IndexedPut | Kind::Scatter | Kind::Gather => {
                return Update::decode(header, body).map(Word::Update);
            }
            Kind::Description => {
                let (slot, description) = packed::decode_description(header, body)?;
                return Some(Word::Description(slot, description));
            }
            Kind::Gathered => {
                let (id, data) = packed::decode_gathered(body)?;
                return Some(Word::Gathered(id, data));
            }
            Kind::Counted => return CountedWord::decode(header, body).map(Word::Counted),
            Kind::LargeEnded => {
                let outcome = LargeOutcome::of_number(header.value)?;
                return (body.len() == 8).then_some(Word::LargeEnded(word(body)?, outcome));
            }
            Kind::Updated => {
                let refused = word(body.get(8..)?)?;
                return (body.len() == 16)
                    .then_some(Word::Updated(word(body)?, header.flag.then_some(refused)));
            }
            _ => return body.is_empty().then_some(Word::Header(header)),
        };
        match (header.kind, header.value, rest.len()) {
            (Kind::Ask, 0, 0) => Some(Word::Ask(range)),
            (Kind::Answer, 0, 0) => Some(Word::Answer(range, None)),
            (Kind::Answer, 1, ANSWER_BYTES) => {
                let handle = RegionHandle::from_message(rest.get(8..)?)?;
                Some(Word::Answer(range, Some(Region { start: word(rest)?, handle })))
            }
            _ => None,
        }
    }
}

/// Bytes of an answer behind its range.
const ANSWER_BYTES: usize = 8 + RegionHandle::BYTES;

fn word(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

/// Identifies a context to all ranks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ContextName {
    /// The n-th context without a name, from 0.
    Unnamed(u32),
    Named(String),
}

impl ContextName {
    //= wire.md R-AM-4
    /// What follows the header.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            ContextName::Unnamed(number) => number.to_le_bytes().to_vec(),
            ContextName::Named(name) => [&u32::MAX.to_le_bytes(), name.as_bytes()].concat(),
        }
    }

    pub fn decode(bytes: &[u8]) -> Option<ContextName> {
        let (number, name) = bytes.split_first_chunk()?;
        match u32::from_le_bytes(*number) {
            u32::MAX => Some(ContextName::Named(std::str::from_utf8(name).ok()?.to_owned())),
            number if name.is_empty() => Some(ContextName::Unnamed(number)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A word in a whole record.
    pub(super) fn decode(bytes: &[u8]) -> Option<Word> {
        let header = Header::decode(bytes).filter(|header| header.record_bytes() == bytes.len())?;
        Word::decode(header, bytes)
    }

    proptest! {
        #[test]
        fn what_is_decoded_encodes_to_the_same(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some(header) = Header::decode(&bytes) {
                prop_assert_eq!(&header.encode()[..], &bytes[..HEADER_BYTES]);
                prop_assert!(header.record_bytes() <= crate::limits::RECORD_BYTES_MAX);
            }
        }

        #[test]
        fn heads_keep_their_arguments(values in proptest::collection::vec(any::<i64>(), 0..=ARGS_MAX), len in 0..=DATA_BYTES_MAX) {
            let header = Header {
                handler: 7,
                context: 3,
                credits: 9,
                count: values.len() as u8,
                value: len as u32,
                flag: true,
                ..Header::new(Kind::Message)
            };
            let head = Head::new(&header, &values);
            prop_assert_eq!(Header::decode(head.bytes()), Some(header));
            prop_assert_eq!(head.bytes().len(), header.data_at());
            let mut buffer = [0; ARGS_MAX];
            prop_assert_eq!(Args::of(&header, head.bytes()).decode(&mut buffer), &values[..]);
        }

        #[test]
        fn words_are_kept(start in any::<u64>(), len in 1_u64.., handle: [u8; RegionHandle::BYTES], at in any::<u64>()) {
            let range = Range { start: start.min(u64::MAX - len), len_bytes: len };
            let region = Region { start: at, handle: RegionHandle::from_bytes(handle) };
            let words = [Word::Ask(range), Word::Answer(range, None), Word::Answer(range, Some(region))];
            let ends = [Word::Updated(at, None), Word::Updated(at, Some(start)), Word::LargeEnded(at, LargeOutcome::Aborted)];
            for word in words.into_iter().chain(ends) {
                let bytes = word.encode();
                let decode = |bytes: &[u8]| Header::decode(bytes).and_then(|header| Word::decode(header, bytes));
                prop_assert_eq!(decode(&bytes), Some(word.clone()));
                prop_assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
            }
            let (team, number) = (start as u32, len as u32);
            let data = vec![7; len as usize % 100].into_boxed_slice();
            for collected in [
                Collected::Data { team, number, follows: len % 2 == 0, data },
                Collected::Follow { team, number },
                Collected::Lost { team, number, rank: at as u32 },
            ] {
                let bytes = Word::Collected(collected.clone()).encode();
                let decoded = Header::decode(&bytes).and_then(|header| Word::decode(header, &bytes));
                prop_assert_eq!(decoded, Some(Word::Collected(collected)));
                prop_assert_eq!(Header::decode(&bytes).and_then(|header| Word::decode(header, &bytes[..20])), None);
            }
            if let Some(offset) = region.offset(range) {
                prop_assert_eq!(at.wrapping_add(offset), range.start);
                prop_assert!(offset + len <= region.handle.len_bytes());
            }
        }

        #[test]
        fn names_of_contexts_are_kept(name in ".{0,64}", number in 0..u32::MAX) {
            for name in [ContextName::Named(name.clone()), ContextName::Unnamed(number)] {
                prop_assert_eq!(ContextName::decode(&name.encode()), Some(name));
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let good = Header { count: 16, ..Header::new(Kind::Message) }.encode();
        assert!(Header::decode(&good).is_some());
        for (at, value) in [(0, 0), (0, 24), (1, 2), (2, 17), (3, 1), (10, 1), (14, 1)] {
            let mut bad = good;
            bad[at] = value;
            assert_eq!(Header::decode(&bad), None, "byte {at} is {value}");
        }
        assert_eq!(Header::decode(&good[..15]), None);
        assert_eq!(ContextName::decode(&[1, 0, 0, 0, 5]), None);
        assert_eq!(ContextName::decode(&[1, 0]), None);
        assert_eq!(ContextName::decode(&[255, 255, 255, 255, 0xff]), None);
    }
}
