//! How an endpoint that can be reached by several transports proves that it is the one behind a name in shared memory.
//!
//! A name on this host proves nothing: another process may have taken it, and another host may have the same name. So the
//! endpoint draws a *secret* and puts its hash, the [`Commitment`], into its URI. Before a client sends its request, it asks who
//! listens there. The endpoint's library shows the secret in a page of shared memory that only its maker can write to. A process
//! that shows the secret got it from the endpoint, over a socket of this host, as a process that may connect: of the same user,
//! or root. The page also proves that shared memory can be passed and mapped.

use super::wire::Message;
use crate::transport::commitment::{Commitment, SECRET_BYTES};
use cci_memory::bytes::Backing;
use cci_sys::shared_memory::SharedMemory;
use cci_sys::unix::{ReceivedFds, Stream};
use cci_sys::{SysError, random};

/// The length of the shared memory with the secret: one page, the smallest there is.
const PAGE_BYTES: usize = 4096;

/// An endpoint's secret, ready to be shown.
pub(crate) struct Proof {
    page: SharedMemory,
    commitment: Commitment,
}

impl Proof {
    /// Draws a secret.
    pub fn new() -> Result<Proof, SysError> {
        let mut secret = [0; SECRET_BYTES];
        random::fill(&mut secret)?;
        let page = SharedMemory::create_read_only_for_others(PAGE_BYTES)?;
        let written = page.bytes().write(0, &secret);
        debug_assert!(written, "a page is longer than a secret");
        Ok(Proof { page, commitment: Commitment::to(&secret) })
    }

    pub fn commitment(&self) -> Commitment {
        self.commitment
    }

    /// Sends the page with the secret to a client. Returns false if the client is gone.
    pub(super) fn show(&self, to: &Stream) -> bool {
        self.page.fd().is_some_and(|page| to.send(Message::Shown.bytes().as_slice(), &[page]).is_ok())
    }

    pub fn memory_bytes(&self) -> u64 {
        self.page.len() as u64
    }
}

/// The hash of the secret in a peer's page, if the peer sent one.
pub(super) fn shown_in(mut fds: ReceivedFds) -> Option<Commitment> {
    let page = SharedMemory::open_read_only(fds.take(0)?, PAGE_BYTES).ok()?;
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
