//! Descriptions as bytes, as processes send them to each other.

use super::layout::{LEVELS_MAX, Layout, Placed, RowBuilder, Shape};
use super::{Bounds, Description};

const BLOCK: u64 = 0;
const STRIDED: u64 = 1;
const PIECES: u64 = 2;
const ROW: u64 = 3;

const WORD_BYTES: usize = size_of::<u64>();

impl Description {
    /// The description as words of 8 bytes. `None` if it has no bytes, or if there are more than `max_bytes` of these words.
    //= wire.md R-AM-17
    pub(crate) fn encode(&self, max_bytes: usize) -> Option<Box<[u8]>> {
        let (Some(placed), Some(bounds)) = (&self.layout, &self.bounds) else { return None };
        let mut encoder = Encoder { bytes: Vec::new(), max_bytes };
        for word in [bounds.lower, bounds.upper, placed.at] {
            encoder.word(word as u64)?;
        }
        encoder.layout(&placed.layout)?;
        Some(encoder.bytes.into())
    }

    /// Makes the description that was encoded. `None` if no process encodes one like this.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Description> {
        let (words, []) = bytes.as_chunks() else { return None };
        let mut decoder = Decoder { words };
        let (lower, upper, at) = (decoder.place()?, decoder.place()?, decoder.place()?);
        upper.checked_sub(lower)?;
        let layout = decoder.layout(0)?.moved(at).ok()?;
        let bounds = Bounds { lower, upper, explicit: true };
        decoder.words.is_empty().then_some(Description { layout: Some(layout), bounds: Some(bounds) })
    }

    /// Whether the two share what describes them, as clones do.
    pub(crate) fn is_clone_of(&self, other: &Description) -> bool {
        match (&self.layout, &other.layout) {
            (Some(one), Some(another)) => one.is_clone_of(another) && self.bounds == other.bounds,
            _ => false,
        }
    }
}

#[cfg(test)]
impl PartialEq for Description {
    fn eq(&self, other: &Description) -> bool {
        self.encode(usize::MAX) == other.encode(usize::MAX)
    }
}

struct Encoder {
    bytes: Vec<u8>,
    max_bytes: usize,
}

impl Encoder {
    fn word(&mut self, word: u64) -> Option<()> {
        if self.bytes.len() + WORD_BYTES > self.max_bytes {
            return None;
        }
        self.bytes.extend(word.to_le_bytes());
        Some(())
    }

    fn words<const COUNT: usize>(&mut self, words: [u64; COUNT]) -> Option<()> {
        words.into_iter().try_for_each(|word| self.word(word))
    }

    /// Levels are limited where layouts are made.
    fn layout(&mut self, layout: &Layout) -> Option<()> {
        match &layout.shape {
            Shape::Block => self.words([BLOCK, layout.size as u64]),
            Shape::Strided { count, stride, of } => {
                self.words([STRIDED, *count as u64, *stride as u64])?;
                self.layout(of)
            }
            Shape::Pieces(pieces) => {
                self.words([PIECES, pieces.count() as u64])?;
                (0..pieces.count()).try_for_each(|index| {
                    let (at, len) = pieces.block(index)?;
                    self.words([at as u64, len as u64])
                })
            }
            Shape::Row(parts) => {
                self.words([ROW, parts.len() as u64])?;
                parts.iter().try_for_each(|part| {
                    self.word(part.placed.at as u64)?;
                    self.layout(&part.placed.layout)
                })
            }
        }
    }
}

struct Decoder<'a> {
    words: &'a [[u8; WORD_BYTES]],
}

impl Decoder<'_> {
    fn word(&mut self) -> Option<u64> {
        self.words.split_off_first().map(|word| u64::from_le_bytes(*word))
    }

    fn place(&mut self) -> Option<isize> {
        Some(self.word()? as isize)
    }

    fn count(&mut self) -> Option<usize> {
        usize::try_from(self.word()?).ok()
    }

    /// A layout inside of so many others. It gets its simplest form again, whatever was sent.
    fn layout(&mut self, level: usize) -> Option<Placed> {
        if level > LEVELS_MAX {
            return None;
        }
        match self.word()? {
            BLOCK => Placed::block(0, self.count()?).ok()?,
            STRIDED => {
                let (count, stride) = (self.count()?, self.place()?);
                self.layout(level + 1)?.repeated(count, stride).ok()?
            }
            // The words end, whatever the count is.
            PIECES => {
                let mut row = RowBuilder::default();
                for _ in 0..self.count()? {
                    let (at, len) = (self.place()?, self.count()?);
                    row.push_block(at, len).ok()?;
                }
                row.finish().ok()?
            }
            ROW => {
                let mut row = RowBuilder::default();
                for _ in 0..self.count()? {
                    let at = self.place()?;
                    row.push(self.layout(level + 1)?.moved(at).ok()?).ok()?;
                }
                row.finish().ok()?
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAX: usize = 8192;

    fn descriptions() -> impl Strategy<Value = Description> {
        let leaf =
            prop_oneof![
                (1_usize..20).prop_map(|len| Description::bytes(len).unwrap()),
                (1_usize..9, 2_usize..5, -40_isize..40)
                    .prop_map(|(len, count, stride)| Description::strided(&[len, count], &[stride]).unwrap()),
            ];
        leaf.prop_recursive(6, 24, 4, |inner| {
            prop_oneof![
                (1_usize..5, 1_usize..4, -60_isize..60, inner.clone()).prop_map(
                    |(count, len, stride, of)| Description::hvector(count, len, stride, &of).unwrap()
                ),
                (prop::collection::vec((0_usize..4, -90_isize..90), 1..30), inner.clone()).prop_map(
                    |(blocks, of)| {
                        let (lens, at): (Vec<usize>, Vec<isize>) = blocks.into_iter().unzip();
                        Description::hindexed(&lens, &at, &of).unwrap()
                    }
                ),
                (prop::collection::vec((-90_isize..90, inner.clone()), 1..20)).prop_map(|parts| {
                    let at: Vec<isize> = parts.iter().map(|(at, _)| *at).collect();
                    let of: Vec<&Description> = parts.iter().map(|(_, of)| of).collect();
                    Description::structure(&vec![1; parts.len()], &at, &of).unwrap()
                }),
                (-20_isize..20, 0_usize..40, inner)
                    .prop_map(|(lower, extent, of)| Description::resized(&of, lower, extent).unwrap()),
            ]
        })
    }

    fn pieces(description: &Description, count: usize) -> Vec<super::super::Piece> {
        let mut pieces = Vec::new();
        let size = description.packed_bytes(count).unwrap();
        assert_eq!(description.pieces(count, 0, size, usize::MAX, &mut pieces), size);
        pieces
    }

    proptest! {
        #[test]
        fn what_was_encoded_describes_the_same_bytes(description in descriptions(), count in 1_usize..4) {
            let Some(bytes) = description.encode(MAX) else {
                prop_assert!(description.size() == 0 || description.encode(usize::MAX).unwrap().len() > MAX);
                return Ok(());
            };
            let decoded = Description::decode(&bytes).unwrap();
            prop_assert_eq!(decoded.size(), description.size());
            prop_assert_eq!(decoded.extent(), description.extent());
            prop_assert_eq!(decoded.lower_bound(), description.lower_bound());
            prop_assert_eq!(decoded.true_bounds(), description.true_bounds());
            prop_assert_eq!(pieces(&decoded, count), pieces(&description, count));
            prop_assert_eq!(decoded.encode(MAX), Some(bytes.clone()), "it had its simplest form");
            prop_assert!(Description::decode(&bytes[..bytes.len() - 8]).is_none());
            prop_assert!(Description::decode(&[&bytes[..], &[0; 8]].concat()).is_none());
            prop_assert!(description.encode(bytes.len() - 1).is_none());
        }

        #[test]
        fn no_words_panic(words in prop::collection::vec(prop_oneof![0_u64..6, any::<u64>()], 0..60), count in 1_usize..4) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            if let Some(description) = Description::decode(&bytes) {
                prop_assert!(description.size() > 0);
                let mut some = Vec::new();
                let first = description.packed_bytes(count).map_or(0, |size| size / 2);
                description.pieces(count, first, 100, 100, &mut some);
                let _ = description.span(count);
            }
        }
    }

    #[test]
    fn clones_are_known_and_nonsense_is_refused() {
        let description = Description::strided(&[8, 10], &[16]).unwrap();
        assert!(description.is_clone_of(&description.clone()));
        assert!(!description.is_clone_of(&Description::strided(&[8, 10], &[16]).unwrap()));
        assert!(Description::null().encode(MAX).is_none());
        let words = |words: &[u64]| {
            Description::decode(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>())
        };
        assert!(words(&[0, 8, 0, BLOCK, 8]).is_some());
        for bad in [
            &[][..],
            &[0, 8, 0],
            &[0, 8, 0, 4],
            &[0, 8, 0, BLOCK, 0],
            &[0, 8, 0, BLOCK, u64::MAX],
            &[0, 8, i64::MAX as u64, BLOCK, 8],
            &[i64::MIN as u64, 8, 0, BLOCK, 8],
            &[0, 8, 0, STRIDED, 0, 1, BLOCK, 8],
            &[0, 8, 0, STRIDED, u64::MAX, 16, BLOCK, 8],
            &[0, 8, 0, PIECES, 0],
            &[0, 8, 0, PIECES, 1 << 60, 0, 8],
            &[0, 8, 0, ROW, 0],
        ] {
            assert!(words(bad).is_none(), "{bad:?}");
        }
        let mut deep = vec![0, 8, 0];
        (0..100).for_each(|level| deep.extend([STRIDED, 2, 1 << (level % 40)]));
        deep.extend([BLOCK, 1]);
        assert!(words(&deep).is_none());
        let too_deep = [&[0, 8, 0][..], &[ROW, 1, 0].repeat(1_000), &[BLOCK, 1]].concat();
        assert!(words(&too_deep).is_none());
    }
}
