//! Limits of what directories keep.

use crate::limits::{MEMBERS_MAX, RECORD_BYTES_MAX};
use std::time::Duration;

/// Names whose answers one directory keeps, or that it watches. For one more, the one that was asked for longest ago is
/// forgotten.
pub(super) const NAMES_MAX: usize = 4_096;
/// News that wait to be polled. If there are more, the oldest are forgotten, and their names must be asked for again.
pub(super) const NEWS_MAX: usize = 2 * NAMES_MAX;
/// The longest text that names a directory, bytes.
pub(super) const TEXT_BYTES_MAX: usize = 4_096;
/// The longest file of services, bytes.
pub(super) const FILE_BYTES_MAX: u64 = 4 << 20;
/// How often a file of services is checked while nobody asks.
pub(super) const FILE_LOOK: Duration = Duration::from_millis(250);

const _: () = assert!(FILE_BYTES_MAX as usize >= RECORD_BYTES_MAX * MEMBERS_MAX);
