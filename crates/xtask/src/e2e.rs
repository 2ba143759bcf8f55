//! Suites on real programs. The same tests run on the sandbox by `cargo test`; here they are told of another cluster.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::Context;
use clap::Args;

use crate::{
    control_plane::{self, ControlPlane as Real},
    namespaces::{self, ADDRESS},
    process::{Background, run, say},
    programs::{self, Kubernetes, Programs},
};

/// Flags of `e2e control-plane`.
#[derive(Debug, Args)]
pub(crate) struct ControlPlane {
    /// Version of Kubernetes
    #[arg(long, value_enum, default_value_t)]
    kubernetes: Kubernetes,
    /// Only these suites
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Run this instead, with KUBECONFIG set; to look around
    #[arg(last = true)]
    command: Vec<String>,
}

/// What runs beside a suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    /// Nothing: the suite brings its own.
    Nothing,
    /// Our scheduler, operator and simulated nodes, as processes.
    Ours,
}

/// A suite: its name, what runs beside it, and its command.
struct Suite {
    name: &'static str,
    beside: Beside,
    command: &'static [&'static str],
}

/// `RINGMASTER` stands for our program.
const SUITES: &[Suite] = &[
    Suite {
        name: "scheduler",
        beside: Beside::Nothing,
        command: &[
            "cargo",
            "test",
            "--locked",
            "--offline",
            "-p",
            "ringmaster-scheduler",
            "--test",
            "daemon",
        ],
    },
    Suite { name: "demo", beside: Beside::Ours, command: &["RINGMASTER", "demo"] },
    Suite {
        name: "jobs",
        beside: Beside::Ours,
        command: &[
            "cargo",
            "test",
            "--locked",
            "--offline",
            "-p",
            "ringmaster-sandbox",
            "--test",
            "jobs",
        ],
    },
    Suite {
        name: "kubectl",
        beside: Beside::Ours,
        command: &[
            "cargo",
            "test",
            "--locked",
            "--offline",
            "-p",
            "ringmaster-sandbox",
            "--test",
            "kubectl",
        ],
    },
    Suite {
        name: "arena",
        beside: Beside::Ours,
        command: &[
            "cargo",
            "test",
            "--locked",
            "--offline",
            "-p",
            "ringmaster-sandbox",
            "--test",
            "arena",
        ],
    },
];

/// The folder of the workspace's programs.
fn target() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe()?;
    Ok(program.parent().context("this program is in no folder")?.to_owned())
}

impl ControlPlane {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        if namespaces::are_entered() {
            return self.inside();
        }
        // All that needs the network or time comes first.
        programs::ensure(self.kubernetes)?;
        say("building the workspace");
        run(Command::new("cargo").args(["build", "--locked", "-p", "ringmaster"]))?;
        run(Command::new("cargo").args([
            "test",
            "--locked",
            "--no-run",
            "-p",
            "ringmaster-scheduler",
            "-p",
            "ringmaster-sandbox",
        ]))?;
        namespaces::enter()
    }

    fn inside(&self) -> anyhow::Result<()> {
        namespaces::network()?;
        let programs = programs::ensure(self.kubernetes)?;
        let suites = SUITES.iter().filter(|suite| {
            self.only.is_empty() || self.only.iter().any(|only| only == suite.name)
        });
        let folder = std::env::temp_dir().join(format!("ringmaster-e2e-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        if !self.command.is_empty() {
            let real = control_plane::start(&programs, &folder, false)?;
            let _ours = ours(&folder, &real)?;
            let done = run(&mut with_cluster(&programs, &real, &self.command)?);
            std::fs::remove_dir_all(&folder)?;
            return done;
        }
        let mut results = Vec::new();
        for suite in suites {
            let start = Instant::now();
            say(&format!("== {} on Kubernetes {:?}", suite.name, self.kubernetes));
            // Each on a control plane of its own: none finds what another left.
            let folder = folder.join(suite.name);
            std::fs::create_dir_all(&folder)?;
            let real = control_plane::start(&programs, &folder, false)?;
            let beside = match suite.beside {
                Beside::Nothing => Vec::new(),
                Beside::Ours => ours(&folder, &real)?,
            };
            let words: Vec<String> = suite.command.iter().map(|word| (*word).to_owned()).collect();
            let done = run(&mut with_cluster(&programs, &real, &words)?);
            if done.is_err() {
                for process in &beside {
                    say(&process.tail());
                }
            }
            for process in beside {
                process.stop()?;
            }
            results.push((suite.name, start.elapsed().as_secs(), done));
        }
        std::fs::remove_dir_all(&folder)?;
        let mut failed = Ok(());
        for (name, seconds, done) in results {
            let word = if done.is_ok() { "ok" } else { "FAILED" };
            say(&format!("suite {name}: {word} ({seconds} s)"));
            failed = failed.and_then(|()| done.with_context(|| format!("suite {name}")));
        }
        failed
    }
}

/// A command that talks to the cluster.
fn with_cluster(programs: &Programs, real: &Real, words: &[String]) -> anyhow::Result<Command> {
    let (program, rest) = words.split_first().context("no command")?;
    let ringmaster = target()?.join("ringmaster");
    let mut command =
        if program == "RINGMASTER" { Command::new(&ringmaster) } else { Command::new(program) };
    let kubectls: Vec<String> =
        programs.kubectls().iter().map(|file| file.display().to_string()).collect();
    command
        .args(rest)
        .env("KUBECONFIG", &real.kubeconfig)
        .env("RINGMASTER_TEST_KUBECONFIG", &real.kubeconfig)
        .env("RINGMASTER_TEST_KUBECTLS", kubectls.join(":"))
        .env("RINGMASTER_TEST_ARENA", programs.arena());
    if program == "RINGMASTER" {
        command.arg("--kubeconfig").arg(&real.kubeconfig);
    }
    Ok(command)
}

/// Our parts, each as a process of its own.
fn ours(folder: &Path, real: &Real) -> anyhow::Result<Vec<Background>> {
    let ringmaster = target()?.join("ringmaster");
    let part = |name: &str, flags: &[&str]| {
        let mut command = Command::new(&ringmaster);
        command.arg(name).arg("--kubeconfig").arg(&real.kubeconfig).args(flags);
        Background::start(name, folder, &mut command)
    };
    Ok(vec![
        part("operator", &["--define"])?,
        part("scheduler", &[])?,
        part("nodes", &["--machine", "gn6v=2", "--address", ADDRESS, "--time-scale", "0.02"])?,
    ])
}
