//! The messages between services: a hello when they connect, and frames afterwards (wire.md, R-RIPC).

use crate::directory::Instance;
use crate::error::SendError;
use crate::limits::{ITEMS_MAX, LONG_BYTES_MAX, LONG_ITEMS_MAX, NAME_BYTES_MAX, OFFERS_MAX};
use crate::name::ServiceName;
use cci::RegionHandle;

/// The beginning of every hello. The last byte is the version.
const MAGIC: &[u8; 5] = b"RIPC\x01";
/// The bytes of a frame before its tables.
pub const HEAD_BYTES: usize = 32;
const ITEM_BYTES: usize = 4;
const LONG_ITEM_BYTES: usize = 1 + RegionHandle::BYTES + 8;
const OFFER_BYTES: usize = 8 + RegionHandle::BYTES + 8;

/// The hello of a partner that connects: who it is, and which service it wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The instance of the service that connects.
    pub instance: Instance,
    /// Whether `from` is in a directory, so that others may connect to it.
    pub is_listed: bool,
    /// Who connects.
    pub from: ServiceName,
    /// Whom it wants.
    pub to: ServiceName,
}

impl Hello {
    //= wire.md R-RIPC-1
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 + 2 * NAME_BYTES_MAX);
        bytes.extend_from_slice(MAGIC);
        bytes.push(u8::from(self.is_listed));
        bytes.extend_from_slice(&self.instance.0.to_le_bytes());
        for name in [&self.from, &self.to] {
            bytes.push(name.as_str().len() as u8);
            bytes.extend_from_slice(name.as_str().as_bytes());
        }
        bytes
    }

    /// Parses a hello. `None` if it is no hello of this version.
    pub fn parse(bytes: &[u8]) -> Option<Hello> {
        let mut reader = Reader(bytes);
        if reader.take(MAGIC.len())? != MAGIC {
            return None;
        }
        let is_listed = match reader.byte()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let instance = Instance(reader.word()?);
        let from = reader.name()?;
        let to = reader.name()?;
        reader.0.is_empty().then_some(Hello { instance, is_listed, from, to })
    }
}

/// The kind of a frame.
//= wire.md R-RIPC-5
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A message: short items, long ones, return buffers.
    Message = 1,
    /// A request with its number, and the oldest number that has no answer yet.
    Request = 2,
    /// The answer to the request with this number.
    Answer = 3,
    /// The answer that the request can't be carried out.
    Refusal = 4,
    /// The request was not taken, since too many wait. It must be repeated.
    Busy = 5,
    /// The request was not taken, since the service has moved. It must be repeated at the new place.
    Moved = 6,
    /// The long items of a lease have been fetched (`number` is 1), or will not be (0).
    Fetched = 7,
    /// A request for the service itself: its sender wants to be the service from now on.
    TakeOver = 8,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        Some(match byte {
            1 => Kind::Message,
            2 => Kind::Request,
            3 => Kind::Answer,
            4 => Kind::Refusal,
            5 => Kind::Busy,
            6 => Kind::Moved,
            7 => Kind::Fetched,
            8 => Kind::TakeOver,
            _ => return None,
        })
    }
}

/// The beginning of a frame, checked.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub kind: Kind,
    pub items: u8,
    pub long_items: u8,
    pub offers: u8,
    /// The number of a request, in the request and in its answer.
    pub number: u64,
    /// In a request: the client's oldest number that has no answer yet.
    pub oldest: u64,
    /// The lease of the long items; 0 if nothing is lent.
    pub lease: u64,
}

/// Data that stay in the sender's memory until they are fetched, or that were put into a return buffer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum LongItem {
    /// To be fetched, from the beginning of this region.
    There { handle: RegionHandle, len_bytes: u64 },
    /// Was put into the return buffer with this number.
    Here { offer: u64, len_bytes: u64 },
}

/// A buffer that the receiver may write an answer to, once.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    pub number: u64,
    pub handle: RegionHandle,
    pub len_bytes: u64,
}

impl Head {
    /// Makes a frame without items.
    pub fn bare(kind: Kind, number: u64) -> Head {
        Head { kind, items: 0, long_items: 0, offers: 0, number, oldest: 0, lease: 0 }
    }

    /// Makes the beginning of a frame with these parts.
    ///
    /// # Errors
    /// [`SendError::TooManyItems`].
    pub fn new(
        kind: Kind,
        (number, oldest): (u64, u64),
        items: usize,
        long_items: usize,
        offers: usize,
    ) -> Result<Head, SendError> {
        for (items, max) in [(items, ITEMS_MAX), (long_items, LONG_ITEMS_MAX), (offers, OFFERS_MAX)] {
            if items > max {
                return Err(SendError::TooManyItems { items, max });
            }
        }
        let (items, long_items, offers) = (items as u8, long_items as u8, offers as u8);
        Ok(Head { kind, items, long_items, offers, number, oldest, lease: 0 })
    }

    /// Appends the frame up to the bytes of its short items, which follow.
    #[inline]
    pub fn put(&self, out: &mut Vec<u8>, items: &[&[u8]], long_items: &[LongItem], offers: &[Offer]) {
        debug_assert_eq!((items.len(), long_items.len()), (self.items.into(), self.long_items.into()));
        let mut head = [0; HEAD_BYTES];
        head[..4].copy_from_slice(&[self.kind as u8, self.items, self.long_items, self.offers]);
        head[8..16].copy_from_slice(&self.number.to_le_bytes());
        head[16..24].copy_from_slice(&self.oldest.to_le_bytes());
        head[24..].copy_from_slice(&self.lease.to_le_bytes());
        out.extend_from_slice(&head);
        for item in items {
            out.extend_from_slice(&(item.len() as u32).to_le_bytes());
        }
        for item in long_items {
            match item {
                LongItem::There { handle, len_bytes } => {
                    out.push(0);
                    out.extend_from_slice(&handle.to_bytes());
                    out.extend_from_slice(&len_bytes.to_le_bytes());
                }
                LongItem::Here { offer, len_bytes } => {
                    out.push(1);
                    out.extend_from_slice(&offer.to_le_bytes());
                    out.extend_from_slice(&[0; RegionHandle::BYTES - 8]);
                    out.extend_from_slice(&len_bytes.to_le_bytes());
                }
            }
        }
        for offer in offers {
            out.extend_from_slice(&offer.number.to_le_bytes());
            out.extend_from_slice(&offer.handle.to_bytes());
            out.extend_from_slice(&offer.len_bytes.to_le_bytes());
        }
    }

    /// The bytes before those of the short items.
    #[inline]
    pub fn table_bytes(&self) -> usize {
        table_bytes(self.items, self.long_items, self.offers)
    }

    /// Replaces the oldest number in a frame.
    #[inline]
    pub fn patch_oldest(frame: &mut [u8], oldest: u64) {
        if let Some(place) = frame.get_mut(16..24) {
            place.copy_from_slice(&oldest.to_le_bytes());
        }
    }

    /// Parses and checks a frame: its tables are complete, and its short items fill the rest exactly. `None` if that is not so.
    //= wire.md R-RIPC-2
    #[inline]
    pub fn parse(frame: &[u8]) -> Option<Head> {
        let start: &[u8; HEAD_BYTES] = frame.first_chunk()?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| start[at + byte]));
        let head = Head {
            kind: Kind::of(start[0])?,
            items: start[1],
            long_items: start[2],
            offers: start[3],
            number: word(8),
            oldest: word(16),
            lease: word(24),
        };
        if start[4..8] != [0; 4] {
            return None;
        }
        // Most frames have one short item and nothing else.
        if head.is_plain()
            && head.items == 1
            && let Some(item_len) = frame[HEAD_BYTES..].first_chunk()
        {
            let len_bytes = (HEAD_BYTES + ITEM_BYTES) as u64 + u64::from(u32::from_le_bytes(*item_len));
            return (frame.len() as u64 == len_bytes).then_some(head);
        }
        head.has_whole_tables(frame).then_some(head)
    }

    /// Whether its tables are complete, and its short items fill the rest of the frame exactly.
    fn has_whole_tables(&self, frame: &[u8]) -> bool {
        let Some(rest) = frame.len().checked_sub(self.table_bytes()) else { return false };
        let mut items_bytes = 0_u64;
        for item in frame[HEAD_BYTES..][..usize::from(self.items) * ITEM_BYTES].chunks_exact(ITEM_BYTES) {
            items_bytes += u64::from(u32::from_le_bytes([item[0], item[1], item[2], item[3]]));
        }
        if items_bytes != rest as u64
            || (self.long_items | self.offers) as usize > LONG_ITEMS_MAX.max(OFFERS_MAX)
        {
            return false;
        }
        let (long_items, offers) = (self.long_items(frame), self.offers(frame));
        long_items.count() == usize::from(self.long_items) && offers.count() == usize::from(self.offers)
    }

    /// Whether nothing is lent: no long items, no return buffers.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.long_items == 0 && self.offers == 0
    }

    /// The long items of a frame. If one is malformed, they end before it.
    pub fn long_items<'a>(&self, frame: &'a [u8]) -> impl Iterator<Item = LongItem> + use<'a> {
        let start = HEAD_BYTES + usize::from(self.items) * ITEM_BYTES;
        let table =
            frame.get(start..start + usize::from(self.long_items) * LONG_ITEM_BYTES).unwrap_or_default();
        table.chunks_exact(LONG_ITEM_BYTES).map_while(|bytes| {
            let mut reader = Reader(bytes);
            let tag = reader.byte()?;
            let handle = reader.handle()?;
            let len_bytes = reader.word().filter(|len| (1..=LONG_BYTES_MAX).contains(len))?;
            match tag {
                0 => Some(LongItem::There { handle, len_bytes }),
                1 => Some(LongItem::Here { offer: Reader(&bytes[1..]).word()?, len_bytes }),
                _ => None,
            }
        })
    }

    /// The return buffers that a frame offers. If one is malformed, they end before it.
    pub fn offers<'a>(&self, frame: &'a [u8]) -> impl Iterator<Item = Offer> + use<'a> {
        let start = HEAD_BYTES
            + usize::from(self.items) * ITEM_BYTES
            + usize::from(self.long_items) * LONG_ITEM_BYTES;
        let table = frame.get(start..start + usize::from(self.offers) * OFFER_BYTES).unwrap_or_default();
        table.chunks_exact(OFFER_BYTES).map_while(|bytes| {
            let mut reader = Reader(bytes);
            let (number, handle) = (reader.word()?, reader.handle()?);
            let len_bytes = reader.word().filter(|len| (1..=LONG_BYTES_MAX).contains(len))?;
            Some(Offer { number, handle, len_bytes })
        })
    }
}

/// The bytes of a frame with so many short items, long items and return buffers before those of the short items.
#[inline]
/// The bytes of a frame with these numbers of items before the bytes of the short items.
pub fn table_bytes(items: u8, long_items: u8, offers: u8) -> usize {
    HEAD_BYTES
        + usize::from(items) * ITEM_BYTES
        + usize::from(long_items) * LONG_ITEM_BYTES
        + usize::from(offers) * OFFER_BYTES
}

/// The short items of a frame that was checked.
#[inline]
pub fn short_items(frame: &[u8]) -> Items<'_> {
    let Some(&[_, items, long_items, offers]) = frame.first_chunk() else { return Items::default() };
    let tables_bytes = table_bytes(items, long_items, offers);
    let (tables, payload) = frame.split_at_checked(tables_bytes).unwrap_or_default();
    let lengths = tables.get(HEAD_BYTES..HEAD_BYTES + usize::from(items) * ITEM_BYTES).unwrap_or_default();
    Items { lengths, payload }
}

/// The short items of a message, in order.
#[derive(Clone, Debug, Default)]
pub struct Items<'a> {
    lengths: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Iterator for Items<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let (length, lengths) = self.lengths.split_first_chunk::<ITEM_BYTES>()?;
        let (item, payload) = self.payload.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        (self.lengths, self.payload) = (lengths, payload);
        Some(item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let items = self.lengths.len() / ITEM_BYTES;
        (items, Some(items))
    }
}

impl ExactSizeIterator for Items<'_> {}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*word))
    }

    fn handle(&mut self) -> Option<RegionHandle> {
        let (handle, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(RegionHandle::from_bytes(*handle))
    }

    fn name(&mut self) -> Option<ServiceName> {
        let len = self.byte()?;
        ServiceName::new(str::from_utf8(self.take(len.into())?).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn handle() -> impl Strategy<Value = RegionHandle> {
        any::<[u8; RegionHandle::BYTES]>().prop_map(RegionHandle::from_bytes)
    }

    fn long_item() -> impl Strategy<Value = LongItem> {
        prop_oneof![
            (handle(), 1..=LONG_BYTES_MAX)
                .prop_map(|(handle, len_bytes)| LongItem::There { handle, len_bytes }),
            (any::<u64>(), 1..=LONG_BYTES_MAX)
                .prop_map(|(offer, len_bytes)| LongItem::Here { offer, len_bytes }),
        ]
    }

    fn offer() -> impl Strategy<Value = Offer> {
        (any::<u64>(), handle(), 1..=LONG_BYTES_MAX).prop_map(|(number, handle, len_bytes)| Offer {
            number,
            handle,
            len_bytes,
        })
    }

    proptest! {
        #[test]
        fn a_frame_is_read_as_it_was_written(
            kind in 1..=8_u8, number: u64, oldest: u64,
            items in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..12),
            long_items in prop::collection::vec(long_item(), 0..4),
            offers in prop::collection::vec(offer(), 0..4),
        ) {
            let items: Vec<&[u8]> = items.iter().map(Vec::as_slice).collect();
            let kind = Kind::of(kind).unwrap();
            let head = Head::new(kind, (number, oldest), items.len(), long_items.len(), offers.len()).unwrap();
            let mut frame = Vec::new();
            head.put(&mut frame, &items, &long_items, &offers);
            items.iter().for_each(|item| frame.extend_from_slice(item));
            prop_assert_eq!(Head::parse(&frame), Some(head));
            prop_assert_eq!(short_items(&frame).collect::<Vec<_>>(), items);
            prop_assert_eq!(head.long_items(&frame).collect::<Vec<_>>(), long_items);
            prop_assert_eq!(head.offers(&frame).collect::<Vec<_>>(), offers);
            // With one byte more or less, it is no frame.
            frame.push(0);
            prop_assert_eq!(Head::parse(&frame), None);
            frame.truncate(frame.len() - 2);
            prop_assert_eq!(Head::parse(&frame), None);
        }

        #[test]
        fn any_bytes_are_refused_or_read(frame in prop::collection::vec(any::<u8>(), 0..300), kind in 0..12_u8,
                                         counts in any::<[u8; 3]>()) {
            let mut frame = frame;
            if let Some(start) = frame.first_chunk_mut::<8>() {
                *start = [kind, counts[0] % 4, counts[1] % 3, counts[2] % 3, 0, 0, 0, 0];
            }
            if let Some(head) = Head::parse(&frame) {
                prop_assert_eq!(short_items(&frame).count(), usize::from(head.items));
                let bytes: usize = short_items(&frame).map(<[u8]>::len).sum();
                prop_assert_eq!(bytes + head.table_bytes(), frame.len());
            }
            let _ = Hello::parse(&frame);
        }

        #[test]
        fn a_hello_is_read_as_it_was_written(instance: u64, is_listed: bool, from in "[a-z0-9]{1,63}", to in "[a-z0-9]{1,63}") {
            let (from, to) = (ServiceName::new(&from)?, ServiceName::new(&to)?);
            let hello = Hello { instance: Instance(instance), is_listed, from, to };
            let mut bytes = hello.to_bytes();
            prop_assert!(bytes.len() <= cci::limits::REQUEST_BYTES_MAX);
            prop_assert_eq!(Hello::parse(&bytes), Some(hello));
            bytes.push(0);
            prop_assert_eq!(Hello::parse(&bytes), None);
        }
    }
}
