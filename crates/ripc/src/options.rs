//! Options of a node.

use crate::directory::Directory;
use crate::limits::{KEEPALIVE_NS, LEASE_NS, PULLED_BYTES_DEFAULT, RESOLVE_TIMEOUT_NS, SEND_TIMEOUT_NS};
use crate::policy::Policy;
use cci::Device;
use std::fmt;
use std::time::Duration;

/// Options of a node. The defaults suit most programs.
#[non_exhaustive]
pub struct Options {
    /// The device on which the node listens. `None`: shared memory, or the default device of the configuration file. Other
    /// devices are used for partners that only they can reach.
    pub device: Option<Device>,
    /// The options of the node's endpoint. By default, a partner that is silent for 5 s is looked for anew.
    pub endpoint: cci::Options,
    /// The directory of services. `None`: the one that the environment variable `CCI_DIRECTORY` names, otherwise the directory of
    /// this host.
    pub directory: Option<Box<dyn Directory>>,
    /// Who may register which services, and who may reach them, by the identities that partners have proved. By default everybody
    /// may.
    pub policy: Policy,
    /// How long a service is looked for before messages and calls to it fail: 10 s.
    pub resolve_timeout: Duration,
    /// The longest time for which memory is lent to one partner: 60 s.
    pub lease: Duration,
    /// The most bytes of the library's own memory into which long items are fetched at a time, if a program has given no windows:
    /// 256 MiB. With 0, only windows are used.
    pub fetched_bytes_max: u64,
    /// Whether long items are fetched when the program receives their message, into the windows that it has given by then,
    /// instead of when the message comes. The default is no.
    pub fetch_on_receive: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            device: None,
            endpoint: cci::Options::default()
                .keepalive(Duration::from_nanos(KEEPALIVE_NS))
                .send_timeout(Duration::from_nanos(SEND_TIMEOUT_NS)),
            directory: None,
            policy: Policy::default(),
            resolve_timeout: Duration::from_nanos(RESOLVE_TIMEOUT_NS),
            lease: Duration::from_nanos(LEASE_NS),
            fetched_bytes_max: PULLED_BYTES_DEFAULT,
            fetch_on_receive: false,
        }
    }
}

impl Options {
    /// These options with another [`device`](field@Options::device).
    #[must_use]
    pub fn device(self, device: &Device) -> Options {
        Options { device: Some(device.clone()), ..self }
    }

    /// These options with others for the [`endpoint`](field@Options::endpoint).
    #[must_use]
    pub fn endpoint(self, endpoint: cci::Options) -> Options {
        Options { endpoint, ..self }
    }

    /// These options with another [`directory`](field@Options::directory).
    #[must_use]
    pub fn directory(self, directory: Box<dyn Directory>) -> Options {
        Options { directory: Some(directory), ..self }
    }

    /// These options with another [`policy`](field@Options::policy).
    #[must_use]
    pub fn policy(self, policy: Policy) -> Options {
        Options { policy, ..self }
    }

    /// These options with another [`resolve_timeout`](field@Options::resolve_timeout).
    #[must_use]
    pub fn resolve_timeout(self, resolve_timeout: Duration) -> Options {
        Options { resolve_timeout, ..self }
    }

    /// These options with another [`lease`](field@Options::lease).
    #[must_use]
    pub fn lease(self, lease: Duration) -> Options {
        Options { lease, ..self }
    }

    /// These options with another [`fetched_bytes_max`](field@Options::fetched_bytes_max).
    #[must_use]
    pub fn fetched_bytes_max(self, fetched_bytes_max: u64) -> Options {
        Options { fetched_bytes_max, ..self }
    }

    /// These options with another [`fetch_on_receive`](field@Options::fetch_on_receive).
    #[must_use]
    pub fn fetch_on_receive(self, fetch_on_receive: bool) -> Options {
        Options { fetch_on_receive, ..self }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("device", &self.device)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}
