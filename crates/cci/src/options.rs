//! What a program chooses: the options of an endpoint, the attribute of a connection, the flags of a send.

use crate::CreateError;
use crate::limits;
use crate::security::Security;
use std::ops::BitOr;
use std::time::Duration;

/// What a connection promises (CCI-028 to CCI-030).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Attribute {
    /// RO: every message arrives once, in order; completions come in order.
    ReliableOrdered,
    /// RU: every message arrives once, in whatever order the network brings it.
    ReliableUnordered,
    /// UU: a message arrives once or not at all. A send completes when its message has left this host. A message that an
    /// endpoint has to drop is counted there.
    Unreliable,
    /// UU to all members of a multicast group (CCI-031). Only sends. The connection is there at once, since no member is asked. Over
    /// UDP only, on a `udp` device or on `any`.
    MulticastSend,
    /// UU from all senders to a multicast group (CCI-031). Only receives. Over UDP only, on a `udp` device or on `any`.
    MulticastReceive,
}

impl Attribute {
    /// True for RO and RU.
    pub const fn is_reliable(self) -> bool {
        matches!(self, Attribute::ReliableOrdered | Attribute::ReliableUnordered)
    }

    /// True for both ends of a multicast group.
    pub const fn is_multicast(self) -> bool {
        matches!(self, Attribute::MulticastSend | Attribute::MulticastReceive)
    }

    /// The paper's short name: "RO", "RU" or "UU"; "MC_TX" and "MC_RX".
    pub const fn short_name(self) -> &'static str {
        match self {
            Attribute::ReliableOrdered => "RO",
            Attribute::ReliableUnordered => "RU",
            Attribute::Unreliable => "UU",
            Attribute::MulticastSend => "MC_TX",
            Attribute::MulticastReceive => "MC_RX",
        }
    }
}

/// Flags of a send, combined with `|`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct SendFlags(u8);

impl SendFlags {
    /// Copy the message before returning, raise an event at completion.
    pub const NONE: SendFlags = SendFlags(0);
    /// No completion event. A failure is counted in `sends_failed`. One that ends the connection is followed by
    /// [`Event::Disconnected`](crate::Event::Disconnected).
    pub const SILENT: SendFlags = SendFlags(1);
    /// The library may read the message after the call has returned, instead of copying it. Only the C interface makes use of
    /// this: safe Rust borrows a message for the length of the call, so it is always copied.
    pub const NO_COPY: SendFlags = SendFlags(2);

    /// True when all of `other` is in `self`.
    pub const fn contains(self, other: SendFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for SendFlags {
    type Output = SendFlags;
    fn bitor(self, other: SendFlags) -> SendFlags {
        SendFlags(self.0 | other.0)
    }
}

/// How an endpoint is opened. Every default is meant to be right; change one for a reason.
///
/// ```
/// use cci::Options;
/// use std::time::Duration;
///
/// let options = Options::default().service("7777".to_owned()).send_timeout(Duration::from_secs(2));
/// assert_eq!(options.recv_buffers, Options::default().recv_buffers);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Where to listen. A number from 1 to 65535 is good on every device: it is the port on UDP and TCP, the endpoint's number on
    /// Ethernet, and the name on shared memory. Shared memory also takes any other name, or the absolute path of a socket. On a device
    /// `any` a number is the port of UDP and TCP, and anything else is for shared memory; the library chooses the rest. None: what the
    /// device's configuration says (`port`, `endpoint`), or else the library chooses.
    pub service: Option<String>,
    /// How many receive buffers there are: 1,024 by default, at least 1. All connections share them. A message takes one until the
    /// program drops it. A connection holds no more of them than are left free for others, unless it is the only one.
    pub recv_buffers: u32,
    /// How many sends of all connections may be in progress: 16,384 by default, at least 1. A send that the transport has no space
    /// for is in progress, too: it waits in memory that counts for `memory_bytes_max`. A connection has no more sends than
    /// are left for others, unless it is the only one.
    pub send_buffers: u32,
    /// How many operations on remote memory may be in progress on all connections: 16,384 by default, at least 1. They take memory
    /// only while they are in progress. A connection has no more of them than are left for others, unless it is the only one.
    pub rma_operations: u32,
    /// How long a reliable send may take before it fails with `ReceiverNotReady` or `TimedOut`: 10 s by default, not zero. While a
    /// send waits for those before it, and the peer takes these, it has more time: what they need at 64 KiB a second.
    pub send_timeout: Duration,
    /// How long a peer may be silent before [`Event::KeepaliveTimedOut`](crate::Event) is raised. None, the default: for ever.
    /// Peers that have gone are found without it, and reported by [`Event::Disconnected`](crate::Event::Disconnected).
    pub keepalive: Option<Duration>,
    /// How many bytes the endpoint may hold for buffers, queues, connections and mappings of peers' memory: 256 MiB by default.
    /// Memory from [`Endpoint::allocate`](crate::Endpoint::allocate) does not count.
    pub memory_bytes_max: u64,
    /// Of how many bytes of the program's own memory the endpoint remembers, after they were deregistered, that they are mapped: 64 MiB
    /// by default. With 0 every registration checks its memory anew; see [`Endpoint::forget_registrations`](crate::Endpoint::forget_registrations).
    pub idle_registered_bytes_max: u64,
    /// Encrypts everything, and says who may be a peer. None: the device's configuration decides; without one, nothing is
    /// encrypted. Needs the feature `sealing`, which is on by default. Devices of shared memory refuse it.
    pub security: Option<Security>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            service: None,
            recv_buffers: limits::RECV_BUFFERS_DEFAULT,
            send_buffers: limits::SENDS_DEFAULT,
            rma_operations: limits::RMA_OPERATIONS_DEFAULT,
            send_timeout: Duration::from_nanos(limits::SEND_TIMEOUT_NS_DEFAULT),
            keepalive: None,
            memory_bytes_max: limits::MEMORY_BYTES_DEFAULT,
            idle_registered_bytes_max: limits::IDLE_REGISTERED_BYTES_DEFAULT,
            security: None,
        }
    }
}

impl Options {
    /// These options with another [`service`](field@Options::service).
    #[must_use]
    pub fn service(mut self, service: impl Into<Option<String>>) -> Options {
        self.service = service.into();
        self
    }

    /// These options with another [`recv_buffers`](field@Options::recv_buffers).
    #[must_use]
    pub fn recv_buffers(mut self, recv_buffers: u32) -> Options {
        self.recv_buffers = recv_buffers;
        self
    }

    /// These options with another [`send_buffers`](field@Options::send_buffers).
    #[must_use]
    pub fn send_buffers(mut self, send_buffers: u32) -> Options {
        self.send_buffers = send_buffers;
        self
    }

    /// These options with another [`rma_operations`](field@Options::rma_operations).
    #[must_use]
    pub fn rma_operations(mut self, rma_operations: u32) -> Options {
        self.rma_operations = rma_operations;
        self
    }

    /// These options with another [`send_timeout`](field@Options::send_timeout).
    #[must_use]
    pub fn send_timeout(mut self, send_timeout: Duration) -> Options {
        self.send_timeout = send_timeout;
        self
    }

    /// These options with another [`keepalive`](field@Options::keepalive).
    #[must_use]
    pub fn keepalive(mut self, keepalive: impl Into<Option<Duration>>) -> Options {
        self.keepalive = keepalive.into();
        self
    }

    /// These options with another [`memory_bytes_max`](field@Options::memory_bytes_max).
    #[must_use]
    pub fn memory_bytes_max(mut self, memory_bytes_max: u64) -> Options {
        self.memory_bytes_max = memory_bytes_max;
        self
    }

    /// These options with another [`idle_registered_bytes_max`](field@Options::idle_registered_bytes_max).
    #[must_use]
    pub fn idle_registered_bytes_max(mut self, idle_registered_bytes_max: u64) -> Options {
        self.idle_registered_bytes_max = idle_registered_bytes_max;
        self
    }

    /// These options with another [`security`](field@Options::security).
    #[must_use]
    pub fn security(mut self, security: impl Into<Option<Security>>) -> Options {
        self.security = security.into();
        self
    }

    /// Checks that each option is in its range.
    pub(crate) fn check(&self) -> Result<(), CreateError> {
        let bad = |name, reason: String| Err(CreateError::BadOption { name, reason });
        if self.recv_buffers == 0 || self.recv_buffers > limits::RECV_BUFFERS_MAX {
            return bad(
                "recv_buffers",
                format!("{} is not in 1..={}", self.recv_buffers, limits::RECV_BUFFERS_MAX),
            );
        }
        if self.send_buffers == 0 || self.send_buffers > limits::SENDS_MAX {
            return bad("send_buffers", format!("{} is not in 1..={}", self.send_buffers, limits::SENDS_MAX));
        }
        if self.rma_operations == 0 || self.rma_operations > limits::RMA_OPERATIONS_MAX {
            return bad(
                "rma_operations",
                format!("{} is not in 1..={}", self.rma_operations, limits::RMA_OPERATIONS_MAX),
            );
        }
        if self.send_timeout.is_zero() {
            return bad("send_timeout", "must not be zero".to_owned());
        }
        if self.memory_bytes_max < limits::MEMORY_BYTES_MIN {
            return bad(
                "memory_bytes_max",
                format!("{} is less than {}", self.memory_bytes_max, limits::MEMORY_BYTES_MIN),
            );
        }
        Ok(())
    }
}
