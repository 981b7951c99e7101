//! Services that are found by asking a multicast group (RIPC-031). It needs no server and no set-up.
//!
//! A thread of the directory, `cci-directory`, answers for this process's services, so that a service need make no call to be
//! found. It sleeps until a datagram comes or something is due, and ends when the directory is dropped. [`State`] decides what is
//! sent; it knows neither clock nor sockets. Others on the link are trusted in one thing only: an answer counts if it repeats the
//! nonce of a question. A service that answers must prove who it is when it is connected to. Formats and rules: R-DIR in
//! docs/wire.md.

mod asked;
mod claims;
mod limits;
mod outbox;
mod rates;
mod settings;
mod sockets;
mod state;
#[cfg(test)]
mod tests;
mod thread;
mod wire;

pub use state::MulticastCounters;

use super::{Directory, Instance, News, Record};
use crate::error::{ClaimError, DirectoryError};
use crate::name::ServiceName;
use outbox::Refusal;
use settings::Settings;
use sockets::Sockets;
use state::State;
use std::os::fd::BorrowedFd;
use thread::{Command, Responder};

/// The services that answer in a multicast group.
pub struct MulticastDirectory {
    description: String,
    responder: Responder,
}

impl MulticastDirectory {
    /// Opens a directory by its text: `multicast://239.1.2.3:7800`, `multicast://[ff02::cc1]:7800`, with the options `interface=NAME`, as often as
    /// there are interfaces to use (without it: all that are up), and `hops=N`, how many networks a datagram may cross (1). The interfaces
    /// must be there, and stay.
    ///
    /// # Errors
    /// [`DirectoryError`]: the text is wrong, or the system refuses sockets, memory or a thread.
    pub fn open_text(text: &str) -> Result<MulticastDirectory, DirectoryError> {
        let settings = Settings::parse(text)?;
        let refused = |reason: String| DirectoryError::bad_text(text, &reason);
        let random = || cci_sys::random::u64().map_err(|error| refused(error.to_string()));
        let state = State::new(random()?, random()?);
        let sockets = Sockets::open(&settings).map_err(refused)?;
        let responder = Responder::start(state, sockets).map_err(refused)?;
        let names: Vec<&str> = settings.interfaces.iter().map(|place| place.name.as_str()).collect();
        let description = format!("the multicast group {} on {}", settings.group, names.join(", "));
        Ok(MulticastDirectory { description, responder })
    }

    /// The counters so far.
    pub fn counters(&self) -> MulticastCounters {
        self.responder.counters()
    }
}

impl Directory for MulticastDirectory {
    fn describe(&self) -> String {
        self.description.clone()
    }

    fn claim(&mut self, record: &Record) -> Result<(), ClaimError> {
        let failed = |reason: String| ClaimError::Directory {
            service: record.service.clone(),
            directory: self.description.clone(),
            reason,
        };
        if !wire::fits(record) {
            let max_bytes = limits::DATAGRAM_BYTES_MAX;
            let reason = format!("its URIs do not fit into a datagram of {max_bytes} bytes: listen at fewer");
            return Err(failed(reason));
        }
        self.responder.claim(record.clone()).map_err(|refusal| match refusal {
            Refusal::Taken(by) => {
                let (service, directory) = (record.service.clone(), self.description.clone());
                ClaimError::Taken { service, by, directory }
            }
            Refusal::TooMany => ClaimError::TooMany,
            Refusal::Failed(reason) => failed(reason),
        })
    }

    fn withdraw(&mut self, service: &ServiceName, instance: Instance) {
        self.responder.command(Command::Withdraw(service.clone(), instance));
    }

    fn ask(&mut self, service: &ServiceName) {
        self.responder.ask(service);
    }

    fn poll(&mut self) -> Option<News> {
        self.responder.poll()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.responder.descriptor())
    }
}
