//! Sets over the memory of several ranks.

use crate::address::GlobalAddress;
use crate::data::table::{Change, Entries, Table};
use crate::error::{AcpError, Result};
use crate::space::Space;

/// A set of keys over the memory of several ranks (`acp_set_t`). Any rank that has its handle works on it at any time.
#[derive(Clone, Debug)]
pub struct Set {
    table: Table,
}

/// A set whose keys count how often they were entered (`acp_multiset_t`). Any rank that has its handle works on it at any time.
#[derive(Clone, Debug)]
pub struct MultiSet {
    table: Table,
}

impl Set {
    /// Makes a set with `slots` buckets on each of `ranks` (`acp_create_set`). The handle will be an address on `rank`.
    ///
    /// # Errors
    /// Those of [`Map::create`](crate::Map::create).
    pub fn create(space: &mut impl Space, ranks: &[u32], slots: u64, rank: u32) -> Result<Set> {
        Ok(Set { table: Table::create(space, ranks, slots, rank)? })
    }

    /// Opens the set of a handle that another rank has given.
    ///
    /// # Errors
    /// There is no set. The rank is gone.
    pub fn open(space: &mut impl Space, handle: GlobalAddress) -> Result<Set> {
        Ok(Set { table: Table::open(space, handle)? })
    }

    /// The common part of maps and sets.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The handle by which other ranks open it.
    pub fn handle(&self) -> GlobalAddress {
        self.table.directory()
    }

    /// Removes the set and all that is in it (`acp_destroy_set`). No rank may use it afterwards.
    ///
    /// # Errors
    /// A rank is gone.
    pub fn destroy(self, space: &mut impl Space) -> Result<()> {
        self.table.destroy(space)
    }

    /// Enters a key (`acp_insert_set`). Returns whether it was not there.
    ///
    /// # Errors
    /// The heap of the key's rank is full. The rank is gone.
    pub fn insert(&self, space: &mut impl Space, key: &[u8]) -> Result<bool> {
        let was = self.table.change(space, key, |was| match was {
            Some(_) => Change::Keep,
            None => Change::Put((&[]).into()),
        })?;
        Ok(was.is_none())
    }

    /// Whether a key is there (`acp_find_set`).
    ///
    /// # Errors
    /// The set was destroyed, or the rank is gone.
    pub fn contains(&self, space: &mut impl Space, key: &[u8]) -> Result<bool> {
        Ok(self.table.get(space, key)?.is_some())
    }

    /// Removes a key (`acp_remove_set`). Returns whether it was there.
    ///
    /// # Errors
    /// The set was destroyed, or the rank is gone.
    pub fn remove(&self, space: &mut impl Space, key: &[u8]) -> Result<bool> {
        Ok(self.table.change(space, key, |_| Change::Remove)?.is_some())
    }

    /// How many keys there are (`acp_size_set`). Buckets are counted one after another.
    ///
    /// # Errors
    /// The set was destroyed, or a rank is gone.
    pub fn len(&self, space: &mut impl Space) -> Result<u64> {
        self.table.len(space, None)
    }

    /// Removes all keys (`acp_clear_set`).
    ///
    /// # Errors
    /// The set was destroyed, or a rank is gone.
    pub fn clear(&self, space: &mut impl Space) -> Result<()> {
        self.table.clear(space, None)
    }

    /// All keys, with empty values (`acp_begin_set`).
    pub fn entries(&self) -> Entries {
        self.table.entries(None)
    }

    /// The keys in the memory of this rank (`acp_begin_local_set`).
    pub fn local_entries(&self, space: &impl Space) -> Entries {
        self.table.entries(Some(space.rank()))
    }

    /// Enters all keys of another set (`acp_merge_set`).
    ///
    /// # Errors
    /// Those of [`Set::insert`]: some keys may have been entered.
    pub fn merge(&self, space: &mut impl Space, other: &Set) -> Result<()> {
        let mut entries = other.entries();
        while let Some((key, _)) = entries.next(space)? {
            self.insert(space, &key)?;
        }
        Ok(())
    }
}

impl MultiSet {
    /// Makes a multiset with `slots` buckets on each of `ranks` (`acp_create_multiset`). The handle will be an address on `rank`.
    ///
    /// # Errors
    /// Those of [`Map::create`](crate::Map::create).
    pub fn create(space: &mut impl Space, ranks: &[u32], slots: u64, rank: u32) -> Result<MultiSet> {
        Ok(MultiSet { table: Table::create(space, ranks, slots, rank)? })
    }

    /// Opens the multiset of a handle that another rank has given.
    ///
    /// # Errors
    /// There is no multiset. The rank is gone.
    pub fn open(space: &mut impl Space, handle: GlobalAddress) -> Result<MultiSet> {
        Ok(MultiSet { table: Table::open(space, handle)? })
    }

    /// The common part of maps and sets.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The handle by which other ranks open it.
    pub fn handle(&self) -> GlobalAddress {
        self.table.directory()
    }

    /// Removes the multiset and all that is in it (`acp_destroy_multiset`). No rank may use it afterwards.
    ///
    /// # Errors
    /// A rank is gone.
    pub fn destroy(self, space: &mut impl Space) -> Result<()> {
        self.table.destroy(space)
    }

    /// Enters a key once more (`acp_insert_multiset`). Returns how often it is there now.
    ///
    /// # Errors
    /// The heap of the key's rank is full. The rank is gone.
    pub fn insert(&self, space: &mut impl Space, key: &[u8]) -> Result<u64> {
        self.add(space, key, 1)
    }

    /// Enters a key `times` times more. Returns how often it is there now.
    ///
    /// # Errors
    /// Those of [`MultiSet::insert`].
    pub fn add(&self, space: &mut impl Space, key: &[u8], times: u64) -> Result<u64> {
        if times == 0 {
            return self.count(space, key);
        }
        let was = self.table.change(space, key, |was| {
            Change::Put(counted(was).saturating_add(times).to_ne_bytes().to_vec().into())
        })?;
        Ok(counted(was.as_deref()).saturating_add(times))
    }

    /// How often a key is there (`acp_retrieve_multiset`).
    ///
    /// # Errors
    /// The multiset was destroyed, or the rank is gone.
    pub fn count(&self, space: &mut impl Space, key: &[u8]) -> Result<u64> {
        Ok(counted(self.table.get(space, key)?.as_deref()))
    }

    /// Removes a key once (`acp_remove_multiset`). Returns how often it was there.
    ///
    /// # Errors
    /// The multiset was destroyed, or the rank is gone.
    pub fn remove(&self, space: &mut impl Space, key: &[u8]) -> Result<u64> {
        let was = self.table.change(space, key, |was| match counted(was) {
            0 | 1 => Change::Remove,
            more => Change::Put((more - 1).to_ne_bytes().to_vec().into()),
        })?;
        Ok(counted(was.as_deref()))
    }

    /// Removes a key, however often it is there (`acp_remove_all_multiset`). Returns how often that was.
    ///
    /// # Errors
    /// The multiset was destroyed, or the rank is gone.
    pub fn remove_all(&self, space: &mut impl Space, key: &[u8]) -> Result<u64> {
        Ok(counted(self.table.change(space, key, |_| Change::Remove)?.as_deref()))
    }

    /// How many different keys there are (`acp_size_multiset`). Buckets are counted one after another.
    ///
    /// # Errors
    /// The multiset was destroyed, or a rank is gone.
    pub fn len(&self, space: &mut impl Space) -> Result<u64> {
        self.table.len(space, None)
    }

    /// Removes all keys (`acp_clear_multiset`).
    ///
    /// # Errors
    /// The multiset was destroyed, or a rank is gone.
    pub fn clear(&self, space: &mut impl Space) -> Result<()> {
        self.table.clear(space, None)
    }

    /// All keys, each with how often it is there, which [`MultiSet::times`] reads (`acp_begin_multiset`).
    pub fn entries(&self) -> Entries {
        self.table.entries(None)
    }

    /// The keys in the memory of this rank (`acp_begin_local_multiset`).
    pub fn local_entries(&self, space: &impl Space) -> Entries {
        self.table.entries(Some(space.rank()))
    }

    /// How often a key is there, by the value that [`Entries`] gives with it.
    ///
    /// # Errors
    /// It is no such value.
    pub fn times(value: &[u8]) -> Result<u64> {
        let bytes = <[u8; 8]>::try_from(value);
        bytes.map(u64::from_ne_bytes).map_err(|_| AcpError::Argument("this is no value of a multiset"))
    }

    /// Adds what another multiset counts (`acp_merge_multiset`).
    ///
    /// # Errors
    /// Those of [`MultiSet::insert`]: some keys may have been entered.
    pub fn merge(&self, space: &mut impl Space, other: &MultiSet) -> Result<()> {
        let mut entries = other.entries();
        while let Some((key, value)) = entries.next(space)? {
            self.add(space, &key, MultiSet::times(&value)?)?;
        }
        Ok(())
    }
}

/// A count that a key has, 0 if it is not there.
fn counted(value: Option<&[u8]>) -> u64 {
    value.and_then(|value| <[u8; 8]>::try_from(value).ok()).map_or(0, u64::from_ne_bytes)
}
