//! CCS in C: `include/ccs.h` over [`cci_am`].
//!
//! One process has one runtime, behind one lock, which is never held while a handler, a callback or the error handler of the program
//! runs: all of those may call what is here. Contexts and descriptions are numbers that look like pointers, so that what was freed is known.

mod arithmetic;
mod collectives;
mod contexts;
mod descriptions;
mod dispatch;
mod errors;
mod explain;
mod here;
mod job;
mod large;
mod live;
mod local;
mod locks;
mod memory;
mod messages;
mod operations;
mod presence;
mod progress;
mod status;
mod symmetric;
mod targets;
pub mod types;
mod updates;

pub use collectives::{
    CCS_allgather, CCS_allgather_nb, CCS_allreduce, CCS_allreduce_nb, CCS_alltoall, CCS_alltoall_nb,
    CCS_alltoallv, CCS_alltoallv_nb, CCS_barrier_nb, CCS_broadcast, CCS_broadcast_nb, CCS_gather,
    CCS_gather_nb, CCS_reduce, CCS_reduce_nb, CCS_scan, CCS_scan_nb, CCS_scatter, CCS_scatter_nb,
    CCS_team_barrier, CCS_team_barrier_nb, CCS_team_free, CCS_team_rank, CCS_team_size, CCS_team_split,
};
pub use contexts::{CCS_free_context, CCS_new_context, CCS_new_named_context, CCS_register_handler_};
pub use descriptions::{
    CCS_datadesc_blockindexed, CCS_datadesc_contiguous, CCS_datadesc_extent, CCS_datadesc_free,
    CCS_datadesc_hblockindexed, CCS_datadesc_hindexed, CCS_datadesc_hvector, CCS_datadesc_indexed,
    CCS_datadesc_iov, CCS_datadesc_resized, CCS_datadesc_size, CCS_datadesc_strided, CCS_datadesc_struct,
    CCS_datadesc_vector, CCS_pack, CCS_unpack,
};
pub use errors::{CCS_callback_status, CCS_set_error_handler};
pub use explain::CCS_explain;
pub use job::{
    CCS_abort, CCS_barrier, CCS_finalize, CCS_init, CCS_init_thread, CCS_initialized, CCS_local_nprocs,
    CCS_local_rank, CCS_nprocs, CCS_poll, CCS_rank, CCS_wait, CCS_wait_for_change_,
};
pub use large::{CCS_amlarge, CCS_large_abort, CCS_large_accept, CCS_large_hold, CCS_register_large_handler};
pub use locks::{
    CCS_hold_interrupts, CCS_lock, CCS_lock_destroy, CCS_lock_init, CCS_resume_interrupts, CCS_trylock,
    CCS_unlock,
};
pub use memory::{
    CCS_atomic, CCS_deregister_mem, CCS_fence, CCS_fence_all, CCS_get, CCS_gfence, CCS_put, CCS_put_am,
    CCS_register_mem,
};
pub use messages::{
    CCS_am_max, CCS_amreplyv, CCS_amrequestv, CCS_sender_rank, CCS_token_context, CCS_try_amrequestv,
};
pub use progress::CCS_set_progress_thread;
pub use status::CCS_strerror;
pub use symmetric::{CCS_symmetric_alloc, CCS_symmetric_free};
pub use updates::{CCS_accumulate, CCS_indexed_put};
