//! What this side proves with who it is, and by which it knows others.

mod certificates;
mod error;
mod psk;
#[cfg(test)]
mod tests;

pub(crate) use self::certificates::{Certificates, names_of};
pub use self::error::{CredentialsError, Wrong};
pub(crate) use self::psk::{KEY_ID_BYTES, Key, Keys};

use crate::identity::Method;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Files of credentials are no longer than this, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

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
    /// the own one, for connections that this side asks for; all are accepted from others.
    ///
    /// # Errors
    ///
    /// The file can't be read, or others than its owner could; what is wrong in which line.
    pub fn psk_file(path: &Path) -> Result<Credentials, CredentialsError> {
        let text = read(path, true)?;
        Credentials::psk(&text).map_err(|error| error.in_file(path))
    }

    /// The same from the text of such a file.
    ///
    /// # Errors
    ///
    /// What is wrong in which line.
    pub fn psk(text: &[u8]) -> Result<Credentials, CredentialsError> {
        Ok(Credentials(Arc::new(Kind::Psk(Keys::parse(text)?))))
    }

    /// Reads three PEM files: the certificate with what lies between it and an authority, its private key, and the
    /// authorities that may have signed for peers.
    ///
    /// # Errors
    ///
    /// A file can't be read or used, others than its owner could read the private key, the key is another
    /// certificate's, or the certificate has no DNS name.
    pub fn certificate_files(
        certificate: &Path,
        private_key: &Path,
        authorities: &Path,
    ) -> Result<Credentials, CredentialsError> {
        let parts = certificates::Parts::parse(
            (&read(certificate, false)?, Some(certificate)),
            (&read(private_key, true)?, Some(private_key)),
            (&read(authorities, false)?, Some(authorities)),
        )?;
        Ok(Credentials(Arc::new(Kind::Certificates(Certificates::new(parts)?))))
    }

    /// The same from the texts of such files.
    ///
    /// # Errors
    ///
    /// A text can't be used, the key is another certificate's, or the certificate has no DNS name.
    pub fn certificates(
        certificate: &[u8],
        private_key: &[u8],
        authorities: &[u8],
    ) -> Result<Credentials, CredentialsError> {
        let parts =
            certificates::Parts::parse((certificate, None), (private_key, None), (authorities, None))?;
        Ok(Credentials(Arc::new(Kind::Certificates(Certificates::new(parts)?))))
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

/// The file's text. `secret`: only its owner may be able to.
fn read(path: &Path, secret: bool) -> Result<Zeroizing<Vec<u8>>, CredentialsError> {
    let failed = |source| CredentialsError::unreadable(path, source);
    let file = File::open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    if secret && about.mode() & 0o077 != 0 {
        return Err(CredentialsError::from(Wrong::ReadableByOthers(about.mode() & 0o777)).in_file(path));
    }
    // Room for all at once: a buffer that grows leaves copies behind. One more byte tells a longer file.
    let room = usize::try_from(about.len().min(FILE_BYTES_MAX)).unwrap_or(0) + 1;
    let mut text = Zeroizing::new(Vec::with_capacity(room));
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(CredentialsError::from(Wrong::TooLong(FILE_BYTES_MAX)).in_file(path));
    }
    Ok(text)
}
