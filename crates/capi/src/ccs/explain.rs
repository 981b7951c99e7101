//! Words about what stands between this process and another one.

use super::here::Here;
use super::live::lock;
use super::status::{Code, call, place};
use crate::options::give_text;
use libc::{c_char, c_int};

/// Says, in lines for people, how things are between this process and another one.
///
/// # Safety
/// `text` is NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_explain(node: c_int, text: *mut *mut c_char) -> c_int {
    call(|| {
        let mut live = lock()?;
        let text = place(text)?;
        let rank = u32::try_from(node).map_err(|_| Code::RANGE)?;
        let explanation = live.process.explain(rank)?;
        let following = live.following.count_for(rank);
        let lines = format!("{explanation}{}{}", about_puts(following), about_thread(Here::get().held));
        let copy = give_text(&lines).map_err(|_| Code::NOMEM)?;
        // SAFETY: the caller's to be written.
        unsafe { text.write(copy) };
        Ok(())
    })
}

/// Messages that follow puts which are complete.
fn about_puts(following: usize) -> String {
    match following {
        0 => String::new(),
        count => format!("  messages behind puts that wait for credits: {count}\n"),
    }
}

fn about_thread(held: u32) -> String {
    match held {
        0 => String::new(),
        deep => format!("  this thread has locks, or holds interrupts, {deep} deep: no handler runs on it\n"),
    }
}
