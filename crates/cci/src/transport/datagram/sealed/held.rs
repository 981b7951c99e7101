//! The identity that each address belongs to while connections use it, and the peers that dialled connections expect.
//!
//! The associations alone do not show that. A connection may begin before there is an association with its peer, if the request
//! came to another endpoint.

use cci_proto::{Address, ConnKey};
use cci_secure::Identity;
use std::collections::HashMap;

/// The addresses that connections use.
#[derive(Default)]
pub(super) struct Held {
    at: HashMap<Address, Hold>,
    /// The addresses of the connections that are counted in `at`.
    keys: HashMap<ConnKey, Address>,
    /// Connections that this side has dialled and that have not opened yet.
    dials: HashMap<ConnKey, Dial>,
    /// How many addresses in `at` another peer has taken over.
    others: u32,
}

/// The address that was dialled, and the name that the peer must prove, if any.
type Dial = (Address, Option<Box<str>>);

/// An address that belongs to an identity.
struct Hold {
    identity: Identity,
    /// How many connections with the identity use the address.
    connections: u32,
    /// Whether the association with this address is with another identity now.
    is_other: bool,
}

impl Held {
    /// Notes that a connection with an identity at an address begins.
    pub fn add(&mut self, key: ConnKey, at: Address, identity: &Identity) {
        self.keys.insert(key, at);
        let hold = self.at.entry(at).or_insert_with(|| Hold {
            identity: identity.clone(),
            connections: 0,
            is_other: false,
        });
        hold.connections += 1;
    }

    /// Notes that this side dials an address. If `expected` is given, the peer must prove that name.
    pub fn dial(&mut self, key: ConnKey, at: Address, expected: Option<&str>) {
        self.dials.insert(key, (at, expected.map(Into::into)));
    }

    /// Forgets a dialled connection, which has opened or never will. Returns what was noted of it.
    pub fn end_dial(&mut self, key: ConnKey) -> Option<Dial> {
        self.dials.remove(&key)
    }

    /// The connections that are dialling an address; if `expected` is given, only those that expect this name.
    pub fn dials_at<'h>(
        &'h self,
        at: Address,
        expected: Option<&'h str>,
    ) -> impl Iterator<Item = ConnKey> + 'h {
        let fits = move |dial: &Dial| dial.0 == at && (expected.is_none() || dial.1.as_deref() == expected);
        self.dials.iter().filter(move |(_, dial)| fits(dial)).map(|(key, _)| *key)
    }

    /// Notes that a connection has ended. Returns the address that it used, if it had opened.
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

    /// Notes that the association with an address is with this identity now.
    pub fn met(&mut self, at: Address, identity: Option<&Identity>) {
        if let Some(hold) = self.at.get_mut(&at) {
            self.others -= u32::from(hold.is_other);
            hold.is_other = identity.is_some_and(|identity| *identity != hold.identity);
            self.others += u32::from(hold.is_other);
        }
    }

    /// Whether another peer has taken over an address that connections use.
    #[inline]
    pub fn is_other(&self, at: Address) -> bool {
        self.others != 0 && self.at.get(&at).is_some_and(|hold| hold.is_other)
    }

    /// The memory of the tables, bytes.
    pub fn bytes(&self) -> u64 {
        let entries = self.at.capacity() * (size_of::<(Address, Hold)>() + 1)
            + self.keys.capacity() * (size_of::<(ConnKey, Address)>() + 1)
            + self.dials.capacity() * (size_of::<(ConnKey, Dial)>() + 1);
        (entries * 8 / 7) as u64
    }
}
