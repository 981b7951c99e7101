//! Certificates for tests.

use crate::credentials::Credentials;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

/// An authority: its certificate in PEM, and what signs with it.
pub(crate) fn authority(name: &str) -> (String, Issuer<'static, KeyPair>) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    (pem, Issuer::new(params, key))
}

/// A certificate for these names and its key, both in PEM.
pub(crate) fn issue(
    issuer: &Issuer<'static, KeyPair>,
    names: &[&str],
    change: impl FnOnce(&mut CertificateParams),
) -> (String, String) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    (params.signed_by(&key, issuer).unwrap().pem(), key.serialize_pem())
}

/// Keys of these names; equal names are equal keys.
pub(crate) fn psk(names: &[&str]) -> Credentials {
    let line = |name: &&str| format!("{name} = {}\n", format!("{:02x}01", name.as_bytes()[0]).repeat(16));
    Credentials::psk(names.iter().map(line).collect::<String>().as_bytes()).unwrap()
}

/// Certificates of one authority, for a pair of nodes.
pub(crate) fn certificates(one: &[&str], two: &[&str]) -> (Credentials, Credentials) {
    let (pem, issuer) = authority("one");
    let of = |names: &[&str]| {
        let (certificate, key) = issue(&issuer, names, |_| {});
        Credentials::certificates(certificate.as_bytes(), key.as_bytes(), pem.as_bytes()).unwrap()
    };
    (of(one), of(two))
}
