//! One operation on memory of a rank.

use super::links::Links;
use super::part::{Elements, Part, Transfer};
use super::registered::{Registered, address, find, inside};
use super::results::{Results, Slot};
use super::served;
use crate::arithmetic::{Accumulation, Change, Number};
use crate::description::Piece;
use crate::error::{AmError, Result};
use crate::limits::{
    PACKED_BYTES_MAX, PACKED_PIECE_BYTES_MAX, PACKED_PIECES_MIN, UPDATE_BYTES_MAX, UPDATE_PIECES_MAX,
};
use crate::wire::{Range, Region, Update, Updating, Word};
use cci::{
    Access, Atomic, AtomicRefusal, Connection, Memory, RegionAddress, RegionHandle, Rma, RmaError, RmaFlags,
    RmaKind, Segment, Status,
};
use cci_job::JobError;

/// Bytes that are copied in one step within a process.
const COPY_BYTES: usize = 64 << 10;

/// The most pieces on each side that one operation of the core takes.
const PIECES_MAX: usize = 256;
const _: () = assert!(2 * PIECES_MAX <= cci::limits::RMA_SEGMENTS_MAX);

/// The progress of a transfer that travels packed.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Bytes for which the rank was asked, and those that are done. Both are multiples of the longest record's data, or all.
    pub asked_bytes: usize,
    pub done_bytes: usize,
    /// The first address that the rank has refused.
    pub refused: Option<u64>,
    /// Records without an answer.
    pub in_flight: u32,
}

/// The state of a transfer after a record was answered.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    InProgress,
    /// It has ended; an error has the address that the rank has refused.
    Ended(Result<(), u64>),
    /// The rank was not asked for that.
    Nonsense,
}

/// A transfer between described data on both sides.
pub(crate) struct Described {
    pub transfer: Transfer,
    pub local: Memory,
    /// Bytes from the beginning of the local memory to the origin of its first element.
    pub origin: isize,
    pub here: Elements,
    /// The address of the origin of the first remote element.
    pub remote_origin: u64,
    pub there: Elements,
    pub packed_bytes: usize,
    /// How many of these bytes are done, and how many are under way.
    pub done_bytes: usize,
    pub started_bytes: usize,
    /// How the bytes travel. `None` before that is decided.
    pub is_packed: Option<bool>,
    /// The progress of what travels packed.
    pub packed: Progress,
}

/// The action of an operation.
pub(crate) enum Action {
    /// Copies between many pieces, some at a time.
    Described(Box<Described>),
    /// Copies to or from local memory.
    Transfer(Transfer, Part),
    /// Changes a word, by the next request to the core. The previous value is written to the slot.
    Atomic(Change, Atomic, Slot),
    /// Asks the rank to change elements of its memory, some at a time.
    Accumulate(Box<Described>, Number, Accumulation),
    /// Asks the rank to write bytes to the place to which one of its pointers points.
    IndexedPut(Part),
}

/// The origin of an operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The program, which identifies it by this number.
    Program(u64),
    /// The first indexed put of other ranks fetches its bytes.
    IndexedPut,
    /// It fetches the data of a large message. The sender identifies the message by `number`, the program by `cookie`.
    Large { number: u64, cookie: u64 },
}

/// The result of an attempt to start.
pub(crate) enum Started {
    Yes,
    /// It has ended. The endpoint will not report it.
    Ended(Status),
    /// There is no space.
    NotYet,
    /// It is not known yet which region has this range.
    Unknown(Range),
}

pub(crate) struct Operation {
    pub rank: u32,
    pub action: Action,
    /// The range of all its remote bytes, including those between them.
    pub remote: Range,
    /// The part of that range whose region is asked for.
    pub wanted: Range,
    /// Whether no region has all of it, so that the regions of its pieces are asked for.
    pub is_by_piece: bool,
    /// The region of the remote bytes, if the rank has sent it before.
    pub region: Option<Region>,
    /// The region that was registered for this operation, of the local memory.
    pub made: Option<RegionHandle>,
    pub has_asked_again: bool,
    pub purpose: Purpose,
}

impl Operation {
    /// The value that an atomic operation has found; 0 of others.
    pub fn found(&self, results: &Results) -> u64 {
        match self.action {
            Action::Atomic(.., slot) => results.value(slot),
            _ => 0,
        }
    }

    /// Notes that what was started of it has ended well. Returns whether there is more to do.
    pub fn goes_on(&mut self, results: &Results) -> bool {
        match &mut self.action {
            Action::Transfer(..) | Action::IndexedPut(_) => false,
            Action::Described(described) | Action::Accumulate(described, ..) => {
                described.done_bytes += std::mem::take(&mut described.started_bytes);
                described.done_bytes < described.packed_bytes
            }
            Action::Atomic(change, attempt, slot) => {
                let found = results.value(*slot);
                let has_failed = change.has_failed(attempt, found);
                if has_failed {
                    *attempt = change.attempt(found);
                }
                has_failed
            }
        }
    }

    /// Does the operation on memory of this process itself. `None` if that is not possible now.
    pub fn run_here(&mut self, registered: &[Registered]) -> Option<Result<u64>> {
        let Operation { rank, remote, action, .. } = self;
        let refused = |address| AmError::NotRegistered { rank: *rank, address };
        let whole = inside(registered, *remote);
        let done = match action {
            Action::Described(described) => {
                let spread = |range| inside(registered, range);
                described.run_here(spread).map(|()| 0).map_err(|error| error.unwrap_or(refused(remote.start)))
            }
            Action::Accumulate(described, number, how) => {
                described.accumulate_here(registered, *number, *how).map(|()| 0).map_err(refused)
            }
            Action::IndexedPut(local) => {
                let put = |memory: &Memory, at| copy(Transfer::Put, (memory, at), local).is_ok();
                let made = served::put_at_pointer(registered, remote.start, local.len_bytes, put)?;
                made.map(|()| 0).map_err(refused)
            }
            Action::Transfer(transfer, local) => match whole {
                Some((there, at)) => copy(*transfer, (&there, at), local).map(|()| 0),
                None => Err(refused(remote.start)),
            },
            Action::Atomic(change, ..) => match whole.map(|(there, at)| change.make(&there, at)) {
                Some(Ok(found)) => Ok(found),
                None | Some(Err(AtomicRefusal::OutOfRange)) => Err(refused(remote.start)),
                Some(Err(_)) => {
                    Err(AmError::Argument("the address of an atomic operation is a multiple of its width"))
                }
            },
        };
        Some(done)
    }

    /// Whether its remote bytes may consist of several pieces.
    pub fn has_pieces(&self) -> bool {
        match &self.action {
            Action::Described(described) | Action::Accumulate(described, ..) => {
                described.packed_bytes as u64 != self.remote.len_bytes
            }
            _ => false,
        }
    }

    /// Whether the rank does it in its own progress.
    pub fn is_update(&self) -> bool {
        match &self.action {
            Action::Accumulate(..) | Action::IndexedPut(_) => true,
            Action::Described(described) => described.is_packed == Some(true),
            Action::Transfer(..) | Action::Atomic(..) => false,
        }
    }

    /// The first of its remote bytes that are in no known region. `None` if all are in some.
    pub fn first_unknown(&self, known: &[Region]) -> Option<Range> {
        let is_known = |range: Range| known.iter().any(|region| region.offset(range).is_some());
        match &self.action {
            Action::Described(described) | Action::Accumulate(described, ..) if self.is_by_piece => {
                described.first_unknown(is_known)
            }
            _ => (!is_known(self.remote)).then_some(self.remote),
        }
    }
}

impl Described {
    /// The first used byte of the local memory, and the number of bytes up to the last one. They were checked to be inside.
    fn first_local(&self) -> usize {
        let span = self.here.description.span(self.here.count).unwrap_or(0..0);
        usize::try_from(self.origin.saturating_add(span.start)).unwrap_or_default()
    }

    fn local_bytes(&self) -> usize {
        self.here.description.span(self.here.count).map_or(0, |span| span.len())
    }

    /// The remote addresses of a piece.
    fn remote(&self, piece: &Piece) -> Range {
        let start = self.remote_origin.wrapping_add_signed(piece.at as i64);
        Range { start, len_bytes: piece.len_bytes as u64 }
    }

    /// The first remote piece, from the present one on, that is in no known region.
    fn first_unknown(&self, is_known: impl Fn(Range) -> bool) -> Option<Range> {
        let (mut at, mut pieces) = (self.done_bytes, Vec::new());
        while at < self.packed_bytes {
            pieces.clear();
            let Elements { count, description } = &self.there;
            let bytes = description.pieces(*count, at, usize::MAX, PIECES_MAX, &mut pieces);
            let unknown = pieces.iter().map(|piece| self.remote(piece)).find(|&range| !is_known(range));
            if unknown.is_some() || bytes == 0 {
                return unknown;
            }
            at += bytes;
        }
        None
    }

    /// Whether all remote pieces consist of whole elements.
    pub fn has_whole(&self, number: Number) -> bool {
        let element = number.len_bytes() as u64;
        self.first_unknown(|range| {
            range.start.is_multiple_of(element) && range.len_bytes.is_multiple_of(element)
        })
        .is_none()
    }

    /// The next remote pieces, of up to this many bytes with their addresses, and the data for them.
    pub fn next_update(
        &self,
        number: Number,
        most_pieces: usize,
        most_bytes: usize,
    ) -> (Vec<Range>, Vec<u8>) {
        const PIECE_BYTES: usize = 16;
        let mut pieces = Vec::new();
        let Elements { count, description } = &self.there;
        let (mut left, element) = (most_bytes, number.len_bytes());
        description.pieces(*count, self.done_bytes, most_bytes, most_pieces.min(PIECES_MAX), &mut pieces);
        let fit = |piece: &Piece| {
            let len_bytes = piece.len_bytes.min(left.saturating_sub(PIECE_BYTES) / element * element);
            left = left.saturating_sub(PIECE_BYTES + len_bytes);
            (len_bytes > 0).then(|| self.remote(&Piece { len_bytes, ..*piece }))
        };
        let there: Vec<Range> = pieces.iter().map_while(fit).collect();
        let mut data = vec![0; there.iter().map(|range| range.len_bytes as usize).sum()];
        let mut rest = &mut data[..];
        while !rest.is_empty() {
            let done = rest.len();
            let from =
                self.done_bytes + there.iter().map(|range| range.len_bytes as usize).sum::<usize>() - done;
            pieces.clear();
            let Elements { count, description } = &self.here;
            if description.pieces(*count, from, done, PIECES_MAX, &mut pieces) == 0 {
                break;
            }
            for piece in &pieces {
                let at = usize::try_from(self.origin.wrapping_add(piece.at)).unwrap_or(usize::MAX);
                let is_inside =
                    rest.split_off_mut(..piece.len_bytes).is_some_and(|bytes| self.local.read(at, bytes));
                debug_assert!(is_inside, "it was checked when it was started");
            }
        }
        (there, data)
    }

    /// Changes memory of this process: all of it, or nothing if an address is not registered.
    fn accumulate_here(
        &mut self,
        registered: &[Registered],
        number: Number,
        how: Accumulation,
    ) -> Result<(), u64> {
        if let Some(range) = self.first_unknown(|range| find(registered, range).is_some()) {
            return Err(range.start);
        }
        while self.done_bytes < self.packed_bytes {
            let (pieces, data) = self.next_update(number, usize::MAX, usize::MAX);
            served::accumulate(registered, number, how, &pieces, &data)?;
            self.done_bytes += data.len();
        }
        Ok(())
    }

    /// The next pieces on both sides, with equally many bytes.
    fn next_pieces(&self) -> (Vec<Piece>, Vec<Piece>, usize) {
        let take = |elements: &Elements, len_bytes: usize| {
            let mut pieces = Vec::new();
            let Elements { count, description } = elements;
            let bytes = description.pieces(*count, self.done_bytes, len_bytes, PIECES_MAX, &mut pieces);
            (pieces, bytes)
        };
        let (_, here) = take(&self.here, usize::MAX);
        let (there, bytes) = take(&self.there, here);
        let (here, bytes) = take(&self.here, bytes);
        (here, there, bytes)
    }

    /// Whether the next pieces are many and short.
    pub fn is_in_short_pieces(&self) -> bool {
        let (here, there, bytes) = self.next_pieces();
        let pieces = here.len().max(there.len());
        pieces >= PACKED_PIECES_MIN && bytes / pieces < PACKED_PIECE_BYTES_MAX
    }

    /// Starts with the next pieces. `local` is the offset of the first used byte of the local memory in its region.
    fn start_next(
        &mut self,
        links: &mut Links,
        connection: Connection,
        (local, first): (RegionAddress, usize),
        known: &[Region],
        id: u64,
    ) -> Result<Started> {
        let (here, there, bytes) = self.next_pieces();
        let from_first = self.origin.wrapping_sub_unsigned(first);
        let segment = |piece: &Piece| {
            let offset = local.offset.wrapping_add_signed(from_first.wrapping_add(piece.at) as i64);
            Segment::new(local.handle, offset, piece.len_bytes as u64)
        };
        let here: Vec<Segment> = here.iter().map(segment).collect();
        let mut remote = Vec::with_capacity(there.len());
        for range in there.iter().map(|piece| self.remote(piece)) {
            let found = known.iter().find_map(|region| Some((region.handle, region.offset(range)?)));
            let Some((handle, offset)) = found else { return Ok(Started::Unknown(range)) };
            remote.push(Segment::new(handle, offset, range.len_bytes));
        }
        let kind = match self.transfer {
            Transfer::Put => RmaKind::Write,
            Transfer::Get => RmaKind::Read,
        };
        let flags = RmaFlags::NONE;
        let rma = Rma { kind, local: &here, remote: &remote, message: None, context: id, flags };
        let started = outcome(links.endpoint().rma(connection, &rma))?;
        if matches!(started, Started::Yes) {
            self.started_bytes = bytes;
        }
        Ok(started)
    }

    /// Handles the answer to the oldest record that has none: `data` of a gather, or else the address that was refused.
    pub fn answered(&mut self, answer: Result<Option<&[u8]>, u64>) -> Answered {
        let Described { transfer, packed, packed_bytes, here, local, origin, .. } = self;
        if packed.in_flight == 0 {
            return Answered::Nonsense;
        }
        let len_bytes = PACKED_BYTES_MAX.min(*packed_bytes - packed.done_bytes);
        match (*transfer, answer) {
            (_, Err(address)) => _ = packed.refused.get_or_insert(address),
            (Transfer::Put, Ok(None)) => {}
            (Transfer::Get, Ok(Some(data))) if data.len() == len_bytes => {
                let Elements { count, description } = here;
                let is_there = local.writable().is_some_and(|memory| {
                    description.unpack(memory, *origin, *count, packed.done_bytes, data).is_ok()
                });
                debug_assert!(is_there, "it was checked when it was started");
            }
            _ => return Answered::Nonsense,
        }
        packed.done_bytes += len_bytes;
        packed.in_flight -= 1;
        match packed.refused {
            _ if packed.in_flight > 0 => Answered::InProgress,
            Some(address) => Answered::Ended(Err(address)),
            None if packed.done_bytes == *packed_bytes => Answered::Ended(Ok(())),
            None => Answered::InProgress,
        }
    }

    /// Does the whole transfer on memory of this process. `find` looks up remote addresses. The error is the address where
    /// nothing is registered.
    pub fn run_here(
        &mut self,
        find: impl Fn(Range) -> Option<(Memory, usize)>,
    ) -> Result<(), Option<AmError>> {
        if self.first_unknown(|range| find(range).is_some()).is_some() {
            return Err(None);
        }
        while self.done_bytes < self.packed_bytes {
            let (here, there, bytes) = self.next_pieces();
            let here: Vec<(Memory, usize, usize)> = here
                .iter()
                .map(|piece| {
                    let at = usize::try_from(self.origin.wrapping_add(piece.at)).unwrap_or(usize::MAX);
                    (self.local.clone(), at, piece.len_bytes)
                })
                .collect();
            let found =
                |piece: &Piece| find(self.remote(piece)).map(|(memory, at)| (memory, at, piece.len_bytes));
            let there: Vec<(Memory, usize, usize)> =
                there.iter().map(found).collect::<Option<_>>().ok_or(None)?;
            let (from, to) = match self.transfer {
                Transfer::Put => (here, there),
                Transfer::Get => (there, here),
            };
            let outside = || Some(AmError::Range("described bytes are outside of their memory"));
            let mut packed = Vec::with_capacity(bytes);
            for (memory, at, len) in from {
                let end = packed.len();
                packed.resize(end + len, 0);
                let is_inside = packed.get_mut(end..).is_some_and(|bytes| memory.read(at, bytes));
                is_inside.then_some(()).ok_or_else(outside)?;
            }
            let mut rest = &packed[..];
            for (memory, at, len) in to {
                let bytes = rest.split_off(..len).ok_or_else(outside)?;
                memory.write(at, bytes).then_some(()).ok_or_else(outside)?;
            }
            self.done_bytes += bytes;
        }
        Ok(())
    }
}

/// Gives an operation to the endpoint, or to the rank. The local memory is registered for it, unless it is already. `known` has
/// the remote regions.
pub(crate) fn start(
    links: &mut Links,
    registered: &[Registered],
    results: &Results,
    connection: Connection,
    operation: &mut Operation,
    known: &[Region],
    id: u64,
) -> Result<Started> {
    if let Some(range) = operation.first_unknown(known) {
        return Ok(Started::Unknown(range));
    }
    let Operation { rank, action, remote, made, .. } = operation;
    let target =
        known.iter().find_map(|region| Some(RegionAddress::new(region.handle, region.offset(*remote)?)));
    let started = match (action, target) {
        (Action::Described(described), _) => {
            let first = described.first_local();
            let part =
                Part { memory: described.local.clone(), offset: first, len_bytes: described.local_bytes() };
            let local = local_address(links, registered, &part, made)?;
            return described.start_next(links, connection, (local, first), known, id);
        }
        (Action::Accumulate(described, number, how), _) => {
            let (pieces, data) = described.next_update(*number, UPDATE_PIECES_MAX, UPDATE_BYTES_MAX);
            described.started_bytes = data.len();
            let what = Updating::Accumulate { number: *number, how: *how, pieces, data: data.into() };
            return Ok(ask(links, *rank, Update { id, what }));
        }
        (Action::IndexedPut(local), _) => {
            let pointer = remote.start;
            let what = if local.len_bytes <= UPDATE_BYTES_MAX {
                let mut data = vec![0; local.len_bytes].into_boxed_slice();
                let is_inside = local.memory.read(local.offset, &mut data);
                debug_assert!(is_inside, "it was checked when it was started");
                Updating::Indexed { pointer, data }
            } else {
                // The rank reads the memory, so it must be a region of its own, whose handle nobody else has.
                let start = address(&local.memory);
                let handle = match *made {
                    Some(handle) => handle,
                    None => *made.insert(links.endpoint().register(&local.memory, Access::READ)?),
                };
                let source = Range { start: start + local.offset as u64, len_bytes: local.len_bytes as u64 };
                Updating::IndexedFar { pointer, source, region: Region { start, handle } }
            };
            return Ok(ask(links, *rank, Update { id, what }));
        }
        (_, None) => return Ok(Started::Unknown(*remote)),
        (Action::Transfer(transfer, local), Some(target)) => {
            let at = local_address(links, registered, local, made)?;
            copy_at_once(links, connection, *transfer, (at, target), local.len_bytes, id)
        }
        (Action::Atomic(_, atomic, slot), Some(target)) => {
            let result = results.address(*slot);
            links.endpoint().atomic_at_once(connection, *atomic, target, result, id, RmaFlags::NONE)
        }
    };
    Ok(match started {
        Ok(Some(status)) => Started::Ended(status),
        started => outcome(started.map(|_| ()))?,
    })
}

/// Starts to copy between a local address and a remote one. Returns the status if it has ended.
#[inline]
pub(crate) fn copy_at_once(
    links: &mut Links,
    connection: Connection,
    transfer: Transfer,
    (local, remote): (RegionAddress, RegionAddress),
    len_bytes: usize,
    id: u64,
) -> Result<Option<Status>, RmaError> {
    let kind = match transfer {
        Transfer::Put => RmaKind::Write,
        Transfer::Get => RmaKind::Read,
    };
    let segment = |address| Segment { address, len_bytes: len_bytes as u64 };
    let (local, remote) = ([segment(local)], [segment(remote)]);
    let flags = RmaFlags::NONE;
    links.endpoint().rma_at_once(
        connection,
        &Rma { kind, local: &local, remote: &remote, message: None, context: id, flags },
    )
}

/// Asks a rank to make a change, if it may be asked for one more.
fn ask(links: &mut Links, rank: u32, update: Update) -> Started {
    if !links.take_update(rank) {
        return Started::NotYet;
    }
    links.say(rank, &Word::Update(update));
    Started::Yes
}

fn outcome(started: Result<(), RmaError>) -> Result<Started> {
    match started {
        Ok(()) => Ok(Started::Yes),
        // An event reports the end of the connection, and ends the operation.
        Err(RmaError::WouldBlock | RmaError::Disconnected) => Ok(Started::NotYet),
        Err(RmaError::LocalHandle) => Err(AmError::Argument("the local memory is not writable")),
        Err(error) => {
            Err(JobError::Endpoint { what: "a remote operation".into(), error: Box::new(error) }.into())
        }
    }
}

fn local_address(
    links: &mut Links,
    registered: &[Registered],
    local: &Part,
    made: &mut Option<RegionHandle>,
) -> Result<RegionAddress> {
    let Part { memory, offset, len_bytes } = local;
    let range = Range { start: address(memory) + *offset as u64, len_bytes: *len_bytes as u64 };
    if let Some(region) = find(registered, range) {
        return Ok(RegionAddress::new(region.handle, region.offset(range).unwrap_or_default()));
    }
    let handle = match *made {
        Some(made) => made,
        None => *made.insert(links.endpoint().register(memory, Access::LOCAL)?),
    };
    Ok(RegionAddress::new(handle, *offset as u64))
}

/// Copies between memory of this process.
fn copy(transfer: Transfer, (there, at): (&Memory, usize), local: &Part) -> Result<()> {
    let mut buffer = vec![0; local.len_bytes.min(COPY_BYTES)];
    for done in (0..local.len_bytes).step_by(COPY_BYTES) {
        let some = buffer.len().min(local.len_bytes - done);
        let bytes = buffer.get_mut(..some).unwrap_or_default();
        let (from, from_at, to, to_at) = match transfer {
            Transfer::Put => (&local.memory, local.offset, there, at),
            Transfer::Get => (there, at, &local.memory, local.offset),
        };
        if !from.read(from_at + done, bytes) || !to.write(to_at + done, bytes) {
            return Err(AmError::Range("the local part ends behind its memory"));
        }
    }
    Ok(())
}
