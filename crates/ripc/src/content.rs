//! The content of a message: short items, which travel in it, and long ones, which stay in the sender's memory until they are
//! fetched.

use crate::buffers::Buffer;
use crate::error::SendError;
use crate::handles::Partner;
use crate::name::ServiceName;
use crate::wire::{self, Head, Items, Kind};
use cci::{Memory, RegisterError};
use std::fmt;
use std::ops::Range;

/// A part of memory that is lent to one partner: to be read, as a long item, or to be written once, as a return buffer. The memory of a
/// long item may be a file ([`Memory::file`]): it is read when the partner fetches it, and never put into a return buffer.
#[derive(Clone, Debug)]
pub struct Part {
    pub(crate) memory: Memory,
    pub(crate) range: Range<usize>,
}

impl Part {
    /// Makes a part of the `range` of `memory`. The range is checked when the part is sent.
    pub fn new(memory: &Memory, range: Range<usize>) -> Part {
        Part { memory: memory.clone(), range }
    }

    /// Makes a part of all the memory.
    pub fn all(memory: &Memory) -> Part {
        Part::new(memory, 0..memory.len())
    }

    pub(crate) fn len_bytes(&self) -> u64 {
        self.range.len() as u64
    }

    /// Whether the two parts have a byte in common.
    pub(crate) fn overlaps(&self, other: &Part) -> bool {
        if self.memory.is_file() || other.memory.is_file() {
            let (one, other_range) = (&self.range, &other.range);
            let meets = one.start < other_range.end && other_range.start < one.end;
            return self.memory.is_same(&other.memory) && meets;
        }
        let addresses = |part: &Part| {
            let start = part.memory.as_ptr().addr() + part.range.start;
            start..start + part.range.len()
        };
        let (one, other) = (addresses(self), addresses(other));
        one.start < other.end && other.start < one.end
    }
}

/// What to send. Short items alone are content, too: `node.send(partner, b"hello")`, or `node.send(partner, &[head, body])`.
///
/// ```
/// use cci_ripc::{Content, Node, Part, Partner, SendError};
///
/// fn send_page(node: &mut Node, to: Partner, head: &[u8], page: Part) -> Result<(), SendError> {
///     node.send(to, Content::from(&[b"page", head]).long_items(&[page]).context(7))
/// }
/// ```
#[derive(Copy, Clone, Debug, Default)]
pub struct Content<'a> {
    items: ShortItems<'a>,
    pub(crate) long_items: &'a [Part],
    pub(crate) return_buffers: &'a [Part],
    pub(crate) context: u64,
}

#[derive(Copy, Clone, Debug)]
enum ShortItems<'a> {
    One(&'a [u8]),
    Many(&'a [&'a [u8]]),
}

impl Default for ShortItems<'_> {
    fn default() -> Self {
        ShortItems::Many(&[])
    }
}

impl<'a> Content<'a> {
    /// Adds long items, which the partner fetches, or which are put into its return buffers (RIPC-020, RIPC-024). They are lent
    /// until [`Event::Returned`](crate::Event::Returned), or until the lease ends: do not change them before.
    #[must_use]
    pub fn long_items(self, long_items: &'a [Part]) -> Content<'a> {
        Content { long_items, ..self }
    }

    /// Adds buffers into which the partner may put long items of an answer, each once (RIPC-024).
    #[must_use]
    pub fn return_buffers(self, return_buffers: &'a [Part]) -> Content<'a> {
        Content { return_buffers, ..self }
    }

    /// Adds a number that comes back in [`Event::Returned`](crate::Event::Returned).
    #[must_use]
    pub fn context(self, context: u64) -> Content<'a> {
        Content { context, ..self }
    }
}

impl<'a> From<&'a [&'a [u8]]> for Content<'a> {
    /// Makes content of short items, gathered into one message (RIPC-016).
    fn from(items: &'a [&'a [u8]]) -> Content<'a> {
        Content { items: ShortItems::Many(items), ..Content::default() }
    }
}

impl<'a, const N: usize> From<&'a [&'a [u8]; N]> for Content<'a> {
    fn from(items: &'a [&'a [u8]; N]) -> Content<'a> {
        Content::from(&items[..])
    }
}

impl<'a> From<&'a [u8]> for Content<'a> {
    /// Makes content of one short item.
    fn from(item: &'a [u8]) -> Content<'a> {
        Content { items: ShortItems::One(item), ..Content::default() }
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Content<'a> {
    fn from(item: &'a [u8; N]) -> Content<'a> {
        Content::from(&item[..])
    }
}

impl<'a> From<&'a str> for Content<'a> {
    fn from(item: &'a str) -> Content<'a> {
        Content::from(item.as_bytes())
    }
}

impl Content<'_> {
    /// The short items.
    #[inline]
    pub(crate) fn items(&self) -> &[&[u8]] {
        match &self.items {
            ShortItems::One(item) => std::slice::from_ref(item),
            ShortItems::Many(items) => items,
        }
    }

    /// Refuses files as return buffers: partners can't write to them.
    #[cold]
    fn check_return_buffers(&self) -> Result<(), SendError> {
        let has_file = self.return_buffers.iter().any(|part| part.memory.is_file());
        if has_file { Err(SendError::System(RegisterError::ReadOnly.to_string())) } else { Ok(()) }
    }

    /// Checks the content that a caller gives.
    #[inline]
    pub(crate) fn check(&self, kind: Kind) -> Result<Head, SendError> {
        let parts = || self.long_items.iter().chain(self.return_buffers);
        if parts().any(|part| part.range.is_empty() || part.range.end > part.memory.len()) {
            return Err(SendError::Range);
        }
        if !self.return_buffers.is_empty() {
            self.check_return_buffers()?;
        }
        Head::new(kind, (0, 0), self.items().len(), self.long_items.len(), self.return_buffers.len())
    }
}

/// Content that is kept until a partner is found, or in case it must be sent again.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    head: Head,
    /// The frame as it is sent, if nothing is lent with it. Otherwise the frame without what is lent.
    plain: Vec<u8>,
    lent: Option<Box<Parts>>,
}

/// The parts of memory that are lent with content.
#[derive(Clone, Debug)]
struct Parts {
    long_items: Vec<Part>,
    return_buffers: Vec<Part>,
    context: u64,
}

impl Kept {
    pub fn new(head: Head, content: &Content<'_>) -> Kept {
        let items = content.items();
        let without = Head { long_items: 0, offers: 0, ..head };
        let payload_bytes: usize = items.iter().map(|item| item.len()).sum();
        let mut plain = Vec::with_capacity(without.table_bytes() + payload_bytes);
        without.put(&mut plain, items, &[], &[]);
        items.iter().for_each(|item| plain.extend_from_slice(item));
        Kept { head, plain, lent: if head.is_plain() { None } else { Some(Parts::new(content)) } }
    }

    /// A frame without items.
    pub fn bare(head: Head) -> Kept {
        Kept::new(head, &Content::default())
    }

    #[inline]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Writes the client's oldest number without an answer into a request.
    #[inline]
    pub fn set_oldest(&mut self, oldest: u64) {
        self.head.oldest = oldest;
        Head::patch_oldest(&mut self.plain, oldest);
    }

    /// The whole frame, if nothing is lent with it.
    #[inline]
    pub fn as_plain(&self) -> Option<&[u8]> {
        if self.lent.is_none() { Some(&self.plain) } else { None }
    }

    /// Bytes that it holds, without the program's memory.
    pub fn bytes(&self) -> usize {
        self.plain.len() + size_of::<Kept>()
    }

    pub fn long_items(&self) -> &[Part] {
        self.lent.as_ref().map_or(&[], |lent| &lent.long_items)
    }

    pub fn return_buffers(&self) -> &[Part] {
        self.lent.as_ref().map_or(&[], |lent| &lent.return_buffers)
    }

    /// The number that comes back when the long items are returned.
    pub fn context(&self) -> u64 {
        self.lent.as_ref().map_or(0, |lent| lent.context)
    }

    /// Whether it lends a byte of this memory.
    pub fn lends(&self, part: &Part) -> bool {
        self.long_items().iter().chain(self.return_buffers()).any(|lent| lent.overlaps(part))
    }

    /// The short items.
    pub fn items(&self) -> Items<'_> {
        wire::short_items(&self.plain)
    }
}

impl Parts {
    #[cold]
    fn new(content: &Content<'_>) -> Box<Parts> {
        Box::new(Parts {
            long_items: content.long_items.to_vec(),
            return_buffers: content.return_buffers.to_vec(),
            context: content.context,
        })
    }
}

/// A long item that was fetched, or that the partner has put into a return buffer. Nobody else can change it any more.
#[derive(Debug)]
pub struct LongItem {
    data: Data,
    len_bytes: usize,
}

#[derive(Debug)]
enum Data {
    Own(Buffer),
    Memory(Memory, usize),
}

impl LongItem {
    pub(crate) fn own(bytes: Buffer, len_bytes: usize) -> LongItem {
        LongItem { data: Data::Own(bytes), len_bytes }
    }

    /// Bytes of the library's own memory that it holds.
    pub(crate) fn own_bytes(&self) -> usize {
        if let Data::Own(bytes) = &self.data { bytes.len() } else { 0 }
    }

    pub(crate) fn memory(memory: Memory, offset: usize, len_bytes: usize) -> LongItem {
        LongItem { data: Data::Memory(memory, offset), len_bytes }
    }

    /// The length of the item, bytes.
    #[allow(clippy::len_without_is_empty, reason = "an item is never empty")]
    pub fn len(&self) -> usize {
        self.len_bytes
    }

    /// The bytes, if they are in the library's own memory; `None` if they are in a window or return buffer of the program.
    pub fn bytes(&self) -> Option<&[u8]> {
        match &self.data {
            Data::Own(bytes) => bytes.get(..self.len_bytes),
            Data::Memory(..) => None,
        }
    }

    /// The window or return buffer that has the bytes, and where in it they begin.
    pub fn place(&self) -> Option<(&Memory, usize)> {
        match &self.data {
            Data::Own(_) => None,
            Data::Memory(memory, offset) => Some((memory, *offset)),
        }
    }

    /// Copies bytes out, from `offset` of the item on. Returns false, and copies nothing, if that reaches beyond the item's end.
    #[must_use]
    pub fn read(&self, offset: usize, out: &mut [u8]) -> bool {
        if offset.checked_add(out.len()).is_none_or(|end| end > self.len_bytes) {
            return false;
        }
        match &self.data {
            Data::Own(bytes) => {
                out.copy_from_slice(&bytes[offset..offset + out.len()]);
                true
            }
            Data::Memory(memory, start) => memory.read(start + offset, out),
        }
    }

    /// Returns a copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len_bytes];
        let whole = self.read(0, &mut bytes);
        debug_assert!(whole, "an item lies within its memory");
        bytes
    }
}

/// A message from another service: complete, with everything that belongs to it (RIPC-007). The program may keep it for any time.
/// Its receive buffer is free again when it is dropped.
pub struct Message {
    /// A frame that was checked.
    pub(crate) frame: cci::Message,
    pub(crate) from: ServiceName,
    pub(crate) partner: Partner,
    pub(crate) long_items: Vec<Option<LongItem>>,
}

impl Message {
    /// Makes a message without long items.
    #[inline(always)]
    pub(crate) fn short(frame: cci::Message, from: ServiceName, partner: Partner) -> Message {
        Message { frame, from, partner, long_items: Vec::new() }
    }

    /// The sender. Without security this is what the sender says. Answers go to the sender in any case.
    pub fn from(&self) -> &ServiceName {
        &self.from
    }

    /// The partner that sent it, to send something back.
    pub fn partner(&self) -> Partner {
        self.partner
    }

    /// The short items.
    #[inline]
    pub fn items(&self) -> Items<'_> {
        wire::short_items(&self.frame)
    }

    /// A short item by its number; empty if there is none.
    pub fn item(&self, index: usize) -> &[u8] {
        self.items().nth(index).unwrap_or_default()
    }

    /// The long items. An item is `None` if it could not be fetched: the sender is gone, its lease has ended, or no window was
    /// large enough.
    pub fn long_items(&self) -> &[Option<LongItem>] {
        &self.long_items
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.long_items.iter().all(Option::is_some)
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Message({} items and {} long ones from {})",
            self.items().len(),
            self.long_items.len(),
            self.from
        )
    }
}
