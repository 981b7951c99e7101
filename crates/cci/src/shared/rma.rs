//! Remote memory access of a shared endpoint: the calls of [`Endpoint`] that have the same names.

use super::SharedEndpoint;
use crate::{
    Connection, Endpoint, Memory, RegionAddress, RegionHandle, RegisterError, Registration, Rma, RmaError,
    RmaFlags, Status,
};
use cci_proto::Atomic;
use cci_sys::clock;

impl SharedEndpoint {
    /// Calls [`Endpoint::allocate`] with the endpoint locked.
    ///
    /// # Errors
    /// Those of [`Endpoint::allocate`].
    pub fn allocate(&self, len_bytes: usize) -> Result<Memory, RegisterError> {
        self.try_with(|endpoint| endpoint.allocate(len_bytes))?
    }

    /// Calls [`Endpoint::register`] with the endpoint locked.
    ///
    /// # Errors
    /// Those of [`Endpoint::register`].
    pub fn register(
        &self,
        memory: &Memory,
        what: impl Into<Registration>,
    ) -> Result<RegionHandle, RegisterError> {
        self.try_with(|endpoint| endpoint.register(memory, what))?
    }

    /// Calls [`Endpoint::deregister`] with the endpoint locked.
    ///
    /// # Errors
    /// Those of [`Endpoint::deregister`].
    pub fn deregister(&self, handle: &RegionHandle) -> Result<(), RegisterError> {
        self.try_with(|endpoint| endpoint.deregister(handle))?
    }

    /// Calls [`Endpoint::forget_registrations`] with the endpoint locked.
    pub fn forget_registrations(&self, start: *const u8, len_bytes: usize) {
        let _ = self.try_with(|endpoint| endpoint.forget_registrations(start, len_bytes));
    }

    /// Calls [`Endpoint::rma_write`] with the endpoint locked.
    ///
    /// # Errors
    /// Those of [`Endpoint::rma_write`].
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

    /// Calls [`Endpoint::rma_read`] with the endpoint locked.
    ///
    /// # Errors
    /// Those of [`Endpoint::rma_read`].
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

    /// Calls [`Endpoint::rma`] with the endpoint locked.
    ///
    /// # Errors
    /// Those of [`Endpoint::rma`].
    pub fn rma(&self, connection: Connection, rma: &Rma<'_>) -> Result<(), RmaError> {
        self.try_with(|endpoint| endpoint.rma(connection, rma)).unwrap_or(Err(RmaError::OtherProcess))
    }

    /// Does what [`Endpoint::rma_blocking`] does. Other threads go on using the endpoint meanwhile.
    ///
    /// # Errors
    /// Those of [`Endpoint::rma_blocking`].
    pub fn rma_blocking(&self, connection: Connection, rma: &Rma<'_>) -> Result<Status, RmaError> {
        self.blocking(connection, |endpoint| endpoint.try_start_rma(connection, rma))
    }

    /// Calls [`Endpoint::atomic`] with the endpoint locked.
    ///
    /// # Errors
    /// Those of [`Endpoint::atomic`].
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

    /// Does what [`Endpoint::atomic_blocking`] does. Other threads go on using the endpoint meanwhile.
    ///
    /// # Errors
    /// Those of [`Endpoint::atomic_blocking`].
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
        let space_until_ns = self.with(|endpoint| endpoint.space_until_ns(connection));
        let context = loop {
            match self.with(&mut start) {
                Err(RmaError::WouldBlock) if clock::now_ns() < space_until_ns => self.pause_for_space(),
                other => break other?,
            }
        };
        Ok(self.wait_for_blocking(context))
    }
}
