//! Who is at the other end of a sealed connection, over real sockets of every kind: not the endpoint itself, and nobody else
//! than who is expected.

mod expected;
mod reflected;
mod stage;
mod versions;
