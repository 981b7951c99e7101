//! Lock-free rings and buffer pools over memory they are given.
