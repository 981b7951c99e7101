//! The way in: records come in segments, several at a time.

use super::{BATCH_BYTES, ByteStream, DATA_BYTES_MAX, DIRECT_BYTES_MIN, LENGTH_BYTES, Over};
use crate::engine::core::Core;
use crate::transport::ordered_rma::flow::Flow;
use crate::transport::ordered_rma::operations::Ops;
use crate::transport::ordered_rma::wire::{self, HEAD_BYTES_MAX, Head, Parsed};
use crate::transport::ordered_rma::{Arrived, Fault};
use cci_memory::bytes::Bytes;
use cci_memory::fallible;

/// What is read behind the data of a record: most likely the head of the next one, whose data is to go straight into place.
const SHORT_BYTES: usize = 1 << 10;

/// How long the buffer for reading has to be. It serves one stream after the other.
pub(crate) const fn scratch_bytes(message_bytes_max: usize) -> usize {
    let longest = LENGTH_BYTES + HEAD_BYTES_MAX + message_bytes_max;
    if longest < BATCH_BYTES { BATCH_BYTES } else { longest }
}

/// What records are taken with.
pub(crate) struct Intake<'a> {
    pub flow: &'a mut Flow,
    pub ops: &'a mut Ops,
    pub core: &'a mut Core,
    /// What this side takes, at most.
    pub message_bytes_max: usize,
    /// The program still wants messages.
    pub delivers: bool,
}

impl Intake<'_> {
    fn take(&mut self, record: &impl Arrived) -> Result<(), Fault> {
        // Never `NoBuffer`: the answer makes its sender hold it.
        self.flow.take(self.ops, self.core, record, self.message_bytes_max, self.delivers).map(|_| ())
    }

    fn address(&mut self, of: &mut Placing, len_bytes: usize) -> Result<Option<Bytes>, Fault> {
        if of.refused {
            return Ok(None);
        }
        let to = self.flow.address(self.core, &of.parsed, of.done_bytes, len_bytes)?;
        of.refused = to.is_none();
        Ok(to)
    }
}

/// What came of a poll.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Came {
    pub bytes: u64,
    /// There may be more: the budget is used up.
    pub more: bool,
}

/// What has come of records that are not complete.
#[derive(Default)]
pub(crate) struct Reader {
    /// A short one, or the head of a long one.
    stage: Vec<u8>,
    placing: Option<Placing>,
    /// A long record has just ended: likely another one follows, of which little is to come into the buffer.
    expects_long: bool,
    has_ended: bool,
    /// Reads, and bytes that they brought; of these, straight into place.
    pub reads: u64,
    pub bytes: u64,
    pub placed_bytes: u64,
}

/// A record whose data goes into place as it comes.
struct Placing {
    head: [u8; HEAD_BYTES_MAX],
    parsed: Parsed,
    done_bytes: usize,
    refused: bool,
}

impl Placing {
    fn bytes_remaining(&self) -> usize {
        self.parsed.remaining_bytes - self.done_bytes
    }
}

impl Arrived for Placing {
    const ASKS_AGAIN: bool = true;
    const OF_THIS_HOST: bool = false;

    fn placed(&self) -> Option<bool> {
        Some(!self.refused)
    }

    fn len_bytes(&self) -> usize {
        self.parsed.head_bytes + self.parsed.remaining_bytes
    }

    fn read(&self, skip_bytes: usize, out: &mut [u8]) -> usize {
        copy(self.head.get(..self.parsed.head_bytes).unwrap_or_default(), skip_bytes, out)
    }

    fn read_to(&self, _: usize, _: &Bytes) -> bool {
        !self.refused
    }
}

/// A record in a buffer, or the part of it that has come.
struct InBuffer<'a> {
    bytes: &'a [u8],
    len_bytes: usize,
}

impl Arrived for InBuffer<'_> {
    const ASKS_AGAIN: bool = true;
    const OF_THIS_HOST: bool = false;

    fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    fn read(&self, skip_bytes: usize, out: &mut [u8]) -> usize {
        copy(self.bytes, skip_bytes, out)
    }

    fn read_to(&self, skip_bytes: usize, to: &Bytes) -> bool {
        self.bytes.get(skip_bytes..).is_some_and(|data| to.write(0, data))
    }
}

fn copy(from: &[u8], skip_bytes: usize, out: &mut [u8]) -> usize {
    let from = from.get(skip_bytes..).unwrap_or_default();
    let len = from.len().min(out.len());
    if let (Some(from), Some(out)) = (from.get(..len), out.get_mut(..len)) {
        out.copy_from_slice(from);
    }
    len
}

impl Reader {
    /// Nothing has come of a record that is not complete.
    pub fn is_between_records(&self) -> bool {
        self.stage.is_empty() && self.placing.is_none()
    }

    /// Bytes held.
    pub fn held_bytes(&self) -> u64 {
        self.stage.capacity() as u64
    }

    /// A record has ended since this was last asked.
    pub fn take_ended(&mut self) -> bool {
        std::mem::take(&mut self.has_ended)
    }

    /// Holds no more than the head of a record, or what has come of a message: data goes into place, as far as it is here.
    pub fn trim(&mut self, intake: &mut Intake<'_>) -> Result<(), Fault> {
        let stage = std::mem::take(&mut self.stage);
        if let Some((length, body)) = stage.split_first_chunk::<LENGTH_BYTES>()
            && body.len() >= HEAD_BYTES_MAX
        {
            let len_bytes = u32::from_le_bytes(*length) as usize;
            let parsed = wire::parse(&InBuffer { bytes: body, len_bytes })?;
            if matches!(parsed.head, Head::Write { .. } | Head::Data { .. })
                && self.begin(body, len_bytes, 0, intake)?
            {
                return Ok(());
            }
        }
        self.stage = match fallible::vec(stage.len()) {
            Ok(mut short) => {
                short.extend_from_slice(&stage);
                short
            }
            // Without memory for a shorter one, the long one stays.
            Err(_) => stage,
        };
        Ok(())
    }

    /// Reads until nothing is there or the budget, in bytes, is used up.
    ///
    /// # Errors
    /// The stream is at its end, or of no use any more.
    pub fn poll(
        &mut self,
        stream: &mut impl ByteStream,
        scratch: &mut [u8],
        intake: &mut Intake<'_>,
        budget_bytes: &mut u64,
    ) -> Result<Came, Over> {
        let mut came = Came::default();
        loop {
            let (got, asked) = match self.placing.take() {
                Some(placing) => {
                    let most = usize::try_from(*budget_bytes).unwrap_or(usize::MAX);
                    self.go_on(placing, stream, scratch, intake, most)?
                }
                None => self.read_records(stream, scratch, intake)?,
            };
            self.reads += 1;
            self.bytes += got as u64;
            came.bytes += got as u64;
            *budget_bytes = budget_bytes.saturating_sub(got as u64);
            if got < asked {
                return Ok(came);
            }
            if *budget_bytes == 0 {
                came.more = true;
                return Ok(came);
            }
        }
    }

    /// Reads more of a long record's data, and a little of what is behind it.
    fn go_on(
        &mut self,
        mut placing: Placing,
        stream: &mut impl ByteStream,
        scratch: &mut [u8],
        intake: &mut Intake<'_>,
        most_bytes: usize,
    ) -> Result<(usize, usize), Over> {
        let remaining = placing.bytes_remaining();
        let part = remaining.min(most_bytes.max(1));
        let to = intake.address(&mut placing, part)?;
        let space = match to {
            Some(_) if part < remaining => 0,
            Some(_) => SHORT_BYTES,
            None => remaining.saturating_add(SHORT_BYTES),
        };
        let scratch_bytes = scratch.len();
        let into = scratch_bytes.min(space);
        let tail = scratch.get_mut(..into).unwrap_or_default();
        let asked = into + if to.is_some() { part } else { 0 };
        let got = stream.read(to.as_ref(), tail)?;
        let of_record = got.min(remaining);
        placing.done_bytes += of_record;
        let behind = if to.is_some() {
            self.placed_bytes += of_record as u64;
            tail.get(..got - of_record)
        } else {
            tail.get(of_record..got)
        };
        if placing.bytes_remaining() > 0 {
            self.placing = Some(placing);
            return Ok((got, asked));
        }
        intake.take(&placing)?;
        (self.expects_long, self.has_ended) = (true, true);
        let behind = behind.unwrap_or_default();
        self.parse(behind, scratch_bytes, intake)?;
        Ok((got, asked))
    }

    /// Reads what there is, behind what has come of the next record.
    fn read_records(
        &mut self,
        stream: &mut impl ByteStream,
        scratch: &mut [u8],
        intake: &mut Intake<'_>,
    ) -> Result<(usize, usize), Over> {
        let (have, space) = (self.stage.len(), scratch.len());
        // What is in the stage always leaves room: see `parse`.
        let (Some(before), true) = (scratch.get_mut(..have), have < space) else { return Err(Over::Fault) };
        before.copy_from_slice(&self.stage);
        let asked = if self.expects_long { SHORT_BYTES.min(space - have) } else { space - have };
        let got = stream.read(None, scratch.get_mut(have..have + asked).unwrap_or_default())?;
        if got > 0 {
            self.expects_long = false;
            self.stage.clear();
            self.parse(scratch.get(..have + got).unwrap_or_default(), space, intake)?;
        }
        Ok((got, asked))
    }

    /// Takes the records that are complete; of the last one, begins to place the data, or keeps it.
    fn parse(&mut self, mut bytes: &[u8], space: usize, intake: &mut Intake<'_>) -> Result<(), Fault> {
        while let Some((length, body)) = bytes.split_first_chunk::<LENGTH_BYTES>() {
            let len_bytes = u32::from_le_bytes(*length) as usize;
            //= wire.md R-TCP-20
            if len_bytes > HEAD_BYTES_MAX + DATA_BYTES_MAX.max(intake.message_bytes_max) {
                return Err(Fault);
            }
            let Some((record, behind)) = body.split_at_checked(len_bytes) else {
                if body.len() >= HEAD_BYTES_MAX && self.begin(body, len_bytes, space, intake)? {
                    return Ok(());
                }
                break;
            };
            intake.take(&InBuffer { bytes: record, len_bytes })?;
            self.has_ended = true;
            bytes = behind;
        }
        self.stage.extend_from_slice(bytes);
        Ok(())
    }

    /// If much of a record's data is still to come, or the record is longer than the buffer, places what is there of it, and
    /// answers true.
    fn begin(
        &mut self,
        body: &[u8],
        len_bytes: usize,
        space: usize,
        intake: &mut Intake<'_>,
    ) -> Result<bool, Fault> {
        let parsed = wire::parse(&InBuffer { bytes: body, len_bytes })?;
        let fits = LENGTH_BYTES + len_bytes <= space;
        match parsed.head {
            Head::Write { .. } | Head::Data { .. } if !fits || len_bytes - body.len() > DIRECT_BYTES_MIN => {}
            Head::Notify if parsed.remaining_bytes > intake.message_bytes_max => return Err(Fault),
            _ if !fits => return Err(Fault),
            _ => return Ok(false),
        }
        let (head, data) = body.split_at_checked(parsed.head_bytes).ok_or(Fault)?;
        let mut placing = Placing { head: [0; HEAD_BYTES_MAX], parsed, done_bytes: 0, refused: false };
        copy(head, 0, &mut placing.head);
        // Asked for even if nothing is here yet: what is wrong with it is found at once.
        if let Some(to) = intake.address(&mut placing, data.len())? {
            placing.refused = !to.write(0, data);
        }
        placing.done_bytes = data.len();
        self.placing = Some(placing);
        Ok(true)
    }
}
