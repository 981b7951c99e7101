//! What a layer knows of each connection, found by the connection's index.

use crate::connection::Connection;

/// A table with a place for each connection.
pub(crate) struct ByConnection<T> {
    all: Vec<Option<Box<Entry<T>>>>,
}

struct Entry<T> {
    connection: Connection,
    value: T,
}

impl<T> ByConnection<T> {
    pub(crate) const fn new() -> ByConnection<T> {
        ByConnection { all: Vec::new() }
    }

    #[inline]
    pub(crate) fn get(&self, connection: Connection) -> Option<&T> {
        let entry = self.all.get(connection.index as usize)?.as_deref()?;
        (entry.connection == connection).then_some(&entry.value)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, connection: Connection) -> Option<&mut T> {
        let entry = self.all.get_mut(connection.index as usize)?.as_deref_mut()?;
        (entry.connection == connection).then_some(&mut entry.value)
    }

    /// Enters a connection. False: there is no memory for it.
    pub(crate) fn insert(&mut self, connection: Connection, value: T) -> bool {
        let at = connection.index as usize;
        let missing = (at + 1).saturating_sub(self.all.len());
        if self.all.try_reserve(missing).is_err() {
            return false;
        }
        if missing > 0 {
            self.all.resize_with(at + 1, || None);
        }
        let Ok(entry) = cci_memory::fallible::boxed(Entry { connection, value }) else { return false };
        if let Some(place) = self.all.get_mut(at) {
            *place = Some(entry);
        }
        true
    }

    /// Takes a connection out.
    pub(crate) fn remove(&mut self, connection: Connection) -> Option<T> {
        let place = self.all.get_mut(connection.index as usize)?;
        Some(place.take_if(|entry| entry.connection == connection)?.value)
    }

    /// What is known of all connections.
    #[cfg(feature = "futures")]
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.all.iter_mut().flatten().map(|entry| &mut entry.value)
    }
}
