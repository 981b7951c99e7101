//! The Common Communication Interface: messages and memory between processes.
