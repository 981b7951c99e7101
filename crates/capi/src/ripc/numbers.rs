//! What partners are called: services that have a number by that, others by one that this process gives them.

use cci_ripc::{Partner, ServiceName};
use std::collections::{HashMap, VecDeque};

/// Services without a number that this process knows.
const NAMES_MAX: usize = 4_096;

/// A service without a number of its own.
struct Named {
    name: ServiceName,
    /// Whoever of this name has sent something last to each service of this process: it may be one that nobody can look up.
    partners: HashMap<u16, Partner>,
}

/// The numbers that this process has given.
#[derive(Default)]
pub(super) struct Numbers {
    named: HashMap<u16, Named>,
    numbers: HashMap<ServiceName, u16>,
    /// Numbers of those who have sent something, the oldest first: they may be forgotten.
    of_senders: VecDeque<u16>,
}

impl Numbers {
    /// The number of a name, for good.
    pub fn of(&mut self, name: &ServiceName, is_taken: impl Fn(u16) -> bool) -> Option<u16> {
        name.as_number().or_else(|| self.numbers.get(name).copied()).or_else(|| self.give(name, is_taken))
    }

    /// The number of somebody who has sent something to the service `to` of this process.
    pub fn of_sender(
        &mut self,
        name: &ServiceName,
        partner: Partner,
        to: u16,
        is_taken: impl Fn(u16) -> bool,
    ) -> Option<u16> {
        if let Some(number) = name.as_number() {
            return Some(number);
        }
        let number = match self.numbers.get(name) {
            Some(&number) => number,
            None => {
                let number = self.give(name, is_taken)?;
                self.of_senders.push_back(number);
                number
            }
        };
        if let Some(named) = self.named.get_mut(&number) {
            named.partners.insert(to, partner);
        }
        Some(number)
    }

    fn give(&mut self, name: &ServiceName, is_taken: impl Fn(u16) -> bool) -> Option<u16> {
        if self.named.len() >= NAMES_MAX {
            let forgotten = self.of_senders.pop_front()?;
            if let Some(named) = self.named.remove(&forgotten) {
                self.numbers.remove(&named.name);
            }
        }
        let is_free = |number: &u16| !self.named.contains_key(number) && !is_taken(*number);
        let number = (0..u16::MAX).rev().find(is_free)?;
        self.named.insert(number, Named { name: name.clone(), partners: HashMap::new() });
        self.numbers.insert(name.clone(), number);
        Some(number)
    }

    /// Whether this process has given this number to a name.
    pub fn is_given(&self, number: u16) -> bool {
        self.named.contains_key(&number)
    }

    /// Who has this number.
    pub fn name(&self, number: u16) -> ServiceName {
        self.named.get(&number).map_or_else(|| ServiceName::number(number), |named| named.name.clone())
    }

    /// Who has sent something last under this number, where it is one that was given, to a service of this process.
    pub fn sender(&self, number: u16, to: u16) -> Option<Partner> {
        self.named.get(&number)?.partners.get(&to).copied()
    }

    /// A service of this process has ended.
    pub fn forget_receiver(&mut self, to: u16) {
        for named in self.named.values_mut() {
            named.partners.remove(&to);
        }
    }
}
