//! The C interface of CCI: `include/cci.h` over the Rust interface of crate `cci`.
//!
//! Every function of the header is here under its C name. What a program sees of an endpoint, a connection or an
//! event is the first part of a struct of ours:
//!
//! - an endpoint is a [`cci::SharedEndpoint`] (or a plain [`cci::Endpoint`] where the program promised to use one
//!   thread) and, under the same lock, what C needs beside it: the connections' structs and the events' memory;
//! - a connection's struct is 32 bytes at an address that stays while the connection lives; the library's name for it
//!   lies in the gaps between the public fields;
//! - an event's struct comes from the endpoint's pool and owns the received message until it is returned.
//!
//! **Invariants:** nothing of the protocol or of a transport is here; no panic crosses the boundary (`guard`);
//! nothing is allocated per message once the pool has grown to what the program keeps.
// What programs link: it never prints, and nothing received reaches a panic. Tests and examples may do both.
#![warn(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]

pub mod acp;
mod allocations;
mod borrowed;
pub mod ccs;
mod connecting;
mod connections;
mod devices;
mod endpoint;
mod events;
mod extensions;
mod guard;
mod handles;
pub mod job;
mod json;
mod library;
mod loans;
mod messages;
pub mod messenger;
mod opening;
mod options;
mod pool;
mod ranks;
mod regions;
mod resolving;
pub mod ripc;
mod rma;
mod security;
mod status;
mod streams;
pub mod types;
mod wrong;

pub use acp::*;
pub use ccs::*;
pub use connecting::{cci_accept, cci_connect, cci_connect_expecting, cci_disconnect, cci_reject};
pub use endpoint::cci_arm_os_handle;
pub use events::{cci_get_event, cci_return_event};
pub use extensions::{
    cci_accept_on, cci_create_endpoint_with, cci_explain, cci_get_counters, cci_last_error, cci_send2,
    cci_wait_event,
};
pub use job::*;
pub use library::{cci_finalize, cci_get_devices, cci_init};
pub use loans::{cci_loan, cci_return_loan, cci_send_loan};
pub use messages::{cci_send, cci_sendv};
pub use messenger::*;
pub use opening::{cci_create_endpoint, cci_create_endpoint_at, cci_destroy_endpoint};
pub use options::{cci_get_opt, cci_set_opt};
pub use regions::{
    cci_rma_alloc, cci_rma_deregister, cci_rma_free, cci_rma_register, cci_rma_register_conn,
    cci_rma_register_file,
};
pub use resolving::cci_resolve;
pub use ripc::*;
pub use rma::{cci_atomic, cci_rma, cci_rmav};
pub use security::{cci_conn_req_names, cci_peer_names};
pub use status::cci_strerror;
pub use streams::{cci_keep_event, cci_poll, cci_send_burst};
