//! Transfers of many small pieces, which travel packed: in records of up to 8 KiB, with a description of the remote pieces that the
//! rank was sent before.
//!
//! The core takes lists of pieces as well, but sends an address and a header for each.

use super::links::Links;
use super::operation::Described;
use super::part::{Elements, Transfer};
use super::registered::{Registered, inside};
use crate::description::{Description, Piece};
use crate::limits::{DESCRIPTION_BYTES_MAX, DESCRIPTIONS_MAX, PACKED_BYTES_MAX};
use crate::wire::{Packed, Range, Update, Updating, Word, description_head};
use cci::Memory;
use cci_job::numbered::Numbered;

/// The descriptions that ranks and this process have sent each other.
#[derive(Default)]
pub(crate) struct Descriptions {
    sent: Numbered<u32, Sent>,
    theirs: Numbered<u32, Vec<Option<Description>>>,
    /// Data of the record that is being sent.
    buffer: Vec<u8>,
}

/// What a rank was sent: each description by its number.
struct Sent {
    /// Whether the rank reaches memory of other processes by itself, so that nothing travels packed.
    is_mapped: bool,
    slots: Vec<(Description, Box<[u8]>)>,
    /// The slot that is used next.
    next: usize,
}

impl Descriptions {
    /// Whether transfers of short pieces to a rank with this description of its memory travel packed. Nothing is sent yet.
    pub fn may_pack(&mut self, links: &mut Links, rank: u32, there: &Description) -> bool {
        let Sent { is_mapped, slots, .. } = self.sent.entry(rank).or_insert_with(|| Sent {
            is_mapped: links.is_mapped(rank),
            slots: Vec::new(),
            next: 0,
        });
        let is_known = || slots.iter().any(|(known, _)| known.is_clone_of(there));
        !*is_mapped && (is_known() || there.encode(DESCRIPTION_BYTES_MAX).is_some())
    }

    /// The number by which a rank knows a description. It is sent first, unless it was before. `None` if it is too long.
    //= wire.md R-AM-17
    fn slot(&mut self, links: &mut Links, rank: u32, description: &Description) -> Option<u16> {
        let Sent { slots, next, .. } = self.sent.get_mut(&rank)?;
        if let Some(at) = slots.iter().position(|(known, _)| known.is_clone_of(description)) {
            return u16::try_from(at).ok();
        }
        let encoded = description.encode(DESCRIPTION_BYTES_MAX)?;
        // Programs may make the same description again and again.
        if let Some(at) = slots.iter().position(|(_, known)| *known == encoded) {
            slots[at].0 = description.clone();
            return u16::try_from(at).ok();
        }
        let at = *next;
        *next = (at + 1) % DESCRIPTIONS_MAX;
        links.say_with(rank, &description_head(at as u16, encoded.len()), &encoded);
        let entry = (description.clone(), encoded);
        match slots.get_mut(at) {
            Some(slot) => *slot = entry,
            None => slots.push(entry),
        }
        u16::try_from(at).ok()
    }

    /// Notes that a rank has sent a description.
    pub fn learn(&mut self, rank: u32, slot: u16, description: Description) {
        let theirs = self.theirs.entry(rank).or_default();
        let at = usize::from(slot).min(DESCRIPTIONS_MAX - 1);
        if theirs.len() <= at {
            theirs.resize(at + 1, None);
        }
        theirs[at] = Some(description);
    }

    /// How many descriptions a rank knows.
    #[cfg(test)]
    pub fn sent_to(&self, rank: u32) -> usize {
        self.sent.get(&rank).map_or(0, |sent| sent.slots.len())
    }

    pub fn lose(&mut self, rank: u32) {
        self.sent.remove(&rank);
        self.theirs.remove(&rank);
    }

    /// Asks a rank for the next records of a transfer, as many as it may be asked for. Returns whether it was asked for all.
    pub fn ask(&mut self, links: &mut Links, rank: u32, described: &mut Described, id: u64) -> bool {
        let total = described.packed_bytes;
        while described.packed.asked_bytes < total && described.packed.refused.is_none() {
            // Before the description is sent: transfers that wait would send theirs again at each attempt.
            if !links.take_update(rank) {
                return false;
            }
            // Later transfers may have taken its number meanwhile.
            let Some(slot) = self.slot(links, rank, &described.there.description) else {
                debug_assert!(false, "it was found that it may be sent");
                links.return_update(rank);
                return false;
            };
            let first = described.packed.asked_bytes;
            let len_bytes = PACKED_BYTES_MAX.min(total - first);
            let packed = Packed {
                slot,
                origin: described.remote_origin,
                count: described.there.count as u64,
                first_byte: first as u64,
            };
            match described.transfer {
                Transfer::Put => {
                    let data = part_of(&mut self.buffer, len_bytes);
                    let Elements { count, description } = &described.here;
                    let is_packed = described.local.readable().is_some_and(|memory| {
                        description.pack(memory, described.origin, *count, first, data).is_ok()
                    });
                    debug_assert!(is_packed, "it was checked when it was started");
                    links.say_with(rank, &packed.scatter_head(id, len_bytes), data);
                }
                Transfer::Get => {
                    let what = Updating::Gather { packed, len_bytes };
                    links.say(rank, &Word::Update(Update { id, what }));
                }
            }
            described.packed.asked_bytes += len_bytes;
            described.packed.in_flight += 1;
        }
        true
    }

    /// Does what a rank asks for by a description, and answers. Returns false if the rank breaks the protocol, or reads no answers.
    //= wire.md R-AM-18
    pub fn serve(
        &mut self,
        links: &mut Links,
        registered: &[Registered],
        rank: u32,
        update: &Update,
    ) -> bool {
        let (packed, len_bytes) = match &update.what {
            Updating::Scatter { packed, data } => (packed, data.len()),
            Updating::Gather { packed, len_bytes } => (packed, *len_bytes),
            _ => return false,
        };
        let theirs = self.theirs.get(&rank).and_then(|theirs| theirs.get(usize::from(packed.slot))?.as_ref());
        let Some(target) = theirs.and_then(|theirs| Target::of(theirs, packed, len_bytes)) else {
            return false;
        };
        let made = match &update.what {
            Updating::Scatter { data, .. } => target.scatter(registered, data),
            _ => {
                let data = part_of(&mut self.buffer, len_bytes);
                match target.gather(registered, data) {
                    Ok(()) => return links.say_gathered(rank, update.id, data),
                    Err(refused) => Err(refused),
                }
            }
        };
        links.say(rank, &Word::Updated(update.id, made.err()));
        true
    }
}

/// The beginning of a buffer, which is allocated when it is first needed.
fn part_of(buffer: &mut Vec<u8>, len_bytes: usize) -> &mut [u8] {
    buffer.resize(PACKED_BYTES_MAX, 0);
    buffer.get_mut(..len_bytes).unwrap_or_default()
}

/// Described memory of this process that a rank asks for.
struct Target<'a> {
    description: &'a Description,
    count: usize,
    origin: u64,
    first_byte: usize,
    len_bytes: usize,
    /// All bytes of all elements, with those in between, and how far the first one is from the origin.
    whole: Range,
    before: isize,
}

impl<'a> Target<'a> {
    /// `None` if there are no such bytes.
    fn of(description: &'a Description, packed: &Packed, len_bytes: usize) -> Option<Target<'a>> {
        let (count, first_byte) =
            (usize::try_from(packed.count).ok()?, usize::try_from(packed.first_byte).ok()?);
        let size = description.packed_bytes(count)?;
        if first_byte.checked_add(len_bytes).is_none_or(|end| end > size) {
            return None;
        }
        let span = description.span(count)?;
        let start = packed.origin.checked_add_signed(span.start as i64)?;
        let whole = Range { start, len_bytes: span.len() as u64 };
        whole.end()?;
        let (origin, before) = (packed.origin, span.start);
        Some(Target { description, count, origin, first_byte, len_bytes, whole, before })
    }

    /// All of it in one registered memory, and its origin there.
    fn in_one(&self, registered: &[Registered]) -> Option<(Memory, isize)> {
        let (memory, at) = inside(registered, self.whole)?;
        Some((memory, at.cast_signed().wrapping_sub(self.before)))
    }

    /// The pieces of the bytes that are asked for, in whatever memory they are registered. An error is the first address where
    /// nothing is.
    fn in_pieces(&self, registered: &[Registered]) -> Result<Vec<(Memory, usize, usize)>, u64> {
        let mut pieces = Vec::new();
        self.description.pieces(self.count, self.first_byte, self.len_bytes, usize::MAX, &mut pieces);
        let find = |piece: &Piece| {
            let start = self.origin.wrapping_add_signed(piece.at as i64);
            let (memory, at) =
                inside(registered, Range { start, len_bytes: piece.len_bytes as u64 }).ok_or(start)?;
            Ok((memory, at, piece.len_bytes))
        };
        pieces.iter().map(find).collect()
    }

    /// Writes all of the data, or nothing.
    fn scatter(&self, registered: &[Registered], data: &[u8]) -> Result<(), u64> {
        if let Some((memory, origin)) = self.in_one(registered) {
            let is_there = memory.writable().is_some_and(|memory| {
                self.description.unpack(memory, origin, self.count, self.first_byte, data).is_ok()
            });
            debug_assert!(is_there, "the place was looked up");
            return Ok(());
        }
        let mut rest = data;
        for (memory, at, len_bytes) in self.in_pieces(registered)? {
            let is_there = rest.split_off(..len_bytes).is_some_and(|bytes| memory.write(at, bytes));
            debug_assert!(is_there, "the place was looked up");
        }
        Ok(())
    }

    /// Reads all of the data.
    fn gather(&self, registered: &[Registered], data: &mut [u8]) -> Result<(), u64> {
        if let Some((memory, origin)) = self.in_one(registered) {
            let is_there = memory.readable().is_some_and(|memory| {
                self.description.pack(memory, origin, self.count, self.first_byte, data).is_ok()
            });
            debug_assert!(is_there, "the place was looked up");
            return Ok(());
        }
        let mut rest = data;
        for (memory, at, len_bytes) in self.in_pieces(registered)? {
            let is_there = rest.split_off_mut(..len_bytes).is_some_and(|bytes| memory.read(at, bytes));
            debug_assert!(is_there, "the place was looked up");
        }
        Ok(())
    }
}
