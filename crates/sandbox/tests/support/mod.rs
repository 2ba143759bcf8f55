//! A cluster to test on: the sandbox, or the one whose kubeconfig `RINGMASTER_TEST_KUBECONFIG` names, with our parts
//! beside it.
#![allow(dead_code, reason = "every suite uses its own part")]

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use api::{Node, contract};
use client::{Clients, wait_until};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use sandbox::{Options, Sandbox};
use serde_json::json;
use topology::ClusterFile;

pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) struct Cluster {
    sandbox: Option<Sandbox>,
    pub(crate) clients: Clients,
    pub(crate) kubeconfig: PathBuf,
    folder: tempfile::TempDir,
}

impl Cluster {
    /// Two nodes of the product pages.
    pub(crate) async fn start() -> Self {
        Self::of("gn6v=2").await
    }

    pub(crate) async fn of(machines: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        if let Some(file) = std::env::var_os("RINGMASTER_TEST_KUBECONFIG") {
            let kubeconfig = PathBuf::from(file);
            let clients = Clients::from_kubeconfig(Some(&kubeconfig)).await.unwrap();
            return Self { sandbox: None, clients, kubeconfig, folder };
        }
        let machines = ClusterFile::from_machines(machines).unwrap().nodes;
        let nodes = nodes::Options { time_scale: 0.02, ..nodes::Options::new(machines) };
        let options = Options {
            listen: ([127, 0, 0, 1], 0).into(),
            nodes,
            scheduler: scheduler::Options::default(),
            without: Vec::new(),
        };
        let mut sandbox = Sandbox::start(options).await.unwrap();
        sandbox.ready(|_| {}).await.unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        sandbox.write_kubeconfig(&kubeconfig).unwrap();
        let clients = sandbox.clients().clone();
        Self { sandbox: Some(sandbox), clients, kubeconfig, folder }
    }

    pub(crate) fn is_sandbox(&self) -> bool {
        self.sandbox.is_some()
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) async fn stop(self) {
        if let Some(sandbox) = self.sandbox {
            sandbox.stop().await;
        }
    }

    pub(crate) async fn nodes(&self) -> Vec<Node> {
        let nodes: Api<Node> = Api::all(self.clients.reads.clone());
        nodes.list(&ListParams::default()).await.unwrap().items
    }

    pub(crate) async fn patch_node(&self, name: &str, patch: serde_json::Value) {
        let nodes: Api<Node> = Api::all(self.clients.writes.clone());
        nodes.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    /// Labels every node, and waits until each offers all its GPUs under the mode's name.
    pub(crate) async fn switch(&self, mode: &str) {
        wait_until(
            "two nodes",
            DEADLINE,
            |_| {},
            || async {
                match self.nodes().await.iter().filter(|node| node.is_ready()).count() {
                    2 => Ok(()),
                    count => Err(format!("{count} are ready")),
                }
            },
        )
        .await
        .unwrap();
        for node in self.nodes().await {
            self.patch_node(
                node.name(),
                json!({"metadata": {"labels": {contract::MODE_LABEL: mode}}}),
            )
            .await;
        }
        let resource = if mode == contract::MODE_TOPOLOGY {
            contract::ALIYUN_GPU
        } else {
            contract::NVIDIA_GPU
        };
        let what = format!("8 {resource} on each node");
        wait_until(
            &what,
            DEADLINE,
            |_| {},
            || async {
                let offers = |node: &Node| {
                    node.status.allocatable.get(resource).map(|c| c.value()) == Some(8)
                };
                let nodes = self.nodes().await;
                let count = nodes.iter().filter(|node| offers(node)).count();
                if count == nodes.len() { Ok(()) } else { Err(format!("{count} nodes")) }
            },
        )
        .await
        .unwrap();
    }
}

/// A part of a transcript: a command and what it prints.
struct Step {
    command: String,
    expected: String,
}

fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("$ ") {
            Some(command) => {
                steps.push(Step { command: command.to_owned(), expected: String::new() });
            }
            None if line.starts_with("# ") => {}
            None => {
                if let Some(step) = steps.last_mut() {
                    step.expected.push_str(line);
                    step.expected.push('\n');
                }
            }
        }
    }
    steps
}

/// Runs a transcript's commands, each by bash, and compares what they print (standard output, then errors) with what the
/// transcript says: `[..]` stands for anything in a line, `...` for any lines. A command that fails ends with its exit code.
/// With `RINGMASTER_TEST_OVERWRITE` set, the differing transcript is written beside the old one as `.new`.
pub(crate) fn play(
    cluster: &Cluster,
    transcript: &Path,
    path: &[&Path],
    home: &Path,
) -> Result<(), String> {
    let text = std::fs::read_to_string(transcript).unwrap();
    let mut folders: Vec<PathBuf> = path.iter().map(|folder| (*folder).to_owned()).collect();
    folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap()));
    let path = std::env::join_paths(folders).unwrap();
    let mut seen = String::new();
    let mut wrong = Vec::new();
    for step in steps(&text) {
        let output = Command::new("bash")
            .args(["-c", &step.command])
            .env("KUBECONFIG", &cluster.kubeconfig)
            .env("PATH", &path)
            .env("HOME", home)
            .env("TZ", "UTC")
            .current_dir(cluster.folder())
            .output()
            .unwrap();
        let mut got = String::from_utf8_lossy(&output.stdout).into_owned();
        got.push_str(&String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            if !got.is_empty() && !got.ends_with('\n') {
                got.push('\n');
            }
            got.push_str(&format!("[exit {}]\n", output.status.code().unwrap_or(-1)));
        }
        seen.push_str(&format!("$ {}\n{got}", step.command));
        if !matches(&step.expected, &got) {
            wrong
                .push(format!("$ {}\n--- expected\n{}--- got\n{got}", step.command, step.expected));
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    if std::env::var_os("RINGMASTER_TEST_OVERWRITE").is_some() {
        std::fs::write(transcript.with_extension("new"), seen).unwrap();
    }
    Err(format!("{}:\n{}", transcript.display(), wrong.join("\n")))
}

/// Whether lines are as the pattern says.
fn matches(pattern: &str, text: &str) -> bool {
    fn line(pattern: &str, text: &str) -> bool {
        let mut parts = pattern.split("[..]");
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = text.strip_prefix(first) else { return false };
        let mut last = None;
        for part in parts {
            last = Some(part);
            match rest.find(part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        rest.is_empty() || last.is_some_and(|last| last.is_empty() || text.ends_with(last))
    }
    fn lines(pattern: &[&str], text: &[&str]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((&"...", rest)) => (0..=text.len()).any(|skipped| lines(rest, &text[skipped..])),
            Some((first, rest)) => text
                .split_first()
                .is_some_and(|(head, tail)| line(first, head.trim_end()) && lines(rest, tail)),
        }
    }
    let pattern: Vec<&str> = pattern.lines().map(str::trim_end).collect();
    let text: Vec<&str> = text.lines().collect();
    lines(&pattern, &text)
}

#[test]
fn patterns() {
    for (pattern, text, expected) in [
        ("a\n", "a\n", true),
        ("a[..]c\n", "abc\n", true),
        ("a[..]\n", "abc\n", true),
        ("a[..]d\n", "abc\n", false),
        ("...\nz\n", "a\nb\nz\n", true),
        ("a\n...\n", "a\n", true),
        ("a\n", "a\nb\n", false),
    ] {
        assert_eq!(matches(pattern, text), expected, "{pattern:?} {text:?}");
    }
}
