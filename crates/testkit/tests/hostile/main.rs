//! Hostile peers, and what an endpoint of the library grants them: one program, so that the library is linked once for all.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::print_stdout)]

/// Tests of one call each: the same on one device after the other.
macro_rules! tests {
    ($(fn $name:ident() = $run:ident($($argument:tt)*);)*) => {$(
        #[test]
        fn $name() {
            $run($($argument)*);
        }
    )*};
}

mod forged_icmp;
mod hostile_floods;
mod hostile_receivers;
mod hostile_share;
mod processes;
mod quotas;
mod rma_hostile;
mod scripts;
mod sealed_peers;
mod sealed_udp;
