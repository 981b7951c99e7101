//! Described data copied into a row, and back.

use super::dial::failed;
use crate::args::WorkArgs;
use crate::reading::Reading;
use crate::shape::Shape;
use crate::work::Work;
use crate::worker::exchange::not_done;
use crate::worker::partner;
use cci_am::description::{Description, DescriptionError};
use cci_measure::failure::Outcome;
use cci_sys::clock;

const WORD_BYTES: usize = 8;

/// By one process, on the first core.
pub fn run(args: &WorkArgs) -> Outcome<Reading> {
    let (Work::Pack { shape } | Work::Unpack { shape }) = args.work else { return Err(not_done(args)) };
    partner::pin(args)?;
    let (description, count) = described(shape).map_err(|error| failed("a description")(&error))?;
    let span = description.span(count).unwrap_or_default();
    let len = shape.packed_bytes();
    let mut memory = vec![1_u8; span.end.unsigned_abs()];
    let mut packed = vec![1_u8; len as usize];
    let mut copy = |count_of_copies: u64| -> Outcome {
        for _ in 0..count_of_copies {
            let done = match args.work {
                Work::Pack { .. } => description.pack((&memory[..]).into(), 0, count, 0, &mut packed),
                _ => description.unpack((&mut memory[..]).into(), 0, count, 0, &packed),
            };
            done.map_err(|error| failed("packing")(&error))?;
        }
        Ok(())
    };
    copy(args.count / 10 + 1)?;
    let begin_ns = clock::now_ns();
    copy(args.count)?;
    Ok(Reading::of_bytes(len, args.count, clock::now_ns() - begin_ns))
}

/// One element, and how many of them.
fn described(shape: Shape) -> Result<(Description, usize), DescriptionError> {
    let word = Description::bytes(WORD_BYTES)?;
    Ok(match shape {
        Shape::Vector => (Description::vector(Shape::VECTOR_BLOCKS, 1, 2, &word)?, 1),
        Shape::Face => {
            let row = (WORD_BYTES * Shape::BOX_SIDE) as isize;
            let counts = [WORD_BYTES * Shape::FACE_DEPTH, Shape::FACE_SIDE, Shape::FACE_SIDE];
            (Description::strided(&counts, &[row, row * Shape::BOX_SIDE as isize])?, 1)
        }
        Shape::Indexed => {
            let (lens, at): (Vec<_>, Vec<_>) = Shape::blocks().map(|(len, at)| (len, at as isize)).unzip();
            (Description::indexed(&lens, &at, &word)?, 1)
        }
        Shape::Struct => {
            let four = Description::bytes(4)?;
            (Description::structure(&[1, 1], &[0, 8], &[&four, &word])?, Shape::STRUCTS)
        }
        Shape::Contiguous => (Description::bytes(1)?, Shape::CONTIGUOUS_BYTES),
    })
}
