//! Long items that are written into return buffers of partners before their message is sent (RIPC-024, RIPC-025).

use super::base::Base;
use super::lending::register;
use crate::content::{Kept, Part};
use crate::error::SendError;
use crate::handles::Partner;
use crate::wire::Offer;
use cci::{Access, Connection, RegionHandle, Rma, RmaFlags, RmaKind, Segment, Status};
use slotmap::{Key, KeyData, SlotMap, new_key_type};

new_key_type! { struct PushKey; }

/// Distinguishes the completions of these writes from those of reads: keys of slot maps leave this bit clear.
pub const PUSH: u64 = 1 << 63;

struct Push {
    partner: Partner,
    connection: Connection,
    frame: Kept,
    /// The return buffer of each item, by the item's number.
    placed: Vec<Option<Offer>>,
    /// What is being written: the item's number, and its region here.
    under_way: Vec<(usize, RegionHandle)>,
}

/// All messages whose long items are being written.
#[derive(Default)]
pub struct Pushing {
    pushes: SlotMap<PushKey, Push>,
}

impl Pushing {
    /// Sends a message with long items. Items for which the partner has offered return buffers are written there first. The
    /// partner fetches the others.
    pub fn send(&mut self, base: &mut Base, partner: Partner, frame: Kept) -> Result<(), SendError> {
        let state = base.partners.get_mut(partner).ok_or(SendError::Unknown)?;
        let Some(connection) =
            state.connection().filter(|_| state.waiting.is_empty() && !state.offers.is_empty())
        else {
            return base.send_or_wait(partner, frame);
        };
        // The bytes of a file can only be fetched.
        let mut offer = |part: &Part| {
            if part.memory.is_file() { None } else { state.take_offer(part.len_bytes()) }
        };
        let offers: Vec<Option<Offer>> = frame.long_items().iter().map(&mut offer).collect();
        let placed = vec![None; offers.len()];
        let key = self.pushes.insert(Push { partner, connection, frame, placed, under_way: Vec::new() });
        let Some(push) = self.pushes.get_mut(key) else { return Ok(()) };
        for (index, offer) in offers.into_iter().enumerate() {
            if let Some(offer) = offer {
                write(base, push, index, offer, key.data().as_ffi() | PUSH);
            }
        }
        if !push.under_way.is_empty() {
            return Ok(());
        }
        self.finish(base, key).map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Whether something is being written for this partner.
    pub fn is_writing(&self, partner: Partner) -> bool {
        self.pushes.values().any(|push| push.partner == partner)
    }

    /// Whether a byte of this memory is being written to a partner.
    pub fn is_read(&self, part: &Part) -> bool {
        self.pushes.values().any(|push| push.frame.lends(part))
    }

    /// Handles the end of a write. Writes end in the order in which they were started. Returns the message if it can't be sent.
    pub fn ended(&mut self, base: &mut Base, context: u64, status: Status) -> Option<(Partner, Kept)> {
        let key = PushKey::from(KeyData::from_ffi(context & !PUSH));
        let push = self.pushes.get_mut(key)?;
        let (index, local) = push.under_way.remove(0);
        let _registered_by_us = base.endpoint.deregister(&local);
        if status != Status::Success {
            // The partner will fetch it.
            push.placed[index] = None;
        }
        if !push.under_way.is_empty() {
            return None;
        }
        let partner = push.partner;
        let (frame, _) = self.finish(base, key)?;
        Some((partner, frame))
    }

    /// Sends the message, since nothing of it is under way any more. Returns it with the reason if it can't be sent.
    fn finish(&mut self, base: &mut Base, key: PushKey) -> Option<(Kept, SendError)> {
        let Push { partner, frame, placed, .. } = self.pushes.remove(key)?;
        let sent = match base.send_placed(partner, frame.clone(), &placed) {
            // Items in return buffers stay there. The message waits, and describes its long items as items to be fetched.
            Err(SendError::WouldBlock) => base.wait(partner, frame.clone()),
            sent => sent,
        };
        sent.err().map(|error| (frame, error))
    }
}

/// Writes an item into a return buffer, if that is possible now.
fn write(base: &mut Base, push: &mut Push, index: usize, offer: Offer, context: u64) {
    let part = &push.frame.long_items()[index];
    let Ok(local) = register(&mut base.endpoint, part, Access::LOCAL, None) else { return };
    let len_bytes = part.len_bytes();
    let (from, to) = ([Segment::new(local, 0, len_bytes)], [Segment::new(offer.handle, 0, len_bytes)]);
    let (kind, flags) = (RmaKind::Write, RmaFlags::NONE);
    let rma = Rma { kind, local: &from, remote: &to, message: None, context, flags };
    match base.endpoint.rma_at_once(push.connection, &rma) {
        Ok(None) => {
            push.placed[index] = Some(offer);
            push.under_way.push((index, local));
            return;
        }
        Ok(Some(Status::Success)) => push.placed[index] = Some(offer),
        Ok(Some(_)) | Err(_) => {}
    }
    let _registered_by_us = base.endpoint.deregister(&local);
}
