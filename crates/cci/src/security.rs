//! Who may be a peer, and that nobody else can read or forge what passes: what a device's configuration says of it, what
//! a program does, and what comes of the two.

use crate::device::{DeviceInfo, TransportKind};
use crate::error::CreateError;
use crate::options::Options;
use cci_secure::{Authorisation, Credentials, CredentialsError, Identity, Method, Names, Rights};
use std::path::Path;

/// How an endpoint knows its peers, and what each may do: authenticated encryption of everything it sends and receives.
///
/// A device's configuration says it (`security = psk` and others, see `docs/guide.md`), or a program by
/// [`Options::security`]. Where both do, the program may ask for more than the device, never for less.
///
/// ```no_run
/// use cci::{Names, Options, Security};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let security = Security::psk_file("/etc/cci/cluster.psk")?.allow_rma_write(Names::parse("node1, node2")?);
/// let options = Options { security: Some(security), ..Options::default() };
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Security {
    /// None: the device's.
    credentials: Option<Credentials>,
    /// None: as the device has it, or on.
    required: Option<bool>,
    authorisation: Authorisation,
}

impl Security {
    /// By pre-shared keys from a file of lines `name = 64 hexadecimal digits`: the first is the one for connections that
    /// this side asks for, all are accepted. A peer is known by the name of the key that was used.
    ///
    /// # Errors
    /// [`CredentialsError`]: where, what is wrong, and what to do.
    pub fn psk_file(path: impl AsRef<Path>) -> Result<Security, CredentialsError> {
        Credentials::psk_file(path.as_ref()).map(Security::with)
    }

    /// The same from the text of such a file.
    ///
    /// # Errors
    /// As [`Security::psk_file`].
    pub fn psk(text: &[u8]) -> Result<Security, CredentialsError> {
        Credentials::psk(text).map(Security::with)
    }

    /// By certificates, which both sides show (TLS 1.3), from three PEM files: the own one with what lies between it and
    /// an authority, its private key, and the authorities that sign for peers. A peer is known by the DNS names in its
    /// certificate.
    ///
    /// # Errors
    /// [`CredentialsError`]: where, what is wrong, and what to do.
    pub fn certificate_files(
        certificate: impl AsRef<Path>,
        private_key: impl AsRef<Path>,
        authorities: impl AsRef<Path>,
    ) -> Result<Security, CredentialsError> {
        let (certificate, private_key) = (certificate.as_ref(), private_key.as_ref());
        Credentials::certificate_files(certificate, private_key, authorities.as_ref()).map(Security::with)
    }

    /// The same from the texts of such files.
    ///
    /// # Errors
    /// As [`Security::certificate_files`].
    pub fn certificates(
        certificate: &[u8],
        private_key: &[u8],
        authorities: &[u8],
    ) -> Result<Security, CredentialsError> {
        Credentials::certificates(certificate, private_key, authorities).map(Security::with)
    }

    /// As the device has it, to be narrowed: by [`Security::allow_connect`] and its like.
    pub fn of_device() -> Security {
        Security { credentials: None, required: None, authorisation: Authorisation::default() }
    }

    fn with(credentials: Credentials) -> Security {
        Security { credentials: Some(credentials), ..Security::of_device() }
    }

    /// True, as unless given: peers without security get no answer at all. False: they are served, too, in the clear and
    /// without a name; what this side asks for is sealed all the same.
    #[must_use]
    pub fn required(self, required: bool) -> Security {
        Security { required: Some(required), ..self }
    }

    /// Who may be at the other end of a connection, whichever side asks for it. Everyone who is known unless given.
    #[must_use]
    pub fn allow_connect(self, names: Names) -> Security {
        Security { authorisation: Authorisation { connect: names, ..self.authorisation }, ..self }
    }

    /// Who may read the regions registered here, as far as each allows it. Atomic operations need this right and the one
    /// to write. Everyone who is known unless given.
    #[must_use]
    pub fn allow_rma_read(self, names: Names) -> Security {
        Security { authorisation: Authorisation { rma_read: names, ..self.authorisation }, ..self }
    }

    /// Who may write to them.
    #[must_use]
    pub fn allow_rma_write(self, names: Names) -> Security {
        Security { authorisation: Authorisation { rma_write: names, ..self.authorisation }, ..self }
    }

    /// For people: `psk (this side is node1), required`.
    pub(crate) fn describe(&self) -> String {
        let how = self.credentials.as_ref().map_or_else(
            || "as the device says".to_owned(),
            |own| format!("{}, here {}", own.method(), own.own_name()),
        );
        let plain = if self.is_required() { "required" } else { "plain peers are served, too" };
        format!("{how}; {plain}")
    }

    fn is_required(&self) -> bool {
        self.required.unwrap_or(true)
    }
}

/// What an endpoint goes by.
#[derive(Clone, Debug)]
pub(crate) struct Sealing {
    pub credentials: Credentials,
    /// What comes plain is not for us.
    pub required: bool,
    /// The device's and the program's together.
    pub authorisation: Authorisation,
}

impl Sealing {
    /// What the device and the program say together. None: neither says anything.
    pub fn of(device: &DeviceInfo, options: &Options) -> Result<Option<Sealing>, CreateError> {
        let bad = |reason: String| Err(CreateError::BadOption { name: "security", reason });
        let (configured, asked) = (device.security.as_ref(), options.security.as_ref());
        if asked.is_some() && device.kind == TransportKind::Shm {
            return bad(SHM_HAS_NONE.to_owned());
        }
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
        let authorisation = both
            .into_iter()
            .flatten()
            .fold(Authorisation::default(), |so_far, more| so_far.and(more.authorisation.clone()));
        Ok(Some(Sealing { credentials, required: required || wants, authorisation }))
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

    /// For people: how messages to that peer travel.
    pub fn describe(peer: &Identity) -> String {
        let by = match peer.method() {
            Method::Psk => "by Noise and a pre-shared key",
            Method::Certificate => "by TLS 1.3 and a certificate",
        };
        format!("sealed by AES-256-GCM, peer {} known {by}", peer.name())
    }
}

/// Why shared memory takes no such configuration.
pub(crate) const SHM_HAS_NONE: &str = "shared memory does not leave this host, and the kernel says which user a peer is: \
     there is nothing to seal; take security out, or use udp, tcp, eth or any";

#[cfg(test)]
mod tests {
    use super::*;

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
        let shm = DeviceInfo::new("s".to_owned(), TransportKind::Shm);
        let error = Sealing::of(&shm, &Options { security: Some(keys()), ..Options::default() }).unwrap_err();
        assert!(error.to_string().contains("nothing to seal"), "{error}");
    }
}
