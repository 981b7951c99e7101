//! Sets, multisets and maps: elements in the buckets of several ranks. C has the same calls for all three.

use super::{Element, Pair, int, number};
use crate::acp::failure::{Result, wrong};
use crate::acp::live::{Live, call};
use crate::acp::management::address;
use cci_acp::{Cursor, Entries, GlobalAddress, Map, MultiSet, Set, Space, Table};
use libc::c_int;

/// The handle of a container (`acp_set_t`, `acp_multiset_t`, `acp_map_t`).
#[derive(Copy, Clone)]
#[repr(C)]
pub struct Handle {
    ga: u64,
    num_ranks: u64,
    num_slots: u64,
}

/// An element; one without an address is the end (`acp_set_it_t`, `acp_multiset_it_t`, `acp_map_it_t`). One of those that are in the caller's memory has a
/// number of its part below 0.
#[derive(Copy, Clone)]
#[repr(C)]
pub struct TablePosition {
    container: Handle,
    rank: c_int,
    slot: c_int,
    elem: u64,
}

/// Which elements a call is about.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Scope {
    All,
    /// Those in the caller's memory.
    Local,
}

impl Scope {
    fn rank(self, live: &Live) -> Option<u32> {
        (self == Scope::Local).then(|| live.global.rank())
    }
}

impl Handle {
    const NONE: Handle = Handle { ga: 0, num_ranks: 0, num_slots: 0 };

    fn address(self, live: &Live) -> Result<GlobalAddress> {
        address(live, self.ga)
    }

    fn table(self, live: &mut Live) -> Result<Table> {
        let at = self.address(live)?;
        Ok(Table::open(&mut live.global, at)?)
    }

    fn end(self, scope: Scope) -> TablePosition {
        let rank = c_int::try_from(self.num_ranks).unwrap_or(c_int::MAX - 1);
        let rank = if scope == Scope::Local { -1 - rank } else { rank };
        TablePosition { container: self, rank, slot: 0, elem: 0 }
    }

    fn position(self, cursor: Option<Cursor>, scope: Scope) -> Result<TablePosition> {
        let Some(Cursor { part, slot, element }) = cursor else { return Ok(self.end(scope)) };
        let (part, slot) = (int(part.into())?, int(slot)?);
        let rank = if scope == Scope::Local { -1 - part } else { part };
        Ok(TablePosition { container: self, rank, slot, elem: element.to_bits() })
    }
}

impl TablePosition {
    fn scope(self) -> Scope {
        if self.rank < 0 { Scope::Local } else { Scope::All }
    }

    /// None: it is the end.
    fn cursor(self, live: &Live) -> Result<Option<Cursor>> {
        if self.elem == 0 {
            return Ok(None);
        }
        let part = if self.rank < 0 { -1 - self.rank } else { self.rank };
        let element = address(live, self.elem)?;
        Ok(Some(Cursor { part: number(part)?, slot: number(self.slot)?, element }))
    }
}

fn begin(container: Handle, scope: Scope) -> TablePosition {
    call(container.end(scope), |live| {
        let (table, rank) = (container.table(live)?, scope.rank(live));
        container.position(table.first(&mut live.global, rank)?, scope)
    })
}

fn len(container: Handle, scope: Scope) -> usize {
    call(0, |live| {
        let (table, rank) = (container.table(live)?, scope.rank(live));
        Ok(table.len(&mut live.global, rank)? as usize)
    })
}

fn clear(container: Handle, scope: Scope) {
    call((), |live| {
        let (table, rank) = (container.table(live)?, scope.rank(live));
        Ok(table.clear(&mut live.global, rank)?)
    });
}

/// Where key and value of an element are.
fn locate(it: TablePosition) -> Pair {
    call(Pair { first: Element::NONE, second: Element::NONE }, |live| {
        let Some(cursor) = it.cursor(live)? else { return wrong("the end is no element") };
        let place = it.container.table(live)?.locate(&mut live.global, cursor)?;
        Ok(Pair { first: Element::at(place.key), second: Element::at(place.value) })
    })
}

/// What becomes of the elements of one container in another one.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Transfer {
    /// They take the place of what is there.
    Assign,
    /// They come to what is there.
    Merge,
    /// They leave the container that they were in.
    Move,
}

/// Enters elements of one container into another one.
fn transfer(
    (to, from): (Handle, Handle),
    scope: Scope,
    how: Transfer,
    enter: impl Fn(&mut Live, GlobalAddress, Entries) -> Result<()>,
) {
    call((), |live| {
        let (own, other, rank) = (to.table(live)?, from.table(live)?, scope.rank(live));
        if own.directory() == other.directory() {
            return Ok(());
        }
        if how == Transfer::Assign {
            own.clear(&mut live.global, rank)?;
        }
        enter(live, own.directory(), other.entries(rank))?;
        if how == Transfer::Move {
            other.clear(&mut live.global, rank)?;
        }
        Ok(())
    });
}

fn enter_in_set(live: &mut Live, to: GlobalAddress, mut from: Entries) -> Result<()> {
    let set = Set::open(&mut live.global, to)?;
    while let Some((key, _)) = from.next(&mut live.global)? {
        set.insert(&mut live.global, &key)?;
    }
    Ok(())
}

fn enter_in_multiset(live: &mut Live, to: GlobalAddress, mut from: Entries) -> Result<()> {
    let set = MultiSet::open(&mut live.global, to)?;
    while let Some((key, value)) = from.next(&mut live.global)? {
        set.add(&mut live.global, &key, MultiSet::times(&value)?)?;
    }
    Ok(())
}

fn enter_in_map(live: &mut Live, to: GlobalAddress, mut from: Entries) -> Result<()> {
    let map = Map::open(&mut live.global, to)?;
    while let Some((key, value)) = from.next(&mut live.global)? {
        map.insert(&mut live.global, &key, &value)?;
    }
    Ok(())
}

macro_rules! table {
    (
        $kind:ident, $enter:ident: $create:ident $destroy:ident $begin:ident $begin_local:ident $end:ident $end_local:ident $empty:ident
        $empty_local:ident $size:ident $size_local:ident $clear:ident $clear_local:ident $assign:ident $assign_local:ident $merge:ident
        $merge_local:ident $move:ident $move_local:ident $swap:ident $find:ident $increment:ident
    ) => {
        /// Makes a container.
        ///
        /// # Safety
        /// There are so many ranks, or `ranks` is NULL.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $create(
            num_ranks: c_int,
            ranks: *mut c_int,
            num_slots: c_int,
            rank: c_int,
        ) -> Handle {
            call(Handle::NONE, |live| {
                let (count, slots): (usize, u64) = (number(num_ranks)?, number(num_slots)?);
                if ranks.is_null() || count == 0 {
                    return wrong("a container has one rank at least");
                }
                // SAFETY: as the caller promises.
                let ranks = unsafe { std::slice::from_raw_parts(ranks, count) };
                let ranks = ranks.iter().map(|&rank| number(rank)).collect::<Result<Vec<u32>>>()?;
                let made = $kind::create(&mut live.global, &ranks, slots, rank.cast_unsigned())?;
                Ok(Handle { ga: made.handle().to_bits(), num_ranks: count as u64, num_slots: slots })
            })
        }

        /// Frees a container.
        #[unsafe(no_mangle)]
        pub extern "C" fn $destroy(container: Handle) {
            call((), |live| Ok(container.table(live)?.destroy(&mut live.global)?));
        }

        /// The first element.
        #[unsafe(no_mangle)]
        pub extern "C" fn $begin(container: Handle) -> TablePosition {
            begin(container, Scope::All)
        }

        /// The first element in the caller's memory.
        #[unsafe(no_mangle)]
        pub extern "C" fn $begin_local(container: Handle) -> TablePosition {
            begin(container, Scope::Local)
        }

        /// The end.
        #[unsafe(no_mangle)]
        pub extern "C" fn $end(container: Handle) -> TablePosition {
            container.end(Scope::All)
        }

        /// The end of what is in the caller's memory.
        #[unsafe(no_mangle)]
        pub extern "C" fn $end_local(container: Handle) -> TablePosition {
            container.end(Scope::Local)
        }

        /// Whether there are no elements.
        #[unsafe(no_mangle)]
        pub extern "C" fn $empty(container: Handle) -> c_int {
            (len(container, Scope::All) == 0).into()
        }

        /// Whether there are no elements in the caller's memory.
        #[unsafe(no_mangle)]
        pub extern "C" fn $empty_local(container: Handle) -> c_int {
            (len(container, Scope::Local) == 0).into()
        }

        /// How many keys there are.
        #[unsafe(no_mangle)]
        pub extern "C" fn $size(container: Handle) -> usize {
            len(container, Scope::All)
        }

        /// How many keys are in the caller's memory.
        #[unsafe(no_mangle)]
        pub extern "C" fn $size_local(container: Handle) -> usize {
            len(container, Scope::Local)
        }

        /// Removes all elements.
        #[unsafe(no_mangle)]
        pub extern "C" fn $clear(container: Handle) {
            clear(container, Scope::All);
        }

        /// Removes all elements in the caller's memory.
        #[unsafe(no_mangle)]
        pub extern "C" fn $clear_local(container: Handle) {
            clear(container, Scope::Local);
        }

        /// Makes its elements those of another one.
        #[unsafe(no_mangle)]
        pub extern "C" fn $assign(one: Handle, other: Handle) {
            transfer((one, other), Scope::All, Transfer::Assign, $enter);
        }

        /// Makes its elements in the caller's memory those that another one has there.
        #[unsafe(no_mangle)]
        pub extern "C" fn $assign_local(one: Handle, other: Handle) {
            transfer((one, other), Scope::Local, Transfer::Assign, $enter);
        }

        /// Enters the elements of another one.
        #[unsafe(no_mangle)]
        pub extern "C" fn $merge(one: Handle, other: Handle) {
            transfer((one, other), Scope::All, Transfer::Merge, $enter);
        }

        /// Enters the elements that another one has in the caller's memory.
        #[unsafe(no_mangle)]
        pub extern "C" fn $merge_local(one: Handle, other: Handle) {
            transfer((one, other), Scope::Local, Transfer::Merge, $enter);
        }

        /// Enters the elements of another one, and removes them there.
        #[unsafe(no_mangle)]
        pub extern "C" fn $move(one: Handle, other: Handle) {
            transfer((one, other), Scope::All, Transfer::Move, $enter);
        }

        /// Enters the elements that another one has in the caller's memory, and removes them there.
        #[unsafe(no_mangle)]
        pub extern "C" fn $move_local(one: Handle, other: Handle) {
            transfer((one, other), Scope::Local, Transfer::Move, $enter);
        }

        /// Gives two containers each other's elements.
        #[unsafe(no_mangle)]
        pub extern "C" fn $swap(one: Handle, other: Handle) {
            call((), |live| {
                let (one, other) = (one.table(live)?, other.table(live)?);
                Ok(one.swap(&mut live.global, &other)?)
            });
        }

        /// The element with a key.
        #[unsafe(no_mangle)]
        pub extern "C" fn $find(container: Handle, key: Element) -> TablePosition {
            call(container.end(Scope::All), |live| {
                let (table, key) = (container.table(live)?, key.fetch(live)?);
                container.position(table.find(&mut live.global, &key)?, Scope::All)
            })
        }

        /// The element behind another one.
        #[unsafe(no_mangle)]
        pub extern "C" fn $increment(it: TablePosition) -> TablePosition {
            let (container, scope) = (it.container, it.scope());
            call(container.end(scope), |live| {
                let Some(cursor) = it.cursor(live)? else { return Ok(container.end(scope)) };
                let (table, rank) = (container.table(live)?, scope.rank(live));
                container.position(table.next(&mut live.global, cursor, rank)?, scope)
            })
        }
    };
}

table!(Set, enter_in_set: acp_create_set acp_destroy_set acp_begin_set acp_begin_local_set acp_end_set acp_end_local_set acp_empty_set
    acp_empty_local_set acp_size_set acp_size_local_set acp_clear_set acp_clear_local_set acp_assign_set acp_assign_local_set acp_merge_set
    acp_merge_local_set acp_move_set acp_move_local_set acp_swap_set acp_find_set acp_increment_set_it);
table!(MultiSet, enter_in_multiset: acp_create_multiset acp_destroy_multiset acp_begin_multiset acp_begin_local_multiset acp_end_multiset
    acp_end_local_multiset acp_empty_multiset acp_empty_local_multiset acp_size_multiset acp_size_local_multiset acp_clear_multiset
    acp_clear_local_multiset acp_assign_multiset acp_assign_local_multiset acp_merge_multiset acp_merge_local_multiset acp_move_multiset
    acp_move_local_multiset acp_swap_multiset acp_find_multiset acp_increment_multiset_it);
table!(Map, enter_in_map: acp_create_map acp_destroy_map acp_begin_map acp_begin_local_map acp_end_map acp_end_local_map acp_empty_map
    acp_empty_local_map acp_size_map acp_size_local_map acp_clear_map acp_clear_local_map acp_assign_map acp_assign_local_map acp_merge_map
    acp_merge_local_map acp_move_map acp_move_local_map acp_swap_map acp_find_map acp_increment_map_it);

/// Enters a key.
#[unsafe(no_mangle)]
pub extern "C" fn acp_insert_set(set: Handle, key: Element) -> c_int {
    call(0, |live| {
        let (at, key) = (set.address(live)?, key.fetch(live)?);
        Ok(Set::open(&mut live.global, at)?.insert(&mut live.global, &key)?.into())
    })
}

/// Removes a key.
#[unsafe(no_mangle)]
pub extern "C" fn acp_remove_set(set: Handle, key: Element) {
    call((), |live| {
        let (at, key) = (set.address(live)?, key.fetch(live)?);
        Set::open(&mut live.global, at)?.remove(&mut live.global, &key)?;
        Ok(())
    });
}

/// Where a key is.
#[unsafe(no_mangle)]
pub extern "C" fn acp_dereference_set_it(it: TablePosition) -> Element {
    locate(it).first
}

/// Enters a key once more.
#[unsafe(no_mangle)]
pub extern "C" fn acp_insert_multiset(set: Handle, key: Element) -> c_int {
    call(0, |live| {
        let (at, key) = (set.address(live)?, key.fetch(live)?);
        MultiSet::open(&mut live.global, at)?.insert(&mut live.global, &key)?;
        Ok(1)
    })
}

/// Removes a key once.
#[unsafe(no_mangle)]
pub extern "C" fn acp_remove_multiset(set: Handle, key: Element) {
    call((), |live| {
        let (at, key) = (set.address(live)?, key.fetch(live)?);
        MultiSet::open(&mut live.global, at)?.remove(&mut live.global, &key)?;
        Ok(())
    });
}

/// Removes a key, however often it is there.
#[unsafe(no_mangle)]
pub extern "C" fn acp_remove_all_multiset(set: Handle, key: Element) {
    call((), |live| {
        let (at, key) = (set.address(live)?, key.fetch(live)?);
        MultiSet::open(&mut live.global, at)?.remove_all(&mut live.global, &key)?;
        Ok(())
    });
}

/// How often a key is there.
#[unsafe(no_mangle)]
pub extern "C" fn acp_retrieve_multiset(set: Handle, key: Element) -> u64 {
    call(0, |live| {
        let (at, key) = (set.address(live)?, key.fetch(live)?);
        Ok(MultiSet::open(&mut live.global, at)?.count(&mut live.global, &key)?)
    })
}

/// Where a key is.
#[unsafe(no_mangle)]
pub extern "C" fn acp_dereference_multiset_it(it: TablePosition) -> Element {
    locate(it).first
}

/// Enters a value under a key.
#[unsafe(no_mangle)]
pub extern "C" fn acp_insert_map(map: Handle, pair: Pair) -> c_int {
    call(0, |live| {
        let (at, key, value) = (map.address(live)?, pair.first.fetch(live)?, pair.second.fetch(live)?);
        let map = Map::open(&mut live.global, at)?;
        if value.is_empty() {
            // So does the published library.
            map.remove(&mut live.global, &key)?;
            return Ok(0);
        }
        Ok(map.insert(&mut live.global, &key, &value)?.into())
    })
}

/// Removes a key.
#[unsafe(no_mangle)]
pub extern "C" fn acp_remove_map(map: Handle, key: Element) {
    call((), |live| {
        let (at, key) = (map.address(live)?, key.fetch(live)?);
        Map::open(&mut live.global, at)?.remove(&mut live.global, &key)?;
        Ok(())
    });
}

/// Copies the value under a key.
#[unsafe(no_mangle)]
pub extern "C" fn acp_retrieve_map(map: Handle, pair: Pair) -> usize {
    call(0, |live| {
        let (at, key) = (map.address(live)?, pair.first.fetch(live)?);
        let value = Map::open(&mut live.global, at)?.get(&mut live.global, &key)?.unwrap_or_default();
        let copied = value.get(..value.len().min(pair.second.size)).unwrap_or_default();
        if !copied.is_empty() {
            let to = address(live, pair.second.ga)?;
            live.global.write(to, copied)?;
        }
        Ok(value.len())
    })
}

/// Where a key and its value are.
#[unsafe(no_mangle)]
pub extern "C" fn acp_dereference_map_it(it: TablePosition) -> Pair {
    locate(it)
}
