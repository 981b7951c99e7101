//! All ends of segmented buffers of a process, by the other rank and their numbers.

use super::ends::{Destination, Source, Stage};
use super::wire::Record;
use super::{Indices, Segments};
use crate::channels::{End, lane, of_context};
use crate::error::{AcpError, Result};
use crate::limits::{BUFFER_BIT, CHANNEL_BITS, CHANNELS_BITS};
use crate::links::Links;
use cci::{Access, Memory, Status};
use cci_job::numbered::Numbered;

/// The last buffers with a rank, by their numbers.
struct Pair {
    source: u64,
    destination: u64,
    /// The other rank has made its sources up to this one.
    wanted: u64,
}

/// The segmented buffers of a process.
#[derive(Default)]
pub(crate) struct Buffers {
    pairs: Numbered<u32, Pair>,
    /// Buffers that were made since the last reset have greater numbers.
    first: u64,
    sources: Numbered<End, Source>,
    destinations: Numbered<End, Destination>,
    /// Whether something was not written because space was lacking.
    pub waits_for_space: bool,
}

const FREED: AcpError = AcpError::Argument("this segmented buffer was freed, or has ended by a reset");

impl Buffers {
    pub fn create_source(
        &mut self,
        links: &mut Links,
        rank: u32,
        memory: &Memory,
        segments: Segments,
    ) -> Result<End> {
        let handle = links.endpoint().register(memory, Access::READ)?;
        let end = End::new(rank, next(&mut self.pair(rank).source)?);
        self.sources.insert(end, Source::new(segments, handle));
        links.say_bytes(lane(rank), &Record::Wanted { buffer: end.number() }.encode());
        Ok(end)
    }

    pub fn create_destination(
        &mut self,
        links: &mut Links,
        rank: u32,
        memory: &Memory,
        segments: Segments,
    ) -> Result<End> {
        let handle = links.endpoint().register(memory, Access::WRITE)?;
        let pair = self.pair(rank);
        let end = End::new(rank, next(&mut pair.destination)?);
        let is_wanted = end.number() <= pair.wanted;
        let mut destination = Destination::new(segments, handle);
        if is_wanted {
            destination.open(links, end);
        }
        self.destinations.insert(end, destination);
        // A rank that is gone is noticed only by ranks that connect to it.
        links.connection(lane(rank))?;
        Ok(end)
    }

    fn pair(&mut self, rank: u32) -> &mut Pair {
        let first = self.first | BUFFER_BIT;
        self.pairs.entry(rank).or_insert(Pair { source: first, destination: first, wanted: first })
    }

    /// The stage of a buffer; `None` if it was freed.
    fn stage_mut(&mut self, end: End, is_source: bool) -> Option<&mut Stage> {
        if is_source {
            self.sources.get_mut(&end).map(|source| &mut source.stage)
        } else {
            self.destinations.get_mut(&end).map(|destination| &mut destination.stage)
        }
    }

    fn stage(&self, end: End, is_source: bool) -> Result<Stage> {
        let stage = if is_source {
            self.sources.get(&end).map(|source| source.stage)
        } else {
            self.destinations.get(&end).map(|destination| destination.stage)
        };
        stage.ok_or(FREED)
    }

    /// Whether both ends exist or existed. `None` if not yet. An error if they will never be connected.
    pub fn connected(&self, end: End, is_source: bool) -> Option<Result<()>> {
        match self.stage(end, is_source) {
            Ok(Stage::Waiting) => None,
            // A buffer that the other rank has disconnected meanwhile was connected.
            Ok(Stage::Connected | Stage::Closed) => Some(Ok(())),
            Ok(stage) => Some(stage.check(end.rank)),
            Err(error) => Some(Err(error)),
        }
    }

    /// Whether both ends exist now.
    pub fn is_connected(&self, end: End, is_source: bool) -> bool {
        self.stage(end, is_source).is_ok_and(|stage| stage == Stage::Connected)
    }

    pub fn indices(&self, end: End, is_source: bool) -> Result<Indices> {
        let indices = if is_source {
            self.sources.get(&end).map(Source::indices)
        } else {
            self.destinations.get(&end).map(|destination| destination.indices)
        };
        indices.ok_or(FREED)
    }

    pub fn has_room(&self, end: End) -> Result<bool> {
        let source = self.sources.get(&end).ok_or(FREED)?;
        source.stage.check(end.rank)?;
        Ok(source.has_room())
    }

    pub fn publish(&mut self, links: &mut Links, end: End) -> Result<()> {
        if !self.has_room(end)? {
            return Err(AcpError::Full("all segments are published, and none was released"));
        }
        if let Some(source) = self.sources.get_mut(&end) {
            source.indices.tail += 1;
            self.waits_for_space |= !source.advance(links, end);
        }
        Ok(())
    }

    /// Segments that have come may be taken after the end of the connection as well.
    pub fn has_data(&self, end: End) -> Result<bool> {
        let destination = self.destinations.get(&end).ok_or(FREED)?;
        if !destination.has_data() {
            destination.stage.check(end.rank)?;
        }
        Ok(destination.has_data())
    }

    pub fn release(&mut self, links: &mut Links, end: End) -> Result<()> {
        if !self.has_data(end)? {
            return Err(AcpError::Argument("no segment is there to be released"));
        }
        if let Some(destination) = self.destinations.get_mut(&end) {
            destination.release(links, end);
        }
        Ok(())
    }

    /// Whether all that a source has published was written, or never will be.
    pub fn is_drained(&self, end: End) -> bool {
        self.sources.get(&end).is_none_or(Source::is_drained)
    }

    /// Ends the connection, and informs the other rank. The caller has drained a source before.
    pub fn disconnect(&mut self, links: &mut Links, end: End, is_source: bool) -> Result<()> {
        let stage = self.stage_mut(end, is_source).ok_or(FREED)?;
        if !stage.is_over() {
            *stage = Stage::Closed;
            links.say_bytes(
                lane(end.rank),
                &Record::Closed { buffer: end.number(), is_by_source: is_source }.encode(),
            );
        }
        Ok(())
    }

    /// Removes an end. Nothing reads the memory of a source any more. Writes to the memory of a destination are refused from now
    /// on.
    pub fn free(&mut self, links: &mut Links, end: End, is_source: bool) -> Result<()> {
        self.disconnect(links, end, is_source)?;
        let handle = if is_source {
            self.sources.remove(&end).map(|source| source.handle)
        } else {
            self.destinations.remove(&end).map(|destination| destination.handle)
        };
        handle.map_or(Ok(()), |handle| Ok(links.endpoint().deregister(&handle)?))
    }

    /// Whether there are no sources. Only sources may have something to write.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.sources.is_empty()
    }

    /// Whether no operations that read the memory of a source are under way.
    pub fn is_source_idle(&self, end: End) -> bool {
        self.sources.get(&end).is_none_or(Source::is_idle)
    }

    /// Writes what can be written.
    pub fn advance(&mut self, links: &mut Links) {
        self.waits_for_space = false;
        for (&end, source) in &mut self.sources {
            self.waits_for_space |= !source.advance(links, end);
        }
    }

    /// Handles a record of a rank. Returns false if no process of this version sends it.
    //= wire.md R-ACP-7
    pub fn said(&mut self, links: &mut Links, rank: u32, bytes: &[u8]) -> bool {
        let Some(record) = Record::decode(bytes) else { return false };
        if record.buffer() >> CHANNELS_BITS != self.first >> CHANNELS_BITS {
            // It was sent before a reset.
            return true;
        }
        let first = self.first | BUFFER_BIT;
        let end = End::new(rank, record.buffer());
        match record {
            Record::Wanted { buffer } => {
                let pair = self.pair(rank);
                let known = pair.wanted.min(pair.destination);
                pair.wanted = pair.wanted.max(buffer);
                for number in known + 1..=pair.wanted.min(pair.destination) {
                    let end = End::new(rank, number);
                    if let Some(destination) = self.destinations.get_mut(&end) {
                        destination.open(links, end);
                    }
                }
                true
            }
            Record::Open { buffer, segments } => {
                let was_made = (first + 1..=self.pair(rank).source).contains(&buffer);
                let Some(source) = self.sources.get_mut(&end) else {
                    // The buffer was freed before, and the destination is informed.
                    if was_made {
                        links.say_bytes(lane(rank), &Record::Closed { buffer, is_by_source: true }.encode());
                    }
                    return was_made;
                };
                let is_right = source.opened(segments);
                if source.stage == Stage::Unequal {
                    links.say_bytes(lane(rank), &Record::Closed { buffer, is_by_source: true }.encode());
                }
                self.waits_for_space |= !source.advance(links, end);
                is_right
            }
            Record::Filled { segment, .. } => {
                // A buffer that was freed does not need it.
                self.destinations.get_mut(&end).is_none_or(|destination| destination.filled(segment))
            }
            Record::Released { segments, .. } => {
                self.sources.get_mut(&end).is_none_or(|source| source.released(segments))
            }
            Record::Closed { is_by_source, .. } => {
                // A buffer that was freed does not need it.
                let stage = self.stage_mut(end, !is_by_source);
                if let Some(stage) = stage.filter(|stage| !stage.is_over()) {
                    *stage = Stage::Closed;
                }
                true
            }
        }
    }

    /// Handles the end of a write. Returns false if it does not belong to a segmented buffer.
    pub fn write_ended(&mut self, context: u64, status: Status) -> bool {
        let Some(end) = of_context(context).filter(|end| end.number() & BUFFER_BIT != 0) else {
            return false;
        };
        if let Some(source) = self.sources.get_mut(&end) {
            source.written(status);
        }
        true
    }

    /// A rank is gone.
    pub fn lose(&mut self, rank: u32) {
        let sources = self.sources.iter_mut().map(|(end, source)| (end, &mut source.stage));
        let destinations =
            self.destinations.iter_mut().map(|(end, destination)| (end, &mut destination.stage));
        let lost = sources.chain(destinations).filter(|(end, stage)| end.rank == rank && !stage.is_over());
        lost.for_each(|(_, stage)| *stage = Stage::Lost);
    }

    /// Ends all buffers, on all ranks. Records that are still under way are recognised by their numbers.
    pub fn forget(&mut self, links: &mut Links) -> Result<()> {
        let Buffers { sources, destinations, first, .. } = std::mem::take(self);
        self.first = (first + (1 << CHANNELS_BITS)) % (1 << CHANNEL_BITS);
        let handles = sources.into_values().map(|source| source.handle);
        let mut handles = handles.chain(destinations.into_values().map(|destination| destination.handle));
        handles.try_for_each(|handle| Ok(links.endpoint().deregister(&handle)?))
    }
}

/// The number of a new buffer.
fn next(last: &mut u64) -> Result<u64> {
    if (*last + 1) & BUFFER_BIT == 0 {
        return Err(AcpError::Full("there were too many segmented buffers with this rank"));
    }
    *last += 1;
    Ok(*last)
}
