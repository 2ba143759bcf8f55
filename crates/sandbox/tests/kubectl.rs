//! Stock kubectl, as transcripts: on the sandbox, and unchanged on a real control plane.
#![allow(clippy::unwrap_used, reason = "a test ends where an assumption does not hold")]

mod support;

use std::path::{Path, PathBuf};

use support::{Cluster, play};

/// The kubectls to try: those of `RINGMASTER_TEST_KUBECTLS`, else the one in PATH.
fn kubectls() -> Vec<PathBuf> {
    match std::env::var_os("RINGMASTER_TEST_KUBECTLS") {
        Some(files) => std::env::split_paths(&files).collect(),
        None => vec!["kubectl".into()],
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn transcripts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut transcripts: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|file| file.file_name().unwrap().to_string_lossy().starts_with("kubectl-"))
        .filter(|file| file.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    transcripts.sort();
    assert!(!transcripts.is_empty());
    let cluster = Cluster::start().await;
    let mut wrong = Vec::new();
    for kubectl in kubectls() {
        // Its discovery cache must be of this version and this cluster.
        let home = tempfile::tempdir().unwrap();
        let path = kubectl.parent().unwrap().to_owned();
        for transcript in &transcripts {
            let played = play(&cluster, transcript, &[&path], home.path());
            wrong.extend(played.err().map(|wrong| format!("{}: {wrong}", kubectl.display())));
        }
    }
    cluster.stop().await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
