//! Endpoints that know their peers, over real sockets: who is heard, who is not, and what others on the wire can do.

mod lasting;
mod rights;
mod stage;
mod strangers;
