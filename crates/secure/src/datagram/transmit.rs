//! What this layer sends itself.

use super::wire::{COOKIE_DATAGRAM_BYTES, Fragment, VERSION_DATAGRAM_BYTES};
use super::{Associations, seal_by};
use crate::limits::{HEADER_BYTES, OVERHEAD_BYTES};
use std::hash::Hash;

/// A short answer to somebody of whom nothing is kept.
pub(super) struct Answer<A> {
    pub to: A,
    pub kind: AnswerKind,
}

pub(super) enum AnswerKind {
    Cookie([u8; COOKIE_DATAGRAM_BYTES]),
    Version([u8; VERSION_DATAGRAM_BYTES]),
}

impl<A: Copy + Eq + Hash> Associations<A> {
    /// Writes the next datagram that this layer has to send itself (handshakes, and what was held for them) into `out`,
    /// which takes [`super::Config::datagram_bytes_max`] and [`crate::limits::OVERHEAD_BYTES`], and
    /// [`crate::limits::HANDSHAKE_DATAGRAM_BYTES`]; where to, and its length.
    pub fn poll_transmit(&mut self, now_ns: u64, out: &mut [u8]) -> Option<(A, usize)> {
        if let Some(Answer { to, kind }) = self.answers.pop_front() {
            let datagram = match &kind {
                AnswerKind::Cookie(datagram) => &datagram[..],
                AnswerKind::Version(datagram) => &datagram[..],
            };
            out.get_mut(..datagram.len())?.copy_from_slice(datagram);
            return Some((to, datagram.len()));
        }
        while let Some(index) = self.ready.front().copied() {
            if let Some(sent) = self.transmit(index, now_ns, out) {
                return Some(sent);
            }
            self.ready.pop_front();
            if let Some(entry) = self.table.get_mut(index) {
                entry.is_ready = false;
            }
        }
        None
    }

    /// Whether [`Associations::poll_transmit`] has anything.
    #[must_use]
    #[inline]
    pub fn wants_transmit(&self) -> bool {
        !self.ready.is_empty() || !self.answers.is_empty()
    }

    fn transmit(&mut self, index: u32, now_ns: u64, out: &mut [u8]) -> Option<(A, usize)> {
        let entry = self.table.get_mut(index)?;
        let (to, peer_index) = (entry.address, entry.peer_index);
        if let Some(in_progress) = &mut entry.in_progress {
            let around = Fragment {
                receiver: peer_index,
                id: entry.id,
                sender: index,
                offset: 0,
                ack: 0,
                from_initiator: entry.initiator,
                asks: false,
                cookie: None,
                bytes: &[],
            };
            // The responder knows the initiator's index from its first datagram; the initiator writes 0 until it knows.
            if let Some(len) = in_progress.emit(around, out) {
                return Some((to, len));
            }
        }
        let link = entry.link.as_mut()?;
        let state = self.addresses.get_mut(&to)?;
        // A responder's association carries no data yet; it only shows that it exists.
        let held = if state.current == Some(index) { state.held.take() } else { None };
        if held.is_none() && !entry.empty_is_due {
            return None;
        }
        entry.empty_is_due = false;
        let body = held.unwrap_or_default();
        let len = (body.len() + OVERHEAD_BYTES).next_multiple_of(8);
        let datagram = out.get_mut(..len)?;
        datagram.get_mut(HEADER_BYTES..HEADER_BYTES + body.len())?.copy_from_slice(&body);
        let sealed = seal_by(link, peer_index, datagram, now_ns);
        link.sends(now_ns);
        sealed.then_some((to, len))
    }
}
