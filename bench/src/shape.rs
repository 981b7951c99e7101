//! Shapes of data that are packed: the same here and in `peers/mpi.c`, which has their numbers too.

use serde::{Deserialize, Serialize};

/// Which bytes belong to the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Shape {
    /// Every second word of 8 bytes.
    Vector,
    /// A face of a box of 64 × 64 × 64 words, two cells thick, without its edges.
    Face,
    /// Blocks of 1 to 7 words, with gaps of 1 to 3 words.
    Indexed,
    /// Structures of 4 and 8 bytes, with a gap between the two.
    Struct,
    /// Bytes in a row.
    Contiguous,
}

impl Shape {
    /// In the order of the report.
    pub const ALL: [Shape; 5] =
        [Shape::Vector, Shape::Face, Shape::Indexed, Shape::Struct, Shape::Contiguous];
    /// Blocks of the vector.
    pub const VECTOR_BLOCKS: usize = 8_192;
    /// Words along each side of the box, and of the face.
    pub const BOX_SIDE: usize = 64;
    /// As many of them are the face's.
    pub const FACE_SIDE: usize = Shape::BOX_SIDE - 2;
    /// Words that the face is thick.
    pub const FACE_DEPTH: usize = 2;
    /// Blocks that have lengths of their own.
    pub const INDEXED_BLOCKS: usize = 2_048;
    /// Structures in a row.
    pub const STRUCTS: usize = 4_096;
    /// Bytes in a row.
    pub const CONTIGUOUS_BYTES: usize = 64 << 10;

    /// Its word on the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Shape::Vector => "vector",
            Shape::Face => "face",
            Shape::Indexed => "indexed",
            Shape::Struct => "struct",
            Shape::Contiguous => "contiguous",
        }
    }

    /// In a title.
    pub const fn words(self) -> &'static str {
        match self {
            Shape::Vector => "a vector of 8 B",
            Shape::Face => "a face of a 3-D box",
            Shape::Indexed => "indexed blocks",
            Shape::Struct => "structures",
            Shape::Contiguous => "bytes in a row",
        }
    }

    /// Lengths and displacements of the indexed blocks, in words.
    pub fn blocks() -> impl Iterator<Item = (usize, usize)> {
        let mut end = 0;
        (0..Shape::INDEXED_BLOCKS).map(move |block| {
            let (len, at) = (1 + block % 7, end);
            end += len + 1 + block % 3;
            (len, at)
        })
    }

    /// How many bytes the data have, packed.
    pub fn packed_bytes(self) -> u32 {
        let bytes = match self {
            Shape::Vector => 8 * Shape::VECTOR_BLOCKS,
            Shape::Face => 8 * Shape::FACE_DEPTH * Shape::FACE_SIDE * Shape::FACE_SIDE,
            Shape::Indexed => 8 * Shape::blocks().map(|(len, _)| len).sum::<usize>(),
            Shape::Struct => 12 * Shape::STRUCTS,
            Shape::Contiguous => Shape::CONTIGUOUS_BYTES,
        };
        bytes as u32
    }

    /// What [`Shape::word`] stands for.
    pub fn of_word(word: &str) -> Option<Shape> {
        Shape::ALL.into_iter().find(|shape| shape.word() == word)
    }
}
