//! What a command waits for, told on stderr.

use std::{
    io::IsTerminal,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};

/// Tells what is waited for: a spinner on a terminal, else a line for each new message.
pub(crate) struct Progress {
    spinner: Option<ProgressBar>,
    last: Mutex<String>,
}

impl Progress {
    /// Says nothing until the first message.
    pub(crate) fn new() -> Self {
        let spinner = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{spinner} {msg} ({elapsed})");
            let spinner = ProgressBar::new_spinner();
            spinner.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            spinner
        });
        Self { spinner, last: Mutex::new(String::new()) }
    }

    /// Tells `message`, unless it is the last one again.
    pub(crate) fn tell(&self, message: &str) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if *last == message {
            return;
        }
        match &self.spinner {
            Some(spinner) => {
                spinner.enable_steady_tick(Duration::from_millis(100));
                spinner.set_message(message.to_owned());
            }
            None => crate::output::complain(message),
        }
        message.clone_into(&mut last);
    }

    /// Takes the spinner away.
    pub(crate) fn done(&self) {
        if let Some(spinner) = &self.spinner {
            spinner.finish_and_clear();
        }
    }
}
