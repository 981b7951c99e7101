//! When each link is polled.
//!
//! - *Active* links had records recently. There are at most [`ACTIVE_MAX`], and every poll checks them: one cache line each.
//! - All others are *idle*. Their attention word is raised, so a peer that writes rings our doorbell, which the kernel reports.
//!   Besides, one of them is checked every few polls, so that nothing can get lost.
//! - *Busy* links have sends, closing connections or stalls under way. They are maintained from time to time.

use super::link::Link;
use super::table::Table;
use cci_memory::slab::Key;

/// The most links that every poll checks.
const ACTIVE_MAX: usize = 16;
/// This many links stay active however little comes on them, since checking them costs next to nothing.
const ACTIVE_ALWAYS_MAX: usize = 2;
/// An active link becomes idle when nothing has come on it for this time.
const ACTIVE_NS: u64 = 200_000;

/// The links that are active, and those that are busy.
pub(super) struct Schedule {
    active: Vec<Key>,
    busy: Vec<Key>,
    /// The position of the next busy link to be maintained.
    next_busy: usize,
    /// The index, in the table, at which an idle link was last looked for.
    next_idle: u32,
}

impl Schedule {
    pub fn new() -> Schedule {
        Schedule {
            active: Vec::with_capacity(ACTIVE_MAX),
            busy: Vec::with_capacity(64),
            next_busy: 0,
            next_idle: 0,
        }
    }

    #[inline]
    pub fn active(&self) -> &[Key] {
        &self.active
    }

    #[inline]
    pub fn busy(&self) -> &[Key] {
        &self.busy
    }

    /// Puts a link on the list of those that are maintained.
    pub fn make_busy(&mut self, link: &mut Link) {
        if !link.is_busy {
            link.is_busy = true;
            self.busy.push(link.key);
        }
    }

    /// Takes a link off the list of those that are maintained.
    pub fn make_quiet(&mut self, link: &mut Link) {
        link.is_busy = false;
        self.busy.retain(|busy| *busy != link.key);
    }

    /// The busy link whose turn it is.
    #[inline(always)]
    pub fn next_busy(&mut self) -> Option<Key> {
        if self.next_busy >= self.busy.len() {
            self.next_busy = 0;
        }
        self.busy.get(self.next_busy).copied()
    }

    /// Ends the turn of a busy link. If the link has left the list, another has its position.
    #[inline(always)]
    pub fn had_turn(&mut self, key: Key) {
        if self.busy.get(self.next_busy) == Some(&key) {
            self.next_busy += 1;
        }
    }

    /// Moves on to the next index in the table. Returns the link there, if it is idle.
    pub fn next_idle(&mut self, table: &Table) -> Option<Key> {
        if table.len() as usize <= self.active.len() {
            return None;
        }
        self.next_idle = if self.next_idle + 1 < table.indices() { self.next_idle + 1 } else { 0 };
        table.at(self.next_idle).filter(|link| !link.is_active).map(|link| link.key)
    }

    /// Makes every poll check a link from now on. If too many links are active, the one that was quiet longest becomes idle.
    pub fn make_active(&mut self, table: &mut Table, key: Key, now_ns: u64) {
        let Some(link) = table.get_mut(key) else { return };
        if link.is_active {
            return;
        }
        link.is_active = true;
        link.worked_ns = now_ns;
        self.active.push(key);
        if self.active.len() > ACTIVE_MAX {
            let worked_ns = |key: Key| table.get(key).map_or(0, |link| link.worked_ns);
            if let Some(idlest) = self.active.iter().copied().min_by_key(|key| worked_ns(*key)) {
                self.make_idle(table, idlest, now_ns);
            }
        }
    }

    /// Makes the peer of a link ring from now on.
    fn make_idle(&mut self, table: &mut Table, key: Key, now_ns: u64) {
        self.active.retain(|active| *active != key);
        let Some(link) = table.get_mut(key) else { return };
        link.is_active = false;
        if link.arm() {
            // Something has just come.
            link.disarm();
            (link.is_active, link.worked_ns) = (true, now_ns);
            self.active.push(key);
        }
    }

    /// Makes one active link idle on which nothing has come for a while, unless very few are active.
    #[inline]
    pub fn retire_one(&mut self, table: &mut Table, now_ns: u64) {
        if self.active.len() <= ACTIVE_ALWAYS_MAX {
            return;
        }
        let had_nothing =
            |key: &Key| table.get(*key).is_none_or(|link| now_ns.saturating_sub(link.worked_ns) > ACTIVE_NS);
        if let Some(key) = self.active.iter().copied().find(had_nothing) {
            self.make_idle(table, key, now_ns);
        }
    }

    /// Removes a link that has ended.
    pub fn forget(&mut self, key: Key) {
        self.active.retain(|active| *active != key);
        self.busy.retain(|busy| *busy != key);
    }
}
