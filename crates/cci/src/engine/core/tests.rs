//! Completions that wait for their turn, or for the program, count against the connection that they belong to.

use super::*;

fn core(recv_buffers: u32, send_buffers: u32, rma_operations: u32) -> Core {
    let options = Options { recv_buffers, send_buffers, rma_operations, ..Options::default() };
    Core::new(options, 64, Arc::new(Poller::new(false).unwrap())).unwrap()
}

fn open(core: &mut Core) -> Connection {
    let connection = core.insert(0, Attribute::ReliableOrdered, ConnState::Connecting).unwrap();
    core.opened(connection, 64);
    while core.pop_event().is_some() {}
    connection
}

/// An operation that does not end, and its entry in the order of completions.
fn long_operation(core: &mut Core, connection: Connection) -> Operation {
    let order_entry = core.order.enter_operation(connection.index, 0, false, || 0);
    Operation { connection, context: 0, silent: false, order_entry }
}

/// Sends that are done and wait behind it, until there is no quota for more.
fn fill(core: &mut Core, connection: Connection) -> u64 {
    let mut sends = 0;
    while core.has_send_quota(connection) {
        sends += 1;
        assert!(core.order.enter_send(connection.index, sends).is_some());
        core.complete(connection, SendOp { context: sends, silent: false }, Status::Success);
        assert!(sends < 1_000_000, "without end");
    }
    sends
}

#[test]
fn what_one_long_operation_holds_leaves_half_and_two_leave_a_third() {
    for (recv, sends, operations) in [(8, 16, 4), (64, 64, 64), (1024, 16 * 1024, 4 * 1024)] {
        let mut core = core(recv, sends, operations);
        let (one, two, honest) = (open(&mut core), open(&mut core), open(&mut core));
        let all = 2 * u64::from(sends + operations) + 64;
        let first = long_operation(&mut core, one);
        let held = fill(&mut core, one) + 1;
        assert!(held <= all.div_ceil(2), "{held} of {all}");
        assert!(held >= u64::from(sends + operations), "{held}: fewer than may be in progress");
        assert!(core.has_send_quota(honest) && core.has_operation_quota(honest, false));
        assert!(!core.has_operation_quota(one, false) && !core.has_operation_quota(one, true));

        // Completions of others are reported at once.
        core.complete(honest, SendOp { context: 7, silent: false }, Status::Success);
        assert!(matches!(core.pop_event(), Some(Event::Send { context: 7, .. })));

        let second = long_operation(&mut core, two);
        let held_too = fill(&mut core, two) + 1;
        assert!(held_too >= all / 4, "{held_too} of {all}");
        assert!(core.has_operation_quota(honest, false), "the third is admitted");
        assert!(core.order.held() as u64 <= all);

        // When the operation ends, all behind it is reported once and in order, and there is a quota again.
        core.end_operation(first, Status::Success);
        for context in 0..held {
            match core.pop_event() {
                Some(Event::Send { connection, context: reported, .. }) => {
                    assert_eq!((connection, reported), (one, context))
                }
                other => panic!("{context}: {other:?}"),
            }
        }
        assert!(core.pop_event().is_none() && core.has_send_quota(one));
        core.end_operation(second, Status::Success);
        assert_eq!(std::iter::from_fn(|| core.pop_event()).count() as u64, held_too);
        assert!(core.order.is_empty());
    }
}

#[test]
fn whoever_needs_no_place_in_line_is_not_stopped_for_want_of_one() {
    let mut core = core(8, 4, 4);
    let unordered = core.insert(0, Attribute::ReliableUnordered, ConnState::Connecting).unwrap();
    core.opened(unordered, 64);
    let honest = open(&mut core);
    let mut stuck = 0;
    while core.order.held() < 2 * (4 + 4) + 64 {
        let connection = open(&mut core);
        assert!(
            core.has_operation_quota(connection, false),
            "one that holds nothing, while there is a free slot"
        );
        long_operation(&mut core, connection);
        fill(&mut core, connection);
        stuck += 1;
    }
    assert!(stuck > 4, "{stuck} fill all");
    assert!(core.has_send_quota(honest), "its sends are reported when they are done");
    assert!(!core.has_operation_quota(honest, true), "its operations have to stand in line");
    assert!(core.has_send_quota(unordered) && core.has_operation_quota(unordered, false));
}

#[test]
fn a_program_that_takes_no_events_gets_no_more() {
    let mut core = core(8, 16, 4);
    let connection = open(&mut core);
    let mut sends = 0;
    while core.has_send_quota(connection) {
        core.complete(connection, SendOp { context: 0, silent: false }, Status::Success);
        sends += 1;
        assert!(sends < 1_000, "without end");
    }
    assert_eq!(sends, 8 + 16 + 4 + 64);
    assert!(core.has_operation_quota(connection, true), "what raises no event may begin");
    assert!(!core.has_operation_quota(connection, false));
    assert!(core.pop_event().is_some() && core.has_send_quota(connection));
}

#[test]
fn records_that_were_taken_do_not_look_like_a_limit() {
    let mut core = core(16, 16, 16);
    core.records_left -= 1 << 40;
    assert!(!core.is_between_events());
    core.records_left = u64::from(u32::MAX / 2);
    assert!(core.is_between_events());
}
