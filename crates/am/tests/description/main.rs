//! Descriptions beside a plain model, which lists each byte, and beside the data types of two implementations of MPI.

mod mpi;
mod recipe;

use cci_am::description::{Description, DescriptionError, PackError};
use proptest::prelude::*;
use recipe::{Recipe, recipes};

/// A byte that depends on where it is.
fn byte_at(index: usize) -> u8 {
    (index * 31 + index / 253) as u8
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_is_what_the_model_says(recipe in recipes(), count in 0usize..4, first in 0usize..2_000, len in 0usize..2_000) {
        let model = recipe.model();
        prop_assume!(model.bytes.len() < 100_000);
        let description = recipe.description().expect("small numbers fit");
        prop_assert_eq!(description.size(), model.bytes.len());
        prop_assert_eq!(description.lower_bound(), model.lower());
        prop_assert_eq!(description.extent(), model.extent());
        let true_bounds = match (model.bytes.iter().min(), model.bytes.iter().max()) {
            (Some(low), Some(high)) => *low..*high + 1,
            _ => 0..0,
        };
        prop_assert_eq!(description.true_bounds(), true_bounds);

        // Places of all bytes, in the order of the packed row.
        let extent = model.extent();
        let places: Vec<isize> = (0..count as isize)
            .flat_map(|element| model.bytes.iter().map(move |at| at + element * extent))
            .collect();
        if description.is_contiguous(count) {
            prop_assert!(places.windows(2).all(|pair| pair[0] + 1 == pair[1]));
        }
        let low = places.iter().copied().min().unwrap_or(0);
        let high = places.iter().copied().max().map_or(0, |high| high + 1);
        let memory: Vec<u8> = (0..(high - low) as usize).map(byte_at).collect();
        let origin = -low;
        let expected: Vec<u8> = places.iter().map(|at| memory[(at - low) as usize]).collect();

        let mut out = vec![0xAB; len];
        let packed = description.pack(memory.as_slice().into(), origin, count, first, &mut out);
        if first > expected.len() {
            prop_assert_eq!(packed, Err(PackError::BehindEnd));
            return Ok(());
        }
        let part = &expected[first..expected.len().min(first + len)];
        prop_assert_eq!(packed, Ok(part.len()));
        prop_assert_eq!(&out[..part.len()], part);
        prop_assert!(out[part.len()..].iter().all(|byte| *byte == 0xAB), "nothing behind the part is touched");

        let mut unpacked = vec![0xCD; memory.len()];
        let row: Vec<u8> = (0..len).map(|index| byte_at(index + 77)).collect();
        let done = description.unpack(unpacked.as_mut_slice().into(), origin, count, first, &row);
        prop_assert_eq!(done, Ok(part.len()));
        let mut expected = vec![0xCD; memory.len()];
        for (at, byte) in places[first..first + part.len()].iter().zip(&row) {
            expected[(at - low) as usize] = *byte;
        }
        prop_assert_eq!(unpacked, expected);

        // Memory that is a byte short, at either end, is refused.
        if !places.is_empty() {
            let mut out = vec![0; 8];
            let short = &memory[..memory.len() - 1];
            prop_assert_eq!(description.pack(short.into(), origin, count, 0, &mut out), Err(PackError::OutOfRange));
            prop_assert_eq!(description.pack(memory.as_slice().into(), origin - 1, count, 0, &mut out), Err(PackError::OutOfRange));
            prop_assert_eq!(&out, &[0; 8]);
        }
    }
}

#[test]
fn rows_of_rows_that_are_too_long_to_be_inlined_are_walked() {
    let piece = |at: isize| (1usize, at * 7 - (at % 3));
    let irregular = Recipe::Indexed {
        blocks: (0..40).map(piece).collect(),
        in_bytes: true,
        of: Box::new(Recipe::Bytes(2)),
    };
    let of = |of: &Recipe| {
        Recipe::Structure(vec![(1, 0, of.clone()), (2, 1_000, of.clone()), (1, 5_000, Recipe::Bytes(3))])
    };
    let deep = of(&of(&of(&irregular)));
    let (model, description) = (deep.model(), deep.description().unwrap());
    let low = model.bytes.iter().copied().min().unwrap();
    let high = model.bytes.iter().copied().max().unwrap() + 1;
    let memory: Vec<u8> = (0..(high - low) as usize).map(byte_at).collect();
    let expected: Vec<u8> = model.bytes.iter().map(|at| memory[(at - low) as usize]).collect();
    for step in [1, 7, 64, 333, expected.len()] {
        let mut packed: Vec<u8> = Vec::new();
        while packed.len() < expected.len() {
            let mut part = vec![0; step];
            let done = description.pack(memory.as_slice().into(), -low, 1, packed.len(), &mut part).unwrap();
            packed.extend(&part[..done]);
        }
        assert_eq!(packed, expected, "in parts of {step} bytes");
    }
}

#[test]
fn what_is_one_loop_becomes_one() {
    let byte = Description::bytes(1).unwrap();
    let eight = Description::contiguous(8, &byte).unwrap();
    assert!(eight.is_contiguous(100));
    let matrix = Description::vector(16, 16, 16, &eight).unwrap();
    assert!(matrix.is_contiguous(1));
    let pieces = Description::hindexed(&[4, 4, 4], &[0, 4, 8], &byte).unwrap();
    assert!(pieces.is_contiguous(5));
    let apart = Description::hindexed(&[4, 4, 4], &[0, 4, 9], &byte).unwrap();
    assert!(!apart.is_contiguous(1));
}

#[test]
fn addresses_of_an_io_vector_are_places_from_address_0_on() {
    let memory: Vec<u8> = (0..100).map(byte_at).collect();
    let base = 0x7000_0000;
    let description = Description::from_addresses([(base + 90, 10), (base, 3), (base + 40, 0)]).unwrap();
    let mut packed = [0; 13];
    let origin = -isize::try_from(base).unwrap();
    assert_eq!(description.pack(memory.as_slice().into(), origin, 1, 0, &mut packed), Ok(13));
    assert_eq!(packed[..10], memory[90..]);
    assert_eq!(packed[10..], memory[..3]);
}

#[test]
fn what_exceeds_the_address_space_is_refused() {
    let byte = Description::bytes(1).unwrap();
    let large = Description::bytes(isize::MAX as usize).unwrap();
    let overflow = |made: Result<Description, DescriptionError>| {
        assert_eq!(made.unwrap_err(), DescriptionError::Overflow);
    };
    overflow(Description::bytes(usize::MAX));
    overflow(Description::contiguous(2, &large));
    overflow(Description::contiguous(usize::MAX, &byte));
    overflow(Description::hvector(3, 1, isize::MAX / 2 + 1, &byte));
    overflow(Description::vector(2, 1, isize::MIN, &Description::bytes(2).unwrap()));
    overflow(Description::hindexed(&[1, 1], &[isize::MIN, isize::MAX - 1], &byte));
    overflow(Description::hindexed(&[1], &[isize::MAX], &byte));
    overflow(Description::indexed(&[1], &[isize::MAX], &Description::bytes(2).unwrap()));
    overflow(Description::structure(&[1, 1], &[0, 0], &[&large, &large]));
    overflow(Description::resized(&byte, isize::MAX, 1));
    overflow(Description::resized(&byte, 0, usize::MAX));
    overflow(Description::from_addresses([(usize::MAX, 1)]));
    let four = Description::contiguous(4, &large.clone()).unwrap_err();
    assert_eq!(four, DescriptionError::Overflow);
    let memory = [0u8; 4];
    let mut out = [0; 4];
    assert_eq!(
        large.pack(memory.as_slice().into(), 0, 4, 0, &mut out),
        Err(PackError::Overflow),
        "more elements than the address space has"
    );
}

#[test]
fn lists_of_different_lengths_are_refused() {
    let byte = Description::bytes(1).unwrap();
    let differ = |made: Result<Description, DescriptionError>| {
        assert_eq!(made.unwrap_err(), DescriptionError::ListsDiffer);
    };
    differ(Description::indexed(&[1, 2], &[0], &byte));
    differ(Description::hindexed(&[1], &[0, 1], &byte));
    differ(Description::structure(&[1], &[0], &[]));
    differ(Description::strided(&[], &[]));
    differ(Description::strided(&[1, 2], &[]));
}

#[test]
fn levels_that_cannot_be_merged_are_bounded() {
    let stride_of = |level: usize| if level.is_multiple_of(2) { 5 } else { 3 };
    let mut description = Description::bytes(1).unwrap();
    let mut levels = 0;
    let error = loop {
        match Description::hvector(2, 1, stride_of(levels), &description) {
            Ok(deeper) => description = deeper,
            Err(error) => break error,
        }
        levels += 1;
    };
    assert_eq!((levels, error), (32, DescriptionError::TooDeep));
    assert_eq!(description.size(), 1 << 32);

    // Each bit of a byte's number in the packed row says whether a level is at its second turn.
    let place = |byte: usize| -> usize {
        (0..levels).filter(|level| byte >> level & 1 == 1).map(|level| stride_of(level) as usize).sum()
    };
    let memory: Vec<u8> = (0..description.true_bounds().end as usize).map(byte_at).collect();
    for first in [0, 1, (1 << 31) - 5, (1 << 32) - 1000] {
        let mut packed = [0; 1000];
        assert_eq!(description.pack(memory.as_slice().into(), 0, 1, first, &mut packed), Ok(1000));
        for (index, byte) in packed.iter().enumerate() {
            assert_eq!(*byte, memory[place(first + index)], "byte {}", first + index);
        }
    }
}
