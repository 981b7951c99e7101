//! One process of a soak: an endpoint that connects to the others and is connected to, all the time.

mod contents;
mod flow;
mod frame;
mod lent;
mod letter;
mod load;
mod loans;
mod messenger;
mod op;
mod process;
mod session;
mod start;
mod work;

pub use start::run;
