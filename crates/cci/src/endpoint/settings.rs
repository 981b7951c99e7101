//! What a program may change about an open endpoint and its connections.

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

    /// Raises the number of receive buffers to `count`. If there are as many or more already, nothing changes. The memory cap rises by
    /// what the new buffers take.
    ///
    /// # Errors
    /// [`OptionError::OutOfRange`] if `count` is 0 or too high, [`OptionError::NoMemory`] if the system has no memory, and
    /// [`OptionError::OtherProcess`].
    pub fn set_recv_buffers(&mut self, count: u32) -> Result<(), OptionError> {
        if !self.is_ours() {
            return Err(OptionError::OtherProcess);
        }
        if count == 0 || count > limits::RECV_BUFFERS_MAX {
            return Err(OptionError::OutOfRange);
        }
        self.core.raise_receive_buffers(count)
    }

    /// Checks that `count` sends may be in progress at once. Their number is fixed when the endpoint is opened, so this changes nothing.
    ///
    /// # Errors
    /// [`OptionError::Fixed`] if the number is smaller: give it to [`Endpoint::create`]. [`OptionError::OutOfRange`] if `count` is 0 or
    /// too high, and [`OptionError::OtherProcess`].
    pub fn set_send_buffers(&mut self, count: u32) -> Result<(), OptionError> {
        if !self.is_ours() {
            return Err(OptionError::OtherProcess);
        }
        if count == 0 || count > limits::SENDS_MAX {
            return Err(OptionError::OutOfRange);
        }
        if count > self.core.options.send_buffers { Err(OptionError::Fixed) } else { Ok(()) }
    }

    /// Gives the transport the defaults.
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

    /// Changes what becomes of connections whose peers close or are lost from now on. Language bindings need this; the default is right
    /// for Rust programs.
    pub fn set_disconnect_policy(&mut self, policy: DisconnectPolicy) {
        self.core.set_disconnect_policy(policy);
    }

    /// What becomes of connections whose peers close or are lost.
    pub fn disconnect_policy(&self) -> DisconnectPolicy {
        self.core.disconnect_policy()
    }

    /// Changes how long a reliable send on a connection may take.
    ///
    /// # Errors
    /// [`OptionError::UnknownConnection`] and [`OptionError::OtherProcess`].
    pub fn set_send_timeout(&mut self, connection: Connection, timeout: Duration) -> Result<(), OptionError> {
        let link = self.link(connection)?;
        let setting = Setting::SendTimeout { link, timeout_ns: as_ns(timeout) };
        self.transport.configure(&mut self.core, setting);
        self.timeout_changed(connection, timeout);
        self.touched();
        Ok(())
    }

    /// Has a connection raise [`Event::KeepaliveTimedOut`](crate::Event::KeepaliveTimedOut) when the peer is silent for `timeout`; `None`
    /// turns that off.
    ///
    /// # Errors
    /// [`OptionError::UnknownConnection`] and [`OptionError::OtherProcess`].
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

    /// The send timeout and the keepalive in force for a connection; `None` if there is no such connection.
    pub fn timeouts(&self, connection: Connection) -> Option<(Duration, Option<Duration>)> {
        let link = self.link(connection).ok()?;
        let state = self.transport.link_state(link)?;
        let keepalive = (state.keepalive_ns > 0).then(|| Duration::from_nanos(state.keepalive_ns));
        Some((Duration::from_nanos(state.send_timeout_ns), keepalive))
    }
}
