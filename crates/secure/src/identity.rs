//! Who a peer proved to be, and what somebody of that name may do.

use std::fmt;
use std::sync::Arc;

/// How a peer proved who it is.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// It has a key that this side has too.
    Psk,
    /// It has a certificate that an authority of this side's has signed, and the key to it.
    Certificate,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Method::Psk => "psk",
            Method::Certificate => "certificate",
        })
    }
}

/// Who a peer proved to be: the name of the key both sides have, or the DNS names in its certificate. Cheap to clone.
///
/// A key names those who share it, not one of them: where peers must be distinguished, each needs a key of its own.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    // Never empty.
    names: Arc<[Box<str>]>,
    method: Method,
}

impl Identity {
    /// Somebody who has the key of that name.
    pub(crate) fn of_key(name: &str) -> Identity {
        Identity { names: Arc::new([name.into()]), method: Method::Psk }
    }

    /// Whose certificate says so; `None` without a name.
    pub(crate) fn of_certificate<'n>(names: impl Iterator<Item = &'n str>) -> Option<Identity> {
        let names: Arc<[Box<str>]> = names.map(|name| name.to_ascii_lowercase().into()).collect();
        (!names.is_empty()).then_some(Identity { names, method: Method::Certificate })
    }

    /// The first name, by which to call the peer.
    #[must_use]
    pub fn name(&self) -> &str {
        self.names.first().map_or("", |name| name)
    }

    /// All names: one for a key, one or more for a certificate.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }

    /// Whether one of its names is this one. Cases are alike.
    #[must_use]
    pub fn has_name(&self, name: &str) -> bool {
        self.names().any(|own| own.eq_ignore_ascii_case(name))
    }

    /// How it was proved.
    #[must_use]
    pub fn method(&self) -> Method {
        self.method
    }
}

/// `node7 (psk)`.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.method)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Names of peers: `node1`, or `*.cluster.example` for any one label in place of the star. Cases are alike.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Names {
    /// Everyone who proved to be somebody.
    #[default]
    Everyone,
    /// Those that match one of the patterns, which are in lower case; nobody, if there are none.
    Only(Arc<[Box<str>]>),
    /// Those whom both of two name.
    Both(Arc<[Names; 2]>),
}

impl Names {
    /// Reads a list separated by commas; `*` alone stands for everyone, nothing for nobody.
    ///
    /// # Errors
    ///
    /// A pattern that can match nothing, with what to write instead.
    pub fn parse(list: &str) -> Result<Names, NamesError> {
        let mut patterns: Vec<Box<str>> = Vec::new();
        for pattern in list.split(',').map(str::trim).filter(|pattern| !pattern.is_empty()) {
            if pattern == "*" {
                return Ok(Names::Everyone);
            }
            let plain = pattern.strip_prefix("*.").unwrap_or(pattern);
            if plain.is_empty() || !plain.chars().all(|c| c.is_ascii_graphic() && c != '*') {
                return Err(NamesError { pattern: pattern.to_owned() });
            }
            patterns.push(pattern.to_ascii_lowercase().into());
        }
        Ok(Names::Only(patterns.into()))
    }

    /// Those whom `other` names, too.
    #[must_use]
    pub fn and(self, other: Names) -> Names {
        match (self, other) {
            (Names::Everyone, names) | (names, Names::Everyone) => names,
            (one, other) => Names::Both(Arc::new([one, other])),
        }
    }

    /// Whether one of the peer's names is among them.
    #[must_use]
    pub fn contain(&self, peer: &Identity) -> bool {
        match self {
            Names::Everyone => true,
            Names::Only(patterns) => {
                peer.names().any(|name| patterns.iter().any(|pattern| matches(pattern, name)))
            }
            Names::Both(both) => both.iter().all(|names| names.contain(peer)),
        }
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix("*.") {
        None => pattern.eq_ignore_ascii_case(name),
        Some(domain) => name
            .split_once('.')
            .is_some_and(|(label, remainder)| !label.is_empty() && domain.eq_ignore_ascii_case(remainder)),
    }
}

/// A list of names with something in it that can't be a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamesError {
    /// What was written.
    pub pattern: String,
}

impl fmt::Display for NamesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "'{}' can match no peer: write names separated by commas, such as node1, *.cluster.example (the star \
             stands for the whole first label), or * for everyone",
            self.pattern
        )
    }
}

impl std::error::Error for NamesError {}

/// Who may do what.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Authorisation {
    /// Who may be at the other end of a connection, whichever side asked for it.
    pub connect: Names,
    /// Who may read this side's regions.
    pub rma_read: Names,
    /// Who may write to this side's regions.
    pub rma_write: Names,
}

impl Authorisation {
    /// What both allow.
    #[must_use]
    pub fn and(self, other: Authorisation) -> Authorisation {
        Authorisation {
            connect: self.connect.and(other.connect),
            rma_read: self.rma_read.and(other.rma_read),
            rma_write: self.rma_write.and(other.rma_write),
        }
    }

    /// What that peer may do.
    #[must_use]
    pub fn rights(&self, peer: &Identity) -> Rights {
        let connect = self.connect.contain(peer);
        Rights {
            connect,
            rma_read: connect && self.rma_read.contain(peer),
            rma_write: connect && self.rma_write.contain(peer),
        }
    }
}

/// What one peer may do. Atomics take both rights to memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Be connected.
    pub connect: bool,
    /// Read regions.
    pub rma_read: bool,
    /// Write to regions.
    pub rma_write: bool,
}

impl Rights {
    /// Everything: of peers without security, which are not distinguished.
    pub const ALL: Rights = Rights { connect: true, rma_read: true, rma_write: true };

    /// Nothing.
    pub const NONE: Rights = Rights { connect: false, rma_read: false, rma_write: false };

    /// Atomic operations.
    #[must_use]
    pub fn rma_atomic(self) -> bool {
        self.rma_read && self.rma_write
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_one_label() {
        let names = Names::parse("node1, *.Cluster.example").unwrap();
        let of = |name: &str| names.contain(&Identity::of_key(name));
        for yes in ["node1", "NODE1", "a.cluster.example", "b.CLUSTER.example"] {
            assert!(of(yes), "{yes}");
        }
        for no in ["node2", "node1.x", "cluster.example", ".cluster.example", "a.b.cluster.example", ""] {
            assert!(!of(no), "{no}");
        }
    }

    #[test]
    fn one_of_several_names_will_do() {
        let names = Names::parse("b.x").unwrap();
        assert!(names.contain(&Identity::of_certificate(["a.x", "B.x"].into_iter()).unwrap()));
        assert!(!names.contain(&Identity::of_certificate(["a.x"].into_iter()).unwrap()));
        assert_eq!(Identity::of_certificate([].into_iter()), None);
    }

    #[test]
    fn lists() {
        assert_eq!(Names::parse("a, *").unwrap(), Names::Everyone);
        assert!(!Names::parse(" , ").unwrap().contain(&Identity::of_key("a")));
        for wrong in ["a*", "*.", "*.*.x", "a b", "x.*.y", "ä"] {
            let error = Names::parse(wrong).unwrap_err();
            assert!(error.to_string().contains(wrong), "{error}");
        }
    }

    #[test]
    fn two_lists_allow_what_both_do() {
        let only =
            |list: &str| Authorisation { rma_read: Names::parse(list).unwrap(), ..Authorisation::default() };
        let (a, b) = (Identity::of_key("a"), Identity::of_key("b"));
        let both = only("a").and(only("a, b"));
        assert!(both.rights(&a).rma_read && !both.rights(&b).rma_read && both.rights(&b).rma_write);
        assert_eq!(only("a").and(Authorisation::default()), only("a"));
        assert_eq!(Authorisation::default().and(only("a")), only("a"));
    }

    #[test]
    fn without_connect_nothing_is_allowed() {
        let who = Authorisation { connect: Names::parse("a").unwrap(), ..Authorisation::default() };
        assert_eq!(who.rights(&Identity::of_key("a")), Rights::ALL);
        let none = who.rights(&Identity::of_key("b"));
        assert_eq!(none, Rights::NONE);
        assert!(!none.rma_atomic());
    }
}
