//! Streams between machines: when their bytes arrive, in which parts, and when nobody answers for too long.

use super::network::{Net, machine_at_ip};
use cci::simulated::streams::{self, Carried, Direction};

/// After how long what was lost is sent again, at first and at last.
const AGAIN_NS: u64 = 200_000_000;
const DOUBLINGS_MAX: u32 = 4;
/// After how long of silence a host asks whether the other one still knows the stream.
pub(super) const ASK_NS: u64 = 45_000_000_000;
/// Bytes that arrive at once, at most.
pub(super) const PARTS: [usize; 8] = [1, 2, 30, 500, 1_448, 1_448, 65_536, 65_536];

/// What a stream has to carry, on its way.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub direction: Direction,
    /// Since when nobody has answered, and how often it was sent since.
    since_ns: u64,
    tries: u32,
}

impl Load {
    /// A stream has something to carry now. Answers when it arrives.
    pub fn depart(direction: Direction, net: &mut Net, now_ns: u64) -> (u64, Load) {
        let under_way_ns =
            net.under_way_ns(now_ns, machine_at_ip(direction.from), machine_at_ip(direction.to));
        (now_ns + under_way_ns, Load { direction, since_ns: now_ns, tries: 0 })
    }

    /// A host asks whether the other one still knows the stream.
    pub fn ask(direction: Direction, now_ns: u64) -> Load {
        Load { direction, since_ns: now_ns, tries: 0 }
    }

    /// Whether it was lost, and waits to be sent again.
    pub fn is_held_up(&self) -> bool {
        self.tries > 0
    }

    /// It arrives, or is lost. Answers when there is more to be done.
    pub fn arrive(mut self, net: &mut Net, now_ns: u64) -> Option<(u64, Load)> {
        let (from, to) = (machine_at_ip(self.direction.from), machine_at_ip(self.direction.to));
        let carried = if net.loses(now_ns, from, to) {
            Carried::Nothing
        } else {
            let bytes_max = net.chance(from, to).pick(&PARTS);
            streams::carry(self.direction, bytes_max)
        };
        match carried {
            Carried::All => None,
            Carried::Part => {
                (self.since_ns, self.tries) = (now_ns, 0);
                let gap_ns = net.chance(from, to).below(net.under_way_ns(now_ns, from, to) / 8 + 100);
                Some((now_ns + gap_ns, self))
            }
            Carried::Nothing if now_ns - self.since_ns > streams::patience_ns(self.direction)? => {
                streams::time_out(self.direction);
                None
            }
            Carried::Nothing => {
                let again_ns = AGAIN_NS << self.tries.min(DOUBLINGS_MAX);
                self.tries += 1;
                Some((now_ns + again_ns, self))
            }
        }
    }
}
