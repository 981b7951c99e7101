//! What a program may change of an open endpoint and its connections.

use super::{Endpoint, as_ns};
use crate::DisconnectPolicy;
use crate::connection::Connection;
use crate::error::OptionError;
use crate::limits;
use crate::transport::Setting;
use std::time::Duration;

impl Endpoint {
    /// Changes the default send timeout, for connections made from now on.
    pub fn set_default_send_timeout(&mut self, timeout: Duration) {
        self.core.options.send_timeout = timeout;
        self.pass_defaults();
    }

    /// Changes the default keepalive, for connections made from now on.
    pub fn set_default_keepalive(&mut self, timeout: Option<Duration>) {
        self.core.options.keepalive = timeout;
        self.pass_defaults();
    }

    /// Raises the number of receive buffers to `count`; with as many or more there already, nothing changes. The
    /// memory cap rises by what the new buffers take.
    ///
    /// # Errors
    /// [`OptionError::OutOfRange`], [`OptionError::NoMemory`].
    pub fn set_recv_buffers(&mut self, count: u32) -> Result<(), OptionError> {
        if !self.is_ours() {
            return Err(OptionError::OtherProcess);
        }
        if count == 0 || count > limits::RECV_BUFFERS_MAX {
            return Err(OptionError::OutOfRange);
        }
        self.core.raise_receive_buffers(count)
    }

    /// Asks that `count` sends may be in progress at once. Their number is fixed when the endpoint is opened, so this only says
    /// whether it is as large.
    ///
    /// # Errors
    /// [`OptionError::OutOfRange`]; [`OptionError::Fixed`]: it is smaller, give the number to [`Endpoint::create`].
    pub fn set_send_buffers(&mut self, count: u32) -> Result<(), OptionError> {
        if !self.is_ours() {
            return Err(OptionError::OtherProcess);
        }
        if count == 0 || count > limits::SENDS_MAX {
            return Err(OptionError::OutOfRange);
        }
        if count > self.core.options.send_buffers { Err(OptionError::Fixed) } else { Ok(()) }
    }

    fn pass_defaults(&mut self) {
        if !self.is_ours() {
            return;
        }
        let options = &self.core.options;
        let defaults = Setting::Defaults {
            send_timeout_ns: as_ns(options.send_timeout),
            keepalive_ns: options.keepalive.map_or(0, as_ns),
        };
        self.transport.configure(&mut self.core, defaults);
    }

    /// What becomes of connections whose peers close or are lost, from now on: see [`DisconnectPolicy`]. Language bindings need
    /// this; Rust programs are served by what it is without it.
    pub fn set_disconnect_policy(&mut self, policy: DisconnectPolicy) {
        self.core.set_disconnect_policy(policy);
    }

    /// What becomes of connections whose peers close or are lost.
    pub fn disconnect_policy(&self) -> DisconnectPolicy {
        self.core.disconnect_policy()
    }

    /// How long a reliable send on this connection may take.
    ///
    /// # Errors
    /// [`OptionError::UnknownConnection`].
    pub fn set_send_timeout(&mut self, connection: Connection, timeout: Duration) -> Result<(), OptionError> {
        let link = self.link(connection)?;
        let setting = Setting::SendTimeout { link, timeout_ns: as_ns(timeout) };
        self.transport.configure(&mut self.core, setting);
        self.timeout_changed(connection, timeout);
        self.touched();
        Ok(())
    }

    /// Raises [`Event::KeepaliveTimedOut`](crate::Event::KeepaliveTimedOut) when the peer is silent for so long; None: off.
    ///
    /// # Errors
    /// [`OptionError::UnknownConnection`].
    pub fn set_keepalive(
        &mut self,
        connection: Connection,
        timeout: Option<Duration>,
    ) -> Result<(), OptionError> {
        let link = self.link(connection)?;
        let setting = Setting::Keepalive { link, timeout_ns: timeout.map_or(0, as_ns) };
        self.transport.configure(&mut self.core, setting);
        self.touched();
        Ok(())
    }

    /// The send timeout and keepalive in force for a connection.
    pub fn timeouts(&self, connection: Connection) -> Option<(Duration, Option<Duration>)> {
        let link = self.link(connection).ok()?;
        let state = self.transport.link_state(link)?;
        let keepalive = (state.keepalive_ns > 0).then(|| Duration::from_nanos(state.keepalive_ns));
        Some((Duration::from_nanos(state.send_timeout_ns), keepalive))
    }
}
