//! What a directory knows of a service, as one line of text that people can read.

use crate::error::RecordError;
use crate::limits::{RECORD_BYTES_MAX, RECORD_URI_BYTES_MAX, RECORD_URIS_MAX};
use crate::name::ServiceName;
use std::fmt;

/// The beginning of every record. The number is the version of the format.
const HEAD: &str = "cci-service-1";

/// Distinguishes the instances of a service, which have the same name: 64 random bits. Each start of the service is another
/// instance.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Instance(pub u64);

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Whether a name belongs to one process or to many.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One process at a time has the name.
    Service,
    /// Any number of processes have the name, and each gets what is sent to it (RIPC-041).
    Member,
}

/// The place of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its name.
    pub service: ServiceName,
    /// Its instance.
    pub instance: Instance,
    /// Whether others may have the name as well.
    pub kind: Kind,
    /// The URIs at which its endpoint listens: 1 to 4.
    pub uris: Vec<String>,
}

impl Record {
    /// Reads a record.
    ///
    /// # Errors
    /// [`RecordError`] says what is wrong with it. Any text may come from a directory: all of it is checked.
    //= wire.md R-RIPC-8
    pub fn parse(text: &str) -> Result<Record, RecordError> {
        let wrong =
            |reason: &str| RecordError { reason: reason.to_owned(), text: text.chars().take(120).collect() };
        if text.len() > RECORD_BYTES_MAX {
            return Err(wrong("it is over 4,096 bytes long"));
        }
        let mut words = text.trim_end_matches('\n').split(' ');
        if words.next() != Some(HEAD) {
            return Err(wrong("it does not begin with cci-service-1"));
        }
        let kind = match words.next() {
            Some("service") => Kind::Service,
            Some("member") => Kind::Member,
            _ => return Err(wrong("its kind is neither service nor member")),
        };
        let service = ServiceName::new(words.next().unwrap_or_default())
            .map_err(|error| wrong(&format!("its name is wrong: {}", error.reason)))?;
        let instance = words.next().filter(|word| word.len() == 16);
        let instance = instance.and_then(|word| u64::from_str_radix(word, 16).ok());
        let instance = instance.ok_or_else(|| wrong("its instance is not 16 hexadecimal digits"))?;
        let uris: Vec<String> = words.take(RECORD_URIS_MAX + 1).map(str::to_owned).collect();
        if uris.is_empty() || uris.len() > RECORD_URIS_MAX {
            return Err(wrong("it does not have 1 to 4 URIs"));
        }
        if !uris.iter().all(|uri| is_uri(uri)) {
            return Err(wrong("a URI of it is empty, too long or has characters that no URI has"));
        }
        Ok(Record { service, instance: Instance(instance), kind, uris })
    }
}

pub(super) fn is_uri(uri: &str) -> bool {
    (4..=RECORD_URI_BYTES_MAX).contains(&uri.len())
        && uri.contains("://")
        && uri.bytes().all(|b| b.is_ascii_graphic())
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Service => "service",
            Kind::Member => "member",
        };
        write!(f, "{HEAD} {kind} {} {} {}", self.service, self.instance, self.uris.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_written_is_read(name in "[a-z0-9][a-z0-9._-]{0,62}", instance: u64, member: bool,
                                    uris in prop::collection::vec("[a-z]{1,8}://[!-~]{1,60}", 1..=4)) {
            let kind = if member { Kind::Member } else { Kind::Service };
            let record = Record { service: ServiceName::new(&name)?, instance: Instance(instance), kind, uris };
            prop_assert_eq!(Record::parse(&record.to_string())?, record);
        }

        #[test]
        fn any_text_is_refused_or_read(text in ".{0,200}") {
            if let Ok(record) = Record::parse(&text) {
                prop_assert_eq!(record.to_string(), text.trim_end_matches('\n'));
            }
        }
    }

    #[test]
    fn malformed_records_say_why() {
        for (text, reason) in [
            ("", "begin"),
            ("cci-service-2 service a 0000000000000001 shm://a", "begin"),
            ("cci-service-1 thing a 0000000000000001 shm://a", "kind"),
            ("cci-service-1 service ../a 0000000000000001 shm://a", "name"),
            ("cci-service-1 service a 1 shm://a", "instance"),
            ("cci-service-1 service a 0000000000000001", "URIs"),
            ("cci-service-1 service a 0000000000000001 shm://a  shm://b", "URI"),
            ("cci-service-1 service a 0000000000000001 nonsense", "URI"),
            ("cci-service-1 service a 0000000000000001 a://1 b://1 c://1 d://1 e://1", "URIs"),
        ] {
            let error = Record::parse(text).unwrap_err();
            assert!(error.reason.contains(reason), "{text}: {error}");
        }
    }
}
