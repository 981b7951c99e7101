//! What all parts of a node share: the endpoint, services, partners, and the sending of frames.

use super::lending::Lending;
use super::partners::Partners;
use super::services::Services;
use crate::content::{Content, Kept};
use crate::error::SendError;
use crate::handles::Partner;
use crate::limits::WAITING_MAX;
use crate::wire::{Head, Kind, LongItem, Offer, table_bytes};
use cci::{Connection, Endpoint, SendFlags, TransportKind};
use cci_sys::clock;

/// The longest frame to a partner that is not connected yet, bytes. What its path takes is known later.
const FRAME_BYTES_MAX: usize = cci::limits::MESSAGE_BYTES_MAX as usize;
/// Short items of up to this many bytes are copied behind their table, which costs less than to send them from two places.
const COPIED_BYTES_MAX: usize = 1_024;

pub struct Base {
    pub endpoint: Endpoint,
    pub partners: Partners,
    pub services: Services,
    pub lending: Lending,
    /// The tables of the frame that is being sent.
    tables: Vec<u8>,
}

impl Base {
    pub fn new(endpoint: Endpoint, lending: Lending) -> Base {
        let (partners, services) = (Partners::default(), Services::default());
        Base { endpoint, partners, services, lending, tables: Vec::with_capacity(2 * COPIED_BYTES_MAX) }
    }

    /// The most bytes of a frame to this partner.
    fn max_bytes(&self, connection: Option<Connection>) -> usize {
        let max_bytes = connection.and_then(|connection| self.endpoint.max_send_size(connection));
        max_bytes.map_or(FRAME_BYTES_MAX, |bytes| bytes as usize)
    }

    /// The longest short item that a message to a partner may have alone, bytes. `None` if the partner is not connected, so that
    /// its path is not known.
    pub fn short_item_bytes_max(&self, partner: Partner) -> Option<usize> {
        let connection = self.partners.get(partner)?.connection()?;
        let max_bytes = self.endpoint.max_send_size(connection)? as usize;
        Some(max_bytes.saturating_sub(table_bytes(1, 0, 0)))
    }

    /// What carries messages to a partner. `None` if the partner is not connected.
    pub fn transport(&self, partner: Partner) -> Option<TransportKind> {
        let connection = self.partners.get(partner)?.connection()?;
        self.endpoint.explain(connection)?.kind
    }

    /// Checks that a frame fits into one message to a partner.
    pub fn check_len(&self, partner: Partner, head: &Head, items: &[&[u8]]) -> Result<(), SendError> {
        let state = self.partners.get(partner).ok_or(SendError::Unknown)?;
        let len_bytes = head.table_bytes() + items.iter().map(|item| item.len()).sum::<usize>();
        let max_bytes = self.max_bytes(state.connections.first().copied());
        if len_bytes > max_bytes { Err(SendError::TooLong { len_bytes, max_bytes }) } else { Ok(()) }
    }

    /// Sends a frame of short items only.
    #[inline]
    pub fn send_short(
        &mut self,
        connection: Connection,
        head: &Head,
        items: &[&[u8]],
    ) -> Result<(), SendError> {
        self.tables.clear();
        head.put(&mut self.tables, items, &[], &[]);
        let sent = if let [item] = items
            && item.len() > COPIED_BYTES_MAX
        {
            self.endpoint.send_vectored(connection, &[&self.tables, item], 0, SendFlags::SILENT)
        } else {
            items.iter().for_each(|item| self.tables.extend_from_slice(item));
            self.endpoint.send(connection, &self.tables, 0, SendFlags::SILENT)
        };
        sent.map_err(send_error)
    }

    /// Sends a frame with which nothing is lent.
    #[inline]
    pub fn send_plain(&mut self, connection: Connection, frame: &[u8]) -> Result<(), SendError> {
        self.endpoint.send(connection, frame, 0, SendFlags::SILENT).map_err(send_error)
    }

    /// Sends a frame on a connection. Its memory is lent before that, unless some of the long items are at the partner already
    /// (`placed`).
    fn send_frame(
        &mut self,
        partner: Partner,
        connection: Connection,
        frame: &Kept,
        placed: &[Option<Offer>],
    ) -> Result<(), SendError> {
        if let Some(plain) = frame.as_plain() {
            return self.send_plain(connection, plain);
        }
        let lease = self.lend(partner, connection, frame, placed)?;
        let head = Head { lease: lease.number, ..*frame.head() };
        let items: Vec<&[u8]> = frame.items().collect();
        self.tables.clear();
        head.put(&mut self.tables, &items, &lease.long_items, &lease.offers);
        items.iter().for_each(|item| self.tables.extend_from_slice(item));
        let sent = self.endpoint.send(connection, &self.tables, 0, SendFlags::SILENT);
        if sent.is_err() {
            self.lending.take_back(&mut self.endpoint, lease.number);
        }
        sent.map_err(send_error)
    }

    fn lend(
        &mut self,
        partner: Partner,
        connection: Connection,
        frame: &Kept,
        placed: &[Option<Offer>],
    ) -> Result<Lent, SendError> {
        let now_ns = clock::now_ns();
        let state = self.partners.get(partner).ok_or(SendError::Unknown)?;
        let service = state.service;
        let answer = state
            .instance
            .filter(|_| frame.head().kind == Kind::Answer)
            .map(|client| (client, frame.head().number));
        let lends = !frame.long_items().is_empty();
        let number = if lends {
            let lease = (frame.context(), answer);
            self.lending.begin(&mut self.endpoint, (service, partner), lease, true, now_ns)
        } else {
            0
        };
        let mut lent = Lent { number, long_items: Vec::new(), offers: Vec::new() };
        let mut lend_all = || {
            for (index, part) in frame.long_items().iter().enumerate() {
                let len_bytes = part.len_bytes();
                let item = match placed.get(index).copied().flatten() {
                    Some(offer) => LongItem::Here { offer: offer.number, len_bytes },
                    None => {
                        let handle = self.lending.lend(&mut self.endpoint, number, connection, part)?;
                        LongItem::There { handle, len_bytes }
                    }
                };
                lent.long_items.push(item);
            }
            for part in frame.return_buffers() {
                let offer =
                    self.lending.offer(&mut self.endpoint, (service, partner), connection, part, now_ns)?;
                lent.offers.push(offer);
            }
            Ok(())
        };
        let done: Result<(), SendError> = lend_all();
        if let Err(error) = done {
            self.lending.take_back(&mut self.endpoint, number);
            return Err(error);
        }
        Ok(lent)
    }

    /// Sends a frame, or lets it wait for its turn. [`Base::flush`] sends waiting frames in order.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] if as many wait as may.
    pub fn send_or_wait(&mut self, partner: Partner, frame: Kept) -> Result<(), SendError> {
        let state = self.partners.get_mut(partner).ok_or(SendError::Unknown)?;
        let connection = state.connection().filter(|_| state.waiting.is_empty());
        let Some(connection) = connection else { return self.wait(partner, frame) };
        match self.send_frame(partner, connection, &frame, &[]) {
            Err(SendError::WouldBlock) => self.wait(partner, frame),
            sent => sent,
        }
    }

    /// Sends a frame now.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] if there is no space or no connection.
    pub fn send_now(&mut self, partner: Partner, frame: &Kept) -> Result<(), SendError> {
        let state = self.partners.get(partner).ok_or(SendError::Unknown)?;
        let connection = state.connection().ok_or(SendError::WouldBlock)?;
        self.send_frame(partner, connection, frame, &[])
    }

    /// Lets a frame wait, if it may.
    pub fn wait(&mut self, partner: Partner, frame: Kept) -> Result<(), SendError> {
        let state = self.partners.get_mut(partner).ok_or(SendError::Unknown)?;
        if state.waiting.len() >= WAITING_MAX {
            return Err(SendError::WouldBlock);
        }
        state.waiting.push_back(frame);
        Ok(())
    }

    /// Sends a frame some of whose long items are in return buffers of the partner already, as `placed` says.
    pub fn send_placed(
        &mut self,
        partner: Partner,
        frame: Kept,
        placed: &[Option<Offer>],
    ) -> Result<(), SendError> {
        let connection = self.partners.get(partner).and_then(|state| state.connections.first().copied());
        let connection = connection.ok_or(SendError::Gone)?;
        self.send_frame(partner, connection, &frame, placed)
    }

    /// Sends what waits for a partner, as far as there is space. Returns frames that can't be sent at all.
    pub fn flush(&mut self, partner: Partner) -> Vec<(Kept, SendError)> {
        let mut failed = Vec::new();
        while let Some(state) = self.partners.get_mut(partner)
            && let Some(connection) = state.connection()
            && let Some(frame) = state.waiting.pop_front()
        {
            match self.send_frame(partner, connection, &frame, &[]) {
                Ok(()) => {}
                Err(SendError::WouldBlock) => {
                    if let Some(state) = self.partners.get_mut(partner) {
                        state.waiting.push_front(frame);
                    }
                    break;
                }
                Err(error) => failed.push((frame, error)),
            }
        }
        failed
    }
}

struct Lent {
    number: u64,
    long_items: Vec<LongItem>,
    offers: Vec<Offer>,
}

/// The error of this crate for one of the core.
pub fn send_error(error: cci::SendError) -> SendError {
    match error {
        cci::SendError::TooLong { len_bytes, max_bytes } => {
            SendError::TooLong { len_bytes, max_bytes: max_bytes as usize }
        }
        cci::SendError::WouldBlock => SendError::WouldBlock,
        cci::SendError::Disconnected | cci::SendError::UnknownConnection => SendError::Gone,
        error => SendError::System(error.to_string()),
    }
}

/// Makes kept content of a caller's.
pub fn keep(kind: Kind, numbers: (u64, u64), content: &Content<'_>) -> Result<Kept, SendError> {
    let mut head = content.check(kind)?;
    (head.number, head.oldest) = numbers;
    Ok(Kept::new(head, content))
}
