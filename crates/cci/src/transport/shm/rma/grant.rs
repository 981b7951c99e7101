//! Grants of memory, which go over the socket of a link together with descriptors, and the reasons why memory is not mapped.

use cci_sys::SysError;
use std::io::ErrorKind;

const MAGIC: u64 = u64::from_le_bytes(*b"CCIgrant");
const WORDS: usize = 13;
/// The length of [`Grant`] as a message.
pub(in crate::transport::shm) const GRANT_BYTES: usize = WORDS * 8;
/// The length of the payload of a record that is a grant.
pub(in crate::transport::shm) const ANNOUNCED_BYTES: usize = 8 * 8;

/// What an open file counts as, bytes, so that the cap bounds how many descriptors peers can make a process hold.
const FILE_CHARGE_BYTES: u64 = 64 << 10;

/// What a granted region is a part of.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(in crate::transport::shm) enum Content {
    /// Memory, which is mapped.
    Memory,
    /// A file, which is read.
    File,
}

/// A part of a memory, or of a file, that the receiver may use directly. The memory's descriptor comes with it, and the sender's control page if
/// the receiver has asked for it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(in crate::transport::shm) struct Grant {
    /// The region's number, as in its handle.
    pub region: u64,
    pub key: u64,
    /// The only connection of the receiver that may use it, by index and generation; `None` if all connections of the link may.
    pub only: Option<(u32, u32)>,
    /// The rights that are granted, as bits of `Access`.
    pub access: u8,
    /// What has this number, and came as a descriptor.
    pub content: Content,
    /// The memory's number. One mapping serves all regions of a memory.
    pub memory: u64,
    pub memory_bytes: u64,
    /// Where in the memory the region begins.
    pub start: u64,
    pub len_bytes: u64,
    /// The index of the region's live word in the control page.
    pub word: u64,
    /// The value of the live word while the grant holds.
    pub token: u64,
    /// The length of the control page.
    pub control_bytes: u64,
}

impl Grant {
    pub fn to_bytes(self) -> [u8; GRANT_BYTES] {
        let only =
            self.only.map_or(u64::MAX, |(index, generation)| u64::from(index) << 32 | u64::from(generation));
        let words: [u64; WORDS] = [
            MAGIC,
            self.region,
            self.key,
            only,
            u64::from(self.access),
            u64::from(self.content == Content::File),
            self.memory,
            self.memory_bytes,
            self.start,
            self.len_bytes,
            self.word,
            self.token,
            self.control_bytes,
        ];
        let mut bytes = [0; GRANT_BYTES];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// Parses a grant once, and checks that it is consistent: the region is in the memory, and the word in the control page.
    pub fn parse(bytes: &[u8]) -> Option<Grant> {
        let bytes: &[u8; GRANT_BYTES] = bytes.try_into().ok()?;
        let mut words = bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes));
        let mut word = || words.next();
        if word()? != MAGIC {
            return None;
        }
        let (region, key) = (word()?, word()?);
        let only = match word()? {
            u64::MAX => None,
            both => Some(((both >> 32) as u32, both as u32)),
        };
        let grant = Grant {
            region,
            key,
            only,
            access: u8::try_from(word()?).ok()?,
            content: match word()? {
                0 => Content::Memory,
                1 => Content::File,
                _ => return None,
            },
            memory: word()?,
            memory_bytes: word()?,
            start: word()?,
            len_bytes: word()?,
            word: word()?,
            token: word()?,
            control_bytes: word()?,
        };
        grant.is_consistent().then_some(grant)
    }

    /// Whether the region lies in the memory, and the word in the control page.
    pub fn is_consistent(&self) -> bool {
        let end = self.start.checked_add(self.len_bytes);
        let word_end = self.word.checked_add(1).and_then(|count| count.checked_mul(8));
        end.is_some_and(|end| end <= self.memory_bytes)
            && self.memory_bytes <= isize::MAX as u64
            && word_end.is_some_and(|end| end <= self.control_bytes)
            && self.control_bytes <= CONTROL_BYTES_MAX
            && self.word != 0
            && self.token != 0
    }

    /// What counts under the receiver's cap while it has the memory or the file, bytes.
    pub fn charged_bytes(&self) -> u64 {
        match self.content {
            Content::Memory => self.memory_bytes,
            Content::File => FILE_CHARGE_BYTES,
        }
    }

    /// The payload of a record that grants a region to the connection that the record names. The receiver has the region's
    /// memory or file already.
    pub fn to_record(self) -> [u8; ANNOUNCED_BYTES] {
        let access = u64::from(self.access);
        let words =
            [self.region, self.key, access, self.memory, self.start, self.len_bytes, self.word, self.token];
        let mut bytes = [0; ANNOUNCED_BYTES];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// Parses the payload of such a record. It lacks the lengths of the memory and of the control page. These are 0, so the grant
    /// is not consistent before they are filled in. It does not say either what has the number.
    pub fn from_record(bytes: &[u8; ANNOUNCED_BYTES]) -> Option<Grant> {
        let mut words = [0; ANNOUNCED_BYTES / 8];
        for (word, from) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_ne_bytes(*from);
        }
        let [region, key, access, memory, start, len_bytes, word, token] = words;
        let access = u8::try_from(access).ok()?;
        let (only, memory_bytes, control_bytes) = (None, 0, 0);
        Some(Grant {
            region,
            key,
            only,
            access,
            content: Content::Memory,
            memory,
            memory_bytes,
            start,
            len_bytes,
            word,
            token,
            control_bytes,
        })
    }
}

/// The longest control page of a peer that is mapped.
const CONTROL_BYTES_MAX: u64 = 1 << 20;

/// Why memory is not mapped.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(in crate::transport::shm) enum NotMapped {
    /// The target knows no such region for this connection.
    Handle,
    /// The memory was not allocated by the library. The target's program has it from elsewhere.
    Foreign,
    /// The target's device says `direct = off`.
    TargetOff,
    /// This endpoint's device says `direct = off`.
    Off,
    /// The target lets another user map no more than the region covers.
    OtherUser,
    /// The target or the initiator has no space or descriptors for it.
    NoSpace,
    /// The system did not map it.
    System,
    /// The target waited too long for a copy of this process, and grants it nothing any more.
    Barred,
    /// The peer's descriptor is not what its grant says, or the memory has holes. Never sent.
    Unsound,
    /// It does not fit under this endpoint's cap. Never sent.
    OverCap,
}

impl NotMapped {
    /// The reason as a number of the protocol.
    pub fn code(self) -> u64 {
        match self {
            NotMapped::Handle => 1,
            NotMapped::Foreign => 2,
            NotMapped::TargetOff => 3,
            NotMapped::Off => 4,
            NotMapped::OtherUser => 5,
            NotMapped::NoSpace => 6,
            NotMapped::System => 7,
            NotMapped::Barred => 8,
            // These are never sent.
            NotMapped::Unsound | NotMapped::OverCap => 0,
        }
    }

    /// The reason for an error of the system.
    pub fn of(error: &SysError) -> NotMapped {
        if error.kind() == ErrorKind::InvalidData { NotMapped::Unsound } else { NotMapped::System }
    }

    pub fn from_code(code: u64) -> Option<NotMapped> {
        Some(match code {
            1 => NotMapped::Handle,
            2 => NotMapped::Foreign,
            3 => NotMapped::TargetOff,
            4 => NotMapped::Off,
            5 => NotMapped::OtherUser,
            6 => NotMapped::NoSpace,
            7 => NotMapped::System,
            8 => NotMapped::Barred,
            _ => return None,
        })
    }

    pub fn reason(self) -> &'static str {
        match self {
            NotMapped::Handle => "the peer knows no such region for this connection",
            NotMapped::Foreign => {
                "the peer's memory is not of the library's: allocate it with Endpoint::allocate"
            }
            NotMapped::TargetOff => "the peer's device says direct = off",
            NotMapped::Off => "this device says direct = off",
            NotMapped::OtherUser => {
                "the peer is of another user, and the region is a file or not all of its memory"
            }
            NotMapped::NoSpace => "no space for another mapping",
            NotMapped::System => "the system did not map it",
            NotMapped::Barred => {
                "the peer waited too long for a copy of this process to end: it was stopped in the middle"
            }
            NotMapped::Unsound => {
                "the peer granted what is neither memory of that length with all its pages nor a file to be read"
            }
            NotMapped::OverCap => {
                "it does not fit under half of this endpoint's memory_bytes_max, which mapped memory may have"
            }
        }
    }
}

impl From<SysError> for NotMapped {
    fn from(_: SysError) -> NotMapped {
        NotMapped::System
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_granted_is_understood_and_must_be_consistent() {
        let good = Grant {
            region: 1,
            key: 2,
            only: Some((3, 4)),
            access: 7,
            content: Content::Memory,
            memory: 5,
            memory_bytes: 8192,
            start: 4096,
            len_bytes: 4096,
            word: 6,
            token: 7,
            control_bytes: 4096,
        };
        assert_eq!(Grant::parse(&good.to_bytes()), Some(good));
        assert_eq!(Grant::parse(&good.to_bytes()[1..]), None);
        let of_file = Grant { content: Content::File, ..good };
        assert_eq!(Grant::parse(&of_file.to_bytes()), Some(of_file));
        let mut other = good.to_bytes();
        other[5 * 8] = 2;
        assert_eq!(Grant::parse(&other), None, "neither memory nor a file");
        for bad in [
            Grant { len_bytes: 4097, ..good },
            Grant { start: u64::MAX, ..good },
            Grant { memory_bytes: u64::MAX, ..good },
            Grant { word: 512, ..good },
            Grant { word: u64::MAX, ..good },
            Grant { word: 0, ..good },
            Grant { token: 0, ..good },
            Grant { control_bytes: u64::MAX, ..good },
        ] {
            assert_eq!(Grant::parse(&bad.to_bytes()), None, "{bad:?}");
        }
        let announced = Grant::from_record(&good.to_record()).unwrap();
        assert!(!announced.is_consistent());
        let memory_bytes = good.memory_bytes;
        assert_eq!(Grant { only: good.only, memory_bytes, control_bytes: 4096, ..announced }, good);
        for code in 0..20 {
            assert!(NotMapped::from_code(code).is_none_or(|why| why.code() == code));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(words in prop::collection::vec(any::<u64>(), 0..15), at in 0..WORDS, value: u64) {
            let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let _ = Grant::parse(&bytes);
            if let Some(word) = bytes.get_mut(at * 8..at * 8 + 8) {
                word.copy_from_slice(&value.to_ne_bytes());
                bytes[..8].copy_from_slice(&MAGIC.to_ne_bytes());
                let _ = Grant::parse(&bytes);
            }
        }
    }
}
