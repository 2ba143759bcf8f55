//! Private namespaces: what is started inside can take no port and leaves nothing behind. When the outer process ends, for
//! whatever reason, so does everything inside.

use std::process::Command;

use anyhow::Context;

use crate::process::run;

/// Set for the process inside.
const INSIDE: &str = "RINGMASTER_XTASK_INSIDE";

/// The machine's own address inside: kube-apiserver does not talk to kubelets on the loopback.
pub(crate) const ADDRESS: &str = "10.98.0.1";

/// Whether this process is the one inside.
pub(crate) fn are_entered() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs this very command again, inside, to its end.
pub(crate) fn enter() -> anyhow::Result<()> {
    let program = std::env::current_exe().context("where am I?")?;
    run(Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1"))
}

/// Brings the private network up.
pub(crate) fn network() -> anyhow::Result<()> {
    let address = format!("{ADDRESS}/24");
    for words in [
        &["link", "set", "lo", "up"][..],
        &["link", "add", "node", "type", "bridge"],
        &["addr", "add", &address, "dev", "node"],
        &["link", "set", "node", "up"],
        &["route", "add", "default", "dev", "node"],
    ] {
        run(Command::new("ip").args(words))?;
    }
    Ok(())
}
