//! Global memory access: copies and atomics.

use super::failure::{Result, wrong};
use super::live::{Live, call};
use super::management::address;
use cci::{Atomic, AtomicKind, AtomicWidth};
use cci_acp::{AcpError, Handle, Order};
use libc::c_int;

const ALL: i64 = -1;
const CONTINUE: i64 = -2;

/// A handle that was given out.
fn issued(live: &Live, handle: i64) -> Option<Handle> {
    u64::try_from(handle).ok().and_then(|number| live.global.handle(number))
}

fn order_of(live: &Live, order: i64) -> Result<Order> {
    Ok(match order {
        0 => Order::Now,
        ALL => Order::All,
        CONTINUE => Order::Continue,
        ..0 => return wrong("there is no such order"),
        // One that was not started has nothing to wait for.
        1.. => issued(live, order).map_or(Order::Now, Order::After),
    })
}

/// Copies.
#[unsafe(no_mangle)]
pub extern "C" fn acp_copy(dst: u64, src: u64, size: usize, order: i64) -> i64 {
    call(0, |live| {
        let (dst, src, order) = (address(live, dst)?, address(live, src)?, order_of(live, order)?);
        Ok(live.global.copy(dst, src, size, order)?.number().cast_signed())
    })
}

fn change(dst: u64, src: u64, atomic: Atomic, order: i64) -> i64 {
    call(0, |live| {
        let (dst, src, order) = (address(live, dst)?, address(live, src)?, order_of(live, order)?);
        Ok(live.global.atomic(dst, src, atomic, order)?.number().cast_signed())
    })
}

macro_rules! compare_and_swap {
    ($name:ident: $value:ty, $width:ident) => {
        /// Sets a new value if there is this old one.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(dst: u64, src: u64, oldval: $value, newval: $value, order: i64) -> i64 {
            let (operand, compare) = (newval.into(), oldval.into());
            let atomic =
                Atomic { kind: AtomicKind::CompareSwap, width: AtomicWidth::$width, operand, compare };
            change(dst, src, atomic, order)
        }
    };
}

macro_rules! fetch_and {
    ($($name:ident: $kind:ident, $value:ty, $width:ident;)*) => {$(
        /// Changes a value, and puts the one from before to `dst`.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(dst: u64, src: u64, value: $value, order: i64) -> i64 {
            let (kind, width) = (AtomicKind::$kind, AtomicWidth::$width);
            change(dst, src, Atomic { kind, width, operand: value.into(), compare: 0 }, order)
        }
    )*};
}

compare_and_swap!(acp_cas4: u32, Four);
compare_and_swap!(acp_cas8: u64, Eight);
fetch_and! {
    acp_swap4: Swap, u32, Four;
    acp_swap8: Swap, u64, Eight;
    acp_add4: FetchAdd, u32, Four;
    acp_add8: FetchAdd, u64, Eight;
    acp_xor4: Xor, u32, Four;
    acp_xor8: Xor, u64, Eight;
    acp_or4: Or, u32, Four;
    acp_or8: Or, u64, Eight;
    acp_and4: And, u32, Four;
    acp_and8: And, u64, Eight;
}

/// Waits for an operation and all before it.
#[unsafe(no_mangle)]
pub extern "C" fn acp_complete(handle: i64) {
    call((), |live| {
        let completed = match issued(live, handle) {
            Some(handle) => live.global.complete(handle),
            None if handle == ALL => live.global.complete_all(),
            None => Ok(()),
        };
        if let Err(AcpError::Failed { .. }) = completed {
            // Programs for ACP know no failures, and would never take one.
            live.global.take_failure()?;
        }
        Ok(completed?)
    });
}

/// Whether an operation, or one before it, has not ended.
#[unsafe(no_mangle)]
pub extern "C" fn acp_inquire(handle: i64) -> c_int {
    call(0, |live| {
        let last = if handle == ALL { live.global.last() } else { issued(live, handle) };
        live.global.progress();
        Ok(last.is_some_and(|last| !live.global.has_ended(last)).into())
    })
}
