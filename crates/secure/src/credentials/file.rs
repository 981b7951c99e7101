//! Files of credentials: whose they must be, who may read and change them, and how their text gets into memory.

use crate::credentials_error::{CredentialsError, Wrong};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use zeroize::Zeroizing;

/// Files of credentials are no longer than this, bytes.
pub(super) const FILE_BYTES_MAX: u64 = 1 << 20;

/// Permissions of the group and of others.
const MODE_OTHERS: u32 = 0o077;
/// Permissions of the group and of others to write.
const MODE_OTHERS_WRITE: u32 = 0o022;

/// What a file holds, and so what others may do with it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    /// Keys: others may not even read them.
    Secrets,
    /// Certificates: others may read them. Whoever may change them decides who is let in.
    Certificates,
}

/// The text of a file that belongs to root or to the user `own_uid`, and that nobody else can have changed.
pub(super) fn read(path: &Path, holds: Holds, own_uid: u32) -> Result<Zeroizing<Vec<u8>>, CredentialsError> {
    if is_key(path) {
        // Without the path, which is a secret.
        return Err(Wrong::KeyForPath.into());
    }
    read_checked(path, holds, own_uid).map_err(|wrong| CredentialsError::from(wrong).in_file(path))
}

fn read_checked(path: &Path, holds: Holds, own_uid: u32) -> Result<Zeroizing<Vec<u8>>, Wrong> {
    let mut file = File::open(path).map_err(Wrong::Unreadable)?;
    // Of the file that was opened, whatever the name leads to by now.
    let about = file.metadata().map_err(Wrong::Unreadable)?;
    if about.uid() != 0 && about.uid() != own_uid {
        return Err(Wrong::Foreign { owner: about.uid(), own: own_uid });
    }
    let mode = about.mode() & 0o777;
    match holds {
        Holds::Secrets if mode & MODE_OTHERS != 0 => return Err(Wrong::ReadableByOthers(mode)),
        Holds::Certificates if mode & MODE_OTHERS_WRITE != 0 => return Err(Wrong::WritableByOthers(mode)),
        Holds::Secrets | Holds::Certificates => {}
    }
    // A pipe does not know its length.
    let len = if about.is_file() { about.len() } else { FILE_BYTES_MAX };
    if len > FILE_BYTES_MAX {
        return Err(Wrong::TooLong(FILE_BYTES_MAX));
    }
    // Room for all at once, since a buffer that grows leaves copies behind, and for one byte more, which tells a file that
    // has become longer meanwhile.
    let mut text = Zeroizing::new(vec![0; usize::try_from(len).unwrap_or(0) + 1]);
    let read = fill(&mut file, &mut text).map_err(Wrong::Unreadable)?;
    if read == text.len() {
        return Err(if about.is_file() { Wrong::Growing } else { Wrong::TooLong(FILE_BYTES_MAX) });
    }
    text.truncate(read);
    Ok(text)
}

/// Reads until the end of the file or of the room; how many bytes.
fn fill(file: &mut File, space: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(remainder) = space.get_mut(filled..).filter(|remainder| !remainder.is_empty()) {
        match file.read(remainder) {
            Ok(0) => break,
            Ok(len) => filled += len,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Somebody wrote the key where its file's path belongs.
fn is_key(path: &Path) -> bool {
    let Some(text) = path.to_str() else { return false };
    let digits = text.rsplit('=').next().unwrap_or(text).trim();
    digits.len() >= 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) || text.contains("PRIVATE KEY")
}
