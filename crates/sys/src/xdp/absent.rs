//! AF_XDP without the feature `xdp`: nothing can load the program that leads frames to sockets, so nobody gets a
//! [`Program`], nor a [`Attachment`] in one. Packet sockets ([`crate::packet`]) carry frames all the same.

use super::kinds::{Check, Mode, SteerCounters, Wanted};
use super::refusal::Refusal;
use super::socket::Socket;
use crate::ethernet::{EndpointLock, Mac};
use std::io;

/// There is none.
#[derive(Debug)]
enum Never {}

/// A share in the program on an interface.
#[derive(Debug)]
pub struct Program(Never);

/// An endpoint's slot in the program on its interface.
#[derive(Debug)]
pub struct Attachment(Never);

impl Program {
    /// Fails: this build has no program.
    pub fn attach(_interface_index: u32, _wanted: Wanted) -> Result<Program, Refusal> {
        Err(Refusal::NotBuilt)
    }

    pub(super) fn probe(_interface_index: u32) -> Result<Option<Mode>, Refusal> {
        Err(Refusal::NotBuilt)
    }
}

#[allow(missing_docs, reason = "nobody can call them; the other form of this module says what they do")]
impl Attachment {
    pub fn create(
        program: Program,
        _: &EndpointLock,
        _: Mac,
        _: Option<&Socket>,
    ) -> Result<Attachment, Refusal> {
        match program.0 {}
    }
    pub fn set_check(&mut self, _check: Check) -> io::Result<()> {
        match self.0 {}
    }
    pub fn connected(&mut self, _index: u32, _generation: u32, _nonce: u64) -> io::Result<()> {
        match self.0 {}
    }
    pub fn disconnected(&mut self, _index: u32) {
        match self.0 {}
    }
    pub fn mode(&self) -> Mode {
        match self.0 {}
    }
    pub fn counters(&self) -> io::Result<SteerCounters> {
        match self.0 {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_refused_with_the_remedy() {
        let refusal = Program::attach(1, Wanted::Auto).unwrap_err();
        assert!(refusal.to_string().contains("made without") && refusal.remedy().contains("feature `xdp`"));
    }
}
