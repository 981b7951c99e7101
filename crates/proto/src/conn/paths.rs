//! The paths of one connection together: which there are, and what goes or came by which.

use crate::Time;
use crate::conn::path::{Bond, FIRST, Path, SECOND};
use crate::wire::{Head, Kind, flags};

/// The paths of an active connection to its peer.
pub(crate) struct Paths {
    pub first: Path,
    /// The second path, and what goes by which.
    pub bond: Option<Box<Bond>>,
}

impl Paths {
    #[inline]
    pub fn get(&self, which: u8) -> &Path {
        match &self.bond {
            Some(bond) if which != FIRST => &bond.second,
            _ => &self.first,
        }
    }

    #[inline]
    pub fn get_mut(&mut self, which: u8) -> &mut Path {
        match &mut self.bond {
            Some(bond) if which != FIRST => &mut bond.second,
            _ => &mut self.first,
        }
    }

    /// The paths there are.
    #[inline]
    pub fn all(&self) -> std::ops::Range<u8> {
        FIRST..if self.bond.is_some() { 2 } else { 1 }
    }

    /// What the bundles in flight weigh, on all paths.
    #[inline]
    pub fn in_flight_bytes(&self) -> u32 {
        self.first.in_flight_bytes + self.bond.as_deref().map_or(0, |bond| bond.second.in_flight_bytes)
    }

    /// The shortest time in which what goes out by one path can be acknowledged by another.
    #[inline]
    pub fn light_ns(&self, out: u8, back: u8) -> u64 {
        let out_ns = self.get(out).rtt.min_ns();
        if out == back { out_ns } else { out_ns / 2 + self.get(back).rtt.min_ns() / 2 }
    }

    /// Whether the window of this path is what holds sending back.
    #[inline]
    pub fn is_limited(&self, which: u8) -> bool {
        let path = self.get(which);
        path.in_flight_bytes * 2 >= path.window.bytes()
    }

    /// The path that describes the connection: the first, unless it is down.
    pub fn best(&self) -> &Path {
        self.get(self.bond.as_deref().map_or(FIRST, |bond| bond.usable(FIRST)))
    }

    /// What the paths in use let be in flight, together.
    pub fn window_bytes(&self) -> u32 {
        let second = self.bond.as_deref().filter(|bond| bond.is_up(SECOND));
        self.first.window.bytes() + second.map_or(0, |bond| bond.second.window.bytes())
    }

    /// When the next paced bundle may leave.
    #[inline]
    pub fn pace_due(&self) -> Time {
        match self.bond.as_deref() {
            None => self.first.pace_due,
            Some(bond) => bond.pace_due,
        }
    }

    /// Something of this connection came by this path.
    #[inline]
    pub fn heard_by(&mut self, by: u8) {
        let Some(bond) = self.bond.as_deref_mut() else { return };
        if bond.path(by).note_heard() {
            self.get_mut(by).probes = 0;
        }
    }

    /// The paths, as bits, by which an acknowledgement leaves now.
    pub fn acks_by(&self) -> u8 {
        self.bond.as_deref().map_or(1 << FIRST, Bond::acks_by)
    }

    /// The path with the shorter round trip.
    pub fn swifter(&self) -> u8 {
        let second = self.get(SECOND).rtt.smoothed_ns() < self.get(FIRST).rtt.smoothed_ns();
        if second { SECOND } else { FIRST }
    }

    /// An acknowledgement that came by this path for what went by this path shows how long that takes, even if all that it
    /// acknowledges is known by the other path already: of two paths one may always be the first. True: it was counted.
    pub fn sample_path(&mut self, by: u8, head: &Head, rtt_ns: u64, now: Time) -> bool {
        let Some(bond) = self.bond.as_deref_mut() else { return false };
        // Not one that was overtaken, or repeated: how long it was under way is not how long the path is.
        if head.kind != Kind::Ack || !bond.path(by).note_stamp(head.timestamp) || rtt_ns == 0 {
            return false;
        }
        self.get_mut(by).rtt.sample(now, rtt_ns);
        true
    }

    /// What came by this path is acknowledged by this path; what asks for an answer, by both: it is sent when one of them may be
    /// dead.
    //= wire.md R-PATH-9
    #[inline]
    pub fn ack_by(&mut self, by: u8, head: &Head) {
        if let Some(bond) = self.bond.as_deref_mut() {
            bond.ack_by |= if head.flags & flags::PROBE == 0 { 1 << by } else { 1 << FIRST | 1 << SECOND };
        }
    }
}
