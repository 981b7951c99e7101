//! What a connection has on its way out, in every state that a peer can bring it into.

use super::*;

fn header(kind: Kind, ack: u32) -> Header {
    Header { kind, len: 0, ack }
}

fn full_of_pongs(out: &mut Out) -> usize {
    (0..1 << 16).take_while(|_| out.send_control(header(Kind::Pong, 0), None)).count()
}

#[test]
fn answers_are_bounded_although_a_part_of_one_has_left() {
    let mut out = Out::new();
    assert!(out.send_control(header(Kind::Pong, 0), None));
    out.control_written = 3;
    assert!(full_of_pongs(&mut out) < 2048);
    // Some leave, never all: what has left is forgotten.
    for _ in 0..100 {
        out.control_written = out.control.len() - 3;
        full_of_pongs(&mut out);
    }
    assert!(out.control.len() <= 2 * CONTROL_BYTES_MAX + HEADER_BYTES);
}

#[test]
fn acknowledgements_that_wait_become_one() {
    let mut out = Out::new();
    assert!(out.send_control(header(Kind::Ping, 1), None));
    for ack in 0..100_000 {
        assert!(out.send_control(header(Kind::Ack, ack), None), "{ack}");
    }
    let records = [header(Kind::Ping, 1), header(Kind::Ack, 99_999)].map(Header::bytes).concat();
    assert_eq!(out.control, records);
    // One of which a part has left stays.
    out.control_written = 9;
    assert!(out.send_control(header(Kind::Ack, 100_000), None));
    assert_eq!(out.control, [records.as_slice(), &header(Kind::Ack, 100_000).bytes()].concat());
    // And so does what is none.
    assert!(out.send_control(header(Kind::Pong, 5), None) && out.send_control(header(Kind::Ack, 6), None));
    assert_eq!(out.control.len(), 5 * HEADER_BYTES);
}

/// The peer has no buffer while the longest message is half written: what is left of it is not an answer.
#[test]
fn the_rest_of_a_message_leaves_room_for_answers() {
    let (mut out, mut chunks) = (Out::new(), Chunks::new(1 << 20));
    let mut sends = Sends::new(4).unwrap();
    let (message, op) = ([7; 8192], SendOp { context: 1, silent: false });
    assert!(out.push(&mut sends, &mut chunks, Out::message(8192, 0), &[&message], op, 0, 4));
    out.advance(100, &sends);
    out.dropped(&sends).unwrap();
    assert_eq!(out.control.len(), RECORD_BYTES_MAX - 100);
    assert!(out.send_control(header(Kind::Ack, 1), None) && out.send_control(header(Kind::Resume, 1), None));
}

/// Runs are written, acknowledged, refused and taken back in parts. Each message is a send of its own in all that counts, and the
/// bytes that leave are the records, in order.
mod runs {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        /// Messages of these lengths.
        Burst(Vec<usize>),
        /// The kernel takes so many bytes more.
        Write(u64),
        /// The peer has taken so many messages more.
        Acknowledge(u32),
        /// The peer has no buffer; so many sends are overdue then, and the window is so great afterwards.
        Refuse(u32, u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        let lengths = prop_oneof![Just(8), Just(8), Just(8), 0usize..40, Just(8_000)];
        prop_oneof![
            proptest::collection::vec(lengths, 1..40).prop_map(Step::Burst),
            (0u64..40_000).prop_map(Step::Write),
            (0u64..200).prop_map(Step::Write),
            (0u32..60).prop_map(Step::Acknowledge),
            (0u32..3, 1u32..20).prop_map(|(overdue, window)| Step::Refuse(overdue, window)),
        ]
    }

    /// What a connection holds, and what has to be in it: the lengths of the messages, oldest first.
    struct Checked {
        out: Out,
        sends: Sends,
        chunks: Chunks,
        model: std::collections::VecDeque<usize>,
    }

    impl Checked {
        fn burst(&mut self, lengths: &[usize]) {
            let messages: Vec<Vec<u8>> = lengths.iter().map(|len| vec![*len as u8; *len]).collect();
            let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
            let op = SendOp { context: 3, silent: false };
            let mut at = 0;
            while at < messages.len() && at < self.out.space(&self.sends, true) as usize {
                let space = messages.len().min(at + self.out.space(&self.sends, true) as usize);
                let tables = (&mut self.sends, &mut self.chunks);
                let taken = self.out.push_burst(tables, 9, &messages[at..space], op, 77, 4);
                if taken.messages == 0 {
                    break;
                }
                let more = at..at + taken.messages as usize;
                assert_eq!(taken.bytes as usize, lengths[more.clone()].iter().sum::<usize>());
                self.model.extend(&lengths[more]);
                at += taken.messages as usize;
            }
        }

        /// Takes out what `take` does, and checks that the model has it.
        fn ends(&mut self, take: impl FnOnce(&mut Out, &mut Sends, &mut Chunks) -> Option<Send>) -> u32 {
            let Some(send) = take(&mut self.out, &mut self.sends, &mut self.chunks) else { return 0 };
            for len in self.model.drain(..send.count as usize) {
                assert_eq!(send.record_bytes as usize, HEADER_BYTES + len);
            }
            send.count
        }

        /// Whole records of the oldest messages, as many as lie before `to`.
        fn whole_before(&self, to: u64) -> usize {
            let ends = self.model.iter().scan(self.out.queue.head(), |at, len| {
                *at += (HEADER_BYTES + len) as u64;
                Some(*at)
            });
            ends.take_while(|end| *end <= to).count()
        }

        fn check(&self) {
            let bytes: usize = self.model.iter().map(|len| HEADER_BYTES + len).sum();
            let queue = &self.out.queue;
            assert_eq!(queue.tail() - queue.head(), bytes as u64);
            assert_eq!(self.out.sends() as usize, self.model.len());
            assert_eq!(self.sends.in_use() as usize, self.model.len());
            assert_eq!(self.out.in_flight as usize, self.whole_before(self.out.written));
            assert_eq!(self.out.next == NIL, self.out.written == queue.tail());
            let mut at = queue.head();
            for len in &self.model {
                let mut record = vec![0; HEADER_BYTES + len];
                assert!(queue.copy_out(at, &mut record));
                assert_eq!(record[..HEADER_BYTES], Out::message(*len, 9).bytes());
                assert!(record[HEADER_BYTES..].iter().all(|byte| *byte == *len as u8));
                at += record.len() as u64;
            }
            let end = self.out.window_end(&self.sends);
            if self.out.flow == Flow::Going && self.out.next != NIL {
                let whole = self.whole_before(end);
                let allowed = self.out.window.max(self.out.in_flight) as usize;
                let begun = usize::from(self.out.is_mid_record() && allowed == self.out.in_flight as usize);
                assert_eq!(whole, self.model.len().min(allowed + begun), "up to the window");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn runs_are_counted_by_messages(steps in proptest::collection::vec(step(), 1..60)) {
            let mut checked = Checked {
                out: Out::new(),
                sends: Sends::new(300).unwrap(),
                chunks: Chunks::new(1 << 20),
                model: std::collections::VecDeque::new(),
            };
            for step in steps {
                match step {
                    Step::Burst(lengths) => checked.burst(&lengths),
                    Step::Write(bytes) => {
                        let to = checked.out.window_end(&checked.sends).max(checked.out.written);
                        let bytes = bytes.min(to - checked.out.written);
                        checked.out.advance(bytes, &checked.sends);
                    }
                    Step::Acknowledge(count) => {
                        let mut left = count.min(checked.out.in_flight);
                        checked.out.acked(left).unwrap();
                        while left > 0 {
                            left -= checked.ends(|out, sends, chunks| out.pop_written(sends, chunks, left));
                        }
                    }
                    Step::Refuse(overdue, window) => {
                        if checked.out.dropped(&checked.sends).is_err() {
                            continue;
                        }
                        for _ in 0..overdue {
                            prop_assert!(checked.ends(Out::take_back) <= 1);
                        }
                        checked.out.resume(window);
                    }
                }
                checked.check();
            }
            while checked.ends(Out::abandon) > 0 {}
            checked.check();
            prop_assert_eq!(checked.chunks.unused(), checked.chunks.max());
        }
    }
}
