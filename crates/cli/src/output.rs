//! What goes to stdout, in the format that the user asked for.

use std::io::Write;

use clap::{Args, ValueEnum};
use serde::Serialize;

/// How an answer is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text for people.
    #[default]
    Wide,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// The flags `-o FORMAT` and `--json`.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Output {
    /// Format of the answer
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t)]
    output: Format,
    /// Short for -o json
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

impl Output {
    /// YAML, whatever was asked for.
    pub(crate) fn yaml() -> Self {
        Self { output: Format::Yaml, json: false }
    }

    /// The format asked for.
    pub(crate) fn format(self) -> Format {
        if self.json { Format::Json } else { self.output }
    }

    /// Writes `answer` as JSON or YAML, or as what `text` makes of it.
    pub(crate) fn emit<T: Serialize>(
        self,
        answer: &T,
        text: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<()> {
        say(&match self.format() {
            Format::Wide => text(answer),
            Format::Json => json(answer)?,
            Format::Yaml => yaml(answer)?,
        })
    }
}

/// Indented by four, as Arena's.
fn json<T: Serialize>(answer: &T) -> anyhow::Result<String> {
    let mut text = Vec::new();
    let indent = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    answer.serialize(&mut serde_json::Serializer::with_formatter(&mut text, indent))?;
    text.push(b'\n');
    Ok(String::from_utf8(text)?)
}

fn yaml<T: Serialize>(answer: &T) -> anyhow::Result<String> {
    // By way of JSON, so that keys and numbers are the same in both formats.
    let value = serde_json::to_value(answer)?;
    let mut text = serde_saphyr::to_string(&value)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// Writes text to stdout.
pub(crate) fn say(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Writes a line to stderr.
pub(crate) fn complain(line: &str) {
    // Nobody is left to tell when stderr is closed.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
