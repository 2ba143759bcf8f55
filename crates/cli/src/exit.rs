//! Exit codes, and how an error becomes one.

use std::process::ExitCode;

/// The work is done.
pub(crate) const OK: u8 = 0;
/// It is not: an error on stderr, or an audit that found something.
pub(crate) const ERROR: u8 = 1;
/// The command line is wrong.
pub(crate) const USAGE: u8 = 2;
/// `plan`: there is no placement.
pub(crate) const NO_PLACEMENT: u8 = 3;

/// What `--help` says of them.
pub(crate) const HELP: &str = "Exit codes:
  0  the work is done
  1  an error, which stderr names; `audit` found something wrong
  2  the command line is wrong
  3  `plan`: there is no placement";

/// How a command ended when nothing went wrong with the command itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit(pub u8);

impl Exit {
    /// Everything is done.
    pub(crate) const DONE: Self = Self(OK);
}

/// The command line is wrong in a way that only the command itself can see.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub String);

/// The exit code of a command, its error said on stderr.
pub(crate) fn code(result: anyhow::Result<Exit>) -> ExitCode {
    match result {
        Ok(Exit(code)) => ExitCode::from(code),
        Err(error) => {
            // A reader that has seen enough (`| head`) is no error.
            if error.chain().any(is_broken_pipe) {
                return ExitCode::from(OK);
            }
            crate::output::complain(&format!("error: {}", chain(&error)));
            ExitCode::from(if error.is::<Usage>() { USAGE } else { ERROR })
        }
    }
}

/// The error with its causes, without those that it quotes already.
fn chain(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

fn is_broken_pipe(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
