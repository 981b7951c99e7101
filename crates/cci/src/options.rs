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
    /// UU: a message arrives once at most. A host that loses one counts it. A send completes when it
    /// has left.
    Unreliable,
    /// UU to every member of a multicast group (CCI-031): this end sends and receives nothing. Nobody is asked, so the
    /// connection is there at once. By UDP only, that of a device `any` included.
    MulticastSend,
    /// UU from every sender to a multicast group (CCI-031): this end receives and sends nothing. By UDP only.
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
    /// The message need not be copied before the call returns. A permission the library may use or not: from
    /// safe Rust it always copies, since a borrow can't outlive the call.
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
    /// Receive buffers: 1,024, shared by all peers. A message that is kept holds one. At least 1. While several connections are
    /// open, one gets no more than are left for all others; one that is alone may have all.
    pub recv_buffers: u32,
    /// Sends that may be in progress at once: 16,384, of whatever length, whether their peers take them or not. Those for which
    /// the transport has no room wait in memory that is borrowed under the cap. At least 1. While several connections are open,
    /// one may have no more than are left for all others.
    pub send_buffers: u32,
    /// Remote memory operations that may be in progress at once: 16,384. Memory for them is borrowed as they are begun. At least
    /// 1. While several connections are open, one may have no more than are left for all others.
    pub rma_operations: u32,
    /// How long a reliable send may take before it fails with `ReceiverNotReady` or `TimedOut`: 10 s. One that waits for room while
    /// the peer goes on taking others has more time, as long as those before it need at 64 KiB a second. Not zero.
    pub send_timeout: Duration,
    /// Raise [`Event::KeepaliveTimedOut`](crate::Event) when a peer is silent for so long. None: off. Peers that have gone are
    /// found without it, and reported by [`Event::Disconnected`](crate::Event::Disconnected).
    pub keepalive: Option<Duration>,
    /// Cap on every byte the endpoint holds for buffers, queues, connections and mappings of peers' memory: 256 MiB. Memory from
    /// [`Endpoint::allocate`](crate::Endpoint::allocate) counts beside it.
    pub memory_bytes_max: u64,
    /// How many bytes of the program's own memory the endpoint remembers as checked after they were deregistered: 64 MiB. With 0
    /// every registration checks its memory anew; see [`Endpoint::forget_registrations`](crate::Endpoint::forget_registrations).
    pub idle_registered_bytes_max: u64,
    /// Who may be a peer, and that everything is encrypted. None: the device's configuration decides; without one, nothing is
    /// encrypted. Needs the feature `sealing`, which is on by default; not for devices of shared memory.
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
