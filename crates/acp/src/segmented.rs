//! Segmented buffers, as programs use them: rings of segments in the program's memory at both ends, without an intermediate copy.

use crate::buffers::{Indices, Segments};
use crate::channels::End;
use crate::error::{AcpError, Result};
use crate::memory::GlobalMemory;
use cci::Memory;

/// The end of a segmented buffer that fills segments (`acp_create_src_segbuf`). The program writes to the segment at index [`tail`](Indices::tail) of its own memory while
/// there is [room](SegmentSource::has_room), and [publishes](SegmentSource::publish) it. It may write there again when the destination has released it: when there is room again.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (mut job, context) = (cci_job::Job::join()?, cci::Context::new()?);
/// # let device = context.device("any").ok_or("no device any")?;
/// # let mut global = cci_acp::GlobalMemory::open(&mut job, device, cci::Options::default(), 10_240)?;
/// use cci_acp::{SegmentDestination, SegmentSource, Segments};
///
/// let segments = Segments { count: 4, bytes: 65_536 };
/// let memory = global.allocate(segments.len_bytes()?)?;
/// if global.rank() == 0 {
///     let source = SegmentSource::create(&mut global, 1, &memory, segments)?;
///     source.connect(&mut global)?;
///     assert!(memory.write(0, b"in the first segment"));
///     source.publish(&mut global)?;
///     source.free(&mut global)?;
/// } else if global.rank() == 1 {
///     let destination = SegmentDestination::create(&mut global, 0, &memory, segments)?;
///     destination.wait(&mut global)?;
///     let mut start = [0; 20];
///     assert!(memory.read(0, &mut start));
///     destination.release(&mut global)?;
///     destination.free(&mut global)?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SegmentSource {
    end: End,
}

/// The end of a segmented buffer that takes segments (`acp_create_dst_segbuf`). The program reads the segment at index [`head`](Indices::head) of its own memory when there
/// is [data](SegmentDestination::has_data), and [releases](SegmentDestination::release) it.
#[derive(Debug)]
pub struct SegmentDestination {
    end: End,
}

impl SegmentSource {
    /// Makes the source of a segmented buffer to another rank, in the program's memory. Does not wait for the other rank.
    ///
    /// # Errors
    /// There is no such rank, or it is this one. There are no segments, or they are longer than the memory. The system has no
    /// memory.
    pub fn create(
        global: &mut GlobalMemory,
        destination: u32,
        memory: &Memory,
        segments: Segments,
    ) -> Result<SegmentSource> {
        check(global, destination, memory, segments)?;
        let GlobalMemory { buffers, links, .. } = global;
        Ok(SegmentSource { end: buffers.create_source(links, destination, memory, segments)? })
    }

    /// Waits until the destination was made as well (`acp_connect_segbuf`). Segments may be published before that.
    ///
    /// # Errors
    /// The destination has other segments, or its rank is gone.
    pub fn connect(&self, global: &mut GlobalMemory) -> Result<()> {
        global.wait_until(|global| global.buffers.connected(self.end, true))?
    }

    /// Whether both ends are there, and neither has disconnected (`acp_isconnected_segbuf`). Makes progress.
    pub fn is_connected(&self, global: &mut GlobalMemory) -> bool {
        global.progress();
        global.buffers.is_connected(self.end, true)
    }

    /// Whether the segment at the tail may be written to (`acp_isready_segbuf`). Makes progress.
    ///
    /// # Errors
    /// The buffer was disconnected, or the other rank is gone.
    pub fn has_room(&self, global: &mut GlobalMemory) -> Result<bool> {
        global.progress();
        global.buffers.has_room(self.end)
    }

    /// Waits until there is room.
    ///
    /// # Errors
    /// Those of [`SegmentSource::has_room`].
    pub fn wait(&self, global: &mut GlobalMemory) -> Result<()> {
        global.wait_until(|global| {
            global.buffers.has_room(self.end).map(|is_there| is_there.then_some(())).transpose()
        })?
    }

    /// Publishes the segment at the tail (`acp_ack_segbuf`): all of it comes to the destination. Never blocks.
    ///
    /// # Errors
    /// [`AcpError::Full`]: there is no room. Those of [`SegmentSource::has_room`].
    pub fn publish(&self, global: &mut GlobalMemory) -> Result<()> {
        let GlobalMemory { buffers, links, .. } = global;
        buffers.publish(links, self.end)
    }

    /// The indices of this end (`acp_query_segbuf_head`, `_tail`, `_sent`). Makes progress.
    ///
    /// # Errors
    /// A reset has ended the buffer.
    pub fn indices(&self, global: &mut GlobalMemory) -> Result<Indices> {
        global.progress();
        global.buffers.indices(self.end, true)
    }

    /// Whether [`SegmentSource::free`] would not wait, for simulations.
    #[doc(hidden)]
    pub fn is_drained(&self, global: &GlobalMemory) -> bool {
        global.buffers.is_drained(self.end)
    }

    /// Waits until all that was published is at the destination, and ends the connection (`acp_disconnect_segbuf`).
    ///
    /// # Errors
    /// A reset has ended the buffer.
    pub fn disconnect(&self, global: &mut GlobalMemory) -> Result<()> {
        global.wait_until(|global| global.buffers.is_drained(self.end).then_some(()))?;
        let GlobalMemory { buffers, links, .. } = global;
        buffers.disconnect(links, self.end, true)
    }

    /// Disconnects, and removes the buffer (`acp_free_segbuf`). The memory belongs to the program alone again.
    ///
    /// # Errors
    /// A reset has ended the buffer.
    pub fn free(self, global: &mut GlobalMemory) -> Result<()> {
        self.disconnect(global)?;
        global.wait_until(|global| global.buffers.is_source_idle(self.end).then_some(()))?;
        let GlobalMemory { buffers, links, .. } = global;
        buffers.free(links, self.end, true)
    }
}

impl SegmentDestination {
    /// Makes the destination of a segmented buffer from another rank, in the program's memory. Does not wait for the other rank.
    ///
    /// # Errors
    /// Those of [`SegmentSource::create`].
    pub fn create(
        global: &mut GlobalMemory,
        source: u32,
        memory: &Memory,
        segments: Segments,
    ) -> Result<SegmentDestination> {
        check(global, source, memory, segments)?;
        let GlobalMemory { buffers, links, .. } = global;
        Ok(SegmentDestination { end: buffers.create_destination(links, source, memory, segments)? })
    }

    /// Waits until the source was made as well (`acp_connect_segbuf`).
    ///
    /// # Errors
    /// The source's rank is gone.
    pub fn connect(&self, global: &mut GlobalMemory) -> Result<()> {
        global.wait_until(|global| global.buffers.connected(self.end, false))?
    }

    /// Whether both ends are there, and neither has disconnected (`acp_isconnected_segbuf`). Makes progress.
    pub fn is_connected(&self, global: &mut GlobalMemory) -> bool {
        global.progress();
        global.buffers.is_connected(self.end, false)
    }

    /// Whether the segment at the head is there (`acp_isacked_segbuf`). Makes progress. Segments that have come can be taken
    /// after the end of the connection as well.
    ///
    /// # Errors
    /// There is none, and the buffer was disconnected, or the other rank is gone.
    pub fn has_data(&self, global: &mut GlobalMemory) -> Result<bool> {
        global.progress();
        global.buffers.has_data(self.end)
    }

    /// Waits until there is data.
    ///
    /// # Errors
    /// Those of [`SegmentDestination::has_data`].
    pub fn wait(&self, global: &mut GlobalMemory) -> Result<()> {
        global.wait_until(|global| {
            global.buffers.has_data(self.end).map(|is_there| is_there.then_some(())).transpose()
        })?
    }

    /// Releases the segment at the head (`acp_ready_segbuf`), so that the source may fill it again. Never blocks.
    ///
    /// # Errors
    /// The segment is not there. Those of [`SegmentDestination::has_data`].
    pub fn release(&self, global: &mut GlobalMemory) -> Result<()> {
        let GlobalMemory { buffers, links, .. } = global;
        buffers.release(links, self.end)
    }

    /// The indices of this end (`acp_query_segbuf_head`, `_tail`, `_sent`). Makes progress.
    ///
    /// # Errors
    /// A reset has ended the buffer.
    pub fn indices(&self, global: &mut GlobalMemory) -> Result<Indices> {
        global.progress();
        global.buffers.indices(self.end, false)
    }

    /// Ends the connection (`acp_disconnect_segbuf`). The source publishes nothing more. Segments that have come can still be
    /// taken.
    ///
    /// # Errors
    /// A reset has ended the buffer.
    pub fn disconnect(&self, global: &mut GlobalMemory) -> Result<()> {
        let GlobalMemory { buffers, links, .. } = global;
        buffers.disconnect(links, self.end, false)
    }

    /// Disconnects, and removes the buffer (`acp_free_segbuf`). The memory belongs to the program alone again.
    ///
    /// # Errors
    /// A reset has ended the buffer.
    pub fn free(self, global: &mut GlobalMemory) -> Result<()> {
        let GlobalMemory { buffers, links, .. } = global;
        buffers.free(links, self.end, false)
    }
}

fn check(global: &GlobalMemory, rank: u32, memory: &Memory, segments: Segments) -> Result<()> {
    global.check_other(rank)?;
    let fits = segments.len_bytes()? <= memory.len();
    fits.then_some(()).ok_or(AcpError::Argument("the memory is shorter than the segments"))
}
