//! A list whose elements are on any ranks.
//!
//! Layout, in words: the first element, the last one, how many there are, the lock, and which links are valid. An element has the
//! one before, the one after, its list, its length, and its bytes. Normally the forward links are valid, and the backward links
//! follow from them. While the list is being reordered, it is the reverse. So a rank that gets the lock of one that has died can
//! restore all links from the valid ones.

use crate::address::GlobalAddress;
use crate::data::heap;
use crate::data::lock::{self, Before};
use crate::error::{AcpError, Result};
use crate::space::{GONE, Space, WORD_BYTES, address_in, behind, word_of};
use std::cmp::Ordering;

const FIRST_AT: u64 = 0;
const LAST_AT: u64 = WORD_BYTES;
const COUNT_AT: u64 = 2 * WORD_BYTES;
const LOCK_AT: u64 = 3 * WORD_BYTES;
const RIGHT_AT: u64 = 4 * WORD_BYTES;
const CONTROL_BYTES: u64 = 5 * WORD_BYTES;

const BEFORE_AT: u64 = 0;
const BEHIND_AT: u64 = WORD_BYTES;
const HEAD_BYTES: u64 = 4 * WORD_BYTES;

/// Values of the word that says which links are valid.
const FORWARD: u64 = 0;
const BACK: u64 = 1;

/// A list of byte strings, each on a rank that its program chooses (`acp_list_t`). Any rank that has its handle works on it at
/// any time; each call is atomic for all others.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct List {
    control: GlobalAddress,
}

/// An element of a list, until it is removed (`acp_list_it_t`).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    element: GlobalAddress,
}

/// The first and the last element, and the number of elements.
#[derive(Copy, Clone)]
struct Ends {
    first: Option<GlobalAddress>,
    last: Option<GlobalAddress>,
    count: u64,
}

/// The head of an element, before its bytes.
#[derive(Copy, Clone)]
struct Head {
    before: Option<GlobalAddress>,
    behind: Option<GlobalAddress>,
    len: u64,
}

impl Position {
    /// Makes a position of an address that another rank has given. Whether there is an element is found out when it is used.
    pub fn from_address(address: GlobalAddress) -> Position {
        Position { element: address }
    }

    /// The position as an address, for memory and messages.
    pub fn address(self) -> GlobalAddress {
        self.element
    }
}

impl List {
    /// Makes an empty list, whose handle is on this rank (`acp_create_list`).
    ///
    /// # Errors
    /// The heap of the rank is full. The rank is not there, or gone.
    pub fn create(space: &mut impl Space, rank: u32) -> Result<List> {
        let control = heap::allocate(space, rank, CONTROL_BYTES)?;
        match space.write_words(control, [0, 0, 0, lock::FREE, FORWARD]) {
            Ok(()) => Ok(List { control }),
            Err(error) => {
                heap::free(space, control)?;
                Err(error)
            }
        }
    }

    /// Opens the list of a handle that another rank has given.
    pub fn open(handle: GlobalAddress) -> List {
        List { control: handle }
    }

    /// The handle by which other ranks open it.
    pub fn handle(self) -> GlobalAddress {
        self.control
    }

    /// Frees the list and its elements (`acp_destroy_list`). No rank may use it afterwards.
    ///
    /// # Errors
    /// It was destroyed before. A rank is gone.
    pub fn destroy(self, space: &mut impl Space) -> Result<()> {
        self.clear(space)?;
        space.write_words(self.control, [GONE])?;
        heap::free(space, self.control)
    }

    /// How many elements there are (`acp_size_list`).
    ///
    /// # Errors
    /// The rank is gone.
    pub fn len(self, space: &mut impl Space) -> Result<u64> {
        self.with(space, |_, ends| Ok(ends.count))
    }

    /// The first element (`acp_begin_list`).
    ///
    /// # Errors
    /// The rank is gone.
    pub fn first(self, space: &mut impl Space) -> Result<Option<Position>> {
        self.with(space, |_, ends| Ok(ends.first.map(|element| Position { element })))
    }

    /// The last element.
    ///
    /// # Errors
    /// The rank is gone.
    pub fn last(self, space: &mut impl Space) -> Result<Option<Position>> {
        self.with(space, |_, ends| Ok(ends.last.map(|element| Position { element })))
    }

    /// The element after `at` (`acp_increment_list_it`).
    ///
    /// # Errors
    /// It is not in this list. A rank is gone.
    pub fn next(self, space: &mut impl Space, at: Position) -> Result<Option<Position>> {
        self.with(space, |space, _| {
            Ok(self.head(space, at.element)?.behind.map(|element| Position { element }))
        })
    }

    /// The element before `at` (`acp_decrement_list_it`).
    ///
    /// # Errors
    /// It is not in this list. A rank is gone.
    pub fn previous(self, space: &mut impl Space, at: Position) -> Result<Option<Position>> {
        self.with(space, |space, _| {
            Ok(self.head(space, at.element)?.before.map(|element| Position { element }))
        })
    }

    /// The bytes of an element (`acp_dereference_list_it`).
    ///
    /// # Errors
    /// It is not in this list. A rank is gone.
    pub fn get(self, space: &mut impl Space, at: Position) -> Result<Vec<u8>> {
        self.with(space, |space, _| self.bytes(space, at.element))
    }

    /// Where the bytes of an element are, until it is removed, and how many (`acp_dereference_list_it`).
    ///
    /// # Errors
    /// It is not in this list. A rank is gone.
    pub fn locate(self, space: &mut impl Space, at: Position) -> Result<(GlobalAddress, u64)> {
        let head = self.with(space, |space, _| self.head(space, at.element))?;
        Ok((behind(at.element, HEAD_BYTES)?, head.len))
    }

    /// All elements, first to last, as they are at one instant.
    ///
    /// # Errors
    /// A rank is gone.
    pub fn positions(self, space: &mut impl Space) -> Result<Vec<Position>> {
        let elements = self.with(space, |space, ends| self.elements(space, ends))?;
        Ok(elements.into_iter().map(|element| Position { element }).collect())
    }

    /// Gives the list another order: `order` has all of its elements, each once.
    ///
    /// # Errors
    /// `order` does not: nothing has changed. A rank is gone.
    pub fn arrange(self, space: &mut impl Space, order: &[Position]) -> Result<()> {
        self.with(space, |space, ends| {
            let order: Vec<GlobalAddress> = order.iter().map(|position| position.element).collect();
            let (mut wanted, mut there) = (order.clone(), self.elements(space, ends)?);
            wanted.sort_unstable();
            there.sort_unstable();
            if wanted != there {
                return Err(AcpError::Argument("an order names each element of the list once"));
            }
            self.reorder(space, &order)
        })
    }

    /// Moves an element of another list, or of this one, before an element of this one, or to the end (`acp_splice_list`). Its bytes stay where they are.
    ///
    /// # Errors
    /// Either element is not in its list: nothing has changed. A rank is gone.
    pub fn splice(
        self,
        space: &mut impl Space,
        at: Option<Position>,
        from: List,
        element: Position,
    ) -> Result<()> {
        let (at, element) = (at.map(|at| at.element), element.element);
        if self == from {
            return self.with(space, |space, ends| {
                let head = self.head(space, element)?;
                at.map_or(Ok(()), |at| self.head(space, at).map(drop))?;
                if at == Some(element) || at == head.behind {
                    return Ok(());
                }
                let ends = self.unlink(space, ends, element, head)?;
                self.enter(space, ends, at, (element, head.len))
            });
        }
        let moved = |space: &mut _, own: Ends, others: Ends| {
            let head = from.head(space, element)?;
            at.map_or(Ok(()), |at| self.head(space, at).map(drop))?;
            from.unlink(space, others, element, head)?;
            self.enter(space, own, at, (element, head.len))
        };
        // All ranks take two locks in the same order.
        if self.control < from.control {
            self.with(space, |space, own| from.with(space, |space, others| moved(space, own, others)))
        } else {
            from.with(space, |space, others| self.with(space, |space, own| moved(space, own, others)))
        }
    }

    /// The bytes of all elements, first to last, as they are at one instant.
    ///
    /// # Errors
    /// A rank is gone.
    pub fn to_vec(self, space: &mut impl Space) -> Result<Vec<Vec<u8>>> {
        self.with(space, |space, ends| {
            let elements = self.elements(space, ends)?;
            elements.into_iter().map(|element| self.bytes(space, element)).collect()
        })
    }

    /// Appends an element, in the memory of `rank` (`acp_push_back_list`).
    ///
    /// # Errors
    /// The heap of the rank is full. A rank is not there, or gone.
    pub fn push_back(self, space: &mut impl Space, bytes: &[u8], rank: u32) -> Result<Position> {
        self.with(space, |space, ends| self.link(space, ends, None, bytes, rank))
    }

    /// Inserts an element before all others, in the memory of `rank` (`acp_push_front_list`).
    ///
    /// # Errors
    /// Those of [`List::push_back`].
    pub fn push_front(self, space: &mut impl Space, bytes: &[u8], rank: u32) -> Result<Position> {
        self.with(space, |space, ends| self.link(space, ends, ends.first, bytes, rank))
    }

    /// Inserts an element before another one, or at the end (`acp_insert_list`).
    ///
    /// # Errors
    /// The other one is not in this list. Those of [`List::push_back`].
    pub fn insert(
        self,
        space: &mut impl Space,
        at: Option<Position>,
        bytes: &[u8],
        rank: u32,
    ) -> Result<Position> {
        self.with(space, |space, ends| self.link(space, ends, at.map(|at| at.element), bytes, rank))
    }

    /// Removes an element (`acp_erase_list`). Returns the one after it.
    ///
    /// # Errors
    /// It is not in this list. A rank is gone.
    pub fn remove(self, space: &mut impl Space, at: Position) -> Result<Option<Position>> {
        let next = self.with(space, |space, ends| {
            let head = self.head(space, at.element)?;
            self.unlink(space, ends, at.element, head)?;
            Ok(head.behind)
        })?;
        heap::free(space, at.element)?;
        Ok(next.map(|element| Position { element }))
    }

    /// Removes the first element, and returns its bytes (`acp_pop_front_list`).
    ///
    /// # Errors
    /// A rank is gone.
    pub fn pop_front(self, space: &mut impl Space) -> Result<Option<Vec<u8>>> {
        self.pop(space, |ends| ends.first)
    }

    /// Removes the last element, and returns its bytes (`acp_pop_back_list`).
    ///
    /// # Errors
    /// A rank is gone.
    pub fn pop_back(self, space: &mut impl Space) -> Result<Option<Vec<u8>>> {
        self.pop(space, |ends| ends.last)
    }

    fn pop(
        self,
        space: &mut impl Space,
        which: impl Fn(Ends) -> Option<GlobalAddress>,
    ) -> Result<Option<Vec<u8>>> {
        let popped = self.with(space, |space, ends| {
            let Some(element) = which(ends) else { return Ok(None) };
            let bytes = self.bytes(space, element)?;
            let head = self.head(space, element)?;
            self.unlink(space, ends, element, head)?;
            Ok(Some((element, bytes)))
        })?;
        let Some((element, bytes)) = popped else { return Ok(None) };
        heap::free(space, element)?;
        Ok(Some(bytes))
    }

    /// Removes all elements (`acp_clear_list`).
    ///
    /// # Errors
    /// A rank is gone.
    pub fn clear(self, space: &mut impl Space) -> Result<()> {
        self.retain(space, |_, _| false)
    }

    /// Removes all elements with these bytes (`acp_remove_list`).
    ///
    /// # Errors
    /// A rank is gone.
    pub fn remove_all(self, space: &mut impl Space, bytes: &[u8]) -> Result<()> {
        self.retain(space, |_, element| element != bytes)
    }

    /// Removes each element that equals the one before it (`acp_unique_list`).
    ///
    /// # Errors
    /// A rank is gone.
    pub fn dedup(self, space: &mut impl Space) -> Result<()> {
        self.retain(space, |before, element| before != Some(element))
    }

    /// Keeps the elements for which `keep` returns true. It gets the bytes of the last element that stays, and those of
    /// this one. Other ranks wait meanwhile.
    ///
    /// # Errors
    /// A rank is gone.
    pub fn retain(
        self,
        space: &mut impl Space,
        mut keep: impl FnMut(Option<&[u8]>, &[u8]) -> bool,
    ) -> Result<()> {
        let mut removed = Vec::new();
        let done = self.with(space, |space, mut ends| {
            let mut before: Option<Vec<u8>> = None;
            for element in self.elements(space, ends)? {
                let bytes = self.bytes(space, element)?;
                if keep(before.as_deref(), &bytes) {
                    before = Some(bytes);
                    continue;
                }
                let head = self.head(space, element)?;
                ends = self.unlink(space, ends, element, head)?;
                removed.push(element);
            }
            Ok(())
        });
        removed.into_iter().try_for_each(|element| heap::free(space, element))?;
        done
    }

    /// Reverses the order (`acp_reverse_list`).
    ///
    /// # Errors
    /// A rank is gone.
    pub fn reverse(self, space: &mut impl Space) -> Result<()> {
        self.with(space, |space, ends| {
            let mut elements = self.elements(space, ends)?;
            elements.reverse();
            self.reorder(space, &elements)
        })
    }

    /// Sorts by the bytes of elements (`acp_sort_list`); equal ones stay in their order. Other ranks wait meanwhile.
    ///
    /// # Errors
    /// A rank is gone.
    pub fn sort_by(
        self,
        space: &mut impl Space,
        mut compare: impl FnMut(&[u8], &[u8]) -> Ordering,
    ) -> Result<()> {
        self.with(space, |space, ends| {
            let elements = self.elements(space, ends)?;
            let with_bytes = elements.into_iter().map(|element| Ok((self.bytes(space, element)?, element)));
            let mut with_bytes = with_bytes.collect::<Result<Vec<_>>>()?;
            with_bytes.sort_by(|(one, _), (other, _)| compare(one, other));
            let elements: Vec<GlobalAddress> = with_bytes.into_iter().map(|(_, element)| element).collect();
            self.reorder(space, &elements)
        })
    }

    /// Appends copies of all elements of another list, each on the rank that it is on there. The other list stays as it is.
    ///
    /// # Errors
    /// Those of [`List::push_back`]: some elements may have been appended.
    pub fn append(self, space: &mut impl Space, other: List) -> Result<()> {
        let elements = other.with(space, |space, ends| {
            let elements = other.elements(space, ends)?;
            elements
                .into_iter()
                .map(|element| Ok((other.bytes(space, element)?, element.rank())))
                .collect::<Result<Vec<_>>>()
        })?;
        elements.into_iter().try_for_each(|(bytes, rank)| self.push_back(space, &bytes, rank).map(drop))
    }

    /// Makes an element, and links it before another one or at the end.
    fn link(
        self,
        space: &mut impl Space,
        ends: Ends,
        at: Option<GlobalAddress>,
        bytes: &[u8],
        rank: u32,
    ) -> Result<Position> {
        at.map_or(Ok(()), |at| self.head(space, at).map(drop))?;
        let len = bytes.len() as u64;
        let element = heap::allocate(space, rank, HEAD_BYTES + len)?;
        if let Err(error) = space.write(behind(element, HEAD_BYTES)?, bytes) {
            heap::free(space, element)?;
            return Err(error);
        }
        // An element that fails here is not freed, since it may be in the list already.
        self.enter(space, ends, at, (element, len))?;
        Ok(Position { element })
    }

    /// Links an element that is in no list before another one or at the end. The forward link makes it an element of the list.
    fn enter(
        self,
        space: &mut impl Space,
        ends: Ends,
        at: Option<GlobalAddress>,
        (element, len): (GlobalAddress, u64),
    ) -> Result<()> {
        let before = match at {
            Some(at) => self.head(space, at)?.before,
            None => ends.last,
        };
        space.write_words(element, [word_of(before), word_of(at), self.control.to_bits(), len])?;
        self.set_behind(space, before, Some(element))?;
        self.set_before(space, at, Some(element))?;
        space.write_words(behind(self.control, COUNT_AT)?, [ends.count + 1])
    }

    fn unlink(self, space: &mut impl Space, ends: Ends, element: GlobalAddress, head: Head) -> Result<Ends> {
        self.set_behind(space, head.before, head.behind)?;
        self.set_before(space, head.behind, head.before)?;
        let count = ends.count.saturating_sub(1);
        space.write_words(behind(self.control, COUNT_AT)?, [count])?;
        // A rank that still has the position learns that the element is in no list.
        space.write_words(behind(element, 2 * WORD_BYTES)?, [0])?;
        let first = if ends.first == Some(element) { head.behind } else { ends.first };
        let last = if ends.last == Some(element) { head.before } else { ends.last };
        Ok(Ends { first, last, count })
    }

    /// Sets the element after another one, or the first one.
    fn set_behind(
        self,
        space: &mut impl Space,
        of: Option<GlobalAddress>,
        to: Option<GlobalAddress>,
    ) -> Result<()> {
        let (at, offset) = of.map_or((self.control, FIRST_AT), |element| (element, BEHIND_AT));
        space.write_words(behind(at, offset)?, [word_of(to)])
    }

    /// Sets the element before another one, or the last one.
    fn set_before(
        self,
        space: &mut impl Space,
        of: Option<GlobalAddress>,
        to: Option<GlobalAddress>,
    ) -> Result<()> {
        let (at, offset) = of.map_or((self.control, LAST_AT), |element| (element, BEFORE_AT));
        space.write_words(behind(at, offset)?, [word_of(to)])
    }

    /// Reorders the elements of the list: first by the backward links, which are valid then, then by the forward links.
    fn reorder(self, space: &mut impl Space, elements: &[GlobalAddress]) -> Result<()> {
        self.write_back(space, elements)?;
        space.write_words(behind(self.control, RIGHT_AT)?, [BACK])?;
        self.write_forward(space, elements)?;
        space.write_words(behind(self.control, RIGHT_AT)?, [FORWARD])
    }

    fn write_back(self, space: &mut impl Space, elements: &[GlobalAddress]) -> Result<()> {
        let mut before = None;
        for &element in elements {
            self.set_before(space, Some(element), before)?;
            before = Some(element);
        }
        self.set_before(space, None, before)
    }

    fn write_forward(self, space: &mut impl Space, elements: &[GlobalAddress]) -> Result<()> {
        let mut next = None;
        for &element in elements.iter().rev() {
            self.set_behind(space, Some(element), next)?;
            next = Some(element);
        }
        self.set_behind(space, None, next)
    }

    /// All elements, first to last.
    fn elements(self, space: &mut impl Space, ends: Ends) -> Result<Vec<GlobalAddress>> {
        let elements = self.follow(space, ends.first, |head| head.behind)?;
        let is_right = elements.len() as u64 == ends.count;
        is_right
            .then_some(elements)
            .ok_or(AcpError::Corrupt("a list has more or fewer elements than it counts"))
    }

    /// Follows links, and returns the elements.
    fn follow(
        self,
        space: &mut impl Space,
        from: Option<GlobalAddress>,
        link: impl Fn(Head) -> Option<GlobalAddress>,
    ) -> Result<Vec<GlobalAddress>> {
        let most = space.heap_bytes() / HEAD_BYTES * u64::from(space.size());
        let (mut elements, mut next) = (Vec::new(), from);
        while let Some(element) = next {
            if elements.len() as u64 == most {
                return Err(AcpError::Corrupt("the elements of a list have no end"));
            }
            next = link(self.head(space, element)?);
            elements.push(element);
        }
        Ok(elements)
    }

    fn head(self, space: &mut impl Space, element: GlobalAddress) -> Result<Head> {
        let [before, behind, list, len] = space.read_words(element)?;
        if list != self.control.to_bits() || len > space.heap_bytes() {
            return Err(AcpError::Argument("this element is not in this list, or not any more"));
        }
        Ok(Head { before: address_in(before)?, behind: address_in(behind)?, len })
    }

    fn bytes(self, space: &mut impl Space, element: GlobalAddress) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.head(space, element)?.len as usize];
        space.read(behind(element, HEAD_BYTES)?, &mut bytes)?;
        Ok(bytes)
    }

    fn with<S: Space, T>(self, space: &mut S, act: impl FnOnce(&mut S, Ends) -> Result<T>) -> Result<T> {
        lock::with(space, behind(self.control, LOCK_AT)?, |space, before| {
            if before == Before::Died {
                self.mend(space)?;
            }
            let [first, last, count] = space.read_words(self.control)?;
            act(space, Ends { first: address_in(first)?, last: address_in(last)?, count })
        })
    }

    /// Restores all links from the valid ones.
    fn mend(self, space: &mut impl Space) -> Result<()> {
        let [first, last, _, _, right] = space.read_words(self.control)?;
        let elements = if right == BACK {
            let mut elements = self.follow(space, address_in(last)?, |head| head.before)?;
            elements.reverse();
            self.write_forward(space, &elements)?;
            space.write_words(behind(self.control, RIGHT_AT)?, [FORWARD])?;
            elements
        } else {
            let elements = self.follow(space, address_in(first)?, |head| head.behind)?;
            self.write_back(space, &elements)?;
            elements
        };
        space.write_words(behind(self.control, COUNT_AT)?, [elements.len() as u64])
    }
}
