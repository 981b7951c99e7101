//! CCI's datagram protocol: what to send and when, with no socket, clock or randomness in it.
