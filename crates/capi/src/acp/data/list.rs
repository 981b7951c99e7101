//! Lists, whose elements are on any ranks.

use super::{Element, int};
use crate::acp::failure::{Result, Wrong, guarded, wrong};
use crate::acp::live::{Live, call};
use crate::acp::management::address;
use cci_acp::{List, Position};
use libc::c_int;

/// The handle of a list (`acp_list_t`).
#[derive(Copy, Clone, PartialEq, Eq)]
#[repr(C)]
pub struct ListHandle {
    ga: u64,
}

/// An element of a list; 0 is the end (`acp_list_it_t`).
#[derive(Copy, Clone)]
#[repr(C)]
pub struct ListPosition {
    list: ListHandle,
    elem: u64,
}

/// A program's order of elements.
type Compare = extern "C" fn(Element, Element) -> c_int;

impl ListPosition {
    const NONE: ListPosition = ListPosition { list: ListHandle { ga: 0 }, elem: 0 };

    fn of(list: ListHandle, position: Option<Position>) -> ListPosition {
        ListPosition { list, elem: position.map_or(0, |position| position.address().to_bits()) }
    }

    /// None: it is the end.
    fn position(self, live: &Live) -> Result<Option<Position>> {
        if self.elem == 0 { Ok(None) } else { Ok(Some(Position::from_address(address(live, self.elem)?))) }
    }
}

fn open(live: &Live, list: ListHandle) -> Result<List> {
    Ok(List::open(address(live, list.ga)?))
}

/// All elements, and the number of one among them.
fn numbered(live: &mut Live, at: ListPosition) -> Result<(Vec<Position>, usize)> {
    let (list, position) = (open(live, at.list)?, at.position(live)?);
    let all = list.positions(&mut live.global)?;
    let number = position.map_or(Some(all.len()), |at| all.iter().position(|other| *other == at));
    Ok((all, number.ok_or_else(|| Wrong("the element is not in its list, or not any more".into()))?))
}

/// The elements of a range.
fn range(live: &mut Live, start: ListPosition, end: ListPosition) -> Result<(List, Vec<Position>)> {
    let (all, first) = numbered(live, start)?;
    let last = all.len().min(numbered(live, end)?.1);
    let positions = all.get(first..last).filter(|_| start.list == end.list);
    let positions = positions.ok_or_else(|| Wrong("the range does not begin and end in one list".into()))?;
    Ok((open(live, start.list)?, positions.to_vec()))
}

/// The bytes of elements, and their ranks.
fn contents(live: &mut Live, list: List, positions: &[Position]) -> Result<Vec<(Vec<u8>, u32)>> {
    let content = |&at: &Position| Ok((list.get(&mut live.global, at)?, at.address().rank()));
    positions.iter().map(content).collect()
}

/// All elements of a list, with where their bytes are.
fn located(live: &mut Live, list: ListHandle) -> Result<Vec<(Position, Element)>> {
    let list = open(live, list)?;
    let positions = list.positions(&mut live.global)?;
    let locate = |at| Ok((at, Element::at(list.locate(&mut live.global, at)?)));
    positions.into_iter().map(locate).collect()
}

/// Makes its elements copies of another one's.
#[unsafe(no_mangle)]
pub extern "C" fn acp_assign_list(list1: ListHandle, list2: ListHandle) {
    acp_assign_range_list(list1, acp_begin_list(list2), acp_end_list(list2));
}

/// Makes its elements copies of a range.
#[unsafe(no_mangle)]
pub extern "C" fn acp_assign_range_list(list: ListHandle, start: ListPosition, end: ListPosition) {
    call((), |live| {
        let list = open(live, list)?;
        let (from, positions) = range(live, start, end)?;
        let contents = contents(live, from, &positions)?;
        list.clear(&mut live.global)?;
        for (bytes, rank) in contents {
            list.push_back(&mut live.global, &bytes, rank)?;
        }
        Ok(())
    });
}

/// The first element.
#[unsafe(no_mangle)]
pub extern "C" fn acp_begin_list(list: ListHandle) -> ListPosition {
    call(ListPosition::NONE, |live| {
        let first = open(live, list)?.first(&mut live.global)?;
        Ok(ListPosition::of(list, first))
    })
}

/// The end.
#[unsafe(no_mangle)]
pub extern "C" fn acp_end_list(list: ListHandle) -> ListPosition {
    ListPosition { list, elem: 0 }
}

/// Removes all elements.
#[unsafe(no_mangle)]
pub extern "C" fn acp_clear_list(list: ListHandle) {
    call((), |live| Ok(open(live, list)?.clear(&mut live.global)?));
}

/// Makes a list.
#[unsafe(no_mangle)]
pub extern "C" fn acp_create_list(rank: c_int) -> ListHandle {
    call(ListHandle { ga: 0 }, |live| {
        let list = List::create(&mut live.global, rank.cast_unsigned())?;
        Ok(ListHandle { ga: list.handle().to_bits() })
    })
}

/// Frees a list.
#[unsafe(no_mangle)]
pub extern "C" fn acp_destroy_list(list: ListHandle) {
    call((), |live| Ok(open(live, list)?.destroy(&mut live.global)?));
}

/// Whether there are no elements.
#[unsafe(no_mangle)]
pub extern "C" fn acp_empty_list(list: ListHandle) -> c_int {
    call(1, |live| Ok((open(live, list)?.len(&mut live.global)? == 0).into()))
}

/// Removes an element.
#[unsafe(no_mangle)]
pub extern "C" fn acp_erase_list(it: ListPosition) -> ListPosition {
    call(ListPosition::NONE, |live| {
        let Some(at) = it.position(live)? else { return wrong("the end is no element") };
        let next = open(live, it.list)?.remove(&mut live.global, at)?;
        Ok(ListPosition::of(it.list, next))
    })
}

/// Removes a range.
#[unsafe(no_mangle)]
pub extern "C" fn acp_erase_range_list(start: ListPosition, end: ListPosition) -> ListPosition {
    call(ListPosition::NONE, |live| {
        let (list, positions) = range(live, start, end)?;
        for at in positions {
            list.remove(&mut live.global, at)?;
        }
        Ok(end)
    })
}

/// Puts an element in.
#[unsafe(no_mangle)]
pub extern "C" fn acp_insert_list(it: ListPosition, elem: Element, rank: c_int) -> ListPosition {
    call(ListPosition::NONE, |live| {
        let (list, at, bytes) = (open(live, it.list)?, it.position(live)?, elem.fetch(live)?);
        let made = list.insert(&mut live.global, at, &bytes, rank.cast_unsigned())?;
        Ok(ListPosition::of(it.list, Some(made)))
    })
}

/// Puts copies of a range in.
#[unsafe(no_mangle)]
pub extern "C" fn acp_insert_range_list(
    it: ListPosition,
    start: ListPosition,
    end: ListPosition,
) -> ListPosition {
    call(ListPosition::NONE, |live| {
        let (list, at) = (open(live, it.list)?, it.position(live)?);
        let (from, positions) = range(live, start, end)?;
        let mut first = None;
        for (bytes, rank) in contents(live, from, &positions)? {
            let made = list.insert(&mut live.global, at, &bytes, rank)?;
            first.get_or_insert(made);
        }
        Ok(first.map_or(it, |first| ListPosition::of(it.list, Some(first))))
    })
}

/// Appends an element.
#[unsafe(no_mangle)]
pub extern "C" fn acp_push_back_list(list: ListHandle, elem: Element, rank: c_int) {
    acp_insert_list(acp_end_list(list), elem, rank);
}

/// Puts an element before all others.
#[unsafe(no_mangle)]
pub extern "C" fn acp_push_front_list(list: ListHandle, elem: Element, rank: c_int) {
    call((), |live| {
        let (list, bytes) = (open(live, list)?, elem.fetch(live)?);
        list.push_front(&mut live.global, &bytes, rank.cast_unsigned())?;
        Ok(())
    });
}

/// Removes the last element.
#[unsafe(no_mangle)]
pub extern "C" fn acp_pop_back_list(list: ListHandle) {
    call((), |live| Ok(open(live, list)?.pop_back(&mut live.global).map(drop)?));
}

/// Removes the first element.
#[unsafe(no_mangle)]
pub extern "C" fn acp_pop_front_list(list: ListHandle) {
    call((), |live| Ok(open(live, list)?.pop_front(&mut live.global).map(drop)?));
}

/// Removes all elements with these bytes.
#[unsafe(no_mangle)]
pub extern "C" fn acp_remove_list(list: ListHandle, elem: Element) {
    call((), |live| {
        let (list, bytes) = (open(live, list)?, elem.fetch(live)?);
        Ok(list.remove_all(&mut live.global, &bytes)?)
    });
}

/// Removes elements that are as the one before.
#[unsafe(no_mangle)]
pub extern "C" fn acp_unique_list(list: ListHandle) {
    call((), |live| Ok(open(live, list)?.dedup(&mut live.global)?));
}

/// Turns the order round.
#[unsafe(no_mangle)]
pub extern "C" fn acp_reverse_list(list: ListHandle) {
    call((), |live| Ok(open(live, list)?.reverse(&mut live.global)?));
}

/// How many elements there are.
#[unsafe(no_mangle)]
pub extern "C" fn acp_size_list(list: ListHandle) -> usize {
    call(0, |live| Ok(open(live, list)?.len(&mut live.global)? as usize))
}

/// Sorts. The program's function may call this library, so that it runs while nothing is locked.
#[unsafe(no_mangle)]
pub extern "C" fn acp_sort_list(list: ListHandle, comp: Option<Compare>) {
    let Some(comp) = comp else { return call((), |_| wrong("there is no function that compares")) };
    let elements = call(Vec::new(), |live| located(live, list));
    let order = guarded(Vec::new(), || {
        let mut order = elements;
        order.sort_by(|(_, one), (_, other)| comp(*one, *other).cmp(&0));
        Ok(order.into_iter().map(|(at, _)| at).collect())
    });
    if order.len() > 1 {
        call((), |live| Ok(open(live, list)?.arrange(&mut live.global, &order)?));
    }
}

/// Merges copies of another list's elements in. The program's function may call this library, so that it runs while nothing is locked.
#[unsafe(no_mangle)]
pub extern "C" fn acp_merge_list(list1: ListHandle, list2: ListHandle, comp: Option<Compare>) {
    let Some(comp) = comp else { return call((), |_| wrong("there is no function that compares")) };
    let found = call(None, |live| Ok(Some((located(live, list1)?, located(live, list2)?))));
    let Some((own, others)) = found else { return };
    // Of each element of the other list, before which one of the own list it comes.
    let mut rest = own.iter().peekable();
    let mut places = Vec::with_capacity(others.len());
    for (at, other) in others {
        while rest.next_if(|(_, own)| comp(*own, other) <= 0).is_some() {}
        places.push((at, rest.peek().map(|(before, _)| *before)));
    }
    call((), |live| {
        let (to, from) = (open(live, list1)?, open(live, list2)?);
        let positions: Vec<Position> = places.iter().map(|(at, _)| *at).collect();
        for ((bytes, rank), (_, before)) in contents(live, from, &positions)?.into_iter().zip(places) {
            to.insert(&mut live.global, before, &bytes, rank)?;
        }
        Ok(())
    });
}

/// Moves an element before another one.
#[unsafe(no_mangle)]
pub extern "C" fn acp_splice_list(it1: ListPosition, it2: ListPosition) {
    call((), |live| {
        let Some(element) = it2.position(live)? else { return wrong("the end is no element") };
        let (to, at, from) = (open(live, it1.list)?, it1.position(live)?, open(live, it2.list)?);
        Ok(to.splice(&mut live.global, at, from, element)?)
    });
}

/// Moves a range before an element.
#[unsafe(no_mangle)]
pub extern "C" fn acp_splice_range_list(it: ListPosition, start: ListPosition, end: ListPosition) {
    call((), |live| {
        let (to, at) = (open(live, it.list)?, it.position(live)?);
        let (from, positions) = range(live, start, end)?;
        if at.is_some_and(|at| positions.contains(&at)) {
            return wrong("a range can't be moved to the middle of itself");
        }
        for element in positions {
            to.splice(&mut live.global, at, from, element)?;
        }
        Ok(())
    });
}

/// Gives two lists each other's elements.
#[unsafe(no_mangle)]
pub extern "C" fn acp_swap_list(list1: ListHandle, list2: ListHandle) {
    call((), |live| {
        let (one, other) = (open(live, list1)?, open(live, list2)?);
        if one == other {
            return Ok(());
        }
        let (mine, others) = (one.positions(&mut live.global)?, other.positions(&mut live.global)?);
        for element in mine {
            other.splice(&mut live.global, None, one, element)?;
        }
        for element in others {
            one.splice(&mut live.global, None, other, element)?;
        }
        Ok(())
    });
}

/// An element so many further on, or back.
#[unsafe(no_mangle)]
pub extern "C" fn acp_advance_list_it(it: ListPosition, n: c_int) -> ListPosition {
    call(ListPosition::NONE, |live| {
        let (all, from) = numbered(live, it)?;
        let to = from.checked_add_signed(n as isize).filter(|&to| to <= all.len());
        let to = to.ok_or_else(|| Wrong("the list has no such element".into()))?;
        Ok(ListPosition::of(it.list, all.get(to).copied()))
    })
}

/// The element before.
#[unsafe(no_mangle)]
pub extern "C" fn acp_decrement_list_it(it: ListPosition) -> ListPosition {
    call(ListPosition::NONE, |live| {
        let list = open(live, it.list)?;
        let before = match it.position(live)? {
            Some(at) => list.previous(&mut live.global, at)?,
            None => list.last(&mut live.global)?,
        };
        Ok(ListPosition::of(it.list, before))
    })
}

/// The element behind.
#[unsafe(no_mangle)]
pub extern "C" fn acp_increment_list_it(it: ListPosition) -> ListPosition {
    call(ListPosition::NONE, |live| {
        let Some(at) = it.position(live)? else { return Ok(it) };
        let next = open(live, it.list)?.next(&mut live.global, at)?;
        Ok(ListPosition::of(it.list, next))
    })
}

/// Where the bytes of an element are.
#[unsafe(no_mangle)]
pub extern "C" fn acp_dereference_list_it(it: ListPosition) -> Element {
    call(Element::NONE, |live| {
        let Some(at) = it.position(live)? else { return wrong("the end is no element") };
        Ok(Element::at(open(live, it.list)?.locate(&mut live.global, at)?))
    })
}

/// How many elements there are from one to another.
#[unsafe(no_mangle)]
pub extern "C" fn acp_distance_list_it(first: ListPosition, last: ListPosition) -> c_int {
    call(0, |live| {
        if first.list != last.list {
            return wrong("the two are of different lists");
        }
        let (from, to) = (numbered(live, first)?.1, numbered(live, last)?.1);
        Ok(int(to as u64)? - int(from as u64)?)
    })
}
