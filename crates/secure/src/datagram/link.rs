//! An association: the keys of both directions, and whose they are.

use crate::handshake::Established;
use crate::identity::{Identity, Rights};
use crate::keys::{Opener, Sealer};
use crate::limits::UpdateLimits;
use crate::replay::Window;

/// How long a peer may answer nothing until a new handshake asks whether it still knows of the association: it may have
/// restarted, and says nothing about datagrams that it can't open.
const SILENCE_NS: u64 = 500_000_000;
/// And if those handshakes succeed and still nothing else comes: a peer that only listens need not shake hands often.
const SILENCE_NS_MAX: u64 = 64_000_000_000;
/// Empty datagrams in answer to a handshake's repeats: whoever repeats recorded ones gets no more.
const ANSWERS_MAX: u8 = 8;

pub(super) struct Link {
    pub peer: Identity,
    pub rights: Rights,
    pub sealer: Sealer,
    pub opener: Opener,
    pub window: Window,
    /// Something sealed by the peer has come, or its handshake proves as much.
    pub is_confirmed: bool,
    /// When something was sealed or opened last.
    pub used_ns: u64,
    /// What was sent first since something came.
    unanswered_ns: Option<u64>,
    silence_ns: u64,
    answers: u8,
    /// The opener's epoch when it was last looked at.
    epoch_seen: u64,
}

impl Link {
    pub fn new(made: &Established, rights: Rights, now_ns: u64, update: UpdateLimits) -> Link {
        Link {
            peer: made.peer.clone(),
            rights,
            sealer: Sealer::new(made.send.clone(), now_ns, update),
            opener: Opener::new(&made.receive),
            window: Window::new(),
            is_confirmed: false,
            used_ns: now_ns,
            unanswered_ns: None,
            silence_ns: SILENCE_NS,
            answers: 0,
            epoch_seen: 0,
        }
    }

    /// Something is being sent. True: nothing has come for long, and it is time to ask.
    #[inline]
    pub fn sends(&mut self, now_ns: u64) -> bool {
        self.used_ns = now_ns;
        let since = *self.unanswered_ns.get_or_insert(now_ns);
        if now_ns.saturating_sub(since) < self.silence_ns {
            return false;
        }
        self.unanswered_ns = Some(now_ns);
        self.silence_ns = self.silence_ns.saturating_mul(2).min(SILENCE_NS_MAX);
        true
    }

    /// Something came that the peer has sealed. `has_content`: there is something in it. If not, it shows that the peer has the
    /// keys, which each new handshake does, so it makes the next one no earlier.
    #[inline]
    pub fn received(&mut self, now_ns: u64, has_content: bool) {
        self.used_ns = now_ns;
        self.unanswered_ns = None;
        self.sealer.answered();
        if has_content {
            self.silence_ns = SILENCE_NS;
        }
    }

    /// This one follows another with the same silent peer.
    pub fn inherit(&mut self, before: &Link) {
        self.silence_ns = before.silence_ns;
    }

    /// A handshake's repeat may be answered once more.
    pub fn may_answer(&mut self) -> bool {
        self.answers = self.answers.saturating_add(1);
        self.answers <= ANSWERS_MAX
    }

    /// Called now and then: what the last epoch sealed has come by now, if the epoch was there the last time.
    pub fn forget_keys(&mut self) {
        if self.epoch_seen == self.opener.number() {
            self.opener.forget_before();
        }
        self.epoch_seen = self.opener.number();
    }
}
