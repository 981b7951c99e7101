//! Names of services.

use crate::limits::NAME_BYTES_MAX;
use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The name of a service, wherever it is (RIPC-011, RIPC-028). It has 1 to 63 letters, digits, `-`, `_` and `.`, and begins with
/// a letter or digit. The numbers of the published C interface are names as well: service 80 is called `80`. A name is cheap to
/// clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceName(Arc<str>);

/// The caller gave a name that no service can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameError {
    /// The name, cut after 80 characters.
    pub name: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl ServiceName {
    /// Checks a name.
    ///
    /// # Errors
    /// [`NameError`] says what is wrong with it.
    pub fn new(name: &str) -> Result<ServiceName, NameError> {
        let wrong = |reason| Err(NameError { name: name.chars().take(80).collect(), reason });
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return wrong("it must have 1 to 63 characters");
        }
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
            return wrong("it may have letters, digits, `-`, `_` and `.` only");
        }
        if !name.as_bytes()[0].is_ascii_alphanumeric() {
            return wrong("it must begin with a letter or a digit");
        }
        Ok(ServiceName(name.into()))
    }

    /// The name of the service with a number.
    pub fn number(number: u16) -> ServiceName {
        ServiceName(number.to_string().into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The number, if the name is one.
    pub fn as_number(&self) -> Option<u16> {
        let number = self.0.parse().ok()?;
        (ServiceName::number(number) == *self).then_some(number)
    }
}

impl FromStr for ServiceName {
    type Err = NameError;
    fn from_str(name: &str) -> Result<ServiceName, NameError> {
        ServiceName::new(name)
    }
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no name of a service: {}", self.name, self.reason)
    }
}

impl Error for NameError {}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for good in ["a", "80", "files", "key-value.v2_x", &"n".repeat(63)] {
            assert_eq!(ServiceName::new(good).unwrap().as_str(), good);
        }
        for bad in ["", ".hidden", "-x", "a b", "a/b", "../a", "a@b", "ä", &"n".repeat(64)] {
            assert!(ServiceName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_are_names() {
        assert_eq!(ServiceName::number(80).as_str(), "80");
        assert_eq!(ServiceName::new("80").unwrap().as_number(), Some(80));
        for none in ["080", "65536", "x"] {
            assert_eq!(ServiceName::new(none).unwrap().as_number(), None);
        }
    }
}
