//! ACP in C: `include/acp.h` over [`cci_acp`].
//!
//! One process has one part in a global address space, behind one lock, which is held for as long as a call takes; between calls a progress thread serves others. Channels and requests are numbers that look
//! like pointers, so that what was freed is known.

mod access;
mod channels;
mod data;
mod ends;
mod failure;
mod infrastructure;
mod live;
mod management;
mod segmented;

pub use access::{
    acp_add4, acp_add8, acp_and4, acp_and8, acp_cas4, acp_cas8, acp_complete, acp_copy, acp_inquire, acp_or4,
    acp_or8, acp_swap4, acp_swap8, acp_xor4, acp_xor8,
};
pub use channels::{
    acp_create_ch, acp_free_ch, acp_nbfree_ch, acp_nbrecv_ch, acp_nbsend_ch, acp_query_ch_bytes, acp_wait_ch,
    acp_waitall_ch,
};
pub use data::*;
pub use infrastructure::{acp_abort, acp_finalize, acp_init, acp_procs, acp_rank, acp_reset, acp_sync};
pub use management::{
    acp_colors, acp_query_address, acp_query_color, acp_query_ga, acp_query_rank, acp_query_starter_ga,
    acp_register_memory, acp_unregister_memory,
};
pub use segmented::{
    acp_ack_segbuf, acp_connect_segbuf, acp_create_dst_segbuf, acp_create_src_segbuf, acp_disconnect_segbuf,
    acp_free_segbuf, acp_isacked_segbuf, acp_isconnected_segbuf, acp_isready_segbuf, acp_query_segbuf_head,
    acp_query_segbuf_sent, acp_query_segbuf_tail, acp_ready_segbuf,
};
