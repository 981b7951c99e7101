//! Credentials without the feature `sealing`: nobody gets any, and whoever asks gets the reason.

use crate::credentials_error::{CredentialsError, Wrong};
use crate::identity::Method;
use std::path::Path;

/// There is none.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Never {}

/// Pre-shared keys, or certificates with a private key: this build takes none.
#[derive(Clone, Debug)]
pub struct Credentials(pub(crate) Never);

/// Which endpoint somebody is: nobody asks.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct EndpointId(());

fn no<T>() -> Result<T, CredentialsError> {
    Err(Wrong::NotBuilt.into())
}

#[allow(clippy::missing_errors_doc, reason = "each call that gives credentials fails")]
impl Credentials {
    /// Fails: this build can't seal.
    pub fn psk_file(path: &Path, _own_uid: u32) -> Result<Credentials, CredentialsError> {
        no().map_err(|error: CredentialsError| error.in_file(path))
    }

    /// Fails: this build can't seal.
    pub fn psk(_text: &[u8]) -> Result<Credentials, CredentialsError> {
        no()
    }

    /// Fails: this build can't seal.
    pub fn certificate_files(
        certificate: &Path,
        _private_key: &Path,
        _authorities: &Path,
        _own_uid: u32,
    ) -> Result<Credentials, CredentialsError> {
        no().map_err(|error: CredentialsError| error.in_file(certificate))
    }

    /// Fails: this build can't seal.
    pub fn certificates(
        _certificate: &[u8],
        _private_key: &[u8],
        _authorities: &[u8],
    ) -> Result<Credentials, CredentialsError> {
        no()
    }

    /// Whether a peer of that name can be expected.
    #[must_use]
    pub fn can_expect(&self, _name: &str) -> bool {
        match self.0 {}
    }

    /// How peers prove who they are.
    #[must_use]
    pub fn method(&self) -> Method {
        match self.0 {}
    }

    /// What peers call this side.
    #[must_use]
    pub fn own_name(&self) -> &str {
        match self.0 {}
    }
}

impl EndpointId {
    /// That of the endpoint with this secret.
    #[must_use]
    pub fn of_secret(_secret: &[u8; 32]) -> EndpointId {
        EndpointId(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who asks for security in a build without it gets an error that says so, and what to do.
    #[test]
    fn credentials_are_refused_with_the_reason() {
        let key = b"a = 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
        let path = Path::new("/etc/cci/node1.psk");
        let refused = [
            Credentials::psk(key),
            Credentials::psk_file(path, 0),
            Credentials::certificates(b"", b"", b""),
            Credentials::certificate_files(path, path, path, 0),
        ];
        for error in refused.map(Result::unwrap_err) {
            assert!(error.to_string().contains("feature `sealing`"), "{error}");
        }
    }
}
