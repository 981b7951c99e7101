//! Records of which a part has come, and no more: on either stream of a connection they have a time.

use super::Tcp;
use super::conn::Conn;
use super::counts::Fault;
use crate::engine::core::Core;
use cci_memory::slab::Key;

/// How long a record may take from its first byte to its last, unless the send timeout is longer. Only a peer that stands still in
/// the middle takes so long: where this side does not read, its time does not count.
const RECORD_NS_MAX: u64 = if cfg!(test) { 1_500_000_000 } else { 30_000_000_000 };

/// For a connection with this send timeout.
pub(super) fn record_ns_max(send_timeout_ns: u64) -> u64 {
    RECORD_NS_MAX.max(send_timeout_ns)
}

impl Conn {
    /// When a record of which a part has come has to be whole.
    fn record_due_ns(&self, now_ns: u64) -> Option<u64> {
        let second = self.bulk.as_ref().and_then(|bulk| bulk.part_since_ns(now_ns));
        let since_ns = [self.record_ns, second].into_iter().flatten().min()?;
        Some(since_ns.saturating_add(record_ns_max(self.send_timeout_ns)))
    }
}

impl Tcp {
    /// A part of a record has come on a stream of this connection.
    #[inline]
    pub(super) fn note_part(&mut self, key: Key) {
        let now_ns = self.shared.now_ns;
        if let Some(conn) = self.conns.get_mut(key)
            && !std::mem::replace(&mut conn.has_part, true)
        {
            let due_ns = conn.record_due_ns(now_ns).unwrap_or(u64::MAX);
            self.unfinished_due_ns = self.unfinished_due_ns.min(due_ns);
            self.unfinished.push(key);
        }
    }

    /// Ends connections on which a record does not get whole.
    #[cold]
    pub(super) fn time_out_unfinished(&mut self, core: &mut Core) {
        let now_ns = self.shared.now_ns;
        let (mut at, mut next_ns) = (0, u64::MAX);
        while let Some(&key) = self.unfinished.get(at) {
            match self.conns.get(key).and_then(|conn| conn.record_due_ns(now_ns)) {
                Some(due_ns) if due_ns > now_ns => {
                    next_ns = next_ns.min(due_ns);
                    at += 1;
                    continue;
                }
                //= wire.md R-TCP-26
                Some(_) => self.fault(core, key, Fault::Unfinished),
                None => {}
            }
            self.unfinished.swap_remove(at);
            if let Some(conn) = self.conns.get_mut(key) {
                conn.has_part = false;
            }
        }
        self.unfinished_due_ns = next_ns;
    }
}
