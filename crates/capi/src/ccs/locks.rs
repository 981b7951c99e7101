//! Locks that handlers may use, and the state in which a thread runs no handlers.

use super::here::Here;
use super::live::lock;
use super::presence::check_live;
use super::status::{Code, Result, call, place};
use super::types::*;
use libc::{EBUSY, EDEADLK, c_int, pthread_mutex_t};
use std::ptr::NonNull;

/// What the first word of a lock is between its beginning and its end.
const IS_LOCK: u64 = 0x4343_535f_6c6f_636b;

const _: () = assert!(size_of::<pthread_mutex_t>() <= size_of::<[u64; 7]>());
const _: () = assert!(align_of::<pthread_mutex_t>() <= 8);

/// The mutex of a lock that was made.
///
/// # Safety
/// `lock` is NULL, or a lock, or zeros.
unsafe fn mutex(lock: *mut CCS_lock_t) -> Result<*mut pthread_mutex_t> {
    check_live()?;
    let lock: NonNull<CCS_lock_t> = place(lock)?;
    // SAFETY: as the caller promises.
    let state = unsafe { (&raw const (*lock.as_ptr()).state).read() };
    if state != IS_LOCK {
        return Err(Code::ARG);
    }
    // SAFETY: inside of the lock.
    Ok(unsafe { &raw mut (*lock.as_ptr()).mutex }.cast())
}

fn outcome(error: c_int) -> Result<()> {
    match error {
        0 => Ok(()),
        EBUSY => Err(Code::AGAIN),
        EDEADLK | libc::EPERM => Err(Code::STATE),
        _ => Err(Code::SYSTEM),
    }
}

/// Makes a lock.
///
/// # Safety
/// `lock` is NULL or a place for a lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_lock_init(lock: *mut CCS_lock_t) -> c_int {
    call(|| {
        check_live()?;
        let lock = place(lock)?;
        let mut kind = std::mem::MaybeUninit::uninit();
        // SAFETY: the place is the caller's to be written; the attributes are initialised before they are used, and destroyed once.
        unsafe {
            outcome(libc::pthread_mutexattr_init(kind.as_mut_ptr()))?;
            libc::pthread_mutexattr_settype(kind.as_mut_ptr(), libc::PTHREAD_MUTEX_ERRORCHECK);
            let mutex = (&raw mut (*lock.as_ptr()).mutex).cast();
            let made = outcome(libc::pthread_mutex_init(mutex, kind.as_ptr()));
            libc::pthread_mutexattr_destroy(kind.as_mut_ptr());
            made?;
            (&raw mut (*lock.as_ptr()).state).write(IS_LOCK);
        }
        Ok(())
    })
}

/// Takes a lock. Its owner runs no handlers.
///
/// # Safety
/// `lock` is NULL, or a lock, or zeros.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_lock(lock: *mut CCS_lock_t) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        outcome(unsafe { libc::pthread_mutex_lock(mutex(lock)?) })?;
        Here::change(|here| here.held += 1);
        Ok(())
    })
}

/// Takes a lock that is free.
///
/// # Safety
/// `lock` is NULL, or a lock, or zeros.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_trylock(lock: *mut CCS_lock_t) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        outcome(unsafe { libc::pthread_mutex_trylock(mutex(lock)?) })?;
        Here::change(|here| here.held += 1);
        Ok(())
    })
}

/// Gives a lock back, which this thread has.
///
/// # Safety
/// `lock` is NULL, or a lock, or zeros.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_unlock(lock: *mut CCS_lock_t) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        outcome(unsafe { libc::pthread_mutex_unlock(mutex(lock)?) })?;
        Here::change(|here| here.held = here.held.saturating_sub(1));
        Ok(())
    })
}

/// Ends a lock that nobody has.
///
/// # Safety
/// `lock` is NULL, or a lock, or zeros.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_lock_destroy(lock: *mut CCS_lock_t) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let mutex = unsafe { mutex(lock) }?;
        // SAFETY: a mutex, as its state says.
        match unsafe { libc::pthread_mutex_destroy(mutex) } {
            // Somebody has it.
            EBUSY => return Err(Code::STATE),
            error => outcome(error)?,
        }
        // SAFETY: as the caller promises.
        unsafe { (&raw mut (*lock).state).write(0) };
        Ok(())
    })
}

/// From now on this thread runs no handlers or callbacks.
#[unsafe(no_mangle)]
pub extern "C" fn CCS_hold_interrupts() -> c_int {
    call(|| {
        lock()?;
        Here::change(|here| here.held += 1);
        Ok(())
    })
}

/// Takes one hold back.
#[unsafe(no_mangle)]
pub extern "C" fn CCS_resume_interrupts() -> c_int {
    call(|| {
        lock()?;
        if Here::get().held == 0 {
            return Err(Code::STATE);
        }
        Here::change(|here| here.held -= 1);
        Ok(())
    })
}
