//! Keys and certificates for tests, as files: nobody else may read a secret, and a repository does not keep that.
//!
//! They are good for nothing but tests: everybody has them.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// To be changed with the files.
const VERSION: u32 = 1;

/// What every test process writes, the same in all of them.
const FILES: &[(&str, &str)] = &[
    (
        "cluster.psk",
        "# for tests\ncluster = 8b1f6a6f0d1c2e0f7a5b3c4d9e8f7061524334251607f8e9dacbbcad9e8f7061\n\
         node1 = 0b4a1f2e3d5c6b7a8998a7b6c5d4e3f20112233445566778899aabbccddeeff0\n",
    ),
    ("authority.pem", include_str!("../credentials/authority.pem")),
    ("node1.pem", include_str!("../credentials/node1.pem")),
    ("node1.key", include_str!("../credentials/node1.key")),
];

/// The folder with the files: `cluster.psk` (keys `cluster` and `node1`), and `node1.pem`, `node1.key`, `authority.pem`
/// (names `node1.cci.test` and `storage.cci.test`). One for all processes of a user; removed by nobody, but small.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| share().unwrap_or_else(|error| panic!("credentials for tests: {error}")))
}

/// The folder for all of this user's processes, and whether it is there; then it is whole.
fn shared() -> (PathBuf, bool) {
    let uid = rustix::process::geteuid().as_raw();
    let path = std::env::temp_dir().join(format!("cci-test-credentials-v{VERSION}-user-{uid}"));
    let is_ours = fs::symlink_metadata(&path).is_ok_and(|about| about.is_dir() && about.uid() == uid);
    (path, is_ours)
}

/// The folder for all, or one of our own where somebody else has taken its name. A process may be killed at any instant
/// here: where there is one already, nothing is touched.
fn share() -> std::io::Result<PathBuf> {
    if let (path, true) = shared() {
        return Ok(path);
    }
    let own = std::env::temp_dir().join(format!("cci-test-credentials-{}", std::process::id()));
    make(&own)?;
    let (path, _) = shared();
    if fs::rename(&own, &path).is_ok() {
        return Ok(path);
    }
    if !shared().1 {
        return Ok(own);
    }
    fs::remove_dir_all(own)?;
    Ok(path)
}

fn make(folder: &Path) -> std::io::Result<()> {
    // An earlier process of this number may have left one.
    let _ = fs::remove_dir_all(folder);
    DirBuilder::new().mode(0o700).create(folder)?;
    for (name, text) in FILES {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(folder.join(name))?;
        file.write_all(text.as_bytes())?;
    }
    Ok(())
}
