//! The slots of a mapped ring, and the kernel's header in each (`tpacket2_hdr`).

use crate::mapped::Mapped;

/// Blocks the kernel allocates: large enough for several frames, small enough to be found in one piece.
const BLOCK_BYTES: usize = 32 << 10;

/// Offset of the frame's length in the header; the status is at 0.
pub(super) const LEN_OFFSET: usize = std::mem::offset_of!(libc::tpacket2_hdr, tp_len);

/// How slots lie in blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    slot_bytes: usize,
    block_bytes: usize,
    slots_per_block: usize,
    blocks: usize,
}

impl Layout {
    /// At least `slots` of at least `slot_bytes`.
    pub fn new(slots: usize, slot_bytes: usize) -> Layout {
        let slot_bytes = slot_bytes.next_multiple_of(libc::TPACKET_ALIGNMENT);
        let block_bytes = BLOCK_BYTES.max(slot_bytes.next_power_of_two());
        let slots_per_block = block_bytes / slot_bytes;
        Layout { slot_bytes, block_bytes, slots_per_block, blocks: slots.div_ceil(slots_per_block).max(1) }
    }

    fn slots(&self) -> usize {
        self.slots_per_block * self.blocks
    }

    pub fn len_bytes(&self) -> usize {
        self.block_bytes * self.blocks
    }

    pub fn request(&self) -> libc::tpacket_req {
        libc::tpacket_req {
            tp_block_size: self.block_bytes as u32,
            tp_block_nr: self.blocks as u32,
            tp_frame_size: self.slot_bytes as u32,
            tp_frame_nr: self.slots() as u32,
        }
    }
}

/// A ring: slots that are used one after the other, for ever.
#[derive(Debug)]
pub(super) struct Ring {
    layout: Layout,
    base: usize,
    slots: usize,
    /// Number of the slot we are at.
    at: usize,
    /// Its offset in the mapping.
    position: usize,
}

impl Ring {
    /// The ring laid out so, from `base` in the mapping.
    pub fn new(layout: Layout, base: usize) -> Ring {
        Ring { slots: layout.slots(), layout, base, at: 0, position: base }
    }

    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Offset of the slot we are at.
    #[inline]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Offset of the slot after it.
    #[inline]
    pub fn next(&self) -> usize {
        self.offset(self.after())
    }

    /// Offset of the slot `count` (1 to `slots`) before the one we are at.
    #[inline]
    pub fn back(&self, count: usize) -> usize {
        let at = if count <= self.at { self.at - count } else { self.at + self.slots - count };
        self.offset(at)
    }

    #[inline]
    pub fn advance(&mut self) {
        self.at = self.after();
        self.position = self.offset(self.at);
    }

    #[inline]
    fn after(&self) -> usize {
        if self.at + 1 == self.slots { 0 } else { self.at + 1 }
    }

    #[inline]
    fn offset(&self, slot: usize) -> usize {
        let (block, within) = (slot / self.layout.slots_per_block, slot % self.layout.slots_per_block);
        self.base + block * self.layout.block_bytes + within * self.layout.slot_bytes
    }
}

/// Offset and length of the frame in the slot that `ring` is at, if it is there in full.
#[inline]
pub(super) fn frame_in(rings: &Mapped, ring: &Ring) -> Option<(usize, usize)> {
    // SAFETY: plain numbers, and the slot is ours: its status was looked at.
    let header = unsafe { rings.read::<libc::tpacket2_hdr>(ring.position()) }?;
    let (from, len_bytes) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
    // Cut off: longer than the interface's MTU was when the ring was made.
    let whole = header.tp_snaplen == header.tp_len;
    let inside =
        from >= size_of::<libc::tpacket2_hdr>() && from.checked_add(len_bytes)? <= ring.layout.slot_bytes;
    (whole && inside).then_some((ring.position() + from, len_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_lie_in_blocks_and_come_round() {
        for (slots, slot_bytes) in [(1, 100), (64, 1_600), (256, 9_100), (7, 65_000)] {
            let layout = Layout::new(slots, slot_bytes);
            let request = layout.request();
            assert!(layout.slots() >= slots && layout.slot_bytes >= slot_bytes, "{layout:?}");
            assert_eq!(
                request.tp_frame_nr,
                request.tp_block_size / request.tp_frame_size * request.tp_block_nr
            );
            let mut ring = Ring::new(layout, 4_096);
            let mut seen: Vec<usize> = Vec::new();
            for count in 1..=ring.slots() {
                let (position, next) = (ring.position(), ring.next());
                assert!(position >= 4_096 && position + layout.slot_bytes <= 4_096 + layout.len_bytes());
                // A block is not crossed.
                assert_eq!(
                    (position - 4_096) / layout.block_bytes,
                    (position - 4_096 + layout.slot_bytes - 1) / layout.block_bytes
                );
                assert!(seen.last().is_none_or(|last| last + layout.slot_bytes <= position));
                seen.push(position);
                ring.advance();
                assert_eq!((ring.position(), ring.back(1), ring.back(count)), (next, position, seen[0]));
            }
            assert_eq!(ring.position(), seen[0], "round");
            assert_eq!(ring.back(ring.slots()), seen[0]);
        }
    }
}
