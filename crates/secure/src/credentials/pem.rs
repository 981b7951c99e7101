//! A private key out of a PEM file, without a copy of it that is not wiped.

use crate::credentials_error::Wrong;
use base64ct::{Base64, Encoding};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer};
use zeroize::Zeroizing;

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const DASHES: &[u8] = b"-----";

/// How the key is written down.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Format {
    Pkcs1,
    Sec1,
    Pkcs8,
}

/// A private key as DER, wiped when it is dropped.
pub(super) struct PrivateKey {
    format: Format,
    der: Zeroizing<Vec<u8>>,
}

impl PrivateKey {
    /// The first private key in the text of a PEM file. What is wrong is said without a word of the text.
    pub fn parse(text: &[u8]) -> Result<PrivateKey, Wrong> {
        let wrong = |why: &str| Err(Wrong::NoPrivateKey(why.to_owned()));
        let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        while let Some(line) = lines.next() {
            let Some(label) = line.strip_prefix(BEGIN) else { continue };
            let Some(label) = label.strip_suffix(DASHES) else {
                return wrong(
                    "a line that begins with -----BEGIN must end with -----: one line has become of several",
                );
            };
            let format = match label {
                b"RSA PRIVATE KEY" => Format::Pkcs1,
                b"EC PRIVATE KEY" => Format::Sec1,
                b"PRIVATE KEY" => Format::Pkcs8,
                b"ENCRYPTED PRIVATE KEY" => return wrong("it is encrypted"),
                _ => continue,
            };
            // Room for all at once: a buffer that grows leaves copies behind.
            let mut digits = Zeroizing::new(Vec::with_capacity(text.len()));
            loop {
                match lines.next() {
                    None => return wrong("it has no end"),
                    Some(line) if line.starts_with(END) => break,
                    Some(line) if line.starts_with(b"Proc-Type:") => return wrong("it is encrypted"),
                    Some(line) => digits.extend_from_slice(line),
                }
            }
            let mut der = Zeroizing::new(vec![0; digits.len()]);
            let digits = std::str::from_utf8(&digits).ok();
            let decoded = digits.and_then(|digits| Some(Base64::decode(digits, &mut der).ok()?.len()));
            let Some(len) = decoded else { return wrong("it is not base64") };
            der.truncate(len);
            return Ok(PrivateKey { format, der });
        }
        wrong("none begins in it")
    }

    /// As the crates that use it want it.
    pub fn der(&self) -> PrivateKeyDer<'_> {
        let der = &self.der[..];
        match self.format {
            Format::Pkcs1 => PrivatePkcs1KeyDer::from(der).into(),
            Format::Sec1 => PrivateSec1KeyDer::from(der).into(),
            Format::Pkcs8 => PrivatePkcs8KeyDer::from(der).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_key_of_a_file() {
        let text = "hello\n-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\r\n\
                    -----BEGIN EC PRIVATE KEY-----\r\nAAEC\r\nAwQ=\r\n-----END EC PRIVATE KEY-----\n";
        let key = PrivateKey::parse(text.as_bytes()).map_err(|wrong| wrong.to_string()).unwrap();
        assert_eq!((key.format, &key.der[..]), (Format::Sec1, &[0, 1, 2, 3, 4][..]));
        for (text, word) in [
            ("", "none begins"),
            ("-----BEGIN PRIVATE KEY-----\nAAEC", "no end"),
            ("-----BEGIN PRIVATE KEY-----\nsecret!\n-----END PRIVATE KEY-----", "not base64"),
            ("-----BEGIN ENCRYPTED PRIVATE KEY-----\n", "encrypted"),
            ("-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n", "encrypted"),
            ("-----BEGIN PRIVATE KEY-----secret-----END PRIVATE KEY", "one line"),
        ] {
            let wrong = PrivateKey::parse(text.as_bytes()).map(|_| ()).unwrap_err().to_string();
            assert!(wrong.contains(word) && !wrong.contains("secret"), "{text}: {wrong}");
        }
    }
}
