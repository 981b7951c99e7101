//! Which addresses connections are with, and who must be there. An association belongs to one identity while it is in
//! use; but a connection may begin before there is an association, where a request came to another endpoint.

use cci_proto::{Address, ConnKey};
use cci_secure::Identity;
use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Held {
    at: HashMap<Address, Hold>,
    keys: HashMap<ConnKey, Address>,
    /// Connections that are being made from here, until they are there.
    dials: HashMap<ConnKey, Dial>,
    /// Addresses where somebody else is than should be.
    others: u32,
}

/// Where a connection is being made to, and who must be there.
type Dial = (Address, Option<Box<str>>);

struct Hold {
    identity: Identity,
    connections: u32,
    /// Somebody else is there.
    is_other: bool,
}

impl Held {
    /// A connection with this identity at that address begins.
    pub fn add(&mut self, key: ConnKey, at: Address, identity: &Identity) {
        self.keys.insert(key, at);
        let hold = self.at.entry(at).or_insert_with(|| Hold {
            identity: identity.clone(),
            connections: 0,
            is_other: false,
        });
        hold.connections += 1;
    }

    /// A connection with somebody at that address is being made; `expected`: who must be there.
    pub fn dial(&mut self, key: ConnKey, at: Address, expected: Option<&str>) {
        self.dials.insert(key, (at, expected.map(Into::into)));
    }

    /// It is there, or will never be.
    pub fn end_dial(&mut self, key: ConnKey) -> Option<Dial> {
        self.dials.remove(&key)
    }

    /// Those that are being made to somebody at that address; of those, with `expected`, who expect that name.
    pub fn dials_at<'h>(
        &'h self,
        at: Address,
        expected: Option<&'h str>,
    ) -> impl Iterator<Item = ConnKey> + 'h {
        let fits = move |dial: &Dial| dial.0 == at && (expected.is_none() || dial.1.as_deref() == expected);
        self.dials.iter().filter(move |(_, dial)| fits(dial)).map(|(key, _)| *key)
    }

    /// It has ended: the address, if it was held.
    pub fn remove(&mut self, key: ConnKey) -> Option<Address> {
        let at = self.keys.remove(&key)?;
        if let Some(hold) = self.at.get_mut(&at) {
            hold.connections -= 1;
            if hold.connections == 0 {
                self.others -= u32::from(hold.is_other);
                self.at.remove(&at);
            }
        }
        Some(at)
    }

    /// This identity is at that address now.
    pub fn met(&mut self, at: Address, identity: Option<&Identity>) {
        if let Some(hold) = self.at.get_mut(&at) {
            self.others -= u32::from(hold.is_other);
            hold.is_other = identity.is_some_and(|identity| *identity != hold.identity);
            self.others += u32::from(hold.is_other);
        }
    }

    /// Whether somebody else is there than connections are with.
    #[inline]
    pub fn is_other(&self, at: Address) -> bool {
        self.others != 0 && self.at.get(&at).is_some_and(|hold| hold.is_other)
    }

    pub fn bytes(&self) -> u64 {
        let entries = self.at.capacity() * (size_of::<(Address, Hold)>() + 1)
            + self.keys.capacity() * (size_of::<(ConnKey, Address)>() + 1)
            + self.dials.capacity() * (size_of::<(ConnKey, Dial)>() + 1);
        (entries * 8 / 7) as u64
    }
}
