//! Certificates: TLS 1.3 only, both sides show one, no tickets, nothing resumed, nothing early.

use super::error::{CredentialsError, Wrong};
use crate::identity::Identity;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig, SignatureScheme, version,
};
use std::path::Path;
use std::sync::Arc;

/// What TLS needs for either side of a handshake.
pub(crate) struct Certificates {
    pub client: Arc<ClientConfig>,
    pub server: Arc<ServerConfig>,
    pub own: Identity,
}

/// What the three files say.
pub(super) struct Parts {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    authorities: RootCertStore,
    own: Identity,
}

type Text<'t> = (&'t [u8], Option<&'t Path>);

impl Parts {
    pub fn parse(
        certificate: Text<'_>,
        key: Text<'_>,
        authorities: Text<'_>,
    ) -> Result<Parts, CredentialsError> {
        let chain = pem_certificates(certificate)?;
        let own = chain.first().and_then(names_of).ok_or_else(|| at(certificate.1, Wrong::NoName))?;
        let key_der = PrivateKeyDer::from_pem_slice(key.0)
            .map_err(|why| at(key.1, Wrong::NoPrivateKey(why.to_string())))?;
        let mut roots = RootCertStore::empty();
        for authority in pem_certificates(authorities)? {
            roots
                .add(authority)
                .map_err(|why| at(authorities.1, Wrong::Refused(format!("not an authority: {why}"))))?;
        }
        Ok(Parts { chain, key: key_der, authorities: roots, own })
    }
}

fn at(path: Option<&Path>, wrong: Wrong) -> CredentialsError {
    CredentialsError { path: path.map(Path::to_owned), line: None, wrong }
}

fn pem_certificates((text, path): Text<'_>) -> Result<Vec<CertificateDer<'static>>, CredentialsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match all {
        Ok(all) if all.is_empty() => Err(at(path, Wrong::NoCertificate)),
        Ok(all) => Ok(all),
        Err(why) => Err(at(path, Wrong::BadPem(why.to_string()))),
    }
}

/// The DNS names that a certificate says, but for those with a star: a peer is somebody, not a pattern.
pub(crate) fn names_of(certificate: &CertificateDer<'_>) -> Option<Identity> {
    let parsed = webpki::EndEntityCert::try_from(certificate).ok()?;
    Identity::of_certificate(parsed.valid_dns_names().filter(|name| !name.contains('*')))
}

impl Certificates {
    pub(super) fn new(parts: Parts) -> Result<Certificates, CredentialsError> {
        let Parts { chain, key, authorities, own } = parts;
        let authorities = Arc::new(authorities);
        let provider = Arc::new(ring::default_provider());
        let refused = |why: Error| CredentialsError::from(Wrong::Refused(explain(&why)));
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&authorities), Arc::clone(&provider))
                .build()
                .map_err(|why| CredentialsError::from(Wrong::Refused(why.to_string())))?;
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&version::TLS13])
            .map_err(refused)?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(refused)?;
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        let servers = Arc::new(Servers { authorities, algorithms: algorithms(&provider) });
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])
            .map_err(refused)?
            .dangerous()
            .with_custom_certificate_verifier(servers)
            .with_client_auth_cert(chain, key)
            .map_err(refused)?;
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        Ok(Certificates { client: Arc::new(client), server: Arc::new(server), own })
    }
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
