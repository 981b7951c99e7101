//! A map over the memory of several ranks.

use crate::address::GlobalAddress;
use crate::data::table::{Change, Entries, Table};
use crate::error::Result;
use crate::space::Space;

/// A map from bytes to bytes over the memory of several ranks (`acp_map_t`). Any rank that has its [handle](Map::handle) works on it at any time;
/// each call is atomic for all others. A key belongs to a bucket on one of the ranks, and is in that rank's [heap](crate::allocate).
#[derive(Clone, Debug)]
pub struct Map {
    table: Table,
}

impl Map {
    /// Makes a map with `slots` buckets on each of `ranks` (`acp_create_map`). The handle will be an address on `rank`.
    ///
    /// # Errors
    /// There are no ranks, or no slots, or 2^32 slots. A heap is full. A rank is not there, or gone.
    pub fn create(space: &mut impl Space, ranks: &[u32], slots: u64, rank: u32) -> Result<Map> {
        Ok(Map { table: Table::create(space, ranks, slots, rank)? })
    }

    /// Opens the map of a handle that another rank has given.
    ///
    /// # Errors
    /// There is no map. The rank is gone.
    pub fn open(space: &mut impl Space, handle: GlobalAddress) -> Result<Map> {
        Ok(Map { table: Table::open(space, handle)? })
    }

    /// The common part of maps and sets.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The handle by which other ranks open it.
    pub fn handle(&self) -> GlobalAddress {
        self.table.directory()
    }

    /// Removes the map and all that is in it (`acp_destroy_map`). No rank may use it afterwards.
    ///
    /// # Errors
    /// A rank is gone.
    pub fn destroy(self, space: &mut impl Space) -> Result<()> {
        self.table.destroy(space)
    }

    /// Enters a value, if the key has none yet (`acp_insert_map`). Returns whether it was entered.
    ///
    /// # Errors
    /// The heap of the key's rank is full. The rank is gone.
    pub fn insert(&self, space: &mut impl Space, key: &[u8], value: &[u8]) -> Result<bool> {
        let was = self.table.change(space, key, |was| match was {
            Some(_) => Change::Keep,
            None => Change::Put(value.into()),
        })?;
        Ok(was.is_none())
    }

    /// Enters a value, in place of the one that the key has, if any, and returns that. A value of 8 bytes is replaced where it is; others get
    /// new memory.
    ///
    /// # Errors
    /// Those of [`Map::insert`].
    pub fn replace(&self, space: &mut impl Space, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>> {
        self.table.change(space, key, |_| Change::Put(value.into()))
    }

    /// Changes a value by a function, while no other rank changes it. `update` gets `None` if the key has no value, and returns `None` to remove it.
    /// Returns the value from before. The function must not take long, since others wait for it.
    ///
    /// # Errors
    /// Those of [`Map::insert`].
    pub fn update(
        &self,
        space: &mut impl Space,
        key: &[u8],
        update: impl FnOnce(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>> {
        self.table
            .change(space, key, |was| update(was).map_or(Change::Remove, |value| Change::Put(value.into())))
    }

    /// The value under a key (`acp_find_map`, `acp_retrieve_map`).
    ///
    /// # Errors
    /// The map was destroyed, or the rank is gone.
    pub fn get(&self, space: &mut impl Space, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.table.get(space, key)
    }

    /// Removes a key, and returns its value (`acp_remove_map`).
    ///
    /// # Errors
    /// The map was destroyed, or the rank is gone.
    pub fn remove(&self, space: &mut impl Space, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.table.change(space, key, |_| Change::Remove)
    }

    /// How many keys there are (`acp_size_map`). Buckets are counted one after another.
    ///
    /// # Errors
    /// The map was destroyed, or a rank is gone.
    pub fn len(&self, space: &mut impl Space) -> Result<u64> {
        self.table.len(space, None)
    }

    /// How many keys are in the memory of this rank (`acp_size_local_map`).
    ///
    /// # Errors
    /// The map was destroyed.
    pub fn local_len(&self, space: &mut impl Space) -> Result<u64> {
        let rank = space.rank();
        self.table.len(space, Some(rank))
    }

    /// Removes all keys (`acp_clear_map`).
    ///
    /// # Errors
    /// The map was destroyed, or a rank is gone.
    pub fn clear(&self, space: &mut impl Space) -> Result<()> {
        self.table.clear(space, None)
    }

    /// All keys and values (`acp_begin_map`, `acp_increment_map_it`).
    pub fn entries(&self) -> Entries {
        self.table.entries(None)
    }

    /// The keys and values in the memory of this rank (`acp_begin_local_map`).
    pub fn local_entries(&self, space: &impl Space) -> Entries {
        self.table.entries(Some(space.rank()))
    }

    /// Enters what another map has under keys that this one does not have (`acp_merge_map`).
    ///
    /// # Errors
    /// Those of [`Map::insert`]: some keys may have been entered.
    pub fn merge(&self, space: &mut impl Space, other: &Map) -> Result<()> {
        let mut entries = other.entries();
        while let Some((key, value)) = entries.next(space)? {
            self.insert(space, &key, &value)?;
        }
        Ok(())
    }
}
