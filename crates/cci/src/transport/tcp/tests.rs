//! Endpoints over streams of this machine.
