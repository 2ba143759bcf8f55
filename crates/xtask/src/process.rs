//! Child processes.

use std::{
    ffi::OsStr,
    fs::File,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

/// Says what happens, on stdout.
#[expect(clippy::print_stdout, reason = "a development command talks to whoever runs it")]
pub(crate) fn say(line: &str) {
    println!("{line}");
}

/// A command as it is typed.
fn typed(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// Runs a command to its end, which must be a success.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot run {}", typed(command)))?;
    if !status.success() {
        bail!("{} failed: {status}", typed(command));
    }
    Ok(())
}

/// Runs a command to its end, which must be a success; returns what it printed.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {}", typed(command)))?;
    if !output.status.success() {
        bail!("{} failed: {}", typed(command), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A process in the background, which ends with this value.
pub(crate) struct Background {
    name: String,
    child: Child,
    log: std::path::PathBuf,
}

impl Background {
    /// Starts `command`; what it prints goes to `NAME.log` in `folder`.
    pub(crate) fn start(name: &str, folder: &Path, command: &mut Command) -> anyhow::Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {}", typed(command)))?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    /// An error if it has ended, with the end of its log.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended: {status}\n{}", self.name, self.tail());
        }
        Ok(())
    }

    /// The end of its log.
    pub(crate) fn tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Ends it and waits for that.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        // SIGTERM, so that it may take its leave; `kill` is everywhere.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let end = Instant::now() + Duration::from_secs(20);
        while self.child.try_wait()?.is_none() {
            if Instant::now() > end {
                self.child.kill()?;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Looks until `look` succeeds.
pub(crate) fn wait(
    what: &str,
    deadline: Duration,
    mut look: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let start = Instant::now();
    while !look()? {
        if start.elapsed() > deadline {
            bail!("waited {} s for {what}", deadline.as_secs());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
