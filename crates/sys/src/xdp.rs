//! Frames past the kernel's network stack: AF_XDP.
//!
//! What SeaStar's paper builds on its own network card is here the kernel's: [`Socket`] has areas for sending and
//! receiving in memory shared with the kernel (UMEM), a ring of areas ready to be filled, a ring of frames received, one
//! of frames to send and one of those sent. The card's part (find the endpoint, check id and nonce before the process is
//! bothered) is done by a small program on the interface ([`Program`], `steer.c`), in which each endpoint has its
//! [`Attachment`]. Several processes share an interface; there is one socket for each of its queues.
//!
//! ```no_run
//! use cci_sys::ethernet::{EndpointLock, Link};
//! use cci_sys::xdp::{Check, Options, Program, Attachment, Socket, Wanted};
//!
//! # fn open() -> Result<(), Box<dyn std::error::Error>> {
//! let link = Link::of("veth0")?;
//! let lock = EndpointLock::take(link.mac, 7)?;
//! let program = Program::attach(link.index, Wanted::Auto)?;
//! let socket = Socket::open(&Options { interface_index: link.index, frame_bytes_max: 1_514, recv_frames: 1_024, send_frames: 512 })?;
//! let mut attachment = Attachment::create(program, &lock, link.mac, Some(&socket))?;
//! attachment.set_check(Check::Nonce)?;
//! # Ok(()) }
//! ```
//!
//! Keep a packet socket ([`crate::packet`]) beside it: frames that arrive on other queues than the socket's come there.

#[cfg(not(feature = "xdp"))]
mod absent;
#[cfg(feature = "xdp")]
mod attachment;
#[cfg(feature = "xdp")]
mod bpf;
#[cfg(feature = "xdp")]
mod hint;
mod kinds;
#[cfg(feature = "xdp")]
mod netlink;
#[cfg(feature = "xdp")]
mod program;
mod refusal;
mod rights;
mod ring;
mod socket;

#[cfg(not(feature = "xdp"))]
pub use absent::{Attachment, Program};
#[cfg(feature = "xdp")]
pub use attachment::Attachment;
pub use kinds::{Check, Mode, SteerCounters, Wanted};
#[cfg(feature = "xdp")]
pub use program::Program;
pub use refusal::Refusal;
pub use socket::{Options, Socket};

/// Whether this process could have a [`Socket`] so opened and the [`Program`] on its interface, as far as shows without
/// changing anything there: rights, limits, the kernel, programs of others. `Some`: the program is there already, in that
/// mode. Queues that are taken, and what the driver can do, show only in earnest.
pub fn probe(options: &Options) -> Result<Option<Mode>, Refusal> {
    Socket::probe(options)?;
    Program::probe(options.interface_index)
}
