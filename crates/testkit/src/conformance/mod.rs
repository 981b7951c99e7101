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
mod device;
mod driver;
pub mod messenger;
mod report;
mod rust;
mod side;

pub use area::{Area, Mem, contents, plain, some_len};
pub use device::*;
pub use driver::{Counts, Driver, Flags, Grant, Happening, Polled, Port, Refusal, Setup, Shared, Whose};
pub use rust::{Received, Rust};
pub use side::{
    Attempt, Conn, Msg, Pair, Req, Side, connect, for_a_while, number_of, part, pattern, poll_in_a_thread,
    until,
};

use cci_sys::net::namespace::Namespace;
use report::{Outcome, Which};
use std::time::{Duration, Instant};

/// Where a case runs: a language and a device.
#[derive(Clone, Debug)]
pub struct Environment<D> {
    /// The language.
    pub driver: D,
    /// The section of [`config`] where clients are opened.
    pub device: &'static str,
    /// The section where servers are opened: often the same.
    pub peer: &'static str,
    /// The network namespace where servers are opened, if it is another one than the case's.
    pub far: Option<Namespace>,
    /// What else is known of the device.
    pub about: DeviceUnderTest,
    /// Path of the test function that a second process of the same program is to run.
    pub child_test: &'static str,
}

impl<D: Driver> Environment<D> {
    /// Where the cases of a device run.
    pub fn new(driver: D, about: DeviceUnderTest, child_test: &'static str) -> Environment<D> {
        Environment {
            driver,
            device: about.name,
            peer: about.peer.unwrap_or(about.name),
            far: None,
            about,
            child_test,
        }
    }

    /// The case is about this; else it ends here, with the reason.
    pub fn needs(&self, capability: Capability) -> Result<(), Skipped> {
        self.about.needs(capability)
    }

    /// This environment on devices whose longest message is shorter.
    pub fn smaller(&self) -> Result<Environment<D>, Skipped> {
        self.needs(Capability::Smaller)?;
        let (device, peer) = self.about.smaller.expect("a device that can names them");
        Ok(Environment { device, peer, ..self.clone() })
    }

    /// How often the longest cases do what they do: as often as said, or less on a variant of a device that is tested
    /// in full.
    pub fn rounds(&self, full: usize) -> usize {
        if self.about.flavour { full.div_ceil(4) } else { full }
    }
}

/// A case ended without having tested anything, because device or language can't do what it is about; why.
#[derive(Clone, Debug)]
pub struct Skipped(pub String);

/// What a case may return.
pub trait Ending {
    /// Why it tested nothing, if so.
    fn skipped(self) -> Option<Skipped>;
}

impl Ending for () {
    fn skipped(self) -> Option<Skipped> {
        None
    }
}

impl Ending for Result<(), Skipped> {
    fn skipped(self) -> Option<Skipped> {
        self.err()
    }
}

/// How long a case waits for one thing before it fails: much longer than anything takes.
pub const fn conformance_timeout() -> Duration {
    Duration::from_secs(20)
}

/// How long a whole case may take.
pub const CASE_TIME_MAX: Duration = Duration::from_secs(90);

/// Runs one case in a thread of its own, so that one that hangs fails like any other, and in a network that it has to itself
/// if the device needs one. `case` is its group and its name. The `Ok` is why it tested nothing, if so; the `Err` is what it
/// panicked with.
///
/// # Errors
/// The case failed.
pub fn outcome<D: Driver, E: Ending + 'static>(
    (group, case): (&'static str, &'static str),
    driver: D,
    about: DeviceUnderTest,
    child_test: &'static str,
    test: fn(&Environment<D>) -> E,
) -> std::thread::Result<Option<String>> {
    let which = Which { device: about.name, language: D::LANGUAGE, group, case };
    let started = Instant::now();
    let (end_sender, end_receiver) = std::sync::mpsc::channel::<()>();
    let runner = std::thread::Builder::new().name(case.to_owned()).spawn(move || {
        // Dropped at the end, also when the case panics.
        let _end_sender = end_sender;
        let network = match about.network_of_a_case() {
            Ok(network) => network,
            Err(reason) => return Outcome::Absent(reason.to_string()),
        };
        let env =
            Environment { far: about.far(network.as_ref()), ..Environment::new(driver, about, child_test) };
        let skipped = test(&env).skipped();
        about.give_back(network);
        skipped.map_or(Outcome::Passed, |Skipped(reason)| Outcome::Skipped(reason))
    });
    let runner = runner.expect("a thread for the case");
    if end_receiver.recv_timeout(CASE_TIME_MAX) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
        report::add(which, &Outcome::Failed, started.elapsed());
        return Err(Box::new(format!("{case} did not end within {CASE_TIME_MAX:?}")));
    }
    let ended = runner.join();
    // The table in docs/devices.md is of what programs can open.
    if about.name != LOOP.name {
        report::add(which, ended.as_ref().unwrap_or(&Outcome::Failed), started.elapsed());
    }
    ended.map(|outcome| match outcome {
        Outcome::Skipped(reason) | Outcome::Absent(reason) => Some(reason),
        Outcome::Passed | Outcome::Failed => None,
    })
}

/// Runs one case, for a test: as [`outcome`] does, and panics if it failed.
pub fn run<D: Driver, E: Ending + 'static>(
    case: (&'static str, &'static str),
    driver: D,
    about: DeviceUnderTest,
    child_test: &'static str,
    test: fn(&Environment<D>) -> E,
) {
    if let Err(panic) = outcome(case, driver, about, child_test, test) {
        std::panic::resume_unwind(panic);
    }
}

/// Writes down that a case is not run, for a language that has no calls for what it does.
pub fn leave_out<D: Driver>(case: &Case, about: &DeviceUnderTest, reason: &str) {
    let which = Which { device: about.name, language: D::LANGUAGE, group: case.group, case: case.name };
    report::add(which, &Outcome::Skipped(reason.to_owned()), Duration::ZERO);
}

/// A case for a program that runs the suite itself.
#[derive(Copy, Clone, Debug)]
pub struct Case {
    /// Its group.
    pub group: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Runs it, as [`outcome`] does. Takes the first argument by which this program becomes the child of a case, behind `::`.
    pub run: fn(&'static str) -> std::thread::Result<Option<String>>,
}

/// Every case of the suite as a test function, for one driver and one device; with `cases of`, as a list of [`Case`].
#[macro_export]
macro_rules! conformance {
    ($driver:expr, $device:expr) => {
        $crate::conformance! { @child $driver, $device }
        $crate::conformance! { @endpoints tests $driver, $device }
    };
    // Remote memory, in a module of its own.
    (remote memory: $driver:expr, $device:expr) => {
        $crate::conformance! { @child $driver, $device }
        $crate::conformance! { @remote_memory tests $driver, $device }
    };
    // Multicast groups, in a module of their own, on devices that have them.
    (multicast: $driver:expr, $device:expr) => {
        $crate::conformance! { @multicast tests $driver, $device }
    };
    // Messages of any length and calls, in a module of their own.
    (messengers: $driver:expr, $device:expr) => {
        $crate::conformance! { @messengers tests $driver, $device }
    };
    // Lists, for a program that runs cases itself: `@` and what they are of, as below.
    (cases of @$of:ident: $driver:expr, $device:expr) => {
        $crate::conformance! { @$of list $driver, $device }
    };
    // What every endpoint does.
    (@endpoints $form:ident $driver:expr, $device:expr) => {
        $crate::conformance! { @$form $driver, $device;
            connect: connects_with_any_payload, refuses_a_long_payload, reject_refuses, nobody_there,
                connect_times_out_once, late_accept_fails, bad_uris_are_refused, accepts_on_another_endpoint,
                many_requests_answered_in_any_order, connects_to_itself, connects_without_a_time_limit;
            messages: every_size_arrives, ordered_and_completed_in_order, unordered_exactly_once,
                unreliable_at_most_once, smaller_side_decides_the_size, echo_from_the_received_message,
                gathered_from_segments;
            sending: silent_sends_raise_no_event, blocking_send_returns_the_status, no_copy_sends,
                full_queue_loses_nothing, as_many_sends_are_taken_as_there_are_buffers,
                sends_that_wait_are_delivered_before_a_disconnect, sends_that_wait_end_with_the_peer;
            loans: loans_arrive_in_their_places, loans_are_kept_and_come_back, loans_that_are_not_sent_come_back,
                what_is_lent_outlives_the_connection;
            streams: handlers_are_given_what_comes, handlers_are_called_as_often_as_allowed,
                kept_messages_hold_buffers, a_handler_that_panics_loses_one_message, bursts_complete_once,
                partial_bursts_say_how_many_were_taken, a_burst_stops_at_what_cannot_be_sent,
                a_burst_fails_as_its_first_failure, bursts_end_with_the_peer;
            buffers: messages_are_kept_and_returned_in_any_order, all_buffers_out_then_recovery,
                receiver_not_ready_ends_at_the_send_timeout, only_the_named_sender_waits,
                unreliable_without_a_buffer_is_dropped;
            closing: disconnect_delivers_and_completes_all, peer_learns_at_its_next_send,
                last_message_before_disconnect_arrives, both_disconnect_at_once, destroy_with_traffic_in_flight,
                stale_handles_are_refused, connects_again_and_again;
            disconnected: told_once_behind_the_last_message, own_disconnects_are_not_told,
                who_did_not_ask_is_not_told, a_thousand_short_lived_clients, the_last_message_is_acknowledged,
                the_last_message_is_acknowledged_at_any_moment;
            waiting: descriptor_says_when_an_event_is_there, no_wake_up_is_lost_on_the_descriptor,
                no_wake_up_is_lost_in_wait, wait_times_out, deadlines_wake_the_descriptor,
                connecting_wakes_the_descriptor;
            scale: many_connections, many_clients;
            account: counters_add_up, memory_stays_under_its_cap, explains_itself, keepalive_is_raised_once,
                keepalive_is_quiet_with_a_live_peer, options_read_back;
            process: two_processes_exchange, killed_peer_is_noticed;
        }
    };
    // Remote memory.
    (@remote_memory $form:ident $driver:expr, $device:expr) => {
        $crate::conformance! { @$form $driver, $device;
            rma_data: every_length_at_odd_offsets, lengths_around_every_threshold, sixty_four_megabytes,
                thousands_outstanding, lists_of_different_segments, as_many_pieces_as_can_be,
                many_regions_at_once, memory_lives_as_long_as_its_region;
            rma_files: files_are_read_like_memory, files_are_only_read, files_may_change, many_files_at_once;
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
            disconnected: the_last_operation_is_answered;
            rma_account: operations_are_counted, as_many_operations_are_taken_as_programs_post,
                explains_the_paths_to_memory,
                a_long_transfer_holds_no_more_memory, two_connections_share, messages_pass_a_bulk_transfer;
            rma_process: two_processes_share_memory;
        }
    };
    // Multicast groups.
    (@multicast $form:ident $driver:expr, $device:expr) => {
        $crate::conformance! { @$form $driver, $device;
            multicast: every_member_hears_every_sender, every_size_arrives_in_a_group, groups_do_not_mix,
                leaving_ends_it, own_messages_are_not_heard, mistakes_with_groups_are_refused,
                members_without_a_buffer_lose;
        }
    };
    // Messages of any length, and calls.
    (@messengers $form:ident $driver:expr, $device:expr) => {
        $crate::conformance! { @$form $driver, $device;
            any_length: every_length_comes_whole, a_very_long_one_into_memory, gathered_ones_come_in_one_piece,
                order_is_kept_behind_a_long_one, unordered_ones_pass_a_long_one, a_receiver_that_never_takes,
                unreliable_ones_are_short;
            any_length_ends: refused_with_a_code, cancelled_by_the_sender, longer_than_is_taken, lent_memory_has_a_cap,
                a_sender_that_stops, everything_ends_when_a_side_leaves;
            calls: requests_and_replies_of_every_length, answers_in_any_order, answers_from_other_threads,
                deadlines_and_giving_up, answered_once_and_by_nobody_else, calls_beyond_the_limits,
                calls_end_with_the_connection;
        }
    };
    (@child $driver:expr, $device:expr) => {
        /// The other process of the cases that need two: does nothing unless one of them started it.
        #[test]
        fn child_process() {
            $crate::conformance::cases::child::child($driver, $device);
        }
    };
    (@tests $driver:expr, $device:expr; $($group:ident: $($case:ident),+;)+) => {
        $($(
            #[test]
            fn $case() {
                $crate::conformance::run(
                    (stringify!($group), stringify!($case)),
                    $driver,
                    $device,
                    concat!(module_path!(), "::child_process"),
                    $crate::conformance::cases::$group::$case,
                );
            }
        )+)+
    };
    (@list $driver:expr, $device:expr; $($group:ident: $($case:ident),+;)+) => {
        [$($(
            $crate::conformance::Case {
                group: stringify!($group),
                name: stringify!($case),
                run: |child_test| $crate::conformance::outcome(
                    (stringify!($group), stringify!($case)),
                    $driver,
                    $device,
                    child_test,
                    $crate::conformance::cases::$group::$case,
                ),
            }
        ),+),+]
    };
}
