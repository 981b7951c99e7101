//! Sending to groups: one socket for all, and for each group the datagram that is being filled.

use super::own_sender::OwnSender;
use super::settings::Settings;
use crate::connection::{Connection, Status};
use crate::engine::core::{Core, SendOp};
use crate::error::{SendError, SysError};
use crate::transport::datagram::{LONE_GAP_NS, QUEUED_BYTES_MAX};
use cci_memory::fallible;
use cci_memory::slab::{Key, Slab};
use cci_proto::{GroupBundle, GroupName};
use cci_sys::clock;
use cci_sys::udp::{self, Outgoing, SendBatch, SendStats, UdpSocket};
use std::net::SocketAddr;
use std::num::NonZeroU32;

/// The size of the batch of datagrams to be sent, bytes: more than messages may queue.
const BATCH_BYTES: usize = 128 << 10;
/// The most datagrams in the batch.
const BATCH_DATAGRAMS: usize = 64;
/// The most groups that one endpoint sends to at once.
const OUTLETS_MAX: u32 = 256;
/// How many completions of one datagram fit before their list grows.
const OPS_RESERVED: usize = 64;

/// Collects the messages to one group.
pub(super) struct Outlet {
    group: SocketAddr,
    name: GroupName,
    bundle: GroupBundle,
    sender: u64,
    /// The number of the next datagram.
    number: u64,
    /// The sends in the bundle whose completions the program wants.
    ops: Vec<(Connection, SendOp)>,
    /// How many connections send to the group.
    users: u32,
}

/// The outlets of an endpoint, with their socket.
pub(super) struct Outlets {
    socket: UdpSocket,
    batch: SendBatch,
    outlets: Slab<Outlet>,
    /// How many outlets were made. Each numbers its datagrams from the start, as a sender of its own.
    outlets_made: u16,
    /// Bytes of messages that are not in the batch yet.
    queued_bytes: usize,
    /// When a message last left alone; `None` if progress was made since.
    sent_alone_at_ns: Option<u64>,
    /// How many errors the socket has had.
    pub errors: u64,
}

impl Outlets {
    /// About how many bytes it takes, beside the outlets themselves.
    pub const BYTES: u64 = (BATCH_BYTES + (8 << 10)) as u64;

    /// About how many bytes one outlet takes.
    pub fn outlet_bytes(settings: &Settings) -> u64 {
        let ops_bytes = OPS_RESERVED * size_of::<(Connection, SendOp)>();
        u64::from(settings.datagram_bytes_max) + (size_of::<Outlet>() + ops_bytes) as u64
    }

    /// Opens a socket that sends by the interface of that number, and receives nothing.
    pub fn open(settings: &Settings, interface: NonZeroU32) -> Result<Outlets, SysError> {
        let options = udp::Options { recv_buffer_bytes: 0, gro: false, ..udp::Options::default() };
        let socket = UdpSocket::bind_with(settings.local, options)?;
        // Processes of this host are members like any others. This endpoint's own members recognise its datagrams by their
        // sender.
        socket.set_outgoing(Outgoing { interface, hops: settings.keys.hops, this_host: true })?;
        let mut batch = SendBatch::try_new(&socket, BATCH_DATAGRAMS, BATCH_BYTES)?;
        // Before Linux 5.0, members on this host would receive in one piece what the kernel is to divide.
        batch.disable_gso();
        Ok(Outlets {
            socket,
            batch,
            outlets: Slab::new(OUTLETS_MAX),
            outlets_made: 0,
            queued_bytes: 0,
            sent_alone_at_ns: None,
            errors: 0,
        })
    }

    pub fn find(&self, group: SocketAddr) -> Option<Key> {
        self.outlets.iter().find(|(_, outlet)| outlet.group == group).map(|(key, _)| key)
    }

    pub fn share(&mut self, key: Key) {
        if let Some(outlet) = self.outlets.get_mut(key) {
            outlet.users += 1;
        }
    }

    /// Adds an outlet with one user. `None`: there are too many, or there is no memory.
    pub fn add(&mut self, group: SocketAddr, own: OwnSender, settings: &Settings) -> Option<Key> {
        let outlet = Outlet {
            group,
            name: group.into(),
            bundle: GroupBundle::new(settings.datagram_bytes_max)?,
            sender: own.sender(self.outlets_made),
            number: 0,
            ops: fallible::vec(OPS_RESERVED).ok()?,
            users: 1,
        };
        let key = self.outlets.insert(outlet).ok()?;
        self.outlets_made = self.outlets_made.wrapping_add(1);
        Some(key)
    }

    pub fn release(&mut self, key: Key) {
        let Some(outlet) = self.outlets.get_mut(key) else { return };
        outlet.users = outlet.users.saturating_sub(1);
        if outlet.users == 0 {
            self.outlets.remove(key);
        }
    }

    /// Takes one message. A lone message leaves at once. Those that follow share datagrams, and leave with the next progress.
    #[inline]
    pub fn send(
        &mut self,
        core: &mut Core,
        key: Key,
        connection: Connection,
        segments: &[&[u8]],
        len_bytes: usize,
        op: SendOp,
    ) -> Result<(), SendError> {
        let lone = self.queued_bytes == 0 && self.batch.is_empty() && !self.follows_closely();
        let Some(outlet) = self.outlets.get_mut(key) else { return Err(SendError::UnknownConnection) };
        if !outlet.bundle.push(segments, len_bytes) {
            if !self.make_space(core, key) {
                return Err(SendError::WouldBlock);
            }
            let Some(outlet) = self.outlets.get_mut(key) else { return Err(SendError::UnknownConnection) };
            if !outlet.bundle.push(segments, len_bytes) {
                // This can't happen: the engine has checked that the message fits into an empty datagram.
                return Err(SendError::TooLong { len_bytes, max_bytes: 0 });
            }
        }
        if let Some(outlet) = self.outlets.get_mut(key)
            && !op.silent
        {
            outlet.ops.push((connection, op));
        }
        self.queued_bytes += len_bytes + 8;
        if lone {
            self.sent_alone_at_ns = Some(clock::now_ns());
        }
        if lone || self.queued_bytes >= QUEUED_BYTES_MAX {
            self.flush(core);
        }
        Ok(())
    }

    /// Whether a message left alone just before, with no progress since.
    fn follows_closely(&self) -> bool {
        self.sent_alone_at_ns.is_some_and(|left_at| clock::now_ns().saturating_sub(left_at) < LONE_GAP_NS)
    }

    /// Moves an outlet's full datagram into the batch, and returns whether there was space.
    fn make_space(&mut self, core: &mut Core, key: Key) -> bool {
        let Some(outlet) = self.outlets.get_mut(key) else { return false };
        if outlet.close(core, &mut self.batch) {
            return true;
        }
        self.send_batch();
        let Some(outlet) = self.outlets.get_mut(key) else { return false };
        outlet.close(core, &mut self.batch)
    }

    /// Sends waiting messages, as far as the socket has space.
    pub fn progress(&mut self, core: &mut Core) {
        self.sent_alone_at_ns = None;
        if self.has_pending() {
            self.flush(core);
        }
    }

    fn flush(&mut self, core: &mut Core) {
        self.queued_bytes = 0;
        for (_, outlet) in self.outlets.iter_mut() {
            if outlet.bundle.is_empty() || outlet.close(core, &mut self.batch) {
                continue;
            }
            send_batch(&mut self.batch, &self.socket, &mut self.errors);
            if !outlet.close(core, &mut self.batch) {
                // It stays here until the next progress, and counts as queued.
                self.queued_bytes += 1;
            }
        }
        self.send_batch();
    }

    /// Gives the kernel the datagrams in the batch, as far as it has space.
    fn send_batch(&mut self) {
        send_batch(&mut self.batch, &self.socket, &mut self.errors);
    }

    /// Whether something waits to be sent.
    #[inline]
    pub fn has_pending(&self) -> bool {
        self.queued_bytes > 0 || !self.batch.is_empty()
    }

    /// Whether an outlet has nothing left that waits for space in the batch.
    pub fn is_sent(&self, key: Key) -> bool {
        self.outlets.get(key).is_none_or(|outlet| outlet.bundle.is_empty())
    }

    /// How many sends of a connection have not completed, without the silent ones.
    pub fn sends_in_progress(&self, key: Key, connection: Connection) -> u32 {
        let Some(outlet) = self.outlets.get(key) else { return 0 };
        outlet.ops.iter().filter(|(of, _)| *of == connection).count() as u32
    }

    /// How many datagrams an outlet has sent.
    pub fn datagrams_sent(&self, key: Key) -> u64 {
        self.outlets.get(key).map_or(0, |outlet| outlet.number)
    }

    pub fn group(&self, key: Key) -> Option<SocketAddr> {
        self.outlets.get(key).map(|outlet| outlet.group)
    }

    pub fn stats(&self) -> SendStats {
        self.batch.stats()
    }

    pub fn memory_bytes(&self) -> u64 {
        let outlets = self.outlets.iter().map(|(_, outlet)| outlet.memory_bytes()).sum::<usize>();
        (self.batch.memory_bytes() + self.outlets.bytes() + outlets) as u64
    }
}

/// Gives the kernel the datagrams in the batch, as far as it has space. They are lost if the socket fails.
fn send_batch(batch: &mut SendBatch, socket: &UdpSocket, errors: &mut u64) {
    if batch.flush(socket).is_err() {
        *errors += 1;
        batch.clear();
    }
}

impl Outlet {
    /// Moves the bundle into the batch as a datagram, and completes the sends in it. Returns whether there was space.
    fn close(&mut self, core: &mut Core, batch: &mut SendBatch) -> bool {
        if self.bundle.is_empty() {
            return true;
        }
        //= wire.md R-MC-4
        let datagram = self.bundle.finish(self.name, self.sender, self.number);
        let Some(space) = batch.next(&self.group, datagram.len()) else { return false };
        space.copy_from_slice(datagram);
        batch.commit(datagram.len());
        self.number += 1;
        self.bundle.clear();
        for (connection, op) in self.ops.drain(..) {
            core.complete(connection, op, Status::Success);
        }
        true
    }

    fn memory_bytes(&self) -> usize {
        self.bundle.memory_bytes() + self.ops.capacity() * size_of::<(Connection, SendOp)>()
    }
}
