//! What the kernel knows of a stream.

use super::Stream;
use std::os::fd::AsRawFd;

/// `TCP_INFO`, the part of it that helps to understand a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Smoothed round trip, nanoseconds; 0: not measured.
    pub rtt_ns: u64,
    /// Congestion window, bytes.
    pub window_bytes: u64,
    /// Segments sent again since the connection was made.
    pub retransmissions: u64,
    /// Segments sent and not acknowledged by the peer's kernel.
    pub unacked: u64,
    /// The largest segment, bytes.
    pub segment_bytes: u64,
    /// Bytes given to the kernel that the peer's has not acknowledged.
    pub queued_bytes: u64,
}

impl Stream {
    /// What the kernel knows of it; None where it does not say.
    pub fn info(&self) -> Option<Info> {
        // SAFETY: numbers only, for which zeros are valid.
        let mut raw: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
        // SAFETY: writes at most `len` bytes of numbers to `raw`; both outlive the call.
        let done = unsafe {
            let to = (&raw mut raw).cast();
            libc::getsockopt(self.fd.as_raw_fd(), libc::SOL_TCP, libc::TCP_INFO, to, &mut len)
        };
        if done != 0 {
            return None;
        }
        Some(Info {
            rtt_ns: u64::from(raw.tcpi_rtt) * 1000,
            window_bytes: u64::from(raw.tcpi_snd_cwnd) * u64::from(raw.tcpi_snd_mss),
            retransmissions: u64::from(raw.tcpi_total_retrans),
            unacked: u64::from(raw.tcpi_unacked),
            segment_bytes: u64::from(raw.tcpi_snd_mss),
            queued_bytes: self.queued_bytes(),
        })
    }

    fn queued_bytes(&self) -> u64 {
        let mut bytes: libc::c_int = 0;
        // SAFETY: SIOCOUTQ (by its other name) writes one int, which outlives the call.
        let done = unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
        if done == 0 { u64::try_from(bytes).unwrap_or(0) } else { 0 }
    }
}
