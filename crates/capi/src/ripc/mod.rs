//! libRIPC in C: `include/ripc.h` over [`cci_ripc`].
//!
//! One process has one node, behind one lock, which is held for moments only: who waits, sleeps without it. A thread makes progress while the
//! program makes no calls. `live` is what a process has (`buffers`: its memory, `numbers`: what its partners are called, `calls`: those without a
//! reply, and requests without an answer), `shared` the lock and who waits, `waiting` how a call waits, `progress` the thread. `given` is what a
//! program sends, `places` where it wants what it receives; the others are the groups of calls of the header.

mod buffers;
mod calling;
mod calls;
mod given;
mod live;
mod memory;
mod numbers;
mod places;
mod progress;
mod receiving;
mod sending;
mod services;
mod shared;
mod system;
mod waiting;

pub use calling::{
    RipcContent, RipcMessage, ripc_answer, ripc_call, ripc_free_message, ripc_lend_answer,
    ripc_receive_request, ripc_refuse, ripc_reply, ripc_returned,
};
pub use memory::{
    ripc_buf_alloc, ripc_buf_free, ripc_buf_realloc, ripc_buf_register, ripc_buf_unregister, ripc_file_map,
    ripc_reg_recv_window, ripc_reg_recv_window_for_service,
};
pub use receiving::{ripc_receive, ripc_receive_within};
pub use sending::{ripc_send_long, ripc_send_short, ripc_short_item_size_max, ripc_transport};
pub use services::{
    ripc_descriptor, ripc_init, ripc_name_of, ripc_number_of, ripc_register_multicast_service_id,
    ripc_register_named, ripc_register_random_service_id, ripc_register_service_id, ripc_service_set_lease,
    ripc_service_set_resolve_timeout, ripc_unregister,
};
