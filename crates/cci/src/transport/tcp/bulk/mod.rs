//! Remote memory access over the second stream of a connection: the border to the rest of the transport.
//!
//! The rest of the transport calls what is here; what is here may call [`Tcp::want_bulk`] to get the second stream, [`Tcp::end`]
//! when it fails (the connection is broken then), and [`Tcp::go_on_closing`] when operations have ended.

use super::Tcp;
use crate::engine::core::Core;
use crate::engine::regions::Region;
use crate::error::SendError;
use crate::event::Status;
use crate::explain::Explanation;
use crate::transport::{Armed, AtomicRequest, RmaRequest};
use cci_ring::slab::Key;
use cci_sys::tcp::Stream;

/// What a connection needs for remote memory access.
#[derive(Debug, Default)]
pub(super) struct Bulk {
    stream: Option<Stream>,
}

/// What the endpoint needs.
#[derive(Debug, Default)]
pub(super) struct Bulks {}

impl super::conn::Conn {
    /// The second stream is there.
    pub(super) fn has_bulk(&self) -> bool {
        self.bulk.as_ref().is_some_and(|bulk| bulk.stream.is_some())
    }
}

impl Tcp {
    /// The second stream of a connection is there, in no epoll set yet. At the side that accepted, the peer may have
    /// dialled it unasked.
    pub(super) fn bulk_came(&mut self, _: &mut Core, key: Key, stream: Stream) {
        if let Some(conn) = self.conns.get_mut(key) {
            conn.bulk.get_or_insert_default().stream = Some(stream);
        }
    }

    /// The kernel has something to say of a second stream that is watched by `token::make(token::BULK, key)`.
    pub(super) fn bulk_ready(&mut self, _: &mut Core, _: Key) {}

    /// In each progress.
    #[inline]
    pub(super) fn bulk_turn(&mut self, _: &mut Core) {}

    /// Before sleep.
    pub(super) fn bulk_arm(&mut self, _: &mut Core) -> Armed {
        Armed::Sleep { deadline_ns: None }
    }

    /// The program has disconnected: whether none of our operations is under way on the connection any more.
    pub(super) fn bulk_is_over(&mut self, _: &mut Core, _: Key) -> bool {
        true
    }

    /// Operations of the connection that are under way end with `status`; the second stream is closed. May be called again.
    pub(super) fn bulk_end(&mut self, _: &mut Core, key: Key, _: Status) {
        if let Some(conn) = self.conns.get_mut(key) {
            conn.bulk = None;
        }
    }

    /// Operations under way on all connections.
    pub(super) fn bulk_operations(&self) -> u32 {
        0
    }

    pub(super) fn start_rma(
        &mut self,
        _: &mut Core,
        _: Key,
        _: &RmaRequest<'_>,
        _: u64,
    ) -> Result<(), SendError> {
        Err(SendError::Disconnected)
    }

    pub(super) fn start_atomic(
        &mut self,
        _: &mut Core,
        _: Key,
        _: &AtomicRequest,
        _: u64,
    ) -> Result<(), SendError> {
        Err(SendError::Disconnected)
    }

    /// See [`crate::transport::Transport::region_removed`].
    pub(super) fn bulk_region_removed(&mut self, _: &mut Core, _: u64, _: &Region) {}

    pub(super) fn count_bulk(&self, _: &mut Vec<(&'static str, u64)>) {}

    pub(super) fn count_bulk_memory(&self, _: &mut Vec<(&'static str, u64)>) {}

    pub(super) fn explain_bulk(&self, _: Key, _: &mut Explanation) {}
}
