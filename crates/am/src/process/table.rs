//! Links by rank. A rank with which nothing was exchanged takes 8 bytes.

use super::link::{Link, Reach};

pub(crate) struct Table {
    links: Vec<Option<Box<Link>>>,
    /// The number of credits with each rank.
    credits: u32,
}

impl Table {
    /// Makes a table for ranks below `size`, which is at least 1.
    pub fn new(size: u32, credits: u32) -> Table {
        Table { links: (0..size.max(1)).map(|_| None).collect(), credits }
    }

    /// The link with a rank of the job, created if there is none.
    #[inline(always)]
    pub fn link(&mut self, rank: u32) -> &mut Link {
        let credits = self.credits;
        // Callers have checked that the job has this rank.
        let last = self.links.len() - 1;
        self.links[(rank as usize).min(last)]
            .get_or_insert_with(|| Box::new(Link::new(Reach::Unused, credits)))
    }

    /// The link with a rank, if the rank exists and was used before.
    #[inline(always)]
    pub fn known(&mut self, rank: u32) -> Option<&mut Link> {
        self.links.get_mut(rank as usize)?.as_deref_mut()
    }

    /// Notes that credits of this process with a rank are back.
    #[inline]
    pub fn regain(&mut self, rank: u32, credits: u16) {
        let all = self.credits;
        self.link(rank).regain(credits, all);
    }

    /// All links that exist, with their ranks.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Link)> {
        (0..).zip(&self.links).filter_map(|(rank, link)| Some((rank, link.as_deref()?)))
    }
}
