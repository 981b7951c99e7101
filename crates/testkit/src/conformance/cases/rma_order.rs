//! What comes after what: messages behind data, fences, completions (CCI-028, CCI-062 to CCI-064).

use super::{RELIABLE, RO};
use crate::conformance::{
    Area, Conn, Driver, Environment, Flags, Pair, Port, Refusal, Side, Whose, contents, number_of, part,
    pattern, plain, poll_in_a_thread, some_len,
};
use crate::rng::Rng;
use cci::{Access, Atomic, AtomicKind, AtomicWidth, Attribute, Rma, RmaFlags, RmaKind, Status};
use std::sync::atomic::Ordering;

const READ_WRITE: Access = Access::ALL;

/// Every attribute that loses nothing, with each kind of memory at the target.
fn for_each_target<D: Driver>(env: &Environment<D>, mut case: impl FnMut(&mut Pair<D>, Attribute, Whose)) {
    for attribute in RELIABLE {
        for whose in Whose::ALL {
            let mut pair = Pair::plain(env, attribute);
            case(&mut pair, attribute, whose);
            pair.part();
        }
    }
}

/// Handles messages as they come, one event at a time, so that nothing is seen later than it could be.
fn next_message<D: Driver>(pair: &mut Pair<D>) -> Vec<u8> {
    pair.until("a message", |_, server| !server.inbox.is_empty());
    let (from, message) = pair.server.inbox.pop_front().expect("just seen");
    assert_eq!(from, pair.to_client);
    message.as_ref().to_vec()
}

/// When the message comes, all of the data is there; the message comes once.
pub fn message_after_the_data<D: Driver>(env: &Environment<D>) {
    const SLOTS: usize = 8;
    const SLOT: usize = 150_000;
    const ROUNDS: usize = 160;
    for_each_target(env, |pair, _, whose| {
        let mut local_area = Area::odd(&mut pair.client, Whose::Library, SLOTS * SLOT, Access::LOCAL);
        let mut remote_area = Area::odd(&mut pair.server, whose, SLOTS * SLOT, READ_WRITE);
        let mut rng = Rng::new(3);
        let longest = pair.client.port.max_send_size(pair.to_server);
        let mut lens = [0; SLOTS];
        // A slot is written anew once the server has looked at it.
        for batch in 0..ROUNDS / SLOTS {
            for (slot, slot_len) in lens.iter_mut().enumerate() {
                let number = (batch * SLOTS + slot) as u64;
                let len = some_len(&mut rng, 17);
                *slot_len = len;
                local_area.put(slot * SLOT, &contents(number, len));
                let message = pattern(number, 8 + rng.below(longest as u64 - 8) as usize);
                let (local, remote) =
                    ([local_area.segment(slot * SLOT, len)], [remote_area.segment(slot * SLOT + slot, len)]);
                let write = plain(RmaKind::Write, &local, &remote, number);
                pair.start(&Rma { message: Some(&message), ..write });
            }
            for _ in 0..SLOTS {
                let number = number_of(&next_message(pair));
                assert_eq!(number as usize / SLOTS, batch, "each message once");
                let slot = number as usize % SLOTS;
                let data = contents(number, lens[slot]);
                let at = slot * SLOT + slot;
                assert!(remote_area.now(at, lens[slot]) == data, "the data of message {number} first");
                remote_area.expect(at, &data);
            }
        }
        let mut ended = pair.ended(ROUNDS);
        ended.sort_unstable_by_key(|(context, _)| *context);
        assert!(ended.into_iter().eq((0..ROUNDS as u64).map(|context| (context, Status::Success))));
        pair.server.settle();
        assert!(pair.server.inbox.is_empty(), "each message once");
        remote_area.check("written");
        let write = plain(RmaKind::Write, &[], &[], 0);
        let (local, remote) = ([local_area.segment(0, 1)], [remote_area.segment(0, 1)]);
        remote_area.expect(0, local_area.model(0, 1));
        let short: &[u8] = if D::EMPTY_MESSAGES_WITH_DATA { b"" } else { b"m" };
        pair.start(&Rma { local: &local, remote: &remote, message: Some(short), ..write });
        assert_eq!(next_message(pair), short);
        pair.ended(1);
        let long = vec![0; longest + 1];
        let refused = pair
            .client
            .port
            .rma(pair.to_server, &Rma { local: &local, remote: &remote, message: Some(&long), ..write });
        assert_eq!(refused, Err(Refusal::TooLong));
        pair.client.settle();
        remote_area.check("at the end");
    });
}

/// The message of a read says that its data has been fetched: the target may change it then.
pub fn read_with_a_message<D: Driver>(env: &Environment<D>) {
    const LEN: usize = 60_000;
    for_each_target(env, |pair, _, whose| {
        let mut local_area = Area::odd(&mut pair.client, Whose::Library, LEN, Access::LOCAL);
        let mut remote_area = Area::odd(&mut pair.server, whose, LEN, READ_WRITE);
        for round in 0..60 {
            let len = if round % 2 == 0 { LEN } else { 1 + round as usize };
            let data = contents(round, len);
            remote_area.put(0, &data);
            let (local, remote) = ([local_area.segment(0, len)], [remote_area.segment(0, len)]);
            let read = plain(RmaKind::Read, &local, &remote, round);
            pair.start(&Rma { message: Some(&pattern(round, 40)), ..read });
            assert_eq!(number_of(&next_message(pair)), round);
            remote_area.put(0, &vec![0xee; len]);
            assert_eq!(pair.ended(1), [(round, Status::Success)]);
            local_area.expect(0, &data);
            local_area.check("what was there before the message");
        }
        remote_area.check("only read");
    });
}

/// Nobody is notified of data that is not there.
pub fn failed_operations_tell_nothing<D: Driver>(env: &Environment<D>) {
    for_each_target(env, |pair, _, whose| {
        let local_area = Area::new(&mut pair.client, Whose::Library, 30_000, Access::LOCAL);
        let remote_area = Area::new(&mut pair.server, whose, 30_000, Access::LOCAL);
        for (number, kind) in [RmaKind::Write, RmaKind::Read].into_iter().cycle().take(20).enumerate() {
            let len = 1 + number * 1_500;
            let (local, remote) = ([local_area.segment(0, len)], [remote_area.segment(0, len)]);
            let refused = plain(kind, &local, &remote, 1);
            pair.start(&Rma { message: Some(b"data is there"), ..refused });
            assert_eq!(pair.ended(1), [(1, Status::RmaHandle)], "{kind:?} without the right to");
        }
        pair.send(b"a word", 2);
        assert_eq!(next_message(pair), b"a word", "the connection goes on, and this is the first");
        pair.ended(1);
        local_area.check("refused");
        remote_area.check("refused");
    });
}

/// Two writes to one place, the second behind a fence: it is the one that stays (CCI-063).
pub fn fenced_write_wins<D: Driver>(env: &Environment<D>) {
    const LEN: usize = 200_000;
    for_each_target(env, |pair, _, whose| {
        let mut local_area = Area::odd(&mut pair.client, Whose::Foreign, 2 * LEN, Access::LOCAL);
        let mut remote_area = Area::odd(&mut pair.server, whose, LEN, READ_WRITE);
        for round in 0..40 {
            local_area.put(0, &contents(round, 2 * LEN));
            let second = 1 + (round as usize * 5_003) % LEN;
            remote_area.expect(0, local_area.model(0, LEN));
            remote_area.expect(LEN - second, local_area.model(LEN, second));
            let (local, remote) = ([local_area.segment(0, LEN)], [remote_area.segment(0, LEN)]);
            pair.start(&plain(RmaKind::Write, &local, &remote, 1));
            let (local, remote) =
                ([local_area.segment(LEN, second)], [remote_area.segment(LEN - second, second)]);
            let write = plain(RmaKind::Write, &local, &remote, 2);
            pair.start(&Rma { flags: RmaFlags::FENCE, ..write });
            let ended = pair.ended(2);
            assert!(ended.iter().all(|(_, status)| *status == Status::Success), "{ended:?}");
            remote_area.check("the fenced write is the last");
        }
    });
}

/// A flag written behind a fence: who sees it in memory, without any event, sees the data too.
pub fn fenced_flag_comes_after_the_data<D: Driver>(env: &Environment<D>) {
    const LEN: usize = 120_000;
    for_each_target(env, |pair, _, whose| {
        let mut local_area = Area::new(&mut pair.client, Whose::Library, LEN + 16, Access::LOCAL);
        let mut remote_area = Area::new(&mut pair.server, whose, LEN + 16, READ_WRITE);
        for round in 1..=40 {
            let len = 1 + (round as usize * 3_001) % LEN;
            let data = contents(round, len);
            local_area.put(0, &data);
            local_area.put_word(LEN + 8, round);
            let (local, remote) = ([local_area.segment(0, len)], [remote_area.segment(0, len)]);
            pair.start(&plain(RmaKind::Write, &local, &remote, 1));
            let (local, remote) = ([local_area.segment(LEN + 8, 8)], [remote_area.segment(LEN + 8, 8)]);
            let flag = plain(RmaKind::Write, &local, &remote, 2);
            pair.start(&Rma { flags: RmaFlags::FENCE, ..flag });
            pair.until("the flag", |_, _| remote_area.word(LEN + 8) == round);
            assert!(remote_area.now(0, len) == data, "the data is there when the flag is");
            remote_area.expect(0, &data);
            remote_area.expect(LEN + 8, &round.to_ne_bytes());
            pair.ended(2);
            remote_area.check("data and flag");
        }
    });
}

/// A write behind a fence does not change what an earlier read returns; a read behind a fence sees an earlier change.
pub fn fenced_write_spares_earlier_reads<D: Driver>(env: &Environment<D>) {
    const LEN: usize = 300_000;
    for_each_target(env, |pair, _, whose| {
        let mut local_area = Area::odd(&mut pair.client, Whose::Library, 2 * LEN, Access::LOCAL);
        let mut remote_area = Area::new(&mut pair.server, whose, LEN, READ_WRITE);
        let mut result = Area::new(&mut pair.client, Whose::Foreign, 16, Access::LOCAL);
        for round in 0..20 {
            local_area.put(LEN, &contents(round, LEN));
            local_area.expect(0, remote_area.model(0, LEN));
            let (into, all) = ([local_area.segment(0, LEN)], [remote_area.segment(0, LEN)]);
            pair.start(&plain(RmaKind::Read, &into, &all, 1));
            let new = [local_area.segment(LEN, LEN)];
            let write = plain(RmaKind::Write, &new, &all, 2);
            pair.start(&Rma { flags: RmaFlags::FENCE, ..write });
            remote_area.expect(0, local_area.model(LEN, LEN));
            let ended = pair.ended(2);
            assert!(ended.iter().all(|(_, status)| *status == Status::Success), "{ended:?}");
            local_area.check("the old bytes were read");
            remote_area.check("the new bytes were written");
            let add = Atomic { kind: AtomicKind::Add, width: AtomicWidth::Eight, operand: 5, compare: 0 };
            pair.start_atomic(add, remote_area.address(8), None, 3);
            let word = u64::from_ne_bytes(*remote_area.model(8, 8).first_chunk().expect("8")).wrapping_add(5);
            remote_area.expect(8, &word.to_ne_bytes());
            let (into, from) = ([result.segment(8, 8)], [remote_area.segment(8, 8)]);
            let read = plain(RmaKind::Read, &into, &from, 4);
            pair.start(&Rma { flags: RmaFlags::FENCE, ..read });
            result.expect(8, &word.to_ne_bytes());
            pair.ended(2);
            result.check("the changed word was read");
            remote_area.check("changed by 5");
        }
    });
}

/// What a step of a mixed exchange comes to.
struct Step {
    context: u64,
    status: Status,
    silent: bool,
}

/// Sends, reads, writes and atomics in any order, some of them refused, some silent.
fn mixed<D: Driver>(pair: &mut Pair<D>, whose: Whose, steps: u64) -> Vec<Step> {
    let local_area = Area::new(&mut pair.client, Whose::Library, 100_000, Access::LOCAL);
    let remote_area = Area::new(&mut pair.server, whose, 100_000, READ_WRITE);
    let closed = Area::new(&mut pair.server, whose, 100_000, Access::LOCAL);
    let mut rng = Rng::new(21);
    let (mut list, mut messages) = (Vec::new(), 0);
    for context in 0..steps {
        let len = some_len(&mut rng, 16);
        let silent = rng.below(4) == 0;
        let flags = if silent { RmaFlags::SILENT } else { RmaFlags::NONE };
        let flags = if rng.below(8) == 0 { flags | RmaFlags::FENCE } else { flags };
        let refused = rng.below(5) == 0;
        let target = if refused { &closed } else { &remote_area };
        let mut status = if refused { Status::RmaHandle } else { Status::Success };
        let to = pair.to_server;
        match rng.below(4) {
            0 => {
                status = Status::Success;
                messages += 1;
                let message = pattern(context, 8 + len % 900);
                pair.retry(|client| client.send(to, &message, context, Flags { silent, no_copy: false }));
            }
            1 => {
                let kind = [AtomicKind::FetchAdd, AtomicKind::Xor][rng.below(2) as usize];
                let atomic = Atomic { kind, width: AtomicWidth::Eight, operand: 1, compare: 0 };
                let result = (kind == AtomicKind::FetchAdd).then(|| local_area.address(0));
                let off = rng.below(6) == 0;
                if off && !refused {
                    status = Status::RmaOperation;
                }
                let address = target.address(16 + usize::from(off));
                pair.retry(|client| client.atomic(to, atomic, address, result, context, flags));
            }
            choice => {
                let kind = if choice == 2 { RmaKind::Write } else { RmaKind::Read };
                let (local, remote) = ([local_area.segment(64, len)], [target.segment(64, len)]);
                let operation = plain(kind, &local, &remote, context);
                pair.retry(|client| client.rma(to, &Rma { flags, ..operation }));
            }
        }
        list.push(Step { context, status, silent });
        if rng.below(16) == 0 {
            pair.client.poll();
            pair.server.poll();
        }
    }
    let reported = list.iter().filter(|step| !step.silent).count();
    pair.until("every end and message", |client, server| {
        client.sent.len() >= reported && server.inbox.len() >= messages
    });
    let failed = list.iter().filter(|step| step.status != Status::Success).count() as u64;
    pair.until("every failure", |client, _| client.port.counts().sends_failed >= failed);
    assert_eq!(pair.client.port.counts().sends_failed, failed, "silent ones are counted too");
    closed.check("refused");
    list
}

/// On an ordered connection completions come in the order of issue, whatever is between them (CCI-028).
pub fn completions_in_order_of_issue<D: Driver>(env: &Environment<D>) {
    for whose in Whose::ALL {
        let mut pair = Pair::plain(env, RO);
        let steps = mixed(&mut pair, whose, 900);
        let reported = steps.iter().filter(|step| !step.silent);
        let expected: Vec<_> = reported.map(|step| (step.context, step.status)).collect();
        let got: Vec<_> = pair.client.sent.iter().map(|(_, context, status)| (*context, *status)).collect();
        assert_eq!(got, expected, "in order, each once, each with its own status");
        let numbers: Vec<u64> =
            pair.server.inbox.drain(..).map(|(_, message)| number_of(message.as_ref())).collect();
        assert!(numbers.is_sorted(), "messages in order");
        pair.part();
    }
}

/// On an unordered one they come in any order, each once.
pub fn operations_unordered_exactly_once<D: Driver>(env: &Environment<D>) {
    for whose in Whose::ALL {
        let mut pair = Pair::plain(env, Attribute::ReliableUnordered);
        let steps = mixed(&mut pair, whose, 900);
        let reported = steps.iter().filter(|step| !step.silent);
        let expected: Vec<_> = reported.map(|step| (step.context, step.status)).collect();
        let mut got: Vec<_> =
            pair.client.sent.iter().map(|(_, context, status)| (*context, *status)).collect();
        got.sort_unstable_by_key(|(context, _)| *context);
        assert_eq!(got, expected, "each once, each with its own status");
        pair.part();
    }
}

/// Silent ones say nothing when they succeed, and do what they should.
pub fn silent_operations_raise_no_event<D: Driver>(env: &Environment<D>) {
    for_each_target(env, |pair, _, whose| {
        let local_area = Area::new(&mut pair.client, Whose::Library, 100_000, Access::LOCAL);
        let mut remote_area = Area::new(&mut pair.server, whose, 100_000, READ_WRITE);
        for number in 0..200 {
            let (at, len) = (number * 500, 1 + number * 2);
            remote_area.expect(at, local_area.model(at, len));
            let (local, remote) = ([local_area.segment(at, len)], [remote_area.segment(at, len)]);
            let write = plain(RmaKind::Write, &local, &remote, number as u64);
            pair.start(&Rma { flags: RmaFlags::SILENT, ..write });
        }
        let add = Atomic { kind: AtomicKind::Add, width: AtomicWidth::Four, operand: 1, compare: 0 };
        let to = pair.to_server;
        let word = u32::from_ne_bytes(*remote_area.model(496, 4).first_chunk().expect("4")).wrapping_add(1);
        remote_area.expect(496, &word.to_ne_bytes());
        pair.retry(|client| client.atomic(to, add, remote_area.address(496), None, 1_000, RmaFlags::SILENT));
        let (local, remote) = ([local_area.segment(0, 1)], [remote_area.segment(0, 1)]);
        let last = plain(RmaKind::Write, &local, &remote, 5_000);
        pair.start(&Rma { flags: RmaFlags::FENCE, ..last });
        assert_eq!(pair.ended(1), [(5_000, Status::Success)], "only the one that was not silent");
        pair.client.settle();
        assert!(pair.client.sent.is_empty());
        remote_area.check("silently");
        let beyond = [remote_area.segment(100_000, 1)];
        let wrong = plain(RmaKind::Write, &local, &beyond, 5_001);
        pair.start(&Rma { flags: RmaFlags::SILENT, ..wrong });
        pair.until("a failure that is counted", |client, _| client.port.counts().sends_failed == 1);
        pair.client.settle();
        assert!(pair.client.sent.is_empty(), "and not reported");
    });
}

/// Blocking ones return how they ended, and raise no event.
pub fn blocking_operations_return_the_status<D: Driver>(env: &Environment<D>) {
    for attribute in RELIABLE {
        let Pair { mut client, mut server, to_server, .. } = Pair::<D>::plain(env, attribute);
        let mut local_area = Area::new(&mut client, Whose::Library, 70_000, Access::LOCAL);
        let mut remote_area = Area::new(&mut server, Whose::Foreign, 70_000, READ_WRITE);
        let (stop, running) = poll_in_a_thread(server);
        blocking::<D>(&mut client, to_server, &mut local_area, &mut remote_area);
        stop.store(true, Ordering::Relaxed);
        part([client, running.join().expect("the server went on")]);
    }
}

fn blocking<D: Driver>(
    client: &mut Side<D>,
    to_server: Conn<D>,
    local_area: &mut Area<D>,
    remote_area: &mut Area<D>,
) {
    for len in [1, 8, 1_000, 60_000] {
        let (local, remote) = ([local_area.segment(9, len)], [remote_area.segment(7, len)]);
        remote_area.expect(7, local_area.model(9, len));
        let write = plain(RmaKind::Write, &local, &remote, 1);
        assert_eq!(client.port.rma_blocking(to_server, &write), Ok(Status::Success));
        remote_area.check("written when the call returns");
        let (local, remote) = ([local_area.segment(3, len)], [remote_area.segment(17, len)]);
        local_area.expect(3, remote_area.model(17, len));
        let read = plain(RmaKind::Read, &local, &remote, 1);
        assert_eq!(client.port.rma_blocking(to_server, &read), Ok(Status::Success));
        local_area.check("read when the call returns");
    }
    let (local, beyond) = ([local_area.segment(0, 2)], [remote_area.segment(69_999, 2)]);
    let wrong = plain(RmaKind::Write, &local, &beyond, 1);
    assert_eq!(client.port.rma_blocking(to_server, &wrong), Ok(Status::RmaHandle));
    let mut add = Atomic { kind: AtomicKind::FetchAdd, width: AtomicWidth::Eight, operand: 3, compare: 0 };
    for (word, at) in [8, 16].into_iter().enumerate() {
        let before = remote_area.model(at, 8).to_vec();
        let result = Some(local_area.address(64));
        assert_eq!(
            client.port.atomic_blocking(to_server, add, remote_area.address(at), result),
            Ok(Status::Success)
        );
        local_area.expect(64, &before);
        let after = u64::from_ne_bytes(*before.first_chunk().expect("8")).wrapping_add(add.operand);
        remote_area.expect(at, &after.to_ne_bytes());
        remote_area.check("changed when the call returns");
        local_area.check("the result is there when the call returns");
        add.operand += word as u64;
    }
    let misplaced = client.port.atomic_blocking(to_server, add, remote_area.address(17), None);
    assert_eq!(misplaced, Ok(Status::RmaOperation));
    client.settle();
    assert!(client.sent.is_empty(), "no events");
    remote_area.check("at the end");
}
