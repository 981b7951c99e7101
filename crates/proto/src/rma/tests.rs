//! Records read back as they were written; no bytes panic.

use super::*;
use crate::limits::RECORD_BYTES;
use proptest::prelude::*;

fn slots() -> impl Strategy<Value = RemoteAddress> {
    any::<[u64; 3]>().prop_map(|[region, key, offset]| RemoteAddress { region, key, offset })
}

fn atomics() -> impl Strategy<Value = Atomic> {
    (0..AtomicKind::ALL.len(), any::<bool>(), any::<[u64; 2]>()).prop_map(
        |(kind, wide, [operand, compare])| Atomic {
            kind: AtomicKind::ALL[kind],
            width: if wide { AtomicWidth::Eight } else { AtomicWidth::Four },
            operand,
            compare,
        },
    )
}

fn check(record: Record<'_>, space: usize) -> Result<(), TestCaseError> {
    let mut out = vec![0xaa; space + 64];
    let len = record.emit(&mut out).expect("fits");
    prop_assert!(len.is_multiple_of(8) && out[len..].iter().all(|&byte| byte == 0xaa));
    prop_assert_eq!(Record::parse(&out), Some((record, len)));
    for cut in 0..len {
        prop_assert_eq!(Record::parse(&out[..cut]), None);
        prop_assert_eq!(record.emit(&mut vec![0; cut]), None, "no room is no panic");
    }
    Ok(())
}

proptest! {
    #[test]
    fn records_read_back(
        slot: u16, at in slots(), flag: bool, offset: u64, len_bytes: u64, atomic in atomics(),
        data in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let data = &data[..];
        check(Record::Write { slot, at, last: flag, data }, data.len())?;
        check(Record::Read { slot, at, len_bytes }, 0)?;
        check(Record::Data { slot, offset, data }, data.len())?;
        check(Record::Gone { slot, offset, len_bytes }, 0)?;
        check(Record::Atomic { slot, at, atomic, wants_value: flag }, 0)?;
        check(Record::Notify { slot, message: flag.then_some(data) }, data.len())?;
        for result in [Ok(None), Ok(Some(offset)), Err(RmaRefusal::Handle), Err(RmaRefusal::Operation)] {
            check(Record::Done { slot, result }, 0)?;
        }
    }

    #[test]
    fn whatever_parses_is_written_the_same(
        mut bytes in prop::collection::vec(any::<u8>(), 8..120), kind in 0u8..10, flags in 0u8..6, len in 0u16..120,
    ) {
        bytes[..4].copy_from_slice(&[len as u8, 0, kind, flags]);
        bytes[6..8].fill(0);
        if let Some((record, len)) = Record::parse(&bytes) {
            let mut out = vec![0; bytes.len()];
            let again = record.emit(&mut out);
            if let Record::Notify { message: None, .. } = record {
                return Ok(()); // what it carries besides is nobody's
            }
            prop_assert_eq!(again, Some(len));
            prop_assert_eq!(Record::parse(&out), Some((record, len)));
        }
    }
}

#[test]
fn what_is_too_long_for_a_record_is_not_written() {
    let mut out = vec![0; 70_000];
    let data = vec![0; 65_535];
    assert_eq!(Record::Notify { slot: 0, message: Some(&data) }.emit(&mut out), Some(RECORD_BYTES + 65_536));
    assert_eq!(Record::Data { slot: 0, offset: 0, data: &data }.emit(&mut out), None);
}
