//! The system calls CCI needs, behind safe types.
