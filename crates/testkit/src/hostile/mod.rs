//! Hostile peers from scripts: what a peer sends, and when, in a few lines; beside it an honest peer, and a judge.
//!
//! A [`Scene`] has a victim (an endpoint of the library, and the book of its program), an honest peer connected with it, and
//! any number of hostile peers, each of which follows a [`Script`]. All of them run in one thread, in turns, so that a lie
//! happens at the same place each time. Nothing waits longer than [`PATIENCE`], and only a test that fails waits so long.
//!
//! ```no_run
//! use cci::{Options, RmaKind};
//! use cci_testkit::hostile::tcp::{Kind, bulk, client, honestly, rma};
//! use cci_testkit::hostile::{PATIENCE, Scene};
//!
//! let mut scene = Scene::open("tcp", Options::default()).expect("a machine with TCP");
//! // Dials the second stream when it is asked to, and answers a read with DATA beyond the end of the request.
//! let beyond = rma(Kind::Data, |data| data.words = vec![1 << 40]);
//! let peer = scene.join(client().on(Kind::AskBulk, bulk(honestly)).on(Kind::Read, beyond));
//! scene.operate(peer, 1, RmaKind::Read, 4_096, None); // The victim's program reads the peer's memory.
//! let ends = scene.until_ended(peer); // It ends, once, whatever the peer says.
//! scene.judge(); // Honest peers get theirs, memory is under its cap, and the victim does not spin.
//! ```
//!
//! # Scripts
//!
//! A script is a list of steps: [`now`](Script::now) does something, [`expect`](Script::expect) waits until something comes,
//! [`rest`](Script::rest) waits for a time. [`on`](Script::on) sets a rule for what comes from then on, and
//! [`every`](Script::every) repeats something beside all else. What is done is an [`Act`]; each transport has functions that
//! make them, and [`act`] makes one of any closure. They encode what they say by themselves, from `docs/wire.md`, and
//! share no code with the library. A record is first filled in as an honest peer would; the closure falsifies its fields.
//! [`Counter::count`] counts what comes, for the test to look at.
//!
//! | module | speaks | begins with |
//! |---|---|---|
//! | [`datagram`] | UDP and raw Ethernet, in the clear | `client()`, `server(..)`, or `shake(Hello, ..)` |
//! | [`mirror`] | what the victim itself sends, back to it | `reflect()` |
//! | [`raw`] | IPv4 packets in anybody's name: ICMP, multicast groups | `too_big(..)`, `watch(..)` |
//! | [`sealed`] | handshakes of UDP with security, without a key | `tap()`, `begin(..)` |
//! | [`shm`] | shared memory: socket, descriptors, rings, grants | `client()`, `connect_as(uid)` |
//! | [`tcp`] | both streams | `client()`, `server(..)`, or `dial()` for somebody who is no peer yet |
//!
//! # The judge
//!
//! [`Scene::exchange`] has the victim and the honest peer send, write and read, both ways: each operation succeeds, once, every
//! byte is compared, and nobody is refused while it has nothing under way. [`Scene::until_ended`] waits for what the
//! victim has started towards a hostile peer. [`Scene::judge`] does the first once more, and watches a victim that has nothing to do.
//! Add what is particular to a lie: counters ([`Side::count`]), memory seen, what others got.
//!
//! # A new lie
//!
//! Add a test to the file of its transport in `tests/hostile/scripts`. See it fail on the code without the fix.

pub mod datagram;
pub mod mirror;
pub mod raw;
pub mod sealed;
pub mod shm;
pub mod tcp;

mod scene;
mod script;
mod side;
mod stage;

pub use scene::{PATIENCE, PeerId, Scene, handle_of_peer};
pub use script::{Act, Counter, Script, Site, Wire, act, all};
pub use side::{Met, REGION_BYTES, STRANGER, Side};
pub use stage::{Stage, device};
