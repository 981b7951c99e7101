//! Noise's state, whose secrets are overwritten before its memory is given back: `snow` leaves them there.

use crate::credentials::Key;
use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, Error, HandshakeState};
use std::hint::black_box;
use zeroize::Zeroizing;

/// The state of a handshake. It stays where it is, so that there is one copy to be overwritten.
pub(super) struct State {
    state: Box<HandshakeState>,
    params: &'static NoiseParams,
}

impl State {
    /// Of the side that begins, or of the one that answers.
    pub fn new(
        params: &'static NoiseParams,
        key: &Key,
        prologue: &[u8],
        is_initiator: bool,
    ) -> Result<State, Error> {
        let make = || build(params, &[&key.secret], prologue, is_initiator).map(Box::new);
        Ok(State { state: on_wiped_stack(make)?, params })
    }

    /// Writes the next message, with `payload`, into `out`, and says how long it is in bytes.
    pub fn write_message(&mut self, payload: &[u8], out: &mut [u8]) -> Result<usize, Error> {
        on_wiped_stack(|| self.state.write_message(payload, out))
    }

    /// Verifies the peer's next message, puts its payload into `out`, and says how long that is in bytes.
    pub fn read_message(&mut self, message: &[u8], out: &mut [u8]) -> Result<usize, Error> {
        on_wiped_stack(|| self.state.read_message(message, out))
    }

    /// The secrets of both directions, the initiator's first. They are the caller's to wipe.
    pub fn split(&mut self) -> ([u8; 32], [u8; 32]) {
        on_wiped_stack(|| self.state.dangerously_get_raw_split())
    }

    pub fn is_initiator(&self) -> bool {
        self.state.is_initiator()
    }
}

/// How deep the stack is overwritten, bytes: several times what `snow` uses.
const STACK_BYTES: usize = 16 << 10;

/// Does what leaves copies of the key on the stack, and overwrites them. Otherwise whatever is made there later and moved to
/// the heap would take them along in its unused parts.
fn on_wiped_stack<T>(act: impl FnOnce() -> T) -> T {
    // Neither is inlined, so that both use the same part of the stack.
    #[inline(never)]
    fn call<T>(act: impl FnOnce() -> T) -> T {
        act()
    }
    #[inline(never)]
    fn overwrite() {
        black_box(&mut [0_u8; STACK_BYTES]);
    }
    let done = call(act);
    overwrite();
    done
}

/// How many pre-shared keys a state of `snow` has room for.
const SECRETS: usize = 10;

fn build(
    params: &NoiseParams,
    secrets: &[&[u8; 32]],
    prologue: &[u8],
    is_initiator: bool,
) -> Result<HandshakeState, Error> {
    let resolver = Box::new(Wiping(DefaultResolver));
    let mut builder = Builder::with_resolver(params.clone(), resolver).prologue(prologue)?;
    for (location, &secret) in (0..).zip(secrets) {
        builder = builder.psk(location, secret)?;
    }
    if is_initiator { builder.build_initiator() } else { builder.build_responder() }
}

impl Drop for State {
    fn drop(&mut self) {
        // What it holds itself, the pre-shared key and what the secrets follow from, is overwritten by a state that knows
        // nothing; what it holds in boxes wipes itself. The blank state has as many keys as it can: those that it lacked would
        // be copied with whatever was on the stack before, which may be a key.
        if let Ok(blank) = build(self.params, &[&[0; 32]; SECRETS], &[], true) {
            *self.state = blank;
        }
        black_box(&mut *self.state);
    }
}

/// `snow`'s own primitives, in boxes that are overwritten before they go.
struct Wiping(DefaultResolver);

impl CryptoResolver for Wiping {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        self.0.resolve_rng()
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        Some(Box::new(WipedDh(self.0.resolve_dh(choice)?)))
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        Some(Box::new(WipedHash(self.0.resolve_hash(choice)?)))
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        Some(Box::new(WipedCipher(self.0.resolve_cipher(choice)?)))
    }
}

/// A private key that lives for one handshake.
struct WipedDh(Box<dyn Dh>);

impl Drop for WipedDh {
    fn drop(&mut self) {
        let blank = Zeroizing::new(vec![0; self.0.priv_len()]);
        self.0.set(&blank);
        black_box(&mut *self.0);
    }
}

impl Dh for WipedDh {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn pub_len(&self) -> usize {
        self.0.pub_len()
    }

    fn priv_len(&self) -> usize {
        self.0.priv_len()
    }

    fn set(&mut self, privkey: &[u8]) {
        self.0.set(privkey);
    }

    fn generate(&mut self, rng: &mut dyn Random) -> Result<(), Error> {
        self.0.generate(rng)
    }

    fn pubkey(&self) -> &[u8] {
        self.0.pubkey()
    }

    fn privkey(&self) -> &[u8] {
        self.0.privkey()
    }

    fn dh(&self, pubkey: &[u8], out: &mut [u8]) -> Result<(), Error> {
        self.0.dh(pubkey, out)
    }

    fn dh_len(&self) -> usize {
        self.0.dh_len()
    }
}

/// A key of the handshake's own.
struct WipedCipher(Box<dyn Cipher>);

impl Drop for WipedCipher {
    fn drop(&mut self) {
        self.0.set(&[0; 32]);
        black_box(&mut *self.0);
    }
}

impl Cipher for WipedCipher {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn set(&mut self, key: &[u8; 32]) {
        self.0.set(key);
    }

    fn encrypt(&self, nonce: u64, authtext: &[u8], plaintext: &[u8], out: &mut [u8]) -> usize {
        self.0.encrypt(nonce, authtext, plaintext, out)
    }

    fn decrypt(
        &self,
        nonce: u64,
        authtext: &[u8],
        ciphertext: &[u8],
        out: &mut [u8],
    ) -> Result<usize, Error> {
        self.0.decrypt(nonce, authtext, ciphertext, out)
    }
}

/// A hash, which has seen secrets.
struct WipedHash(Box<dyn Hash>);

impl Drop for WipedHash {
    fn drop(&mut self) {
        self.0.reset();
        // A whole block and a half, over what may be left of another one.
        self.0.input(&[0; 96]);
        black_box(&mut *self.0);
    }
}

impl Hash for WipedHash {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn block_len(&self) -> usize {
        self.0.block_len()
    }

    fn hash_len(&self) -> usize {
        self.0.hash_len()
    }

    fn reset(&mut self) {
        self.0.reset();
    }

    fn input(&mut self, data: &[u8]) {
        self.0.input(data);
    }

    fn result(&mut self, out: &mut [u8]) {
        self.0.result(out);
    }
}
