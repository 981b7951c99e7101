//! What two containers do with each other, elements by their places, and workspaces, against plain models.

use super::simulated::{Rank, World};
use super::*;
use crate::error::AcpError;
use crate::space::Space;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn world() -> Rank {
    World::alone(1 << 20)
}

/// All elements by going from one to the next.
fn by_cursors(space: &mut Rank, table: &Table, rank: Option<u32>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let (mut all, mut next) = (BTreeMap::new(), table.first(space, rank).unwrap());
    while let Some(at) = next {
        let place = table.locate(space, at).unwrap();
        let [key, value] = [place.key, place.value].map(|(at, len)| {
            let mut bytes = vec![0; len as usize];
            space.read(at, &mut bytes).unwrap();
            bytes
        });
        assert_eq!(table.find(space, &key).unwrap(), Some(at));
        assert!(all.insert(key, value).is_none(), "an element comes once");
        next = table.next(space, at, rank).unwrap();
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn elements_are_found_one_after_another(keys in prop::collection::vec((0_u8..40, 0_usize..30), 0..60), slots in 1_u64..150) {
        let mut space = world();
        let map = Map::create(&mut space, &[0, 0, 0], slots, 0).unwrap();
        let mut model = BTreeMap::new();
        for (key, len) in keys {
            let (key, value) = (vec![key; usize::from(key)], vec![key ^ 3; len]);
            map.replace(&mut space, &key, &value).unwrap();
            model.insert(key, value);
        }
        prop_assert_eq!(&by_cursors(&mut space, map.table(), None), &model);
        prop_assert_eq!(&by_cursors(&mut space, map.table(), Some(0)), &model);
        prop_assert_eq!(by_cursors(&mut space, map.table(), Some(1)).len(), 0);
        prop_assert_eq!(map.table().find(&mut space, b"not there").unwrap(), None);
        if let Some(first) = map.table().first(&mut space, None).unwrap() {
            // Behind an element that was removed come those of other buckets: each at most once, and there is an end.
            let (key_at, key_len) = map.table().locate(&mut space, first).unwrap().key;
            let mut key = vec![0; key_len as usize];
            space.read(key_at, &mut key).unwrap();
            map.remove(&mut space, &key).unwrap();
            prop_assert!(matches!(map.table().locate(&mut space, first), Err(AcpError::Argument(_))));
            let next = map.table().next(&mut space, first, None).unwrap();
            prop_assert!(next.is_none_or(|next| (next.part, next.slot) > (first.part, first.slot)));
            let wrong = Cursor { slot: slots, ..first };
            prop_assert!(matches!(map.table().next(&mut space, wrong, None), Err(AcpError::Argument(_))));
        }
        map.table().clear(&mut space, Some(1)).unwrap();
        prop_assert!(map.len(&mut space).unwrap() + 1 >= model.len() as u64);
        map.table().clear(&mut space, Some(0)).unwrap();
        prop_assert_eq!(map.len(&mut space).unwrap(), 0);
    }

    #[test]
    fn two_lists_exchange_elements(steps in prop::collection::vec((any::<bool>(), 0_usize..12, any::<bool>(), 0_usize..12), 0..60)) {
        let mut space = world();
        let lists = [(); 2].map(|()| List::create(&mut space, 0).unwrap());
        let mut models: [Vec<Vec<u8>>; 2] = [vec![], vec![]];
        for number in 0..10_u8 {
            let which = usize::from(number % 3 == 0);
            lists[which].push_back(&mut space, &[number; 5], 0).unwrap();
            models[which].push(vec![number; 5]);
        }
        for (to, at, from, element) in steps {
            let (to, from) = (usize::from(to), usize::from(from));
            let there = [to, from].map(|list| lists[list].positions(&mut space).unwrap());
            if there[1].is_empty() {
                continue;
            }
            let (at, element) = (at.min(there[0].len()), element % there[1].len());
            lists[to].splice(&mut space, there[0].get(at).copied(), lists[from], there[1][element]).unwrap();
            let moved = models[from].remove(element);
            let at = at - usize::from(to == from && element < at);
            models[to].insert(at, moved);
            for (list, model) in lists.iter().zip(&models) {
                prop_assert_eq!(&list.to_vec(&mut space).unwrap(), model);
                prop_assert_eq!(list.len(&mut space).unwrap(), model.len() as u64);
            }
        }
        let mut order = lists[0].positions(&mut space).unwrap();
        order.reverse();
        lists[0].arrange(&mut space, &order).unwrap();
        models[0].reverse();
        prop_assert_eq!(&lists[0].to_vec(&mut space).unwrap(), &models[0]);
        if let Some(&first) = order.first() {
            order.push(first);
            prop_assert!(matches!(lists[0].arrange(&mut space, &order), Err(AcpError::Argument(_))));
            prop_assert!(matches!(lists[1].splice(&mut space, Some(first), lists[0], first), Err(AcpError::Argument(_))));
            prop_assert_eq!(&lists[0].to_vec(&mut space).unwrap(), &models[0], "nothing has changed");
        }
    }

    #[test]
    fn two_rows_of_bytes_are_exchanged(one in prop::collection::vec(any::<u8>(), 0..300), other in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut space = world();
        let vectors = [(); 2].map(|()| Vector::create(&mut space, 0, 0).unwrap());
        let deques = [(); 2].map(|()| Deque::create(&mut space, 0, 0).unwrap());
        vectors[0].push(&mut space, &one).unwrap();
        deques[0].push_front(&mut space, &one).unwrap();
        vectors[1].set(&mut space, &other).unwrap();
        deques[1].set(&mut space, &other).unwrap();
        for (first, second) in [(0, 1), (1, 0), (0, 0)] {
            let before = (vectors[0].to_vec(&mut space).unwrap(), vectors[1].to_vec(&mut space).unwrap());
            vectors[first].swap(&mut space, vectors[second]).unwrap();
            deques[first].swap(&mut space, deques[second]).unwrap();
            let after = (vectors[0].to_vec(&mut space).unwrap(), vectors[1].to_vec(&mut space).unwrap());
            prop_assert_eq!(&after, &if first == second { before } else { (before.1, before.0) });
            prop_assert_eq!((deques[0].to_vec(&mut space).unwrap(), deques[1].to_vec(&mut space).unwrap()), after);
        }
        deques[0].assign(&mut space, deques[1]).unwrap();
        prop_assert_eq!(deques[0].to_vec(&mut space).unwrap(), deques[1].to_vec(&mut space).unwrap());
    }

    #[test]
    fn a_workspace_is_a_file(len in 1_u64..500, chunk in 1_u64..200, steps in prop::collection::vec((any::<bool>(), 0_u64..600, 0_usize..300), 0..40)) {
        let mut space = world();
        let workspace = Workspace::create(&mut space, len, chunk, 0).unwrap();
        let mut model = vec![0_u8; len as usize];
        for (number, (writes, offset, count)) in steps.into_iter().enumerate() {
            let there = (len.saturating_sub(offset) as usize).min(count);
            if writes {
                let bytes = vec![number as u8 + 1; count];
                prop_assert_eq!(workspace.write(&mut space, offset, &bytes).unwrap(), there as u64);
                if there > 0 {
                    model[offset as usize..][..there].copy_from_slice(&bytes[..there]);
                }
            } else {
                let mut bytes = vec![0xff; count];
                prop_assert_eq!(workspace.read(&mut space, offset, &mut bytes).unwrap(), there as u64);
                prop_assert!(there == 0 || bytes[..there] == model[offset as usize..][..there]);
                prop_assert!(bytes[there..].iter().all(|&byte| byte == 0xff));
            }
        }
        let mut all = vec![0; len as usize];
        workspace.read(&mut space, 0, &mut all).unwrap();
        prop_assert_eq!(all, model);
        workspace.destroy(&mut space).unwrap();
        prop_assert!(matches!(workspace.len(&mut space), Err(AcpError::Corrupt(_))));
    }
}

#[test]
fn a_workspace_that_does_not_fit_leaves_nothing() {
    let mut space = world();
    let most =
        |space: &mut Rank| (0..1 << 20).rev().step_by(4096).find(|&len| allocate(space, 0, len).is_ok());
    assert!(matches!(Workspace::create(&mut space, 4 << 20, 1 << 16, 0), Err(AcpError::Full(_))));
    assert!(matches!(Workspace::create(&mut space, 1 << 40, 1, 0), Err(AcpError::Full(_))));
    assert!(matches!(Workspace::create(&mut space, 0, 1, 0), Err(AcpError::Argument(_))));
    assert!(matches!(Workspace::create(&mut space, 1, 1, 1), Err(AcpError::Rank { rank: 1, size: 1 })));
    assert!(most(&mut space) >= Some((1 << 20) - 8192), "all of it is there again");
}

#[test]
fn containers_exchange_their_elements() {
    let mut space = world();
    let [one, other] = [3, 40].map(|slots| Set::create(&mut space, &[0, 0], slots, 0).unwrap());
    for key in 0..20_u8 {
        one.insert(&mut space, &[key]).unwrap();
    }
    other.insert(&mut space, b"alone").unwrap();
    one.table().swap(&mut space, other.table()).unwrap();
    let [one, other] = [one, other].map(|set| Set::open(&mut space, set.handle()).unwrap());
    assert_eq!((one.len(&mut space).unwrap(), other.len(&mut space).unwrap()), (1, 20));
    assert!(one.contains(&mut space, b"alone").unwrap() && other.contains(&mut space, &[7]).unwrap());
    let third = Set::create(&mut space, &[0], 3, 0).unwrap();
    assert!(matches!(one.table().swap(&mut space, third.table()), Err(AcpError::Argument(_))));
}
