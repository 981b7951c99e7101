//! Certificates: TLS 1.3 only, both sides show one, no tickets, nothing resumed, nothing early.

use super::pem::PrivateKey;
use crate::credentials_error::{CredentialsError, Wrong};
use crate::identity::Identity;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::ring::sign::any_supported_type;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, InconsistentKeys, RootCertStore, ServerConfig,
    SignatureScheme, version,
};
use std::path::Path;
use std::sync::Arc;

/// What TLS needs for either side of a handshake.
pub(crate) struct Certificates {
    pub client: Arc<ClientConfig>,
    pub server: Arc<ServerConfig>,
    pub own: Identity,
}

/// A text, and the file that it is of.
type Text<'t> = (&'t [u8], Option<&'t Path>);

fn at(path: Option<&Path>, wrong: Wrong) -> CredentialsError {
    CredentialsError { path: path.map(Path::to_owned), line: None, wrong }
}

fn pem_certificates((text, path): Text<'_>) -> Result<Vec<CertificateDer<'static>>, CredentialsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match all {
        Ok(all) if all.is_empty() => Err(at(path, Wrong::NoCertificate)),
        Ok(all) => Ok(all),
        Err(why) => Err(at(path, Wrong::BadPem(in_words(&why).to_owned()))),
    }
}

/// What is wrong with a PEM file, without a word of it: somebody may have given the private key's by mistake.
fn in_words(why: &pem::Error) -> &'static str {
    match why {
        pem::Error::MissingSectionEnd { .. } => "a part of it has no end",
        pem::Error::IllegalSectionStart { .. } => "a line that begins with -----BEGIN must end with -----",
        pem::Error::Base64Decode(_) => "it is not base64",
        _ => "it can't be read",
    }
}

/// The DNS names that a certificate says, but for those with a star: a peer is somebody, not a pattern.
pub(crate) fn names_of(certificate: &CertificateDer<'_>) -> Option<Identity> {
    let parsed = webpki::EndEntityCert::try_from(certificate).ok()?;
    Identity::of_certificate(parsed.valid_dns_names().filter(|name| !name.contains('*')))
}

impl Certificates {
    pub(super) fn new(
        certificate: Text<'_>,
        private_key: Text<'_>,
        authorities: Text<'_>,
    ) -> Result<Certificates, CredentialsError> {
        let chain = pem_certificates(certificate)?;
        let own = chain.first().and_then(names_of).ok_or_else(|| at(certificate.1, Wrong::NoName))?;
        let of_key = |wrong| at(private_key.1, wrong);
        let key = PrivateKey::parse(private_key.0).map_err(of_key)?;
        let key = any_supported_type(&key.der()).map_err(|_| {
            of_key(Wrong::NoPrivateKey("neither RSA, ECDSA (P-256, P-384) nor Ed25519".to_owned()))
        })?;
        let certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            // Some kinds of key don't say.
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(why) => return Err(refused(&why)),
        }
        let certified = Arc::new(SingleCertAndKey::from(certified));
        let authorities = Arc::new(roots(authorities)?);
        let provider = Arc::new(ring::default_provider());
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&authorities), Arc::clone(&provider))
                .build()
                .map_err(|why| CredentialsError::from(Wrong::Refused(why.to_string())))?;
        let resolver: Arc<dyn ResolvesServerCert> = Arc::<SingleCertAndKey>::clone(&certified);
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&version::TLS13])
            .map_err(|why| refused(&why))?
            .with_client_cert_verifier(clients)
            .with_cert_resolver(resolver);
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        let servers = Arc::new(Servers { authorities, algorithms: algorithms(&provider) });
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])
            .map_err(|why| refused(&why))?
            .dangerous()
            .with_custom_certificate_verifier(servers)
            .with_client_cert_resolver(certified);
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        Ok(Certificates { client: Arc::new(client), server: Arc::new(server), own })
    }
}

/// The authorities that sign for peers.
fn roots(authorities: Text<'_>) -> Result<RootCertStore, CredentialsError> {
    let mut roots = RootCertStore::empty();
    for authority in pem_certificates(authorities)? {
        roots
            .add(authority)
            .map_err(|why| at(authorities.1, Wrong::Refused(format!("not an authority: {why}"))))?;
    }
    Ok(roots)
}

fn refused(why: &Error) -> CredentialsError {
    Wrong::Refused(explain(why)).into()
}

fn algorithms(provider: &CryptoProvider) -> WebPkiSupportedAlgorithms {
    provider.signature_verification_algorithms
}

fn explain(why: &Error) -> String {
    match why {
        Error::InconsistentKeys(_) => {
            "the private key is not this certificate's: give the pair that was made together".to_owned()
        }
        other => other.to_string(),
    }
}

/// Checks the certificate of the side that was dialled like that of the side that dials: signed by an authority, in its
/// time, and meant for it. Not against a name: endpoints are dialled by address, and who may be there is said by
/// [`crate::Authorisation`] in terms of the names that the certificate has.
#[derive(Debug)]
struct Servers {
    authorities: Arc<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Servers {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &self.authorities,
            intermediates,
            now,
            self.algorithms.all,
        )?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.3 only".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
