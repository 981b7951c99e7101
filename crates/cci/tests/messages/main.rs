//! Messages of any length, on every device that needs no rights.

mod awkward;
mod calls;
mod common;
mod ends;
mod lengths;
mod order;
mod shares;
mod sleepers;

/// Runs cases on each device.
macro_rules! on_each_device {
    ($($case:ident),* $(,)?) => {
        crate::on_each_device!(@ shm [$($case),*]);
        crate::on_each_device!(@ shm_pull [$($case),*]);
        crate::on_each_device!(@ udp4 [$($case),*]);
        crate::on_each_device!(@ udp4_small [$($case),*]);
        crate::on_each_device!(@ tcp4 [$($case),*]);
        crate::on_each_device!(@ any [$($case),*]);
    };
    (@ $device:ident [$($case:ident),*]) => {
        mod $device {
            $(#[test]
            fn $case() {
                super::$case(stringify!($device));
            })*
        }
    };
}
pub(crate) use on_each_device;
