//! Channels, as programs see them: messages in order from one rank to another, through slots whose number and size the program chooses.

use crate::channels::{End, Progress, RECEIVING_BYTES, SENDING_BYTES, Slots};
use crate::error::Result;
use crate::memory::GlobalMemory;
use cci::Memory;

/// Names what was started on a channel, until it was waited for (`acp_request_t`).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChannelRequest(u64);

/// The sending end of a channel.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (mut job, context) = (cci_job::Job::join()?, cci::Context::new()?);
/// # let device = context.device("any").ok_or("no device any")?;
/// # let mut global = cci_acp::GlobalMemory::open(&mut job, device, cci::Options::default(), 10_240)?;
/// use cci_acp::{Receiver, Sender, Slots};
///
/// let slots = Slots { count: 8, bytes: 4_096 };
/// if global.rank() == 0 {
///     let sender = Sender::create(&mut global, 1, slots)?;
///     sender.send(&mut global, b"from rank 0 to rank 1")?;
///     sender.free(&mut global)?.wait(&mut global)?;
/// } else if global.rank() == 1 {
///     let receiver = Receiver::create(&mut global, 0, slots)?;
///     let mut message = [0; 100];
///     let len = receiver.receive(&mut global, &mut message)?;
///     receiver.free(&mut global)?.wait(&mut global)?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Sender {
    end: End,
}

/// The receiving end of a channel.
#[derive(Debug)]
pub struct Receiver {
    end: End,
}

impl Sender {
    /// Makes the sending end of a channel to another rank (`acp_create_ch`), with slots of its own for messages that have yet to leave: `count` ×
    /// `bytes` bytes of memory, and 172 more. Does not wait for the other rank.
    ///
    /// # Errors
    /// There is no such rank, or it is this one. The slots are none, or too many, or too short.
    pub fn create(global: &mut GlobalMemory, receiver: u32, slots: Slots) -> Result<Sender> {
        slots.check()?;
        global.check_other(receiver)?;
        let end = global.channels.create_sender(&mut global.links, receiver, slots)?;
        Ok(Sender { end })
    }

    /// The rank that receives.
    pub fn receiver(&self) -> u32 {
        self.end.rank
    }

    /// Sends a message of any length, even none. Returns when all of it was copied, to slots or to the memory of the request that waits for it.
    /// Blocks while neither is free; this rank serves the others meanwhile. Messages come in the order in which they were sent.
    ///
    /// # Errors
    /// The other rank is gone.
    pub fn send(&self, global: &mut GlobalMemory, message: &[u8]) -> Result<()> {
        let mut progress = Progress::default();
        global.look_before(self.end, message.len());
        global.wait_until(|global| {
            let GlobalMemory { channels, links, .. } = global;
            channels.send(links, self.end, message, &mut progress).transpose()
        })?
    }

    /// Starts to send all of this memory (`acp_nbsend_ch`). It must not change until the request has ended. Any number may be in progress. Never
    /// blocks.
    ///
    /// # Errors
    /// The other rank is gone.
    pub fn start(&self, global: &mut GlobalMemory, message: &Memory) -> Result<ChannelRequest> {
        global.look_before(self.end, message.len());
        let request = global.channels.start_send(&mut global.links, self.end, message)?;
        Ok(ChannelRequest(request))
    }

    /// Frees this end (`acp_nbfree_ch`). The request ends when all that was sent has left. If nothing is left to be sent, it does not wait for the
    /// receiver's program.
    pub fn free(self, global: &mut GlobalMemory) -> Result<ChannelRequest> {
        Ok(ChannelRequest(global.channels.free_sender(&mut global.links, self.end)?))
    }

    /// How many messages went past the slots, straight to the memory of the requests that waited for them ([`Receiver::start`]).
    pub fn placed_messages(&self, global: &GlobalMemory) -> u64 {
        global.channels.placed_messages(self.end)
    }

    /// Bytes that this end holds: its slots, and what is kept of it. Requests under way are not counted.
    pub fn held_bytes(&self, global: &GlobalMemory) -> usize {
        global.channels.sender_bytes(self.end) + SENDING_BYTES
    }
}

impl Receiver {
    /// Makes the receiving end of a channel from another rank (`acp_create_ch`). It takes `count` × `bytes` bytes, in whole pages, and 156 more. Does not
    /// wait for the other rank.
    ///
    /// # Errors
    /// Those of [`Sender::create`]. The system has no memory.
    pub fn create(global: &mut GlobalMemory, sender: u32, slots: Slots) -> Result<Receiver> {
        slots.check()?;
        global.check_other(sender)?;
        let end = global.channels.create_receiver(&mut global.links, sender, slots)?;
        Ok(Receiver { end })
    }

    /// The rank that sends.
    pub fn sender(&self) -> u32 {
        self.end.rank
    }

    /// Receives the next message, and returns its length. What is behind it in `into` stays as it is. Blocks until the message is there; this rank
    /// serves the others meanwhile.
    ///
    /// # Errors
    /// [`AcpError::Truncated`](crate::AcpError::Truncated) for a message that is longer: its first bytes are there, the rest is lost, and the next
    /// message is not touched. The sender has freed the channel, or its rank is gone.
    pub fn receive(&self, global: &mut GlobalMemory, into: &mut [u8]) -> Result<usize> {
        global.wait_until(|global| {
            let GlobalMemory { channels, links, .. } = global;
            channels.receive(links, self.end, into)
        })?
    }

    /// Starts to receive the next message into this memory (`acp_nbrecv_ch`). The request returns what [`Receiver::receive`] does. Any number may be
    /// in progress. Never blocks.
    ///
    /// Where the memory was allocated by the library and is [registered](GlobalMemory::register), as starter memory always is, a sender on this host
    /// copies a long message straight there: that takes one copy, where slots take two. This needs as many waiting requests as there are slots.
    pub fn start(&self, global: &mut GlobalMemory, into: &Memory) -> Result<ChannelRequest> {
        let GlobalMemory { channels, links, regions, .. } = global;
        let request = channels.start_receive(links, self.end, into, regions)?;
        Ok(ChannelRequest(request))
    }

    /// Frees this end (`acp_nbfree_ch`). What was sent and not received is dropped. The request ends when the sender has freed its end, too.
    pub fn free(self, global: &mut GlobalMemory) -> Result<ChannelRequest> {
        Ok(ChannelRequest(global.channels.free_receiver(&mut global.links, self.end)?))
    }

    /// Bytes that this end holds: its slots, and what is kept of it. Requests under way are not counted.
    pub fn held_bytes(&self, global: &GlobalMemory) -> usize {
        global.channels.receiver_bytes(self.end) + RECEIVING_BYTES
    }
}

impl ChannelRequest {
    /// Waits until it has ended (`acp_wait_ch`), and returns the length of the message that it has received, or 0 if it was no request to receive. It
    /// can be waited for once.
    ///
    /// # Errors
    /// What became of it. It was waited for before.
    #[inline]
    pub fn wait(self, global: &mut GlobalMemory) -> Result<usize> {
        match global.channels.take_well(self.0) {
            Some(len_bytes) => Ok(len_bytes),
            None => self.wait_for_end(global),
        }
    }

    fn wait_for_end(self, global: &mut GlobalMemory) -> Result<usize> {
        global.wait_until(|global| global.channels.take(self.0))?
    }

    /// Whether it has ended. Makes progress if not, and never blocks.
    pub fn has_ended(self, global: &mut GlobalMemory) -> bool {
        let has_ended = |global: &GlobalMemory| global.channels.has_ended(self.0);
        has_ended(global) || global.turn_until(has_ended)
    }
}
