//! Random descriptions, and a plain model of them, which lists each byte.

use cci_am::description::{Description, DescriptionError};
use proptest::prelude::*;

/// How a description is made.
#[derive(Debug, Clone)]
pub(crate) enum Recipe {
    Bytes(usize),
    Vector { count: usize, block_len: usize, stride: isize, in_bytes: bool, of: Box<Recipe> },
    Indexed { blocks: Vec<(usize, isize)>, in_bytes: bool, of: Box<Recipe> },
    BlockIndexed { len: usize, at: Vec<isize>, in_bytes: bool, of: Box<Recipe> },
    Structure(Vec<(usize, isize, Recipe)>),
    Resized { lower: isize, extent: usize, of: Box<Recipe> },
    Strided { counts: Vec<usize>, strides: Vec<isize> },
}

/// What MPI's rules make of a recipe: the place of each byte, in order, and the places of the markers of bounds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    pub(crate) bytes: Vec<isize>,
    lower_markers: Vec<isize>,
    upper_markers: Vec<isize>,
}

impl Model {
    pub(crate) fn lower(&self) -> isize {
        let of_bytes = || self.bytes.iter().copied().min();
        self.lower_markers.iter().copied().min().or_else(of_bytes).unwrap_or(0)
    }

    pub(crate) fn upper(&self) -> isize {
        let of_bytes = || self.bytes.iter().map(|at| at + 1).max();
        self.upper_markers.iter().copied().max().or_else(of_bytes).unwrap_or(0)
    }

    pub(crate) fn extent(&self) -> isize {
        self.upper() - self.lower()
    }

    fn add(&mut self, of: &Model, at: isize) {
        self.bytes.extend(of.bytes.iter().map(|byte| byte + at));
        self.lower_markers.extend(of.lower_markers.iter().map(|marker| marker + at));
        self.upper_markers.extend(of.upper_markers.iter().map(|marker| marker + at));
    }

    fn add_elements(&mut self, of: &Model, count: usize, at: isize) {
        for element in 0..count {
            self.add(of, at + element as isize * of.extent());
        }
    }
}

impl Recipe {
    pub(crate) fn model(&self) -> Model {
        let mut model = Model::default();
        match self {
            Recipe::Bytes(len) => model.bytes.extend(0..*len as isize),
            Recipe::Vector { count, block_len, stride, in_bytes, of } => {
                let of = of.model();
                let unit = if *in_bytes { 1 } else { of.extent() };
                (0..*count as isize).for_each(|i| model.add_elements(&of, *block_len, i * stride * unit));
            }
            Recipe::Indexed { blocks, in_bytes, of } => {
                let of = of.model();
                let unit = if *in_bytes { 1 } else { of.extent() };
                blocks.iter().for_each(|(len, at)| model.add_elements(&of, *len, at * unit));
            }
            Recipe::BlockIndexed { len, at, in_bytes, of } => {
                let of = of.model();
                let unit = if *in_bytes { 1 } else { of.extent() };
                at.iter().for_each(|at| model.add_elements(&of, *len, at * unit));
            }
            Recipe::Structure(parts) => {
                parts.iter().for_each(|(len, at, of)| model.add_elements(&of.model(), *len, *at));
            }
            Recipe::Resized { lower, extent, of } => {
                model.bytes = of.model().bytes;
                model.lower_markers = vec![*lower];
                model.upper_markers = vec![lower + *extent as isize];
            }
            Recipe::Strided { counts, strides } => {
                let mut blocks = vec![0isize];
                for (count, stride) in counts[1..].iter().zip(strides) {
                    let turns = 0..*count as isize;
                    blocks =
                        turns.flat_map(|i| blocks.iter().map(move |at: &isize| at + i * stride)).collect();
                }
                let row = 0..counts[0] as isize;
                model.bytes = blocks.iter().flat_map(|at| row.clone().map(move |byte| at + byte)).collect();
            }
        }
        model
    }

    /// Those that it is made of.
    fn parts(&self) -> Vec<&Recipe> {
        match self {
            Recipe::Bytes(_) | Recipe::Strided { .. } => Vec::new(),
            Recipe::Vector { of, .. }
            | Recipe::Indexed { of, .. }
            | Recipe::BlockIndexed { of, .. }
            | Recipe::Resized { of, .. } => vec![of],
            Recipe::Structure(parts) => parts.iter().map(|(.., of)| of).collect(),
        }
    }

    /// Whether that holds of it, or of one that is nested in it.
    fn any(&self, holds: &impl Fn(&Recipe) -> bool) -> bool {
        holds(self) || self.parts().into_iter().any(|part| part.any(holds))
    }

    pub(crate) fn has_empty(&self) -> bool {
        self.any(&|recipe| recipe.model().bytes.is_empty())
    }

    pub(crate) fn has_stride_of_minus_1(&self) -> bool {
        self.any(&|recipe| matches!(recipe, Recipe::Vector { stride: -1, .. }))
    }

    /// Whether bounds that were set and others meet in a structure.
    pub(crate) fn mixes_resized(&self) -> bool {
        self.any(&|recipe| {
            let mut resized = recipe.parts().into_iter().map(|part| !part.model().lower_markers.is_empty());
            resized.next().is_some_and(|first| resized.any(|other| other != first))
        })
    }

    pub(crate) fn description(&self) -> Result<Description, DescriptionError> {
        match self {
            Recipe::Bytes(len) => Description::bytes(*len),
            Recipe::Vector { count, block_len, stride, in_bytes, of } => {
                let make = if *in_bytes { Description::hvector } else { Description::vector };
                make(*count, *block_len, *stride, &of.description()?)
            }
            Recipe::Indexed { blocks, in_bytes, of } => {
                let (lens, at): (Vec<usize>, Vec<isize>) = blocks.iter().copied().unzip();
                let make = if *in_bytes { Description::hindexed } else { Description::indexed };
                make(&lens, &at, &of.description()?)
            }
            Recipe::BlockIndexed { len, at, in_bytes, of } => {
                let make = if *in_bytes { Description::hblock_indexed } else { Description::block_indexed };
                make(*len, at, &of.description()?)
            }
            Recipe::Structure(parts) => {
                let lens: Vec<usize> = parts.iter().map(|(len, ..)| *len).collect();
                let at: Vec<isize> = parts.iter().map(|(_, at, _)| *at).collect();
                let of = parts.iter().map(|(.., of)| of.description()).collect::<Result<Vec<_>, _>>()?;
                Description::structure(&lens, &at, &of.iter().collect::<Vec<_>>())
            }
            Recipe::Resized { lower, extent, of } => {
                Description::resized(&of.description()?, *lower, *extent)
            }
            Recipe::Strided { counts, strides } => Description::strided(counts, strides),
        }
    }
}

pub(crate) fn recipes() -> impl Strategy<Value = Recipe> {
    let leaf = prop_oneof![
        (0usize..20).prop_map(Recipe::Bytes),
        prop::sample::select(vec![1usize, 2, 4, 8, 16]).prop_map(Recipe::Bytes),
        (1usize..10, prop::collection::vec((0usize..4, -40isize..40), 0..4)).prop_map(|(len, levels)| {
            let (mut counts, strides): (Vec<usize>, Vec<isize>) = levels.into_iter().unzip();
            counts.insert(0, len);
            Recipe::Strided { counts, strides }
        }),
    ];
    leaf.prop_recursive(5, 24, 4, |inner| {
        let of = inner.clone().prop_map(Box::new);
        prop_oneof![
            (0usize..5, 0usize..4, -6isize..6, any::<bool>(), of.clone()).prop_map(
                |(count, block_len, stride, in_bytes, of)| Recipe::Vector {
                    count,
                    block_len,
                    stride,
                    in_bytes,
                    of
                }
            ),
            (prop::collection::vec((0usize..4, -9isize..9), 0..6), any::<bool>(), of.clone())
                .prop_map(|(blocks, in_bytes, of)| Recipe::Indexed { blocks, in_bytes, of }),
            (0usize..4, prop::collection::vec(-9isize..9, 0..20), any::<bool>(), of.clone())
                .prop_map(|(len, at, in_bytes, of)| Recipe::BlockIndexed { len, at, in_bytes, of }),
            prop::collection::vec((0usize..4, -30isize..30, inner), 0..5).prop_map(Recipe::Structure),
            (-20isize..20, 0usize..40, of).prop_map(|(lower, extent, of)| Recipe::Resized {
                lower,
                extent,
                of
            }),
        ]
    })
}
