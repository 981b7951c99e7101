//! Links by rank: 8 bytes for a rank that was never spoken to.

use super::link::{Link, Reach};

pub(crate) struct Table {
    links: Vec<Option<Box<Link>>>,
    /// With each rank.
    credits: u32,
}

impl Table {
    /// For ranks below `size`, which is 1 at least.
    pub fn new(size: u32, credits: u32) -> Table {
        Table { links: (0..size.max(1)).map(|_| None).collect(), credits }
    }

    /// The link with a rank of the job, which is made where there is none.
    #[inline(always)]
    pub fn link(&mut self, rank: u32) -> &mut Link {
        let credits = self.credits;
        // Callers have seen to it that the job has this rank.
        let last = self.links.len() - 1;
        self.links[(rank as usize).min(last)]
            .get_or_insert_with(|| Box::new(Link::new(Reach::Unused, credits)))
    }

    /// The link with a rank, if there is such a rank and something was done with it before.
    #[inline(always)]
    pub fn known(&mut self, rank: u32) -> Option<&mut Link> {
        self.links.get_mut(rank as usize)?.as_deref_mut()
    }

    /// So many of this process's credits with a rank are back.
    #[inline]
    pub fn regain(&mut self, rank: u32, credits: u16) {
        let all = self.credits;
        self.link(rank).regain(credits, all);
    }

    /// All that were made, with their ranks.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Link)> {
        (0..).zip(&self.links).filter_map(|(rank, link)| Some((rank, link.as_deref()?)))
    }
}
