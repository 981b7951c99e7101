//! The C interface of CCI.
