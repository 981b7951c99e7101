//! This crate without its feature `sealing`: what goes by credentials can't exist, since nobody gets credentials. The
//! names are the same, so that those who use them need not ask which of the two was built.

use crate::failure::Failure;
use crate::identity::{Identity, Rights};
use crate::no_credentials::{EndpointId, Never};
use crate::types::{Ahead, Association, Config, Counters, Opened, Route, StreamConfig};
use std::marker::PhantomData;

/// All associations of one endpoint.
pub struct Associations<A>(Never, PhantomData<A>);

/// One side of a sealed stream.
pub struct SealedStream(Never);

#[allow(missing_docs, reason = "nobody can call them; the other form of this crate says what they do")]
impl<A> Associations<A> {
    pub fn with_secret(config: Config<A>, _now_ns: u64, _secret: &[u8; 32]) -> Option<Associations<A>> {
        match config.credentials.0 {}
    }
    pub fn route(&mut self, _to: A) -> Route {
        match self.0 {}
    }
    pub fn seal(&mut self, _by: Association, _datagram: &mut [u8], _now_ns: u64) -> bool {
        match self.0 {}
    }
    pub fn open<'d>(&mut self, _from: A, _datagram: &'d mut [u8], _now_ns: u64) -> Opened<'d> {
        match self.0 {}
    }
    pub fn hold(&mut self, _to: A, _body: &[u8], _now_ns: u64) {
        match self.0 {}
    }
    pub fn expect(&mut self, _address: A, _name: &str, _now_ns: u64) -> bool {
        match self.0 {}
    }
    pub fn unexpect(&mut self, _address: A, _name: &str) {
        match self.0 {}
    }
    pub fn poll_transmit(&mut self, _now_ns: u64, _out: &mut [u8]) -> Option<(A, usize)> {
        match self.0 {}
    }
    pub fn handle_timeout(&mut self, _now_ns: u64) {
        match self.0 {}
    }
    pub fn next_deadline_ns(&self) -> Option<u64> {
        match self.0 {}
    }
    pub fn peer(&self, _address: A) -> Option<(&Identity, Rights)> {
        match self.0 {}
    }
    pub fn peer_by(&self, _by: Association) -> Option<(&Identity, Rights)> {
        match self.0 {}
    }
    pub fn failure(&self, _address: A) -> Option<&str> {
        match self.0 {}
    }
    pub fn retain(&mut self, _address: A) {
        match self.0 {}
    }
    pub fn release(&mut self, _address: A) {
        match self.0 {}
    }
    pub fn poll_failure(&mut self) -> Option<(A, Failure)> {
        match self.0 {}
    }
    pub fn counters(&self) -> &Counters {
        match self.0 {}
    }
    pub fn memory_bytes(&self) -> u64 {
        match self.0 {}
    }
}

#[allow(missing_docs, clippy::missing_errors_doc, reason = "as for associations")]
impl SealedStream {
    pub fn dial(config: &StreamConfig, _expected: Option<&str>) -> Result<SealedStream, Failure> {
        match config.credentials.0 {}
    }
    pub fn answer(config: &StreamConfig) -> SealedStream {
        match config.credentials.0 {}
    }
    pub fn outgoing(&mut self) -> &mut Vec<u8> {
        match self.0 {}
    }
    pub fn has_outgoing(&self) -> bool {
        match self.0 {}
    }
    pub fn peer(&self) -> Option<(&Identity, Rights)> {
        match self.0 {}
    }
    pub fn peer_endpoint(&self) -> Option<EndpointId> {
        match self.0 {}
    }
    pub fn is_open(&self) -> bool {
        match self.0 {}
    }
    pub fn wanted(&self, _bytes: &[u8]) -> Result<usize, Failure> {
        match self.0 {}
    }
    pub fn shake(&mut self, _part: &[u8], _now_ns: u64) -> Result<(), Failure> {
        match self.0 {}
    }
    pub fn seal(&mut self, _record: &mut [u8], _now_ns: u64) -> bool {
        match self.0 {}
    }
    pub fn open<'r>(&mut self, _record: &'r mut [u8]) -> Option<&'r mut [u8]> {
        match self.0 {}
    }
    pub fn open_ahead<'r>(&mut self, _ahead: u64, _record: &'r mut [u8]) -> Ahead<'r> {
        match self.0 {}
    }
    pub fn advance(&mut self, _records: u64) {
        match self.0 {}
    }
}
