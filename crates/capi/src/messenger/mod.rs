//! Messages of any length, and request and reply: `include/cci_messenger.h` over [`cci::messages`].
//!
//! A messenger owns its endpoint, so none of this touches the endpoints that C programs open themselves. Connections, sends, calls and
//! offers are numbers that are checked at each call; events are structs of a pool, and own what they show until they are returned.

mod calls;
mod connecting;
mod event;
mod explaining;
mod handle;
mod loans;
mod opening;
mod payload;
mod pool;
mod receiving;
mod sending;
pub mod types;

pub use calls::{
    cci_messenger_call, cci_messenger_callv, cci_messenger_cancel_call, cci_messenger_reply,
    cci_messenger_reply_error, cci_messenger_replyv,
};
pub use connecting::{
    cci_messenger_accept, cci_messenger_connect, cci_messenger_disconnect, cci_messenger_reject,
};
pub use event::{cci_messenger_get_event, cci_messenger_return_event, cci_messenger_wait_event};
pub use explaining::{cci_messenger_explain, cci_messenger_get_counters};
pub use loans::{cci_messenger_alloc, cci_messenger_free};
pub use opening::{cci_messenger_close, cci_messenger_open, cci_messenger_uri};
pub use receiving::{
    cci_messenger_receive, cci_messenger_receive_into, cci_messenger_receive_progress, cci_messenger_refuse,
};
pub use sending::{
    cci_messenger_cancel, cci_messenger_send, cci_messenger_send_progress, cci_messenger_sendv,
};
