//! Receiving from groups: one socket for each group and port that an endpoint has joined.

use super::link::Link;
use super::own_sender::OwnSender;
use crate::engine::core::Core;
use crate::engine::poller::Poller;
use crate::error::{SysError, without_memory};
use crate::transport::datagram::intake::RECV_CALLS_MAX;
use crate::transport::datagram::size::DATAGRAM_BYTES_MAX;
use cci_memory::slab::{Key, Slab};
use cci_proto::limits::GROUP_SENDERS_MAX;
use cci_proto::{Address, Arrival, GroupDatagram, GroupName, PeerFault, Senders};
use cci_sys::random;
use cci_sys::udp::{self, RecvBatch, UdpSocket};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::os::fd::AsFd;

/// The token of the sockets in the endpoint's epoll set. It does not matter which descriptor is readable.
const TOKEN_MEMBER: u64 = 1;
/// The most datagrams that one receive call takes.
const RECV_DATAGRAMS: usize = 16;

/// What members count.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Counts {
    pub datagrams: u64,
    pub bytes: u64,
    pub syscalls: u64,
    /// Datagrams that have not arrived, although earlier and later ones have.
    pub missing: u64,
    /// Datagrams that arrived behind later ones.
    pub late: u64,
    /// Datagrams that had arrived before.
    pub repeats: u64,
    /// Datagrams so late that it is not known whether they had arrived before.
    pub too_late: u64,
    /// Datagrams whose numbers were far ahead of all others.
    pub too_early: u64,
    /// Datagrams that this endpoint has sent itself.
    pub own: u64,
    /// Datagrams for another group or port.
    pub other: u64,
    /// Datagrams that broke the format.
    pub malformed: u64,
    /// Messages longer than this endpoint's receive buffers.
    pub too_long: u64,
    /// Copies of messages for which there was no receive buffer.
    pub no_buffer: u64,
    /// Datagrams that the kernel dropped because the socket was full.
    pub socket_full: u64,
    pub truncated: u64,
    pub errors: u64,
    /// Senders that were forgotten to make space for others.
    pub forgotten: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        let all = [
            (&mut self.datagrams, other.datagrams),
            (&mut self.bytes, other.bytes),
            (&mut self.syscalls, other.syscalls),
            (&mut self.missing, other.missing),
            (&mut self.late, other.late),
            (&mut self.repeats, other.repeats),
            (&mut self.too_late, other.too_late),
            (&mut self.too_early, other.too_early),
            (&mut self.own, other.own),
            (&mut self.other, other.other),
            (&mut self.malformed, other.malformed),
            (&mut self.too_long, other.too_long),
            (&mut self.no_buffer, other.no_buffer),
            (&mut self.socket_full, other.socket_full),
            (&mut self.truncated, other.truncated),
            (&mut self.errors, other.errors),
            (&mut self.forgotten, other.forgotten),
        ];
        for (sum, count) in all {
            *sum = sum.saturating_add(count);
        }
    }
}

/// One group that was joined, at one port.
pub(super) struct Member {
    pub group: SocketAddr,
    name: GroupName,
    pub socket: UdpSocket,
    batch: RecvBatch,
    pub senders: Senders,
    /// The connections that receive from the group. Each gets its own copy of each message.
    pub links: Vec<Key>,
    counts: Counts,
}

impl Member {
    /// About how many bytes one member takes.
    pub const BYTES: u64 =
        (RECV_DATAGRAMS * (DATAGRAM_BYTES_MAX as usize + 256) + GROUP_SENDERS_MAX * 80 + (1 << 10)) as u64;

    /// Joins a group on the interface of that number.
    pub fn join(group: SocketAddr, interface: NonZeroU32) -> Result<Member, SysError> {
        // Receive offload joins only datagrams of one sender, and they would have to be separated here.
        let options = udp::Options { send_buffer_bytes: 0, gro: false, ..udp::Options::default() };
        Ok(Member {
            group,
            name: group.into(),
            socket: UdpSocket::join(group, interface, options)?,
            batch: RecvBatch::try_with_area(RECV_DATAGRAMS, DATAGRAM_BYTES_MAX.into())?,
            senders: Senders::new(random::u64()?)
                .ok_or_else(|| without_memory("have memory for senders", Member::BYTES as usize))?,
            links: Vec::with_capacity(4),
            counts: Counts::default(),
        })
    }

    pub fn watch(&self, poller: &Poller) -> Result<(), SysError> {
        poller.watch(self.socket.as_fd(), TOKEN_MEMBER)
    }

    pub fn unwatch(&self, poller: &Poller) {
        poller.unwatch(self.socket.as_fd());
    }

    /// Receives what has come, up to a bound. A message for which there is no receive buffer is lost: if one member could make the
    /// sender wait, it would hold up the whole group.
    pub fn receive(
        &mut self,
        core: &mut Core,
        links: &mut Slab<Link>,
        own: OwnSender,
        message_bytes_max: u32,
    ) {
        for _ in 0..RECV_CALLS_MAX {
            match self.batch.recv(&self.socket) {
                Ok(0) => return,
                Ok(_) => {}
                Err(_) => {
                    self.counts.errors += 1;
                    return;
                }
            }
            self.take(core, links, own, message_bytes_max);
            // The program gives buffers back only between calls. What is still in the socket can wait until then.
            if !self.batch.may_have_more() || core.receive.free_count() == 0 {
                return;
            }
        }
    }

    /// Delivers what the last call brought.
    fn take(&mut self, core: &mut Core, links: &mut Slab<Link>, own: OwnSender, message_bytes_max: u32) {
        let Member { name, batch, senders, counts, .. } = self;
        for (source, bytes) in batch.iter() {
            let datagram = match wanted(bytes, *name, own, counts) {
                Some(datagram) => datagram,
                None => continue,
            };
            match senders.note(Address::from(source), datagram.sender, datagram.number) {
                Arrival::New { missing } => counts.missing = counts.missing.saturating_add(missing),
                Arrival::Late { was_missing } => {
                    counts.late += 1;
                    counts.missing = counts.missing.saturating_sub(was_missing.into());
                }
                Arrival::Repeat => {
                    counts.repeats += 1;
                    continue;
                }
                Arrival::TooLate => {
                    counts.too_late += 1;
                    continue;
                }
                Arrival::TooEarly => {
                    counts.too_early += 1;
                    continue;
                }
            }
            for message in datagram.messages() {
                if message.len() > message_bytes_max as usize {
                    counts.too_long += 1;
                    continue;
                }
                for key in &self.links {
                    let Some(link) = links.get_mut(*key) else { continue };
                    if core.deliver(link.connection, message) {
                        link.messages += 1;
                        link.bytes += message.len() as u64;
                    } else {
                        counts.no_buffer += 1;
                    }
                }
            }
        }
    }

    /// What this member has counted.
    pub fn counts(&self) -> Counts {
        let stats = self.batch.stats();
        Counts {
            datagrams: stats.datagrams,
            bytes: stats.bytes,
            syscalls: stats.syscalls,
            socket_full: self.socket.kernel_drops(),
            truncated: stats.skipped,
            errors: self.counts.errors + stats.soft_errors,
            forgotten: self.senders.forgotten(),
            ..self.counts
        }
    }

    pub fn memory_bytes(&self) -> u64 {
        let links_bytes = self.links.capacity() * size_of::<Key>();
        (self.batch.memory_bytes() + self.senders.memory_bytes() + links_bytes) as u64
    }
}

/// Parses a datagram for this member. Others are counted, and give `None`.
fn wanted<'a>(
    bytes: &'a [u8],
    group: GroupName,
    own: OwnSender,
    counts: &mut Counts,
) -> Option<GroupDatagram<'a>> {
    let parsed: Result<GroupDatagram<'a>, PeerFault> = GroupDatagram::parse(bytes);
    let Ok(datagram) = parsed else {
        counts.malformed += 1;
        return None;
    };
    //= wire.md R-MC-2
    if datagram.group != group {
        counts.other += 1;
        return None;
    }
    //= wire.md R-MC-3
    if own.is(datagram.sender) && !own.receives_own {
        counts.own += 1;
        return None;
    }
    Some(datagram)
}
