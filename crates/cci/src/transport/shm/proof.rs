//! How an endpoint with several ways to it proves that this is one of them.
//!
//! A name on this host proves nothing: another process may have taken it, and on another host there may be one of the
//! same name. So the endpoint draws a *secret* and puts its hash, the [`Commitment`], into its URI. Before a client says
//! what it wants, it asks who is there; the endpoint's library shows the secret in a segment that only its maker can
//! write to. Whoever shows it was told it by the endpoint, over a socket of this host, as a process that may connect:
//! of the same user, or root. That the segment came and could be mapped proves the rest of the way, too.

use super::hand::{Hand, Stage};
use super::wire::Said;
use super::{HANDSHAKE_NS_MAX, Shm};
use crate::ConnectFailure;
use crate::engine::core::Core;
use crate::transport::commitment::{Commitment, SECRET_BYTES};
use cci_memory::bytes::Backing;
use cci_memory::slab::Key;
use cci_sys::shared_memory::SharedMemory as Segment;
use cci_sys::unix::ReceivedFds;
use cci_sys::{SysError, clock, random};

/// The length of the segment: a page, as small as they come.
const PAGE_BYTES: usize = 4096;

/// An endpoint's secret, ready to be shown.
pub(crate) struct Proof {
    page: Segment,
    commitment: Commitment,
}

impl Proof {
    /// Draws a secret.
    pub fn new() -> Result<Proof, SysError> {
        let mut secret = [0; SECRET_BYTES];
        random::fill(&mut secret)?;
        let page = Segment::create_read_only_for_others(PAGE_BYTES)?;
        let written = page.bytes().write(0, &secret);
        debug_assert!(written, "a page is longer than a secret");
        Ok(Proof { page, commitment: Commitment::to(&secret) })
    }

    pub fn commitment(&self) -> Commitment {
        self.commitment
    }

    pub fn memory_bytes(&self) -> u64 {
        self.page.len() as u64
    }
}

impl Shm {
    /// A client asks who we are.
    pub(super) fn show_proof(&mut self, core: &mut Core, key: Key) {
        let page = self.proof.as_ref().and_then(|proof| proof.page.fd());
        let Some(hand) = self.common.hands.get_mut(key) else { return };
        let shown = match (page, &hand.stream) {
            (Some(page), Some(stream)) => stream.send(Said::Shown.bytes().as_slice(), &[page]).is_ok(),
            _ => false,
        };
        if shown {
            // Its next word comes when its program polls.
            hand.deadline_ns = clock::now_ns().saturating_add(HANDSHAKE_NS_MAX);
            if let Stage::Silent { has_asked, .. } = &mut hand.stage {
                *has_asked = true;
            }
        } else {
            self.say_on(key, &Said::Refuse(ConnectFailure::Refused));
            self.end_hand(core, key, ConnectFailure::Disconnected);
        }
    }

    /// The server shows a segment: only if the secret in it is that of the endpoint we want does it hear what for.
    pub(super) fn proof_came(&mut self, core: &mut Core, key: Key, fds: ReceivedFds) {
        let Some(hand) = self.common.hands.get_mut(key) else { return };
        let (conn, server, is_it) = match &hand.stage {
            Stage::Proving { conn, server, knock } => (*conn, *server, knock.proof == shown_in(fds)),
            _ => return,
        };
        let Some(connection) = self.common.connections.conns.get(conn).map(|conn| conn.connection) else {
            return;
        };
        if !is_it {
            self.common.connections.counts.not_proven += 1;
            core.disproved(connection);
            return self.end_hand(core, key, ConnectFailure::NotPermitted);
        }
        core.heard(connection);
        let was = std::mem::replace(&mut hand.stage, Stage::Asked { conn, server });
        if let (Hand { stream: Some(stream), .. }, Stage::Proving { knock, .. }) = (&*hand, was) {
            // A server that has closed meanwhile is heard of by its hang-up.
            let _ = stream.send(Said::Request(knock.request, &knock.payload).bytes().as_slice(), &[]);
        }
    }
}

/// What the secret in a peer's segment hashes to, if it sent one.
fn shown_in(mut fds: ReceivedFds) -> Option<Commitment> {
    let page = Segment::open_read_only(fds.take(0)?, PAGE_BYTES).ok()?;
    let mut secret = [0; SECRET_BYTES];
    page.read(0, &mut secret).then(|| Commitment::to(&secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commitments_are_written_and_read_back() {
        let proof = Proof::new().unwrap();
        let text = proof.commitment().to_string();
        assert_eq!((text.len(), text.parse()), (32, Ok(proof.commitment())));
        for wrong in ["", "1", &text.to_uppercase().replace(char::is_numeric, "A"), &format!("{text}0"), "+0"]
        {
            assert!(wrong.parse::<Commitment>().is_err(), "{wrong}");
        }
        assert!(format!("+{}", &text[1..]).parse::<Commitment>().is_err());
    }

    #[test]
    fn secrets_are_not_drawn_twice() {
        assert_ne!(Proof::new().unwrap().commitment(), Proof::new().unwrap().commitment());
    }
}
