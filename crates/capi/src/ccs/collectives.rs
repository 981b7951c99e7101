//! Teams and collectives.

use super::arithmetic;
use super::descriptions::{Data, Described};
use super::dispatch::{until_space, wait_for_collective};
use super::here::check_may_wait;
use super::live::{Live, lock};
use super::operations::{Collecting, Pointer, Then, To};
use super::status::{Code, Result, as_int, call, place};
use super::types::*;
use cci_am::description::Readable;
use cci_am::{Collective, Number, Reduction, Team};
use libc::{c_int, c_void};
use std::ops::Range;

/// What the program means by a team.
fn team_of(team: CCS_team_t) -> Result<Team> {
    let number = team.addr().checked_sub(1).and_then(|number| u32::try_from(number).ok());
    number.map(Team::from_number).ok_or(Code::ARG)
}

pub(super) fn to_c(team: Team) -> CCS_team_t {
    std::ptr::without_provenance_mut(team.number() as usize + 1)
}

/// How a call wants to hear of the end: it waits for it, or it has given a callback.
pub(super) type Nonblocking = Option<(CCS_callback_t, *mut c_void)>;

/// Starts a collective, and waits for its end if nobody is to be called back.
pub(super) fn run(
    team: CCS_team_t,
    how: Nonblocking,
    make: impl FnOnce(u32, u32) -> Result<(Collective, To)>,
) -> Result<()> {
    let team = team_of(team)?;
    check_may_wait()?;
    let (me, size) = lock()?.process.team(team)?;
    let (collective, to) = make(me, size)?;
    let mut to = Some(to);
    let mut cookie = 0;
    until_space(|live| {
        let then = match how {
            None => Then::Kept,
            Some((callback, arg)) => Then::Call(callback, Pointer(arg)),
        };
        cookie = live.collecting_made + 1;
        live.process.collect(team, collective.clone(), cookie)?;
        live.collecting_made = cookie;
        if let Some(to) = to.take() {
            live.collecting.insert(cookie, Collecting { to, then });
        }
        Ok(())
    })?;
    if how.is_some() {
        return Ok(());
    }
    wait_for_collective(|live| Ok(live.collected.remove(&cookie)))?.map_or(Ok(()), Err)
}

/// Bytes of the program's.
///
/// # Safety
/// It has so many, or is NULL.
unsafe fn bytes(at: *const c_void, len: usize) -> Result<Vec<u8>> {
    if len == 0 {
        return Ok(Vec::new());
    }
    let at = place(at.cast_mut().cast::<u8>())?;
    if isize::try_from(len).is_err() {
        return Err(Code::ARG);
    }
    let mut copy = Vec::new();
    copy.try_reserve_exact(len).map_err(|_| Code::NOMEM)?;
    // SAFETY: as the caller promises.
    copy.extend_from_slice(unsafe { std::slice::from_raw_parts(at.as_ptr(), len) });
    Ok(copy)
}

/// A place for what comes, which is needed if there is something to come.
fn into(at: *mut c_void, len: usize) -> Result<To> {
    if at.is_null() && len > 0 { Err(Code::ARG) } else { Ok(To::Bytes(Pointer(at))) }
}

fn root_of(root: c_int, size: u32) -> Result<u32> {
    u32::try_from(root).ok().filter(|&root| root < size).ok_or(Code::RANGE)
}

/// So many bytes for each of so many members.
fn all(len: usize, size: u32) -> Result<usize> {
    len.checked_mul(size as usize).ok_or(Code::ARG)
}

/// What a reduction computes, and how long so many elements are.
fn reduction(r#type: CCS_type_t, op: CCS_op_t, count: usize) -> Result<((Number, Reduction), usize)> {
    let (number, reduction) = (arithmetic::number(r#type)?, arithmetic::reduction(op)?);
    if !number.can(reduction) {
        return Err(Code::ARG);
    }
    Ok(((number, reduction), count.checked_mul(number.len_bytes()).ok_or(Code::ARG)?))
}

unsafe fn broadcast(
    team: CCS_team_t,
    root: c_int,
    buf: *mut c_void,
    count: usize,
    desc: CCS_datadesc_t,
    how: Nonblocking,
) -> Result<()> {
    run(team, how, |me, size| {
        let (root, described) = (root_of(root, size)?, Data::new(buf, count, desc)?);
        let mut data = vec![0; described.len_bytes];
        if me == root {
            // SAFETY: as the caller promises.
            if let Some((bytes, origin)) = unsafe { described.bytes() } {
                let Described { description, .. } = &described.described;
                description.pack(Readable::from(bytes), origin, count, 0, &mut data)?;
            }
            return Ok((Collective::Broadcast { root, data }, To::Nowhere));
        }
        let description = described.described.description;
        Ok((Collective::Broadcast { root, data }, To::Described { to: Pointer(buf), count, description }))
    })
}

unsafe fn gather(
    team: CCS_team_t,
    root: c_int,
    send: *const c_void,
    recv: *mut c_void,
    len: usize,
    how: Nonblocking,
) -> Result<()> {
    run(team, how, |me, size| {
        let root = root_of(root, size)?;
        // SAFETY: as the caller promises.
        let data = unsafe { bytes(send, len) }?;
        let to = if me == root { into(recv, all(len, size)?)? } else { To::Nowhere };
        Ok((Collective::Gather { root, data }, to))
    })
}

unsafe fn scatter(
    team: CCS_team_t,
    root: c_int,
    send: *const c_void,
    recv: *mut c_void,
    len: usize,
    how: Nonblocking,
) -> Result<()> {
    run(team, how, |me, size| {
        let (root, all) = (root_of(root, size)?, all(len, size)?);
        // SAFETY: as the caller promises.
        let data = if me == root { unsafe { bytes(send, all) }? } else { Vec::new() };
        Ok((Collective::Scatter { root, data, len_bytes: len }, into(recv, len)?))
    })
}

unsafe fn allgather(
    team: CCS_team_t,
    send: *const c_void,
    recv: *mut c_void,
    len: usize,
    how: Nonblocking,
) -> Result<()> {
    run(team, how, |_, size| {
        // SAFETY: as the caller promises.
        let data = unsafe { bytes(send, len) }?;
        Ok((Collective::Allgather { data }, into(recv, all(len, size)?)?))
    })
}

unsafe fn alltoall(
    team: CCS_team_t,
    send: *const c_void,
    recv: *mut c_void,
    len: usize,
    how: Nonblocking,
) -> Result<()> {
    run(team, how, |_, size| {
        let all = all(len, size)?;
        // SAFETY: as the caller promises.
        let data = unsafe { bytes(send, all) }?;
        let part = |member: usize| (member * len..(member + 1) * len, member * len..(member + 1) * len);
        let parts = (0..size as usize).map(part).collect();
        Ok((Collective::Alltoall { parts, data, result: vec![0; all] }, into(recv, all)?))
    })
}

/// The lengths and displacements of `CCS_alltoallv`.
type Parts = (*const usize, *const usize);

/// # Safety
/// Both lists have `size` entries, or are NULL.
unsafe fn parts((lens, displs): Parts, size: u32) -> Result<(Vec<Range<usize>>, usize)> {
    let (lens, displs) = (place(lens.cast_mut())?, place(displs.cast_mut())?);
    let (mut parts, mut end) = (Vec::new(), 0);
    for member in 0..size as usize {
        // SAFETY: as the caller promises.
        let (len, at) = unsafe { (lens.add(member).read(), displs.add(member).read()) };
        let part = at..at.checked_add(len).ok_or(Code::ARG)?;
        end = if len > 0 { part.end.max(end) } else { end };
        parts.push(if len > 0 { part } else { 0..0 });
    }
    Ok((parts, end))
}

unsafe fn alltoallv(
    team: CCS_team_t,
    (send, out): (*const c_void, Parts),
    (recv, got): (*mut c_void, Parts),
    how: Nonblocking,
) -> Result<()> {
    run(team, how, |_, size| {
        // SAFETY: as the caller promises.
        let ((out, out_end), (got, got_end)) = unsafe { (parts(out, size)?, parts(got, size)?) };
        // SAFETY: as the caller promises. What lies between the parts that come stays as it is.
        let (data, result) = unsafe { (bytes(send, out_end)?, bytes(recv, got_end)?) };
        let parts = out.into_iter().zip(got.clone()).collect();
        Ok((Collective::Alltoall { parts, data, result }, To::Parts(Pointer(recv), got)))
    })
}

/// Who gets a reduction.
enum Whose {
    Root(c_int),
    All,
    Prefix,
}

unsafe fn reduce(
    team: CCS_team_t,
    whose: &Whose,
    (send, recv): (*const c_void, *mut c_void),
    count: usize,
    (r#type, op): (CCS_type_t, CCS_op_t),
    how: Nonblocking,
) -> Result<()> {
    run(team, how, |me, size| {
        let (with, len) = reduction(r#type, op, count)?;
        // SAFETY: as the caller promises.
        let data = unsafe { bytes(send, len) }?;
        Ok(match *whose {
            Whose::Root(root) => {
                let root = root_of(root, size)?;
                let to = if me == root { into(recv, len)? } else { To::Nowhere };
                (Collective::Reduce { root, data, with }, to)
            }
            Whose::All => (Collective::Allreduce { data, with }, into(recv, len)?),
            Whose::Prefix => (Collective::Scan { data, with }, into(recv, len)?),
        })
    })
}

/// Both forms of a collective: that which waits, and that which calls back.
macro_rules! both_forms {
    ($($name:ident, $nonblocking:ident ($($argument:ident: $type:ty),*) = $body:expr;)+) => {
        $(
            /// The form that waits; see `ccs.h`.
            ///
            /// # Safety
            /// The places have as many bytes and entries as they must, or are NULL.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
                let body: fn($($type,)* Nonblocking) -> Result<()> = $body;
                call(|| body($($argument,)* None))
            }

            /// The form that calls back; see `ccs.h`.
            ///
            /// # Safety
            /// The places have as many bytes and entries as they must, or are NULL.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $nonblocking(
                $($argument: $type,)*
                callback: CCS_callback_t,
                cb_arg: *mut c_void,
            ) -> c_int {
                let body: fn($($type,)* Nonblocking) -> Result<()> = $body;
                call(|| body($($argument,)* Some((callback, cb_arg))))
            }
        )+
    };
}

// SAFETY of each: what the caller of either form promises.
both_forms! {
    CCS_team_barrier, CCS_team_barrier_nb(team: CCS_team_t) =
        |team, how| run(team, how, |_, _| Ok((Collective::Barrier, To::Nowhere)));
    CCS_broadcast, CCS_broadcast_nb(team: CCS_team_t, root: c_int, buf: *mut c_void, count: usize, desc: CCS_datadesc_t) =
        // SAFETY: see above.
        |team, root, buf, count, desc, how| unsafe { broadcast(team, root, buf, count, desc, how) };
    CCS_gather, CCS_gather_nb(team: CCS_team_t, root: c_int, send: *const c_void, recv: *mut c_void, bytes: usize) =
        // SAFETY: see above.
        |team, root, send, recv, bytes, how| unsafe { gather(team, root, send, recv, bytes, how) };
    CCS_scatter, CCS_scatter_nb(team: CCS_team_t, root: c_int, send: *const c_void, recv: *mut c_void, bytes: usize) =
        // SAFETY: see above.
        |team, root, send, recv, bytes, how| unsafe { scatter(team, root, send, recv, bytes, how) };
    CCS_allgather, CCS_allgather_nb(team: CCS_team_t, send: *const c_void, recv: *mut c_void, bytes: usize) =
        // SAFETY: see above.
        |team, send, recv, bytes, how| unsafe { allgather(team, send, recv, bytes, how) };
    CCS_alltoall, CCS_alltoall_nb(team: CCS_team_t, send: *const c_void, recv: *mut c_void, bytes: usize) =
        // SAFETY: see above.
        |team, send, recv, bytes, how| unsafe { alltoall(team, send, recv, bytes, how) };
    CCS_alltoallv, CCS_alltoallv_nb(
        team: CCS_team_t,
        send: *const c_void,
        send_bytes: *const usize,
        send_displs: *const usize,
        recv: *mut c_void,
        recv_bytes: *const usize,
        recv_displs: *const usize
    ) =
        |team, send, send_bytes, send_displs, recv, recv_bytes, recv_displs, how| {
            // SAFETY: see above.
            unsafe { alltoallv(team, (send, (send_bytes, send_displs)), (recv, (recv_bytes, recv_displs)), how) }
        };
    CCS_reduce, CCS_reduce_nb(
        team: CCS_team_t,
        root: c_int,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        r#type: CCS_type_t,
        op: CCS_op_t
    ) =
        |team, root, send, recv, count, r#type, op, how| {
            // SAFETY: see above.
            unsafe { reduce(team, &Whose::Root(root), (send, recv), count, (r#type, op), how) }
        };
    CCS_allreduce, CCS_allreduce_nb(
        team: CCS_team_t,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        r#type: CCS_type_t,
        op: CCS_op_t
    ) =
        |team, send, recv, count, r#type, op, how| {
            // SAFETY: see above.
            unsafe { reduce(team, &Whose::All, (send, recv), count, (r#type, op), how) }
        };
    CCS_scan, CCS_scan_nb(
        team: CCS_team_t,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        r#type: CCS_type_t,
        op: CCS_op_t
    ) =
        |team, send, recv, count, r#type, op, how| {
            // SAFETY: see above.
            unsafe { reduce(team, &Whose::Prefix, (send, recv), count, (r#type, op), how) }
        };
}

/// Starts a barrier of all ranks, and calls back when all have come.
///
/// # Safety
/// The callback can be called with the argument.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_barrier_nb(callback: CCS_callback_t, cb_arg: *mut c_void) -> c_int {
    let how = Some((callback, cb_arg));
    call(|| run(to_c(Team::WORLD), how, |_, _| Ok((Collective::Barrier, To::Nowhere))))
}

/// Makes the team of those members that give the same color.
///
/// # Safety
/// `out` is NULL or a place for a team.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_team_split(
    team: CCS_team_t,
    color: c_int,
    key: c_int,
    out: *mut CCS_team_t,
) -> c_int {
    call(|| {
        let (out, parent) = (place(out)?, team_of(team)?);
        let mut card = lock()?.process.split_card(color, key);
        let (_, size) = lock()?.process.team(parent)?;
        let len = card.len();
        let mut cards = vec![0_u8; all(len, size)?];
        // SAFETY: both are this function's, and have so many bytes until the collective has ended.
        unsafe { allgather(team, card.as_mut_ptr().cast(), cards.as_mut_ptr().cast(), len, None) }?;
        let made = lock()?.process.split(parent, &cards, color)?;
        // SAFETY: the caller's to be written.
        unsafe { out.write(to_c(made)) };
        Ok(())
    })
}

/// Forgets a team.
///
/// # Safety
/// `team` is NULL or the place of a team.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_team_free(team: *mut CCS_team_t) -> c_int {
    call(|| {
        let team = place(team)?;
        // SAFETY: the caller's, to be read and written.
        let freed = team_of(unsafe { team.read() })?;
        lock()?.process.free_team(freed)?;
        // SAFETY: as above.
        unsafe { team.write(std::ptr::null_mut()) };
        Ok(())
    })
}

fn ask(team: CCS_team_t, out: *mut c_int, pick: impl FnOnce((u32, u32)) -> u32) -> c_int {
    call(|| {
        let (out, team, mut live) = (place(out)?, team_of(team)?, lock()?);
        let live: &mut Live = &mut live;
        let answer = pick(live.process.team(team)?);
        // SAFETY: the caller's to be written.
        unsafe { out.write(as_int(answer)) };
        Ok(())
    })
}

/// The number of this process in a team.
///
/// # Safety
/// `rank` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_team_rank(team: CCS_team_t, rank: *mut c_int) -> c_int {
    ask(team, rank, |(me, _)| me)
}

/// How many members a team has.
///
/// # Safety
/// `size` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_team_size(team: CCS_team_t, size: *mut c_int) -> c_int {
    ask(team, size, |(_, size)| size)
}
