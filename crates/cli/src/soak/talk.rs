//! What the conductor and its peers say to each other: a line of JSON each, over pipes, so that CCI is not its own witness.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The first line a peer gets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// Device, by name or by what drives it.
    pub device: String,
    /// Where to listen.
    pub service: String,
    /// Which of the device's peers this is.
    pub index: u32,
    /// Everything it does follows from this and from time.
    pub seed: u64,
    /// How much of a core it may take.
    pub load_percent: u32,
    /// How long a send, an attempt to connect or the silence of a peer may last, ms.
    pub timeout_ms: u64,
    /// Peers on its own side can't be reached: both ends of one wire.
    pub across: bool,
    /// It is a messenger.
    pub messengers: bool,
    /// An error of its own, to see that it is found.
    pub plant: Option<Plant>,
}

impl Setup {
    /// How long a send, an attempt to connect or the silence of a peer may last.
    pub const fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }
}

/// Errors that a peer makes on purpose.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum Plant {
    /// One byte of a message is wrong.
    Corrupt,
    /// One message is not sent.
    Lose,
    /// One message is sent twice.
    Repeat,
    /// One byte of a remote write is wrong.
    Memory,
    /// Memory grows.
    Leak,
    /// Descriptors grow.
    Descriptors,
    /// Nothing goes on.
    Hang,
}

/// What the conductor says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Who is there, anew.
    Peers(Vec<Address>),
    /// Close the endpoint, and open one on the same service.
    Renew,
    /// Keep every receive buffer for so long, ms.
    Slow(u64),
    /// Say why each session is where it is.
    Explain,
    /// Begin nothing any more, finish what is under way.
    End,
    /// Go on as before [`Order::End`].
    Begin,
    /// Everybody has: check that nothing is left, and go.
    Leave,
}

/// Where a peer is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// Its index.
    pub index: u32,
    /// The URI of its endpoint.
    pub uri: String,
}

/// What a peer process reports to the process that started it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum PeerMessage {
    /// It listens.
    Ready {
        /// The URI it listens at.
        uri: String,
    },
    /// Its totals, once a second.
    Report(Report),
    /// A session ended before its end. Whether it may have is for the conductor to judge.
    Broken {
        /// With whom.
        with: u32,
        /// How it ended.
        why: String,
        /// What the library says of the connection.
        explained: String,
    },
    /// The library of this side has given a session up. The other side says whether it was at its end, but cannot know why.
    GivenUp {
        /// With whom.
        with: u32,
        /// How it ended.
        why: String,
    },
    /// Something that must never be.
    Wrong(String),
    /// The answer to [`Order::Explain`].
    Explained(String),
    /// A line for the user.
    Note(String),
    /// The last word of a peer that ended as asked. Its endpoint and all it had are gone.
    Done(Report),
}

/// Totals since the process began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Messages sent, of any kind.
    pub sent: u64,
    /// Messages received and found right.
    pub messages: u64,
    /// Bytes in them.
    pub message_bytes: u64,
    /// Remote reads and writes whose bytes were compared.
    pub transfers: u64,
    /// Bytes compared.
    pub transfer_bytes: u64,
    /// Atomic operations with the right result.
    pub atomics: u64,
    /// Calls that ended as they may.
    pub calls: u64,
    /// Messages received where their senders wrote them, and right.
    pub loans: u64,
    /// Messages lent to peers that still had them when they were killed or gone.
    pub loans_orphaned: u64,
    /// Messages lost on unreliable connections, of sessions that ended.
    pub lost: u64,
    /// Connections open now.
    pub open: u64,
    /// Sessions under way now, those included that wait for their last completion, and those whose memory is to be looked
    /// at once more.
    pub sessions: u64,
    /// [`Order::End`] has come.
    pub ending: bool,
    /// Sessions that ended as they should.
    pub clean: u64,
    /// Sessions that ended before their end.
    pub broken: u64,
    /// Requests rejected, which the other side saw as such.
    pub rejected: u64,
    /// Endpoints opened.
    pub endpoints: u64,
    /// Regions registered so far.
    pub registered: u64,
    /// Regions in which the last write of a peer ended half way.
    pub torn: u64,
    /// Times that a region was given up while a peer was in the middle of a copy to it.
    pub revocations: u64,
    /// Times that the device failed, and a new endpoint was opened.
    pub device_failures: u64,
    /// Memory of the endpoint by its own account, bytes.
    pub memory_bytes: u64,
    /// What the library counted: datagrams lost, retransmissions and the like.
    pub retransmissions: u64,
}

impl Report {
    /// Everything that counts up whenever something goes on.
    pub fn progress(&self) -> u64 {
        self.messages + self.transfers + self.atomics + self.calls + self.clean
    }

    /// Of a process that is no more: only what adds up.
    pub fn of_the_dead(&self) -> Report {
        Report { open: 0, sessions: 0, memory_bytes: 0, ..self.clone() }
    }

    /// Adds another's totals.
    pub fn add(&mut self, other: &Report) {
        let fields = [
            (&mut self.sent, other.sent),
            (&mut self.messages, other.messages),
            (&mut self.message_bytes, other.message_bytes),
            (&mut self.transfers, other.transfers),
            (&mut self.transfer_bytes, other.transfer_bytes),
            (&mut self.atomics, other.atomics),
            (&mut self.calls, other.calls),
            (&mut self.loans, other.loans),
            (&mut self.loans_orphaned, other.loans_orphaned),
            (&mut self.lost, other.lost),
            (&mut self.open, other.open),
            (&mut self.sessions, other.sessions),
            (&mut self.clean, other.clean),
            (&mut self.broken, other.broken),
            (&mut self.rejected, other.rejected),
            (&mut self.endpoints, other.endpoints),
            (&mut self.registered, other.registered),
            (&mut self.torn, other.torn),
            (&mut self.revocations, other.revocations),
            (&mut self.device_failures, other.device_failures),
            (&mut self.memory_bytes, other.memory_bytes),
            (&mut self.retransmissions, other.retransmissions),
        ];
        for (total, more) in fields {
            *total += more;
        }
    }
}
