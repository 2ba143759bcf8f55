//! `ringmaster-rsh`: mpirun's remote shell, an exec through the Kubernetes API.
//!
//! mpirun starts its daemons as `AGENT [options] HOST command…`, where HOST is a line of the hostfile, here the name
//! of a worker pod. This program runs the command in that pod through `pods/exec`, carries standard input, output and
//! error, and ends with the command's exit code. It needs neither kubectl nor SSH in the user's image: an init
//! container copies the one static file in.
//!
//! The file for users' images is static, so that it runs on whatever C library they have (some 3 MB):
//!
//! ```text
//! RUSTFLAGS='-C target-feature=+crt-static -C strip=symbols' \
//!     cargo build --release --package ringmaster-rsh --target x86_64-unknown-linux-gnu
//! ```
//!
//! Exit codes: the command's own; 255 (as ssh) when the command could not be started or the connection broke.

mod cluster;
mod invocation;
mod session;

use std::process::ExitCode;

use cluster::Cluster;
use invocation::Invocation;

/// What ssh returns when it is the connection that failed, not the command.
const CONNECTION_FAILED: u8 = 255;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let outcome = async {
        let invocation = Invocation::parse(std::env::args().skip(1))?;
        let cluster = Cluster::from_env(|name| std::env::var(name).ok())?;
        session::exec(
            &cluster,
            &invocation,
            tokio::io::stdin(),
            tokio::io::stdout(),
            tokio::io::stderr(),
        )
        .await
    };
    let code = match outcome.await {
        Ok(code) => code,
        Err(error) => {
            report(&error);
            CONNECTION_FAILED
        }
    };
    // A thread may still block in a read of standard input; nobody waits for it.
    std::process::exit(i32::from(code))
}

#[expect(clippy::print_stderr, reason = "the only place that speaks to mpirun's user")]
fn report(error: &RshError) {
    eprintln!("ringmaster-rsh: {error}");
}

/// Why a command could not be run in a pod.
#[derive(Debug, thiserror::Error)]
enum RshError {
    #[error("usage: ringmaster-rsh [ssh options] POD COMMAND…: {0}")]
    Usage(String),
    #[error("{0} is not set; ringmaster-rsh runs inside a pod, or needs RINGMASTER_RSH_SERVER")]
    NotInCluster(&'static str),
    #[error("cannot read {file}: {source}")]
    Read { file: String, source: std::io::Error },
    #[error("{file} holds no certificate: {reason}")]
    Certificate { file: String, reason: String },
    #[error("{server} is not the address of an API server: {reason}")]
    Server { server: String, reason: String },
    #[error("cannot reach {server}: {source}")]
    Connect { server: String, source: std::io::Error },
    #[error("pod {pod}: the API server refused the exec: {reason}")]
    Refused { pod: String, reason: String },
    #[error("pod {pod}: the connection broke: {reason}")]
    Broken { pod: String, reason: String },
    #[error("pod {pod}: {message}")]
    Command { pod: String, message: String },
}
