//! How the memory shared with the kernel is cut into areas, and which of those for sending are free.

use super::HEADROOM_BYTES;

/// Areas of half a page take frames of the usual MTU; larger than a page they cannot be.
const SMALL_AREA_BYTES: usize = 2_048;
const LARGE_AREA_BYTES: usize = 4_096;

/// Drivers put longer frames into several pages: besides the frame, its first page holds the free bytes before it and the
/// kernel's notes behind it (256 or 258, and 320 bytes).
const PAGE_FRAME_BYTES_MAX: usize = 3_512;

/// Areas to receive, then slots to send (of as many areas as the longest frame takes), then space for one frame that is
/// put together from fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    area_bytes: usize,
    frame_bytes_max: usize,
    recv_frames: usize,
    send_frames: usize,
}

impl Layout {
    pub fn new(frame_bytes_max: usize, recv_frames: usize, send_frames: usize) -> Layout {
        let small = frame_bytes_max + HEADROOM_BYTES <= SMALL_AREA_BYTES;
        Layout {
            area_bytes: if small { SMALL_AREA_BYTES } else { LARGE_AREA_BYTES },
            frame_bytes_max: frame_bytes_max.min(65_536),
            recv_frames: recv_frames.clamp(1, 1 << 20),
            send_frames: send_frames.clamp(1, 1 << 20),
        }
    }

    /// This layout with frames short enough that each lies in one area.
    pub fn in_one_fragment(self) -> Layout {
        Layout { frame_bytes_max: self.frame_bytes_max.min(PAGE_FRAME_BYTES_MAX), ..self }
    }

    /// Whether the longest frame may lie in several areas.
    pub fn in_fragments(&self) -> bool {
        self.frame_bytes_max > PAGE_FRAME_BYTES_MAX
    }

    fn fragments_received(&self) -> usize {
        self.frame_bytes_max.div_ceil(self.area_bytes - HEADROOM_BYTES)
    }

    /// Areas of a slot to send.
    pub fn fragments_sent(&self) -> usize {
        self.frame_bytes_max.div_ceil(self.area_bytes)
    }

    pub fn area_bytes(&self) -> usize {
        self.area_bytes
    }

    pub fn frame_bytes_max(&self) -> usize {
        self.frame_bytes_max
    }

    pub fn recv_areas(&self) -> usize {
        self.recv_frames * self.fragments_received()
    }

    /// Entries of the rings for receiving: a power of two, one for each area at least.
    pub fn recv_entries(&self) -> u32 {
        self.recv_areas().next_power_of_two() as u32
    }

    /// Entries of the rings for sending, likewise.
    pub fn send_entries(&self) -> u32 {
        (self.send_frames * self.fragments_sent()).next_power_of_two() as u32
    }

    fn send_offset(&self) -> usize {
        self.recv_areas() * self.area_bytes
    }

    fn slot_bytes(&self) -> usize {
        self.fragments_sent() * self.area_bytes
    }

    /// Offset and length of the space for one frame that is put together.
    pub fn scratch(&self) -> (usize, usize) {
        let space = if self.in_fragments() { self.frame_bytes_max } else { 0 };
        (self.send_offset() + self.send_frames * self.slot_bytes(), space)
    }

    pub fn umem_bytes(&self) -> usize {
        let (offset, space) = self.scratch();
        // Whole pages.
        (offset + space).next_multiple_of(LARGE_AREA_BYTES)
    }

    pub fn receive_buffer_bytes(&self) -> usize {
        self.recv_frames * self.frame_bytes_max
    }

    /// Offset of a received fragment, if it lies in one area to receive.
    #[inline]
    pub fn received(&self, address: u64, len_bytes: usize) -> Option<usize> {
        let offset = usize::try_from(address).ok()?;
        let within = offset & (self.area_bytes - 1);
        (offset < self.send_offset() && within + len_bytes <= self.area_bytes).then_some(offset)
    }

    /// Address of the area that `address` lies in.
    #[inline]
    pub fn area_of(&self, address: u64) -> u64 {
        address & !(self.area_bytes as u64 - 1)
    }
}

/// The slots to send.
#[derive(Debug)]
pub(super) struct Areas {
    base: usize,
    slot_bytes: usize,
    /// Numbers of the free ones; the last is the next.
    free: Vec<u32>,
    /// For each slot, how many of its areas the kernel still has.
    out: Vec<u8>,
}

impl Areas {
    pub fn new(layout: &Layout) -> Areas {
        Areas {
            base: layout.send_offset(),
            slot_bytes: layout.slot_bytes(),
            free: (0..layout.send_frames as u32).rev().collect(),
            out: vec![0; layout.send_frames],
        }
    }

    #[inline]
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Offset of the next slot.
    #[inline]
    pub fn next(&self) -> Option<usize> {
        self.free.last().map(|slot| self.base + *slot as usize * self.slot_bytes)
    }

    /// Takes it: offset and number.
    #[inline]
    pub fn take(&mut self) -> Option<(usize, u32)> {
        let offset = self.next()?;
        Some((offset, self.free.pop()?))
    }

    /// The kernel has so many areas of the slot now.
    #[inline]
    pub fn expect(&mut self, slot: u32, areas: u8) {
        if let Some(out) = self.out.get_mut(slot as usize) {
            *out = areas;
        }
    }

    /// The kernel has sent what is at `address`. False: it had nothing there.
    #[inline]
    pub fn sent(&mut self, address: u64) -> bool {
        let slot = usize::try_from(address).ok().and_then(|offset| offset.checked_sub(self.base));
        let Some(slot) = slot.map(|offset| offset / self.slot_bytes) else { return false };
        let Some(out) = self.out.get_mut(slot).filter(|out| **out > 0) else { return false };
        *out -= 1;
        if *out == 0 {
            // Never more than there are slots: no allocation.
            self.free.push(slot as u32);
        }
        true
    }

    pub fn memory_bytes(&self) -> usize {
        self.free.capacity() * size_of::<u32>() + self.out.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps_and_everything_fits() {
        for frame_bytes_max in [60, 1_514, 1_792, 1_793, 3_512, 3_513, 3_840, 3_841, 4_096, 9_014, 65_535] {
            for frames in [1, 7, 256] {
                let layout = Layout::new(frame_bytes_max, frames, frames);
                assert!(layout.recv_entries() as usize >= layout.recv_areas());
                assert!(layout.umem_bytes().is_multiple_of(4_096) && layout.fragments_sent() < 18);
                assert_eq!(layout.in_fragments(), frame_bytes_max > 3_512, "{frame_bytes_max}");
                let (scratch, space) = layout.scratch();
                assert!(scratch + space <= layout.umem_bytes());
                assert!(!layout.in_fragments() || space == frame_bytes_max);
                let mut areas = Areas::new(&layout);
                let mut end = layout.recv_areas() * layout.area_bytes();
                let mut taken = Vec::new();
                while let Some((offset, slot)) = areas.take() {
                    assert!(
                        offset >= end && offset + frame_bytes_max <= scratch.max(offset + frame_bytes_max)
                    );
                    end = offset + layout.slot_bytes();
                    areas.expect(slot, layout.fragments_sent() as u8);
                    taken.push(offset);
                }
                assert_eq!((taken.len(), end), (frames, scratch));
                for offset in taken {
                    for fragment in 0..layout.fragments_sent() {
                        assert_eq!(areas.next().is_some(), areas.free() > 0);
                        assert!(areas.sent((offset + fragment * layout.area_bytes()) as u64));
                    }
                    assert!(!areas.sent(offset as u64), "twice");
                }
                assert_eq!(areas.free(), frames);
                assert!(!areas.sent(0) && !areas.sent(u64::MAX) && !areas.sent(layout.umem_bytes() as u64));
                let one = layout.in_one_fragment();
                assert!(!one.in_fragments() && one.frame_bytes_max() <= 3_512);
                assert_eq!(layout.received(scratch as u64, 1), None);
                assert_eq!(layout.received(256, layout.area_bytes() - 255), None);
                assert_eq!(layout.received(256, layout.area_bytes() - 256), Some(256));
            }
        }
    }
}
