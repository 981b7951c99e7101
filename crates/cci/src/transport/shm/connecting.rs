//! Passes what arrives for a handshake to the client's or the server's side of this endpoint.

use super::ERRNO_DESCRIPTORS;
use super::client::Client;
use super::handshake::Handshake;
use super::server::Server;
use super::step::Step;
use super::wire::{self, Message};
use crate::ConnectFailure;
use cci_memory::slab::Key;
use std::io;

/// Both sides of an endpoint's handshakes.
pub(super) struct Connecting {
    pub client: Client,
    pub server: Server,
}

impl Connecting {
    /// Admits the next client that waits. Returns false if none waits, or there are too many.
    pub fn let_in(&mut self, step: &mut Step<'_>) -> bool {
        let Some(client) = self.server.let_in(step) else { return false };
        if let Some(key) = client {
            // The client has usually sent its request already.
            self.ready(step, key);
        }
        true
    }

    /// Reads what has come on a handshake's stream.
    pub fn ready(&mut self, step: &mut Step<'_>, key: Key) {
        // The only thing that can follow a message at once is a hang-up.
        for _ in 0..3 {
            let Some(handshake) = step.common.handshakes.get(key) else { return };
            let Handshake { stream: Some(stream), stage, .. } = handshake else { return };
            let is_client = stage.is_client();
            let mut buffer = [0; wire::BYTES_MAX];
            match stream.recv(&mut buffer, 2) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.raw_os_error() == Some(ERRNO_DESCRIPTORS) => {
                    // This process has no free descriptor, so the peer's descriptors were lost. The peer is informed, and its
                    // program may try again.
                    handshake.send(&Message::Refuse(ConnectFailure::NoMemory));
                    step.common.connections.counts.system_errors += 1;
                    return self.end(step, key, ConnectFailure::NoMemory);
                }
                Err(_) => {
                    step.common.connections.counts.bad_handshake += 1;
                    return self.end(step, key, ConnectFailure::Disconnected);
                }
                Ok(got) if got.len == 0 && is_client => {
                    return self.end(step, key, ConnectFailure::Disconnected);
                }
                Ok(got) if got.len == 0 => return self.server.hung_up(step, key),
                Ok(got) => {
                    let message = wire::parse(buffer.get(..got.len).unwrap_or_default());
                    if is_client {
                        self.client.heard(step, key, message, got.fds);
                    } else {
                        self.server.heard(step, key, message, got.fds);
                    }
                }
            }
        }
    }

    /// Ends an attempt to connect that has failed, whether it was ours or a client's.
    pub fn end(&mut self, step: &mut Step<'_>, key: Key, why: ConnectFailure) {
        let Some(handshake) = step.common.handshakes.get(key) else { return };
        if handshake.stage.is_client() {
            self.client.end(step.common, step.core, key, why);
        } else {
            self.server.end(step, key, why);
        }
    }

    /// Ends handshakes whose deadline has passed, and tries again to reach servers whose queue was full.
    pub fn time_out(&mut self, step: &mut Step<'_>) {
        let now_ns = step.common.connections.now_ns;
        let (over, again) = step.common.handshakes.due(now_ns);
        for key in over {
            // The answer may just have come.
            self.ready(step, key);
            if step.common.handshakes.get(key).is_some_and(|handshake| now_ns >= handshake.deadline_ns) {
                step.common.connections.counts.handshake_timed_out += 1;
                self.end(step, key, ConnectFailure::TimedOut);
            }
        }
        for key in again {
            if self.client.hello(step.common, step.core, key).is_err() {
                step.common.connections.counts.system_errors += 1;
                self.end(step, key, ConnectFailure::NoMemory);
            }
        }
    }
}
