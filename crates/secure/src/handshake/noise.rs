//! Pre-shared keys: Noise `NNpsk0`, whose first message already needs the key, and whose secrets nobody can make later
//! who gets the key then.

use super::wiped::State;
use super::{Established, Failure, of_direction};
use crate::credentials::{Credentials, KEY_ID_BYTES, Key, Kind};
use crate::endpoint_id::{ENDPOINT_ID_BYTES, EndpointId};
use crate::identity::Identity;
use crate::keys::Secret;
use snow::params::NoiseParams;
use std::sync::LazyLock;
use zeroize::Zeroize;

//= wire.md R-SEC-10
/// The protocol's name, as Noise writes it.
const PROTOCOL: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";

/// Either message: a public key, the id of the endpoint that sends it, and a tag.
const MESSAGE_BYTES: usize = 32 + ENDPOINT_ID_BYTES + 16;
const FIRST_BYTES: usize = KEY_ID_BYTES + MESSAGE_BYTES;

pub(crate) struct Noise {
    own: EndpointId,
    step: Step,
    /// What has come of the next message.
    input: Vec<u8>,
}

enum Step {
    /// The initiator's message is to be written; `KEY_ID_BYTES` go before it.
    WriteFirst(State, Identity, [u8; KEY_ID_BYTES]),
    /// The initiator waits for the answer.
    ReadSecond(State, Identity),
    /// The responder waits for the initiator's message.
    ReadFirst(Credentials, Vec<u8>),
    /// The responder's answer is to be written.
    WriteSecond(State, Identity, EndpointId),
    Done(State, Identity, EndpointId),
    Over,
}

static PARAMS: LazyLock<Option<NoiseParams>> = LazyLock::new(|| PROTOCOL.parse().ok());

fn state(key: &Key, prologue: &[u8], is_initiator: bool) -> Result<State, Failure> {
    let params = PARAMS.as_ref().ok_or(Failure::Internal("Noise"))?;
    State::new(params, key, prologue, is_initiator).map_err(|_| Failure::Internal("Noise"))
}

impl Noise {
    pub fn initiate(key: &Key, own: EndpointId, prologue: &[u8]) -> Result<Noise, Failure> {
        let step = Step::WriteFirst(state(key, prologue, true)?, Identity::of_key(&key.name), key.id);
        Ok(Noise { own, step, input: Vec::new() })
    }

    pub fn respond(credentials: &Credentials, own: EndpointId, prologue: &[u8]) -> Noise {
        Noise { own, step: Step::ReadFirst(credentials.clone(), prologue.to_vec()), input: Vec::new() }
    }

    pub fn peer(&self) -> Option<&Identity> {
        match &self.step {
            Step::WriteSecond(_, peer, _) | Step::Done(_, peer, _) => Some(peer),
            _ => None,
        }
    }

    pub fn is_done(&self) -> bool {
        matches!(self.step, Step::Done(..))
    }

    pub fn read(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let wanted = match &self.step {
            Step::ReadSecond(..) => MESSAGE_BYTES,
            Step::ReadFirst(..) => FIRST_BYTES,
            _ if bytes.is_empty() => return Ok(()),
            _ => return Err(Failure::Malformed),
        };
        if self.input.len() + bytes.len() > wanted {
            return Err(Failure::Malformed);
        }
        self.input.extend_from_slice(bytes);
        if self.input.len() == wanted {
            let message = std::mem::take(&mut self.input);
            self.step = step_by(std::mem::replace(&mut self.step, Step::Over), self.own, &message)?;
        }
        Ok(())
    }

    /// Takes the whole message that comes next. A message that does not verify changes nothing: the true one may still
    /// come.
    pub fn read_whole(&mut self, message: &[u8]) -> Result<(), Failure> {
        let Step::ReadSecond(state, peer) = &mut self.step else {
            let is_first = matches!(self.step, Step::ReadFirst(..)) && message.len() == FIRST_BYTES;
            return if is_first { self.read(message) } else { Err(Failure::Malformed) };
        };
        if message.len() != MESSAGE_BYTES {
            return Err(Failure::Malformed);
        }
        let endpoint = read_message(state, self.own, message)?;
        let peer = peer.clone();
        if let Step::ReadSecond(state, _) = std::mem::replace(&mut self.step, Step::Over) {
            self.step = Step::Done(state, peer, endpoint);
        }
        Ok(())
    }

    pub fn write(&mut self, out: &mut Vec<u8>) -> Result<(), Failure> {
        let mut message = [0; MESSAGE_BYTES];
        let own = self.own;
        let mut written = |state: &mut State| match state.write_message(own.bytes(), &mut message) {
            Ok(MESSAGE_BYTES) => Ok(()),
            _ => Err(Failure::Internal("no randomness")),
        };
        match std::mem::replace(&mut self.step, Step::Over) {
            Step::WriteFirst(mut state, peer, id) => {
                written(&mut state)?;
                out.extend_from_slice(&id);
                self.step = Step::ReadSecond(state, peer);
            }
            Step::WriteSecond(mut state, peer, endpoint) => {
                written(&mut state)?;
                self.step = Step::Done(state, peer, endpoint);
            }
            other => {
                self.step = other;
                return Ok(());
            }
        }
        out.extend_from_slice(&message);
        Ok(())
    }

    pub fn finish(&mut self, context: &[u8]) -> Result<Established, Failure> {
        let Step::Done(mut state, peer, endpoint) = std::mem::replace(&mut self.step, Step::Over) else {
            return Err(Failure::Internal("not done"));
        };
        let mut split = state.split();
        let (initiators, responders) = (Secret::new(split.0), Secret::new(split.1));
        split.zeroize();
        let initiators = of_direction(&initiators, true, context);
        let responders = of_direction(&responders, false, context);
        let (send, receive) =
            if state.is_initiator() { (initiators, responders) } else { (responders, initiators) };
        Ok(Established { peer, endpoint, send, receive })
    }
}

fn step_by(step: Step, own: EndpointId, message: &[u8]) -> Result<Step, Failure> {
    match step {
        Step::ReadSecond(mut state, peer) => {
            let endpoint = read_message(&mut state, own, message)?;
            Ok(Step::Done(state, peer, endpoint))
        }
        Step::ReadFirst(credentials, prologue) => {
            let Some((id, message)) = message.split_first_chunk() else { return Err(Failure::Malformed) };
            let Kind::Psk(keys) = &*credentials.0 else { return Err(Failure::Internal("no keys")) };
            let key = keys.find(id).ok_or(Failure::Key)?;
            let mut state = state(key, &prologue, false)?;
            let endpoint = read_message(&mut state, own, message)?;
            Ok(Step::WriteSecond(state, Identity::of_key(&key.name), endpoint))
        }
        _ => Err(Failure::Malformed),
    }
}

/// Verifies a message and gives the endpoint that sent it, which must not be this one.
//= wire.md R-SEC-15
fn read_message(state: &mut State, own: EndpointId, message: &[u8]) -> Result<EndpointId, Failure> {
    let mut endpoint = [0; MESSAGE_BYTES];
    let len = state.read_message(message, &mut endpoint).map_err(|_| Failure::Key)?;
    let endpoint =
        endpoint.get(..len).and_then(|written| written.try_into().ok()).ok_or(Failure::Malformed)?;
    let endpoint = EndpointId::from_bytes(endpoint);
    if endpoint == own { Err(Failure::Own) } else { Ok(endpoint) }
}
