//! Streams that are no connection's yet: of clients that have not said what they want, and second streams being made.

use super::conn::Fault;
use super::pipe::{self, Pipe};
use super::wire::{SAID_BYTES_MAX, Said};
use super::{HANDS_SILENT_MAX, Tcp};
use crate::Status;
use crate::engine::core::Core;
use crate::transport::crowd::oldest_of_most;
use crate::transport::token;
use cci_ring::slab::Key;
use cci_sys::event::Interest;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::AsFd;

/// See the module.
pub(super) struct Hand {
    pub stream: Pipe,
    pub peer: Option<SocketAddr>,
    /// When it is over.
    pub until_ns: u64,
    /// What was read so far, or is to be written.
    pub bytes: Vec<u8>,
    pub stage: Stage,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// A client that has not said HELLO.
    Silent,
    /// Our second stream, being connected.
    Bulk { conn: Key },
}

/// Why nothing was read.
pub(super) enum Unread {
    /// The peer has closed, or died.
    Gone,
    /// One side did not prove to be somebody whom the other wants.
    Refused,
    /// Something came that the peer has not sealed.
    Forged,
    Fault,
}

/// Reads a part of a handshake, and no byte behind it. None: more is to come.
pub(super) fn read_said(stream: &mut Pipe, bytes: &mut Vec<u8>) -> Result<Option<Said>, Unread> {
    loop {
        //= wire.md R-TCP-2
        let needed = match Said::parse(bytes) {
            Ok(said) => return Ok(Some(said)),
            Err(Some(needed)) => needed.min(SAID_BYTES_MAX),
            Err(None) => return Err(Unread::Fault),
        };
        let have = bytes.len();
        bytes.resize(needed, 0);
        let got = stream.recv(bytes.get_mut(have..).unwrap_or_default());
        bytes.truncate(have + got.as_ref().map_or(0, |len| *len));
        match got {
            Ok(0) => return Err(Unread::Gone),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) if pipe::is_refusal(&error) => return Err(Unread::Refused),
            Err(error) if pipe::is_forgery(&error) => return Err(Unread::Forged),
            Err(_) => return Err(Unread::Gone),
        }
    }
}

impl Tcp {
    pub(super) fn watch_hand(&mut self, core: &mut Core, key: Key, interest: Interest) {
        let Some(hand) = self.hands.get(key) else { return };
        let token = token::make(token::HAND, key);
        if core.poller.watch(hand.stream.as_fd(), token).is_err() {
            return self.end_hand(core, key, None);
        }
        if interest != Interest::Read {
            core.poller.rewatch(hand.stream.as_fd(), token, interest);
        }
    }

    /// The kernel has something to say of a hand.
    pub(super) fn hand_ready(&mut self, core: &mut Core, key: Key) {
        match self.hands.get(key).map(|hand| hand.stage) {
            Some(Stage::Silent) => self.hear(core, key),
            Some(Stage::Bulk { conn }) => self.bulk_connected(core, key, conn),
            None => {}
        }
    }

    /// A client says what it wants.
    fn hear(&mut self, core: &mut Core, key: Key) {
        let Some(hand) = self.hands.get_mut(key) else { return };
        let said = match read_said(&mut hand.stream, &mut hand.bytes) {
            Ok(None) => return,
            Ok(Some(said)) => said,
            Err(Unread::Gone) => return self.end_hand(core, key, None),
            Err(Unread::Refused) => return self.end_hand(core, key, Some(Fault::Refused)),
            Err(Unread::Forged) => return self.end_hand(core, key, Some(Fault::Forged)),
            Err(Unread::Fault) => return self.end_hand(core, key, Some(Fault::Handshake)),
        };
        match said {
            Said::Hello { attribute, mss, payload } => self.ask_program(core, key, attribute, mss, payload),
            Said::Bulk(ticket) => {
                let Some(hand) = self.take_hand(core, key) else { return };
                //= wire.md R-TCP-15
                let named = Key::from_bits(ticket.key);
                let known = self.conns.get(named).is_some_and(|conn| {
                    !conn.dialled
                        && conn.is_reliable
                        && conn.ticket == ticket
                        && conn.stream.as_ref().is_some_and(|first| first.has_peer_of(&hand.stream))
                        && conn.bulk_may_come()
                });
                if known {
                    self.bulk_came(core, named, hand.stream);
                } else {
                    self.shared.counts.fault(Fault::Ticket);
                }
            }
            Said::OtherHello => {
                //= wire.md R-TCP-4
                if let Some(mut hand) = self.take_hand(core, key) {
                    // What is not read would have the kernel reset the stream, and the answer might be lost.
                    let _ = hand.stream.recv(&mut [0; SAID_BYTES_MAX]);
                    // It is short, and the stream is new: there is room. If not, the client learns by its end.
                    let _ = hand.stream.send(&Said::OtherHello.bytes());
                }
            }
            Said::Accept { .. } | Said::Reject { .. } | Said::Version { .. } | Said::Heard => {
                self.end_hand(core, key, Some(Fault::Handshake));
            }
        }
    }

    /// Our second stream is connected, or is not, or its handshake goes on.
    fn bulk_connected(&mut self, core: &mut Core, key: Key, conn: Key) {
        let Some(hand) = self.hands.get_mut(key) else { return };
        let sent = hand.stream.take_error().and_then(|()| hand.stream.send(&hand.bytes));
        if sent.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
            // A stream that is not connected, or has no room, can be written later; one that waits for the peer's part of
            // the handshake always can.
            let interest = if hand.stream.waits_for_room() { Interest::Write } else { Interest::Read };
            core.poller.rewatch(hand.stream.as_fd(), token::make(token::HAND, key), interest);
            return;
        }
        let whole = sent.as_ref().is_ok_and(|len| *len == hand.bytes.len());
        let Some(hand) = self.take_hand(core, key) else { return };
        let first = self.conns.get(conn).and_then(|conn| conn.stream.as_ref());
        if whole && first.is_some_and(|first| first.has_peer_of(&hand.stream)) {
            self.bulk_came(core, conn, hand.stream);
        } else {
            if sent.as_ref().is_err_and(pipe::is_refusal) {
                self.shared.counts.fault(Fault::Refused);
            }
            self.end(core, conn, Status::Disconnected);
        }
    }

    /// Takes a hand out of the tables; its stream goes on.
    pub(super) fn take_hand(&mut self, core: &mut Core, key: Key) -> Option<Hand> {
        let hand = self.hands.remove(key)?;
        core.poller.unwatch(hand.stream.as_fd());
        Some(hand)
    }

    /// Closes it.
    pub(super) fn end_hand(&mut self, core: &mut Core, key: Key, fault: Option<Fault>) {
        if let Some(fault) = fault {
            self.shared.counts.fault(fault);
        }
        if let Some(Hand { stage: Stage::Bulk { conn }, .. }) = self.take_hand(core, key) {
            self.end(core, conn, Status::Disconnected);
        }
    }

    /// Room for one more client: of too many silent ones the oldest has to go of the host that has the most, if it had its time.
    pub(super) fn make_room_for_hand(&mut self, core: &mut Core, grace_ns: u64) -> bool {
        if self.hands.len() < HANDS_SILENT_MAX {
            return true;
        }
        let silent = self.hands.iter().filter(|(_, hand)| hand.stage == Stage::Silent);
        let oldest =
            oldest_of_most(silent.map(|(key, hand)| (hand.peer.map(|peer| peer.ip()), hand.until_ns, key)));
        let Some((key, _)) = oldest.filter(|(_, until_ns)| *until_ns <= self.shared.now_ns + grace_ns) else {
            return false;
        };
        self.end_hand(core, key, Some(Fault::Silent));
        true
    }
}
