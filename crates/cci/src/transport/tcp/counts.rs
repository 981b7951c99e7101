//! What an endpoint counts, and the faults of peers that it counts.

/// Why a connection or a handshake was cut off.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A record that no honest peer sends.
    Record,
    /// A handshake that no honest peer sends.
    Handshake,
    /// A second stream for a connection that does not exist, or with a wrong secret.
    Ticket,
    /// A client sent nothing for too long, or had to make space for others.
    Silent,
    /// The peer sent records that need answers, and did not read the answers.
    Answers,
    /// The peer may not connect, or did not prove who it is.
    Refused,
    /// A record that was not sealed by the peer.
    Forged,
    /// A handshake of another version.
    Version,
    /// A handshake that this endpoint itself began.
    Own,
    /// The peer began a record, or asked for a message, and did not go on.
    Unfinished,
}

impl Fault {
    pub const ALL: [Fault; 10] = [
        Fault::Record,
        Fault::Handshake,
        Fault::Ticket,
        Fault::Silent,
        Fault::Answers,
        Fault::Refused,
        Fault::Forged,
        Fault::Version,
        Fault::Own,
        Fault::Unfinished,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Fault::Record => "bad-record",
            Fault::Handshake => "bad-handshake",
            Fault::Ticket => "bad-second-stream",
            Fault::Silent => "silent-client",
            Fault::Answers => "answers-not-read",
            Fault::Refused => "handshake-refused",
            Fault::Forged => "sealed-forged",
            Fault::Version => "handshake-version",
            Fault::Own => "handshake-own",
            Fault::Unfinished => "unfinished-record",
        }
    }
}

/// Counts since the endpoint was opened.
#[derive(Default)]
pub(super) struct Counts {
    pub bytes_written: u64,
    pub bytes_read: u64,
    pub writes: u64,
    pub reads: u64,
    pub reads_empty: u64,
    /// Messages that were written alone.
    pub lone: u64,
    /// Writes that carried what several calls had queued.
    pub batches: u64,
    pub kernel_polls: u64,
    pub acks_sent: u64,
    pub not_ready_sent: u64,
    pub not_ready_received: u64,
    pub requests: u64,
    pub broken: u64,
    pub keepalives: u64,
    /// Looks at connections with a message that waits for a receive buffer.
    pub starved_looks: u64,
    faults: [u64; Fault::ALL.len()],
    // Dropped messages and records.
    pub unreliable_no_buffer: u64,
    pub after_close: u64,
    pub handshake_timed_out: u64,
    pub refused_system: u64,
}

impl Counts {
    pub fn fault(&mut self, fault: Fault) {
        if let Some(count) = self.faults.get_mut(fault as usize) {
            *count += 1;
        }
    }

    pub fn of(&self, fault: Fault) -> u64 {
        self.faults.get(fault as usize).copied().unwrap_or(0)
    }
}
