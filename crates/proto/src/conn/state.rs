//! The life of a connection, as a table.

use super::Base;
use crate::ConnState::{self, Accepting, Broken, Closing, Dialing, Done, Free, Lingering, PeerClosed, Up};

/// What moves a connection from one state to the next.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// The program asks for a connection.
    Connect,
    /// The program accepts a request.
    Accept,
    /// The server's acceptance has come.
    Accepted,
    /// The first datagram with our nonce has come from the client.
    Confirmed,
    /// Refused, timed out, or given up before it was there.
    Failed,
    /// The peer says that it takes no more.
    PeerCloses,
    /// The peer says that all is over, or is reset, or silent for the send timeout.
    Lost,
    /// The program disconnects while sends are still unacknowledged.
    Disconnect,
    /// The program disconnects with nothing left to deliver, or the last of it is delivered or given up.
    Delivered,
    /// The peer has confirmed the close, or never will.
    Over,
    /// The last event has been raised.
    Reported,
}

/// Every arrow there is.
pub(crate) const TRANSITIONS: &[(ConnState, Input, ConnState)] = &[
    (Free, Input::Connect, Dialing),
    (Free, Input::Accept, Accepting),
    (Dialing, Input::Accepted, Up),
    (Dialing, Input::Failed, Done),
    (Accepting, Input::Confirmed, Up),
    (Accepting, Input::Failed, Done),
    (Up, Input::PeerCloses, PeerClosed),
    (Up, Input::Lost, Broken),
    (Up, Input::Disconnect, Lingering),
    (Up, Input::Delivered, Closing),
    (PeerClosed, Input::Lost, Broken),
    (PeerClosed, Input::Delivered, Closing),
    (Lingering, Input::Delivered, Closing),
    (Lingering, Input::PeerCloses, Closing),
    (Lingering, Input::Lost, Done),
    (Closing, Input::Over, Done),
    (Broken, Input::Over, Done),
    (Done, Input::Reported, Free),
];

impl Base {
    /// Moves along the arrow for `input`. There must be one: which inputs a state takes is ours to know.
    pub fn enter(&mut self, input: Input) {
        let arrow = TRANSITIONS.iter().find(|(from, on, _)| *from == self.state && *on == input);
        match arrow {
            Some((_, _, to)) => self.state = *to,
            None => debug_assert!(false, "no arrow from {:?} on {input:?}", self.state),
        }
    }
}

/// The table as a drawing.
#[cfg(test)]
fn dot() -> String {
    use std::fmt::Write;
    let mut out = String::from(
        "// Written from crates/proto/src/conn/state.rs, where a test compares them.\ndigraph connection {\n",
    );
    for (from, on, to) in TRANSITIONS {
        let _ = writeln!(out, "  {from:?} -> {to:?} [label=\"{on:?}\"];");
    }
    out.push_str("}\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drawing_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/conn.dot");
        if std::env::var_os("CCI_BLESS").is_some() {
            std::fs::write(path, dot()).unwrap();
        }
        assert_eq!(dot(), std::fs::read_to_string(path).unwrap(), "CCI_BLESS=1 writes it anew");
    }

    #[test]
    fn every_input_has_one_outcome_and_every_state_ends() {
        for (index, (from, on, _)) in TRANSITIONS.iter().enumerate() {
            let same = |(f, o, _): &(ConnState, Input, ConnState)| f == from && o == on;
            assert_eq!(TRANSITIONS.iter().position(same), Some(index), "{from:?} on {on:?}");
        }
        let mut ends = vec![Free];
        while let Some((from, ..)) =
            TRANSITIONS.iter().find(|(f, _, to)| ends.contains(to) && !ends.contains(f))
        {
            ends.push(*from);
        }
        for (from, ..) in TRANSITIONS {
            assert!(ends.contains(from), "{from:?} never ends");
        }
    }
}
