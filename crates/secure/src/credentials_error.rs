//! What can be wrong with credentials, and what to do about it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Credentials that can't be used: where, what is wrong, and what to do about it. Secrets are never in it.
#[derive(Debug)]
pub struct CredentialsError {
    /// The file, if it was one.
    pub path: Option<PathBuf>,
    /// The line, from 1, where it is one.
    pub line: Option<usize>,
    /// What is wrong.
    pub wrong: Wrong,
}

/// What is wrong with credentials.
#[derive(Debug)]
#[non_exhaustive]
pub enum Wrong {
    /// The file can't be read.
    Unreadable(io::Error),
    /// The file belongs to neither root nor the user of this process, so that somebody else can change it.
    Foreign {
        /// The user whose it is.
        owner: u32,
        /// The user of this process.
        own: u32,
    },
    /// Others than the owner may read a secret; the file's mode.
    ReadableByOthers(u32),
    /// Others than the owner may change who is let in; the file's mode.
    WritableByOthers(u32),
    /// A key was given where the path of its file belongs.
    KeyForPath,
    /// The file became longer while it was read.
    Growing,
    /// More bytes than files of credentials have; how many they have at most.
    TooLong(u64),
    /// Not `name = key`.
    NotAKeyLine,
    /// A name that can't be one.
    BadName,
    /// A key that is not 64 hexadecimal digits.
    BadKey,
    /// A key so plain that it must be a placeholder.
    WeakKey,
    /// A name or a key that another line has already; its line.
    Repeated(usize),
    /// No key at all.
    NoKey,
    /// PEM that can't be read; what the reader says.
    BadPem(String),
    /// No certificate in it.
    NoCertificate,
    /// No private key in it; what the reader says.
    NoPrivateKey(String),
    /// The certificate's own, an authority's or the key; what is wrong with it.
    Refused(String),
    /// The certificate says no DNS name.
    NoName,
    /// This build was made without the feature `sealing`.
    NotBuilt,
}

impl CredentialsError {
    pub(crate) fn in_file(self, path: &Path) -> CredentialsError {
        CredentialsError { path: Some(path.to_owned()), ..self }
    }

    pub(crate) fn in_line(line: usize, wrong: Wrong) -> CredentialsError {
        CredentialsError { path: None, line: Some(line), wrong }
    }
}

impl From<Wrong> for CredentialsError {
    fn from(wrong: Wrong) -> CredentialsError {
        CredentialsError { path: None, line: None, wrong }
    }
}

impl fmt::Display for CredentialsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.path, self.line) {
            (Some(path), Some(line)) => write!(f, "{}, line {line}: ", path.display())?,
            (Some(path), None) => write!(f, "{}: ", path.display())?,
            (None, Some(line)) => write!(f, "line {line} of the keys: ")?,
            (None, None) => {}
        }
        fmt::Display::fmt(&self.wrong, f)?;
        let Some(path) = &self.path else { return Ok(()) };
        match &self.wrong {
            Wrong::ReadableByOthers(_) => write!(f, ": chmod 600 {}", path.display()),
            Wrong::WritableByOthers(_) => write!(f, ": chmod go-w {}", path.display()),
            Wrong::Foreign { own, .. } => write!(f, ": chown {own} {}", path.display()),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Unreadable(source) => write!(f, "can't be read: {source}"),
            Wrong::ReadableByOthers(mode) => {
                write!(f, "others than its owner may read or change this secret (mode {mode:03o})")
            }
            Wrong::WritableByOthers(mode) => {
                write!(f, "others than its owner may change it, and so decide who is let in (mode {mode:03o})")
            }
            Wrong::Foreign { owner, own } => write!(
                f,
                "it belongs to user {owner}, who could change it: files of root and of this process's user, {own}, are \
                 taken; have a file of your own, or"
            ),
            Wrong::KeyForPath => f.write_str(
                "this is a key, not the path of a file: write the key into a file of mode 600, and give the path of that",
            ),
            Wrong::Growing => f.write_str("somebody is writing it: try again when the file is whole"),
            Wrong::TooLong(max) => write!(f, "longer than {max} bytes: this is no file of credentials"),
            Wrong::NotAKeyLine => f.write_str(
                "not a key: write name = 64 hexadecimal digits, made by: openssl rand -hex 32; comments begin with #",
            ),
            Wrong::BadName => {
                f.write_str("not a name: write 1 to 63 letters, digits, dots, hyphens or underscores")
            }
            Wrong::BadKey => {
                f.write_str("the key is not 64 hexadecimal digits: make one by: openssl rand -hex 32")
            }
            Wrong::WeakKey => {
                f.write_str("anybody would guess this key: make one by: openssl rand -hex 32")
            }
            Wrong::Repeated(line) => {
                write!(f, "the same name or the same key is in line {line}: peers could not be distinguished")
            }
            Wrong::NoKey => f.write_str("there is no key in it: write a line name = 64 hexadecimal digits"),
            Wrong::BadPem(why) => write!(f, "not PEM: {why}"),
            Wrong::NoCertificate => {
                f.write_str("there is no certificate in it: a PEM file with -----BEGIN CERTIFICATE----- is needed")
            }
            Wrong::NoPrivateKey(why) => {
                write!(f, "no private key: {why}; a PEM file with PKCS #8, PKCS #1 or SEC 1 is needed, not encrypted")
            }
            Wrong::Refused(why) => f.write_str(why),
            Wrong::NoName => f.write_str(
                "the certificate has no DNS name (subjectAltName) by which peers could know this side: ask for one",
            ),
            Wrong::NotBuilt => f.write_str(
                "security was asked for, and this build of CCI has none: build it with the feature `sealing`, which is on \
                 unless default features are off",
            ),
        }
    }
}

impl std::error::Error for CredentialsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.wrong {
            Wrong::Unreadable(source) => Some(source),
            _ => None,
        }
    }
}
