//! Who may be a peer, and that nobody else can read or forge what passes: as a device's configuration or a program says it.

use cci_secure::{Authorisation, Credentials, CredentialsError, Names};
use cci_sys::process;
use std::path::Path;

/// How an endpoint knows its peers, and what each may do: authenticated encryption of everything it sends and receives.
///
/// A device's configuration says it (`security = psk` and others, see `docs/guide.md`), or a program by
/// [`Options::security`](crate::Options::security). Where both do, the program may ask for more than the device, never for less.
///
/// ```no_run
/// use cci::{Names, Options, Security};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let security = Security::psk_file("/etc/cci/cluster.psk")?.allow_rma_write(Names::parse("node1, node2")?);
/// let options = Options::default().security(security);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Security {
    /// None: the device's credentials.
    pub(crate) credentials: Option<Credentials>,
    /// None: as the device's configuration says; on if it says nothing.
    pub(crate) required: Option<bool>,
    pub(crate) authorisation: Authorisation,
    /// None: everyone who may be connected.
    pub(crate) expected: Option<Box<str>>,
}

impl Security {
    /// By pre-shared keys from a file of lines `name = 64 hexadecimal digits`: the first is the one for connections that
    /// this side asks for, all are accepted. A peer is known by the name of the key that was used. The file must belong to
    /// root or to the effective user of this process, and nobody else may read or change it.
    ///
    /// # Errors
    /// [`CredentialsError`]: where, what is wrong, and what to do.
    pub fn psk_file(path: impl AsRef<Path>) -> Result<Security, CredentialsError> {
        Credentials::psk_file(path.as_ref(), process::uid()).map(Security::with)
    }

    /// Pre-shared keys from text in the form that [`Security::psk_file`] reads.
    ///
    /// # Errors
    /// [`CredentialsError`] says where the text is wrong, what is wrong, and what to do.
    pub fn psk(text: &[u8]) -> Result<Security, CredentialsError> {
        Credentials::psk(text).map(Security::with)
    }

    /// By certificates, which both sides show (TLS 1.3), from three PEM files: the own one with what lies between it and
    /// an authority, its private key, and the authorities that sign for peers. A peer is known by the DNS names in its
    /// certificate. The files must belong to root or to the effective user of this process; nobody else may change them,
    /// or read the private key.
    ///
    /// # Errors
    /// [`CredentialsError`]: where, what is wrong, and what to do.
    pub fn certificate_files(
        certificate: impl AsRef<Path>,
        private_key: impl AsRef<Path>,
        authorities: impl AsRef<Path>,
    ) -> Result<Security, CredentialsError> {
        let (certificate, private_key) = (certificate.as_ref(), private_key.as_ref());
        Credentials::certificate_files(certificate, private_key, authorities.as_ref(), process::uid())
            .map(Security::with)
    }

    /// Certificates from texts in the form that [`Security::certificate_files`] reads.
    ///
    /// # Errors
    /// [`CredentialsError`] says where a text is wrong, what is wrong, and what to do.
    pub fn certificates(
        certificate: &[u8],
        private_key: &[u8],
        authorities: &[u8],
    ) -> Result<Security, CredentialsError> {
        Credentials::certificates(certificate, private_key, authorities).map(Security::with)
    }

    /// The device's own security, which [`Security::allow_connect`] and the other methods may narrow.
    pub fn of_device() -> Security {
        Security {
            credentials: None,
            required: None,
            authorisation: Authorisation::default(),
            expected: None,
        }
    }

    fn with(credentials: Credentials) -> Security {
        Security { credentials: Some(credentials), ..Security::of_device() }
    }

    /// Whether peers without security get no answer at all, which is the default. With `false` they are served, too, in the clear
    /// and without a name; connections that this side asks for are sealed all the same.
    #[must_use]
    pub fn required(self, required: bool) -> Security {
        Security { required: Some(required), ..self }
    }

    /// Who may be at the other end of a connection, whichever side asks for it. By default everyone who is known.
    #[must_use]
    pub fn allow_connect(self, names: Names) -> Security {
        Security { authorisation: Authorisation { connect: names, ..self.authorisation }, ..self }
    }

    /// Who must be at the other end of every connection that this side asks for, as
    /// [`Endpoint::connect_expecting`](crate::Endpoint::connect_expecting) says it for one. By default everyone who may be connected. Connections that others ask for
    /// are [`Security::allow_connect`]'s alone.
    #[must_use]
    pub fn expect(self, peer: &str) -> Security {
        Security { expected: Some(peer.into()), ..self }
    }

    /// Who may read the regions registered here, as far as each allows it. Atomic operations need this right and the one
    /// to write. By default everyone who is known.
    #[must_use]
    pub fn allow_rma_read(self, names: Names) -> Security {
        Security { authorisation: Authorisation { rma_read: names, ..self.authorisation }, ..self }
    }

    /// Who may write to the regions registered here, as far as each allows it. By default everyone who is known.
    #[must_use]
    pub fn allow_rma_write(self, names: Names) -> Security {
        Security { authorisation: Authorisation { rma_write: names, ..self.authorisation }, ..self }
    }

    /// A line for people, such as `psk (this side is node1), required`.
    pub(crate) fn describe(&self) -> String {
        let how = self.credentials.as_ref().map_or_else(
            || "as the device says".to_owned(),
            |own| format!("{}, here {}", own.method(), own.own_name()),
        );
        let plain = if self.is_required() { "required" } else { "plain peers are served, too" };
        format!("{how}; {plain}")
    }

    /// Whether somebody of that name can be expected, as far as is known here.
    pub(crate) fn can_expect(&self, name: &str) -> bool {
        self.credentials.as_ref().is_none_or(|credentials| credentials.can_expect(name))
    }

    pub(crate) fn is_required(&self) -> bool {
        self.required.unwrap_or(true)
    }
}

/// Why nobody can be expected in a group.
pub(crate) const NOBODY: &str = "a multicast group is nobody";

/// Why nobody can be expected by name.
pub(crate) const NO_NAMES: &str =
    "names are proved by security, which this endpoint, or this path of it, does not have";

/// Why shared memory takes no such configuration.
pub(crate) const SHM_HAS_NONE: &str = "shared memory does not leave this host, and the kernel says which user a peer is: \
     there is nothing to seal; take security out, or use udp, tcp, eth or any";
