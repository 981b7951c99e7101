//! What comes of a device's security and a program's together.

use crate::device::DeviceInfo;
use crate::error::{ConnectError, CreateError};
use crate::options::Options;
use crate::security::Security;
use cci_secure::{Authorisation, Credentials, Identity, Method, Names, Rights};

/// The security of an endpoint, from what its device and its program say.
#[derive(Clone, Debug)]
pub(crate) struct Sealing {
    pub credentials: Credentials,
    /// What comes without encryption is refused.
    pub required: bool,
    /// The rules of the device and of the program.
    pub authorisation: Authorisation,
}

impl Sealing {
    /// What the device and the program say together. None: neither says anything.
    pub fn of(device: &DeviceInfo, options: &Options) -> Result<Option<Sealing>, CreateError> {
        let bad = |reason: String| Err(CreateError::BadOption { name: "security", reason });
        let (configured, asked) = (device.security.as_ref(), options.security.as_ref());
        let both = [configured, asked];
        let credentials = match both
            .map(|security| security.and_then(|security| security.credentials.as_ref()))
        {
            [None, None] if asked.is_some() => {
                return bad(format!(
                    "device {} has no credentials: give some, by Security::psk_file or certificate_files",
                    device.name
                ));
            }
            [None, None] => return Ok(None),
            [Some(_), Some(_)] if configured.is_some_and(Security::is_required) => {
                return bad(format!(
                    "device {} requires its own credentials: narrow them by Security::of_device, or open the endpoint on a device without",
                    device.name
                ));
            }
            [_, Some(own)] | [Some(own), None] => own.clone(),
        };
        let required = configured.is_some_and(Security::is_required);
        if required && asked.is_some_and(|asked| asked.required == Some(false)) {
            return bad(format!("device {} requires security: a program can't do without", device.name));
        }
        // Of a device that serves plain peers, too, a program may ask for more; its own credentials do by themselves.
        let wants = asked.is_some_and(|asked| asked.required.unwrap_or(asked.credentials.is_some()));
        if let Some(name) = Sealing::expected(device, options)?
            && !credentials.can_expect(&name)
        {
            return bad(format!(
                "nobody called {name} can be expected: there is no key of that name to ask by"
            ));
        }
        let authorisation = both
            .into_iter()
            .flatten()
            .fold(Authorisation::default(), |so_far, more| so_far.and(more.authorisation.clone()));
        Ok(Some(Sealing { credentials, required: required || wants, authorisation }))
    }

    /// Whom the device or the program expects wherever the endpoint connects to.
    pub fn expected(device: &DeviceInfo, options: &Options) -> Result<Option<Box<str>>, CreateError> {
        let of = |security: Option<&Security>| security.and_then(|security| security.expected.clone());
        match (of(device.security.as_ref()), of(options.security.as_ref())) {
            (Some(configured), Some(asked)) if !configured.eq_ignore_ascii_case(&asked) => {
                let reason = format!(
                    "device {} connects to {configured} only: a program can't have it connect to {asked}",
                    device.name
                );
                Err(CreateError::BadOption { name: "security", reason })
            }
            (configured, asked) => Ok(configured.or(asked)),
        }
    }

    /// What this peer may do here; without a name, what everybody may.
    pub fn rights(&self, peer: Option<&Identity>) -> Rights {
        let Some(peer) = peer else {
            let Authorisation { connect, rma_read, rma_write } = &self.authorisation;
            let connect = *connect == Names::Everyone;
            return Rights {
                connect,
                rma_read: connect && *rma_read == Names::Everyone,
                rma_write: connect && *rma_write == Names::Everyone,
            };
        };
        self.authorisation.rights(peer)
    }

    /// Whether somebody of that name can be expected.
    pub fn can_expect(&self, name: &str) -> Result<(), ConnectError> {
        if self.credentials.can_expect(name) {
            return Ok(());
        }
        let reason = format!(
            "there is no key of that name here, by which to ask; this side is {}",
            self.credentials.own_name()
        );
        Err(ConnectError::CannotExpect { name: name.to_owned(), reason })
    }

    /// Whether a peer that proved no name may do everything: no list says otherwise.
    pub fn gives_all_to_the_unnamed(&self) -> bool {
        self.rights(None) == Rights { connect: true, rma_read: true, rma_write: true }
    }

    /// For people: how messages to that peer travel.
    pub fn describe(peer: &Identity) -> String {
        let by = match peer.method() {
            Method::Psk => "by Noise and a pre-shared key",
            Method::Certificate => "by TLS 1.3 and a certificate",
        };
        format!("sealed by AES-256-GCM, peer {} known {by}", peer.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::TransportKind;

    const KEYS: &[u8] = b"node1 = 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";

    fn keys() -> Security {
        Security::psk(KEYS).unwrap()
    }

    fn of(configured: Option<Security>, asked: Option<Security>) -> Result<Option<Sealing>, CreateError> {
        let device =
            DeviceInfo { security: configured, ..DeviceInfo::new("d".to_owned(), TransportKind::Udp) };
        Sealing::of(&device, &Options { security: asked, ..Options::default() })
    }

    fn required(configured: Option<Security>, asked: Option<Security>) -> Option<bool> {
        of(configured, asked).unwrap().map(|sealing| sealing.required)
    }

    #[test]
    fn a_program_may_ask_for_more_and_never_for_less() {
        assert_eq!(required(None, None), None);
        assert_eq!(required(Some(keys()), None), Some(true));
        assert_eq!(required(Some(keys().required(false)), None), Some(false));
        assert_eq!(required(None, Some(keys())), Some(true));
        assert_eq!(required(None, Some(keys().required(false))), Some(false));
        assert_eq!(required(Some(keys().required(false)), Some(keys())), Some(true));
        assert_eq!(required(Some(keys().required(false)), Some(Security::of_device())), Some(false));
        assert_eq!(
            required(Some(keys().required(false)), Some(Security::of_device().required(true))),
            Some(true)
        );
        assert_eq!(required(Some(keys()), Some(Security::of_device())), Some(true));
        for (configured, asked, word) in [
            (Some(keys()), Security::of_device().required(false), "can't do without"),
            (Some(keys()), keys(), "its own credentials"),
            (None, Security::of_device(), "no credentials"),
        ] {
            let error = of(configured, Some(asked)).unwrap_err().to_string();
            assert!(error.contains("security") && error.contains(word), "{error}");
        }
    }
}
