//! Memory that was lent to the program.

use cci::Loan;
use libc::c_void;

/// The loans that a program has, found by where they begin.
#[derive(Default)]
pub(crate) struct Borrowed(Vec<Loan>);

impl Borrowed {
    /// Keeps a loan. Returns where it begins.
    pub fn insert(&mut self, mut loan: Loan) -> *mut c_void {
        let memory = loan.as_mut_ptr().cast();
        self.0.push(loan);
        memory
    }

    /// Takes out the loan that begins there.
    pub fn take(&mut self, memory: *const c_void) -> Option<Loan> {
        let at = self.0.iter().position(|loan| std::ptr::eq(loan.as_ptr().cast(), memory))?;
        Some(self.0.swap_remove(at))
    }

    /// Bytes held beside the memory that is lent.
    pub fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<Loan>()
    }
}
