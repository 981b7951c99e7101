//! Remote memory operations in progress: what each is to the program.

use super::order::EntryId;
use super::quotas::{Quotas, holder};
use crate::connection::Connection;
use cci_memory::slab::{Key, Slab};

/// One operation, by the name that the transport knows it by.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Operation {
    pub connection: Connection,
    /// The program's, returned unchanged.
    pub context: u64,
    /// No event on success.
    pub silent: bool,
    /// Its entry in the queue that orders the completions of its connection.
    pub order_entry: Option<EntryId>,
}

/// The remote operations of an endpoint that are in progress.
pub(crate) struct Operations {
    all: Slab<Operation>,
    /// Who has how many, once they have been scarce.
    quotas: Option<Quotas>,
    /// How many were ever entered, and one.
    entered: u64,
}

impl Operations {
    /// Has capacity for `max`; memory for it is taken as it is first needed, and kept.
    pub fn new(max: u32) -> Operations {
        Operations { all: Slab::new(max), quotas: None, entered: 1 }
    }

    /// Enters one; None: as many are in progress as may be, or as may be of this connection, unless it `is_alone`: no more than
    /// are left for all others (ADR 19), so that a peer that answers nothing keeps nobody else from theirs.
    pub fn insert(&mut self, operation: Operation, is_alone: bool) -> Option<u64> {
        if self.all.len() >= self.all.max() / 2 && !is_alone && !self.has_quota(operation.connection) {
            return None;
        }
        self.entered += 1;
        self.all.insert(operation).ok().map(Key::to_bits)
    }

    #[cold]
    fn has_quota(&mut self, connection: Connection) -> bool {
        let (all, max) = (&self.all, self.all.max());
        if self.quotas.is_none() {
            self.quotas = Quotas::new(max);
        }
        // Without memory to count in nobody gets more than the first half.
        let Some(quotas) = &mut self.quotas else { return false };
        let each_out = |visit: &mut dyn FnMut(u32)| {
            all.iter().for_each(|(_, operation)| visit(holder(operation.connection)));
        };
        let holder = holder(connection);
        let has = quotas.may_take(holder, max - all.len(), self.entered, each_out);
        if has {
            quotas.took(holder);
        }
        has
    }

    pub fn remove(&mut self, name: u64) -> Option<Operation> {
        self.all.remove(Key::from_bits(name))
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> u32 {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn bytes(&self) -> u64 {
        (self.all.bytes() + self.quotas.as_ref().map_or(0, Quotas::bytes)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_whose_peer_answers_nothing_leaves_half() {
        for max in [1, 2, 7, 64, 1000] {
            let mut operations = Operations::new(max);
            let mut start = |index, is_alone| {
                let connection = Connection { index, generation: 1 };
                let operation = Operation { connection, context: 0, silent: false, order_entry: None };
                operations.insert(operation, is_alone)
            };
            let stuck: Vec<_> = std::iter::from_fn(|| start(1, false)).collect();
            assert_eq!(stuck.len() as u32, max.div_ceil(2), "of {max}");
            let others = std::iter::from_fn(|| start(2, false)).count() as u32;
            assert!(others >= max / 4, "{others} of {max}");
            assert!(max < 4 || start(3, false).is_some(), "a third");
            while start(1, true).is_some() {}
            assert_eq!(operations.all.len(), max, "who is alone may have all");
        }
    }
}
