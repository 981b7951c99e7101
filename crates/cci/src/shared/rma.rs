//! The shared form's remote memory access: the calls of [`Endpoint`] of the same names.

use super::SharedEndpoint;
use crate::{
    Connection, Endpoint, Memory, RegionAddress, RegionHandle, RegisterError, Registration, Rma, RmaError,
    RmaFlags, Status,
};
use cci_proto::Atomic;
use cci_sys::clock;

impl SharedEndpoint {
    /// See [`Endpoint::allocate`].
    ///
    /// # Errors
    /// As there.
    pub fn allocate(&self, len_bytes: usize) -> Result<Memory, RegisterError> {
        self.try_with(|endpoint| endpoint.allocate(len_bytes))?
    }

    /// See [`Endpoint::register`].
    ///
    /// # Errors
    /// As there.
    pub fn register(
        &self,
        memory: &Memory,
        what: impl Into<Registration>,
    ) -> Result<RegionHandle, RegisterError> {
        self.try_with(|endpoint| endpoint.register(memory, what))?
    }

    /// See [`Endpoint::deregister`].
    ///
    /// # Errors
    /// As there.
    pub fn deregister(&self, handle: &RegionHandle) -> Result<(), RegisterError> {
        self.try_with(|endpoint| endpoint.deregister(handle))?
    }

    /// See [`Endpoint::forget_registrations`].
    pub fn forget_registrations(&self, start: *const u8, len_bytes: usize) {
        let _ = self.try_with(|endpoint| endpoint.forget_registrations(start, len_bytes));
    }

    /// See [`Endpoint::rma_write`].
    ///
    /// # Errors
    /// As there.
    pub fn rma_write(
        &self,
        connection: Connection,
        from: RegionAddress,
        to: RegionAddress,
        len_bytes: u64,
        context: u64,
        flags: RmaFlags,
    ) -> Result<(), RmaError> {
        self.try_with(|endpoint| endpoint.rma_write(connection, from, to, len_bytes, context, flags))
            .unwrap_or(Err(RmaError::OtherProcess))
    }

    /// See [`Endpoint::rma_read`].
    ///
    /// # Errors
    /// As there.
    pub fn rma_read(
        &self,
        connection: Connection,
        into: RegionAddress,
        from: RegionAddress,
        len_bytes: u64,
        context: u64,
        flags: RmaFlags,
    ) -> Result<(), RmaError> {
        self.try_with(|endpoint| endpoint.rma_read(connection, into, from, len_bytes, context, flags))
            .unwrap_or(Err(RmaError::OtherProcess))
    }

    /// See [`Endpoint::rma`].
    ///
    /// # Errors
    /// As there.
    pub fn rma(&self, connection: Connection, rma: &Rma<'_>) -> Result<(), RmaError> {
        self.try_with(|endpoint| endpoint.rma(connection, rma)).unwrap_or(Err(RmaError::OtherProcess))
    }

    /// See [`Endpoint::rma_blocking`]. Other threads go on using the endpoint meanwhile.
    ///
    /// # Errors
    /// As there.
    pub fn rma_blocking(&self, connection: Connection, rma: &Rma<'_>) -> Result<Status, RmaError> {
        self.blocking(connection, |endpoint| endpoint.try_start_rma(connection, rma))
    }

    /// See [`Endpoint::atomic`].
    ///
    /// # Errors
    /// As there.
    pub fn atomic(
        &self,
        connection: Connection,
        atomic: Atomic,
        target: RegionAddress,
        result: Option<RegionAddress>,
        context: u64,
        flags: RmaFlags,
    ) -> Result<(), RmaError> {
        self.try_with(|endpoint| endpoint.atomic(connection, atomic, target, result, context, flags))
            .unwrap_or(Err(RmaError::OtherProcess))
    }

    /// See [`Endpoint::atomic_blocking`]. Other threads go on using the endpoint meanwhile.
    ///
    /// # Errors
    /// As there.
    pub fn atomic_blocking(
        &self,
        connection: Connection,
        atomic: Atomic,
        target: RegionAddress,
        result: Option<RegionAddress>,
        flags: RmaFlags,
    ) -> Result<Status, RmaError> {
        self.blocking(connection, |endpoint| {
            endpoint.try_start_atomic(connection, atomic, target, result, flags)
        })
    }

    /// Starts what `start` starts, as soon as there is room, and waits until it ends.
    fn blocking(
        &self,
        connection: Connection,
        mut start: impl FnMut(&mut Endpoint) -> Result<u64, RmaError>,
    ) -> Result<Status, RmaError> {
        self.check_process().map_err(|_| RmaError::OtherProcess)?;
        let room_until_ns = self.with(|endpoint| endpoint.room_until_ns(connection));
        let context = loop {
            match self.with(&mut start) {
                Err(RmaError::WouldBlock) if clock::now_ns() < room_until_ns => self.pause_for_room(),
                other => break other?,
            }
        };
        Ok(self.wait_for_blocking(context))
    }
}
