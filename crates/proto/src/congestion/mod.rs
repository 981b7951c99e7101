//! How much may be in flight. It follows Swift where delay grows, and gives way gently to loss; `docs/adr/0002` gives the reasons.

use crate::Time;
use crate::limits::{
    DATAGRAM_OVERHEAD_BYTES, DELAY_WINDOW_DATAGRAMS, INITIAL_WINDOW_DATAGRAMS, LOSS_WINDOW_DATAGRAMS,
    TARGET_QUEUE_NS, WINDOW_BUNDLES_MAX,
};
use crate::reliable::rtt::Rtt;

/// When something is lost, a smoothed delay so far above the least one means that there is a queue. Less than that is noise.
const QUEUE_NS_MIN: u64 = 20_000;

/// A connection's congestion window.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Window {
    bytes: u32,
    /// What one full datagram adds to the bytes in flight.
    unit_bytes: u32,
    /// Slow start: the window doubles every round trip, until the first sign of a queue or of loss.
    slow_start: bool,
    /// When the window was last made smaller, which happens once in a round trip at most.
    shrunk_at: Time,
    /// The least that further loss in the same round trip may make of the window.
    loss_min_bytes: u32,
}

impl Window {
    pub fn new(datagram_bytes: u16) -> Window {
        let unit_bytes = u32::from(datagram_bytes) + DATAGRAM_OVERHEAD_BYTES;
        Window {
            bytes: INITIAL_WINDOW_DATAGRAMS * unit_bytes,
            unit_bytes,
            slow_start: true,
            shrunk_at: Time(0),
            loss_min_bytes: 0,
        }
    }

    /// An idle connection goes on with the window that it had, but with no larger burst than any path takes.
    pub fn restored(datagram_bytes: u16, kib: u16) -> Window {
        let mut window = Window::new(datagram_bytes);
        if kib != 0 {
            window.bytes = (u32::from(kib) << 10).clamp(2 * window.unit_bytes, 8 * window.bytes);
        }
        window
    }

    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// The window for the compact form of an idle connection, rounded up.
    pub fn kib(&self) -> u16 {
        self.bytes.div_ceil(1024).min(u32::from(u16::MAX)) as u16
    }

    pub fn in_slow_start(&self) -> bool {
        self.slow_start
    }

    /// The delay above which there is a queue: the path's own delay, what a busy receiver adds, and twice the variation of the delay,
    /// so that jitter is not taken for a queue.
    fn target_ns(rtt: &Rtt) -> u64 {
        rtt.min_ns() + rtt.min_ns() / 4 + TARGET_QUEUE_NS + 2 * rtt.variation_ns()
    }

    /// The peer has acknowledged `acked_bytes`. `limited`: the window was what held sending back.
    pub fn on_ack(&mut self, now: Time, acked_bytes: u32, limited: bool, rtt: &Rtt) {
        let target_ns = Window::target_ns(rtt);
        let delay_ns = rtt.smoothed_ns();
        // Where processes wait for a core longer than for the network, delay alone says little. So this much may always be
        // in flight until something is lost.
        if delay_ns < target_ns || self.bytes < DELAY_WINDOW_DATAGRAMS * self.unit_bytes {
            if limited {
                let max = WINDOW_BUNDLES_MAX * self.unit_bytes;
                self.bytes = self.bytes.saturating_add(self.growth_bytes(acked_bytes)).min(max);
            }
        } else if now.since(self.shrunk_at) > delay_ns {
            // Swift: in proportion to how far the delay is above its target, by half at most.
            let excess = (delay_ns - target_ns) as f32 / delay_ns as f32;
            self.shrink(now, (1.0 - 0.8 * excess).max(0.5), DELAY_WINDOW_DATAGRAMS);
        }
    }

    /// Makes the window larger: twice as large in slow start, later by one datagram and a sixteenth of the window in each round trip.
    /// On a short path of high bandwidth one datagram a round trip would take for ever, and delay shows soon enough when it is too much.
    fn growth_bytes(&self, acked_bytes: u32) -> u32 {
        if self.slow_start {
            return acked_bytes;
        }
        let per_round = u64::from(self.unit_bytes + self.bytes / 16);
        (u64::from(acked_bytes) * per_round / u64::from(self.bytes.max(1))) as u32
    }

    /// Bundles that weigh `lost_bytes`, the latest sent at `sent_at`, were lost.
    pub fn on_loss(&mut self, now: Time, sent_at: Time, lost_bytes: u32, rtt: &Rtt) {
        let fresh = sent_at >= self.shrunk_at;
        let queue_ns = rtt.smoothed_ns().saturating_sub(rtt.min_ns());
        let queue = queue_ns > (rtt.min_ns() / 8).max(QUEUE_NS_MIN) + 2 * rtt.variation_ns();
        if rtt.is_measured() && queue {
            // What was sent before the window was last made smaller belongs to the same event.
            if fresh {
                self.shrink(now, 0.6, 2);
            }
            return;
        }
        // Loss without a queue is the link's, or that of a queue too short to show. The first should not matter, the
        // second must: the window gives way by what was lost, so that it stays where a path loses less than the window
        // grows by in a round trip; and by a quarter at most, so that a path that loses a third still carries something.
        if fresh {
            (self.shrunk_at, self.loss_min_bytes) = (now, self.bytes / 4 * 3);
        }
        let floor = self.loss_min_bytes.max(LOSS_WINDOW_DATAGRAMS * self.unit_bytes).min(self.bytes);
        self.bytes = self.bytes.saturating_sub(lost_bytes).max(floor);
        self.slow_start = false;
    }

    /// Nothing has come back for several probe time-outs. Only probes leave meanwhile; the small window is for what follows them.
    pub fn on_silence(&mut self, now: Time) {
        self.shrink(now, 0.5, INITIAL_WINDOW_DATAGRAMS);
    }

    /// The receiver took no more. When it does again, sending goes on with a smaller window.
    pub fn on_receiver_not_ready(&mut self, now: Time) {
        self.shrink(now, 0.5, 2);
    }

    fn shrink(&mut self, now: Time, factor: f32, min_datagrams: u32) {
        let floor = min_datagrams * self.unit_bytes;
        let smaller = (self.bytes as f32 * factor) as u32;
        self.bytes = smaller.max(floor.min(self.bytes));
        self.slow_start = false;
        self.shrunk_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(rtt_ns: u64) -> Rtt {
        let mut rtt = Rtt::default();
        for step in 0..64 {
            rtt.sample(Time(step), rtt_ns);
        }
        rtt
    }

    #[test]
    fn grows_without_a_queue_and_shrinks_with_one() {
        let mut rtt = path(50_000);
        let mut window = Window::new(1472);
        let start = window.bytes();
        window.on_ack(Time(1), start, true, &rtt);
        window.on_ack(Time(2), 2 * start, true, &rtt);
        assert_eq!(window.bytes(), 4 * start);
        for step in 0..64 {
            rtt.sample(Time(step), 5_000_000);
        }
        for step in 1..20 {
            window.on_ack(Time(step * 100_000_000), 1472, true, &rtt);
        }
        assert!(!window.in_slow_start());
        assert!(window.bytes() <= (DELAY_WINDOW_DATAGRAMS + 2) * (1472 + DATAGRAM_OVERHEAD_BYTES));
    }

    #[test]
    fn an_unused_window_does_not_grow() {
        let mut window = Window::new(1472);
        let start = window.bytes();
        window.on_ack(Time(1), 1472, false, &path(50_000));
        assert_eq!(window.bytes(), start);
    }

    #[test]
    fn random_loss_does_not_close_it() {
        let rtt = path(50_000_000);
        let mut window = Window::new(1472);
        for round in 1..1000u64 {
            let now = Time(round * 50_000_000);
            window.on_loss(now, now, window.bytes() / 20, &rtt);
            window.on_ack(now, window.bytes(), true, &rtt);
        }
        assert!(window.bytes() >= LOSS_WINDOW_DATAGRAMS * 1472);
    }
}
