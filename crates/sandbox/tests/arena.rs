//! The unmodified Arena, as a transcript: on the sandbox, and unchanged on a real control plane.
#![allow(clippy::unwrap_used, reason = "a test ends where an assumption does not hold")]

mod support;

use std::{
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use support::{Cluster, play};

/// Arena wants its charts in the home directory and a kubectl of its own name.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Arena in RINGMASTER_TEST_ARENA: cargo xtask e2e brings it"]
async fn transcript() {
    let arena = PathBuf::from(std::env::var_os("RINGMASTER_TEST_ARENA").unwrap());
    let kubectls = std::env::var_os("RINGMASTER_TEST_KUBECTLS").unwrap();
    let kubectl = std::env::split_paths(&kubectls).next().unwrap();
    let home = tempfile::tempdir().unwrap();
    symlink(arena.join("charts"), home.path().join("charts")).unwrap();
    symlink(&kubectl, home.path().join("arena-kubectl")).unwrap();
    let cluster = Cluster::start().await;
    let transcript = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts/arena.txt");
    let path = [arena.as_path(), kubectl.parent().unwrap(), home.path()];
    let played = play(&cluster, &transcript, &path, home.path());
    cluster.stop().await;
    played.unwrap_or_else(|wrong| panic!("{wrong}"));
}
