//! The conformance suite: what an endpoint promises, written once, run on every device and through every language.
//!
//! The list of cases is in [`conformance!`](macro@crate::conformance), so a new case reaches every device and language; a
//! language implements [`Driver`], a device is a [`DeviceUnderTest`]. To instantiate it:
//!
//! ```text
//! mod shm {
//!     cci_testkit::conformance!(cci_testkit::conformance::Rust, cci_testkit::conformance::SHM);
//! }
//! mod shm_memory {
//!     cci_testkit::conformance!(remote memory: cci_testkit::conformance::Rust, cci_testkit::conformance::SHM);
//! }
//! ```
//!
//! Every case is bounded: loops by count and by [`conformance_timeout`], the whole case by [`CASE_TIME_MAX`].

mod area;
pub mod cases;
mod driver;
mod rust;
mod side;

pub use area::{Area, Mem, contents, plain, some_len};
pub use driver::{Counts, Driver, Flags, Grant, Happening, Polled, Port, Refusal, Setup, Shared, Whose};
pub use rust::{Received, Rust};
pub use side::{
    Attempt, Conn, Msg, Pair, Req, Side, connect, for_a_while, number_of, part, pattern, poll_in_a_thread,
    until,
};

use std::io::Write;
use std::net::UdpSocket;
use std::time::Duration;

/// The devices the suite runs on, as a program configures them.
pub const CONFIG: &str = "\
[shm]
transport = shm
[shm-pull]
transport = shm
direct = off
cma = always
[shm-ring]
transport = shm
direct = off
cma = off
[udp4]
transport = udp
ip = 127.0.0.1
[udp4-small]
transport = udp
ip = 127.0.0.1
mtu = 1500
[udp6]
transport = udp
ip = ::1
[udp6-small]
transport = udp
ip = ::1
mtu = 1500
";

/// One device of [`CONFIG`].
#[derive(Copy, Clone, Debug)]
pub struct DeviceUnderTest {
    /// Its section.
    pub name: &'static str,
    /// A device like it with a smaller longest message, if there can be one.
    pub smaller: Option<&'static str>,
    /// How its URIs begin.
    pub scheme: &'static str,
    /// An address it binds to, which a machine may not have.
    needs_ip: Option<&'static str>,
}

/// Shared memory.
pub const SHM: DeviceUnderTest =
    DeviceUnderTest { name: "shm", smaller: None, scheme: "shm://", needs_ip: None };
/// Shared memory whose peers do not map each other's memory: what is long they read by system calls.
pub const SHM_PULL: DeviceUnderTest = DeviceUnderTest { name: "shm-pull", ..SHM };
/// Shared memory with the ring alone.
pub const SHM_RING: DeviceUnderTest = DeviceUnderTest { name: "shm-ring", ..SHM };
/// UDP over IPv4.
pub const UDP4: DeviceUnderTest = DeviceUnderTest {
    name: "udp4",
    smaller: Some("udp4-small"),
    scheme: "udp://",
    needs_ip: Some("127.0.0.1"),
};
/// UDP over IPv6.
pub const UDP6: DeviceUnderTest =
    DeviceUnderTest { name: "udp6", smaller: Some("udp6-small"), scheme: "udp://", needs_ip: Some("::1") };

impl DeviceUnderTest {
    /// False on a machine without the address it needs, such as one with IPv6 switched off.
    pub fn is_there(&self) -> bool {
        self.needs_ip.is_none_or(|ip| UdpSocket::bind((ip, 0)).is_ok())
    }
}

/// Where a case runs: a language and a device.
#[derive(Copy, Clone, Debug)]
pub struct Place<D> {
    /// The language.
    pub driver: D,
    /// The device's section of [`CONFIG`].
    pub device: &'static str,
    /// What else is known of the device.
    pub about: DeviceUnderTest,
    /// Path of the test function that a second process of the same program is to run.
    pub child_test: &'static str,
}

/// How long a case waits for one thing before it fails: much longer than anything takes.
pub const fn conformance_timeout() -> Duration {
    Duration::from_secs(20)
}

/// How long a whole case may take.
pub const CASE_TIME_MAX: Duration = Duration::from_secs(90);

/// Runs one case in a thread of its own, so that one that hangs fails like any other.
pub fn run<D: Driver>(
    name: &str,
    driver: D,
    about: DeviceUnderTest,
    child_test: &'static str,
    case: fn(&Place<D>),
) {
    if !about.is_there() {
        let address = about.needs_ip.unwrap_or_default();
        let _ = writeln!(std::io::stderr(), "{name}: skipped, this machine has no address {address}");
        return;
    }
    let place = Place { driver, device: about.name, about, child_test };
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::Builder::new().name(name.to_owned());
    let runner = thread.spawn(move || {
        // Dropped at the end, also when the case panics.
        let _tell = tell;
        case(&place);
    });
    let runner = runner.expect("a thread for the case");
    if told.recv_timeout(CASE_TIME_MAX) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
        panic!("{name} did not end within {CASE_TIME_MAX:?}");
    }
    if let Err(panic) = runner.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Every case of the suite as a test function, for one driver and one device.
#[macro_export]
macro_rules! conformance {
    ($driver:expr, $device:expr) => {
        $crate::conformance! { @child $driver, $device }
        $crate::conformance! { @cases $driver, $device;
            connect: connects_with_any_payload, refuses_a_long_payload, reject_refuses, nobody_there,
                connect_times_out_once, late_accept_fails, bad_uris_are_refused, accepts_on_another_endpoint,
                many_requests_answered_in_any_order, connects_to_itself, connects_without_a_time_limit;
            messages: every_size_arrives, ordered_and_completed_in_order, unordered_exactly_once,
                unreliable_at_most_once, smaller_side_decides_the_size, echo_from_the_received_message,
                gathered_from_segments;
            sending: silent_sends_raise_no_event, blocking_send_returns_the_status, no_copy_sends,
                full_queue_loses_nothing;
            buffers: messages_are_kept_and_returned_in_any_order, all_buffers_out_then_recovery,
                receiver_not_ready_ends_at_the_send_timeout, only_the_named_sender_waits,
                unreliable_without_a_buffer_is_dropped;
            closing: disconnect_delivers_and_completes_all, peer_learns_at_its_next_send,
                last_message_before_disconnect_arrives, both_disconnect_at_once, destroy_with_traffic_in_flight,
                stale_handles_are_refused, connects_again_and_again;
            waiting: descriptor_says_when_an_event_is_there, no_wake_up_is_lost_on_the_descriptor,
                no_wake_up_is_lost_in_wait, wait_times_out, deadlines_wake_the_descriptor,
                connecting_wakes_the_descriptor;
            scale: many_connections, many_clients;
            account: counters_add_up, memory_stays_under_its_cap, explains_itself, keepalive_is_raised_once,
                keepalive_is_quiet_with_a_live_peer, options_read_back;
            process: two_processes_exchange, killed_peer_is_noticed;
        }
    };
    // Remote memory, in a module of its own.
    (remote memory: $driver:expr, $device:expr) => {
        $crate::conformance! { @child $driver, $device }
        $crate::conformance! { @cases $driver, $device;
            rma_data: every_length_at_odd_offsets, lengths_around_every_threshold, sixty_four_megabytes,
                thousands_outstanding, pieces_cut_differently, as_many_pieces_as_can_be,
                many_regions_at_once, memory_lives_as_long_as_its_region;
            rma_order: message_after_the_data, read_with_a_message, failed_operations_tell_nothing,
                fenced_write_wins, fenced_flag_comes_after_the_data, fenced_write_spares_earlier_reads,
                completions_in_order_of_issue, operations_unordered_exactly_once, silent_operations_raise_no_event,
                blocking_operations_return_the_status;
            rma_atomics: fetch_adds_add_up, compare_swap_claims_each_slot_once,
                four_bytes_leave_the_neighbours_alone, every_kind_does_what_it_says,
                atomics_out_of_place_are_refused, atomics_against_the_owners_own;
            rma_rights: rights_are_kept, ranges_are_kept, handles_are_checked,
                registered_for_one_connection, local_mistakes_start_nothing, overlapping_regions;
            rma_life: deregistering_stops_the_peers, deregistered_local_memory,
                operations_end_once_after_a_disconnect, operations_end_once_when_the_peer_leaves,
                operations_end_once_when_an_endpoint_goes;
            rma_account: operations_are_counted, explains_the_paths_to_memory,
                a_long_transfer_holds_no_more_memory, two_connections_share, messages_pass_a_bulk_transfer;
            rma_process: two_processes_share_memory;
        }
    };
    (@child $driver:expr, $device:expr) => {
        /// The other process of the cases that need two: does nothing unless one of them started it.
        #[test]
        fn child_process() {
            $crate::conformance::cases::child::child($driver, $device);
        }
    };
    (@cases $driver:expr, $device:expr; $($group:ident: $($case:ident),+;)+) => {
        $($(
            #[test]
            fn $case() {
                $crate::conformance::run(
                    stringify!($case),
                    $driver,
                    $device,
                    concat!(module_path!(), "::child_process"),
                    $crate::conformance::cases::$group::$case,
                );
            }
        )+)+
    };
}
