//! How completions reach the program.

use crate::connection::Status;
use crate::engine::waiting::Head;

/// How the completion of a send reaches the program.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SendOp {
    /// What the program gave, returned unchanged with the completion.
    pub context: u64,
    /// Raises no event on success.
    pub silent: bool,
}

impl SendOp {
    /// What belongs to a send that has waited.
    pub fn of(head: &Head) -> SendOp {
        SendOp { context: head.context, silent: head.silent }
    }
}

/// How the completion of an operation on remote memory reaches the program.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct OperationOp {
    /// What the program gave, returned unchanged with the completion.
    pub context: u64,
    /// Raises no event on success.
    pub silent: bool,
    /// Completions of its connection come in the order in which operations and messages were started.
    pub is_ordered: bool,
}

impl OperationOp {
    /// Whether nobody learns of an operation that has ended so at once, which holds up no other completion then.
    #[inline]
    pub fn ends_unseen(self, status: Status) -> bool {
        self.silent && status == Status::Success
    }
}
