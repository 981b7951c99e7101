//! What this side proves with who it is, and by which it knows others.

mod certificates;
mod file;
mod pem;
mod psk;
#[cfg(test)]
mod tests;

pub(crate) use self::certificates::{Certificates, names_of};
pub(crate) use self::psk::{COOKIE_TAG_BYTES, KEY_ID_BYTES, Key, Keys};

use self::file::{Holds, read};
use crate::credentials_error::CredentialsError;
use crate::identity::Method;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Pre-shared keys, or certificates with a private key. Cheap to clone; secrets are wiped with the last one, and never
/// shown.
#[derive(Clone)]
pub struct Credentials(pub(crate) Arc<Kind>);

pub(crate) enum Kind {
    Psk(Keys),
    Certificates(Certificates),
}

impl Credentials {
    /// Reads a file of pre-shared keys: lines `name = 64 hexadecimal digits`, and `#` for comments. The first key is
    /// the own one, for connections that this side asks for; all are accepted from others. `own_uid` is the effective user
    /// of this process: the file must be his or root's.
    ///
    /// # Errors
    ///
    /// The file can't be read, is another user's, or can be read by others; what is wrong in which line.
    pub fn psk_file(path: &Path, own_uid: u32) -> Result<Credentials, CredentialsError> {
        let text = read(path, Holds::Secrets, own_uid)?;
        Credentials::psk(&text).map_err(|error| error.in_file(path))
    }

    /// Reads pre-shared keys from the text of a file such as [`Credentials::psk_file`] takes.
    ///
    /// # Errors
    ///
    /// What is wrong in which line.
    pub fn psk(text: &[u8]) -> Result<Credentials, CredentialsError> {
        Ok(Credentials(Arc::new(Kind::Psk(Keys::parse(text)?))))
    }

    /// Reads three PEM files: the certificate with what lies between it and an authority, its private key, and the
    /// authorities that may have signed for peers. `own_uid` is the effective user of this process: the files must be his
    /// or root's, and nobody else may be able to change them.
    ///
    /// # Errors
    ///
    /// A file can't be read or used, is another user's, or can be changed by others; others could read the private key; the
    /// key is another certificate's; or the certificate has no DNS name.
    pub fn certificate_files(
        certificate: &Path,
        private_key: &Path,
        authorities: &Path,
        own_uid: u32,
    ) -> Result<Credentials, CredentialsError> {
        let made = Certificates::new(
            (&read(certificate, Holds::Certificates, own_uid)?, Some(certificate)),
            (&read(private_key, Holds::Secrets, own_uid)?, Some(private_key)),
            (&read(authorities, Holds::Certificates, own_uid)?, Some(authorities)),
        )?;
        Ok(Credentials(Arc::new(Kind::Certificates(made))))
    }

    /// Takes certificates and a private key from the texts of such files as [`Credentials::certificate_files`] reads.
    ///
    /// # Errors
    ///
    /// A text can't be used, the key is another certificate's, or the certificate has no DNS name.
    pub fn certificates(
        certificate: &[u8],
        private_key: &[u8],
        authorities: &[u8],
    ) -> Result<Credentials, CredentialsError> {
        let made = Certificates::new((certificate, None), (private_key, None), (authorities, None))?;
        Ok(Credentials(Arc::new(Kind::Certificates(made))))
    }

    /// Whether a peer of that name can be expected: with pre-shared keys, whether there is a key of that name, by which to
    /// ask. Whether a certificate has it is seen when it is shown.
    #[must_use]
    pub fn can_expect(&self, name: &str) -> bool {
        match &*self.0 {
            Kind::Psk(keys) => keys.named(name).is_some(),
            Kind::Certificates(_) => true,
        }
    }

    /// The key of that name; `None` with certificates, too.
    pub(crate) fn key_named(&self, name: &str) -> Option<&Key> {
        match &*self.0 {
            Kind::Psk(keys) => keys.named(name),
            Kind::Certificates(_) => None,
        }
    }

    /// The key that is meant by what a handshake begins with; `None` with certificates, too.
    pub(crate) fn key_of(&self, first: &[u8]) -> Option<&Key> {
        match &*self.0 {
            Kind::Psk(keys) => keys.find(first.first_chunk::<KEY_ID_BYTES>()?),
            Kind::Certificates(_) => None,
        }
    }

    /// How peers prove who they are.
    #[must_use]
    pub fn method(&self) -> Method {
        match &*self.0 {
            Kind::Psk(_) => Method::Psk,
            Kind::Certificates(_) => Method::Certificate,
        }
    }

    /// What peers will call this side: the name of its own key, or its certificate's first.
    #[must_use]
    pub fn own_name(&self) -> &str {
        match &*self.0 {
            Kind::Psk(keys) => &keys.own().name,
            Kind::Certificates(certificates) => certificates.own.name(),
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({} {})", self.method(), self.own_name())
    }
}
