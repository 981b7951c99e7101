//! Where devices come from: found on the machine ([`builtin`]), or given in an INI file ([`ini`]).
//!
//! **Invariant:** nothing here opens an endpoint. What a device cannot do is found out by asking the system, and
//! said in [`crate::Unavailable`], not assumed.

mod any;
pub(crate) mod builtin;
mod eth;
pub(crate) mod ini;
mod keys;
mod security;
mod shm;
mod syntax;
mod tcp;
mod udp;
