//! What `cci get` asks a file service, in short items: `about` and a path; or `read`, a path, where to begin, and how many bytes at most.

/// The most bytes of one answer.
pub const CHUNK_BYTES: usize = 4 << 20;
/// The longest path, bytes.
pub const PATH_BYTES_MAX: usize = 1_024;

/// A request.
#[derive(Debug, PartialEq, Eq)]
pub enum Ask<'a> {
    /// How long the file is, and which version of it there is.
    About { path: &'a str },
    /// A part of the file.
    Read { path: &'a str, offset: u64, len_bytes: u64 },
}

/// Which file was there: its length, and when it was last changed, in nanoseconds.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct About {
    pub len_bytes: u64,
    pub modified_ns: u64,
}

impl<'a> Ask<'a> {
    /// Reads a request; any bytes may come.
    pub fn parse(mut items: impl Iterator<Item = &'a [u8]>) -> Result<Ask<'a>, &'static str> {
        let what = items.next().unwrap_or_default();
        let path = items
            .next()
            .filter(|path| path.len() <= PATH_BYTES_MAX)
            .ok_or("no path, or one over 1,024 bytes")?;
        let path = str::from_utf8(path).map_err(|_| "the path is not UTF-8")?;
        let mut word = || items.next().and_then(word);
        let ask = match what {
            b"about" => Ask::About { path },
            b"read" => {
                let (offset, len_bytes) = (word(), word());
                let (Some(offset), Some(len_bytes)) = (offset, len_bytes) else { return Err("no range") };
                Ask::Read { path, offset, len_bytes }
            }
            _ => return Err("not a request for a file"),
        };
        if items.next().is_some() { Err("more than a request for a file") } else { Ok(ask) }
    }
}

impl About {
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.len_bytes.to_le_bytes());
        bytes[8..].copy_from_slice(&self.modified_ns.to_le_bytes());
        bytes
    }

    pub fn parse(bytes: &[u8]) -> Option<About> {
        let (len_bytes, modified_ns) = bytes.split_at_checked(8)?;
        Some(About { len_bytes: word(len_bytes)?, modified_ns: word(modified_ns)? })
    }
}

fn word(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_checked() {
        let word = 7_u64.to_le_bytes();
        let parse = |items: &[&'static [u8]]| Ask::parse(items.iter().copied()).is_ok();
        assert_eq!(Ask::parse([&b"about"[..], b"a/b"].into_iter()), Ok(Ask::About { path: "a/b" }));
        let read = [&b"read"[..], b"a", &word, &word].into_iter();
        assert_eq!(Ask::parse(read), Ok(Ask::Read { path: "a", offset: 7, len_bytes: 7 }));
        for wrong in [
            &[&b"about"[..]][..],
            &[b"read", b"a"],
            &[b"x", b"a"],
            &[b"about", b"\xff"],
            &[b"about", b"a", b"b"],
        ] {
            assert!(!parse(wrong), "{wrong:?}");
        }
        let about = About { len_bytes: 3, modified_ns: u64::MAX };
        assert_eq!(About::parse(&about.to_bytes()), Some(about));
        assert_eq!(About::parse(b"short"), None);
    }
}
