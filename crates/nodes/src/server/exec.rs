//! A command inside a container, apart from the protocol that carries it.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::{
    sync::{Mutex, mpsc},
    task::JoinHandle,
};

use crate::{
    containers::Run,
    program::{self, Channel, Io, Output, Place},
};

/// Pieces of standard input that wait for the command to read them.
const WAITING: usize = 16;

/// What is asked for.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub(super) command: Vec<String>,
    pub(super) stdin: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
    pub(super) tty: bool,
}

impl Wanted {
    pub(super) fn read(pairs: &[(String, String)]) -> Self {
        let mut wanted = Self::default();
        for (name, value) in pairs {
            let is_on = matches!(value.as_str(), "1" | "true");
            match name.as_str() {
                "command" => wanted.command.push(value.clone()),
                "input" => wanted.stdin = is_on,
                "output" => wanted.stdout = is_on,
                "error" => wanted.stderr = is_on,
                "tty" => wanted.tty = is_on,
                _ => {}
            }
        }
        wanted
    }
}

/// A command that runs.
pub(super) struct Running {
    /// Ends when the command does.
    pub(super) output: mpsc::UnboundedReceiver<(Channel, String)>,
    /// Dropping it is the end of standard input.
    pub(super) input: Option<mpsc::Sender<Vec<u8>>>,
    task: JoinHandle<u8>,
}

struct Sent {
    to: mpsc::UnboundedSender<(Channel, String)>,
    tty: bool,
}

impl Output for Sent {
    fn write(&self, channel: Channel, text: &str) {
        // A terminal has one output, and needs to be told to go back to the beginning of the line.
        let (channel, text) = if self.tty {
            (Channel::Out, text.replace('\n', "\r\n"))
        } else {
            (channel, text.to_owned())
        };
        // Whoever asked may be gone: then the command is stopped as well.
        let _ = self.to.send((channel, text));
    }
}

pub(super) fn start(run: Run, wanted: &Wanted) -> Running {
    let (to, output) = mpsc::unbounded_channel();
    let sent: Arc<dyn Output> = Arc::new(Sent { to, tty: wanted.tty });
    let (input, read) = wanted
        .stdin
        .then(|| mpsc::channel(WAITING))
        .map_or((None, None), |(a, b)| (Some(a), Some(b)));
    let io = Io { output: sent, input: read.map(|read| Arc::new(Mutex::new(read))) };
    let place = Place { is_exec: true, ..run.place };
    let command = wanted.command.clone();
    let task = tokio::spawn(async move { program::run(&place, &io, &command).await });
    Running { output, input, task }
}

impl Running {
    /// The Status that tells the client how the command ended.
    pub(super) async fn status(mut self) -> Value {
        match (&mut self.task).await.unwrap_or(255) {
            0 => json!({"metadata": {}, "status": "Success"}),
            code => json!({
                "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
                "message": format!("command terminated with non-zero exit code: exit status {code}"),
                "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
            }),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}
