//! `get`, `list`, `logs`, `delete`.

use std::time::Duration;

use clap::Args;
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use jobs::{Deleted, Details, JobView, LogOptions, list_text, newest_first};

use crate::{
    args::Connection,
    exit::{Exit, Usage},
    output::{self, Format, Output},
    progress::Progress,
};

/// The kind of job, of which there is one.
fn job_type(word: &str) -> Result<(), String> {
    match word.to_lowercase().as_str() {
        "" | "mpi" | "mpijob" | "mj" => Ok(()),
        _ => Err("unsupport job type,ringmaster only supports: [mpi(MPI)]".to_owned()),
    }
}

/// Flags of `get`.
#[derive(Debug, Args)]
pub(crate) struct Get {
    /// The job
    #[arg(value_name = "JOB")]
    name: String,
    /// The kind of job: mpijob
    #[arg(short = 'T', long = "type", value_parser = job_type, value_name = "TYPE")]
    _kind: Option<()>,
    /// Show the events of the job and its pods
    #[arg(short, long)]
    events: bool,
    /// Show the GPUs of each pod
    #[arg(short, long)]
    gpus: bool,
    #[command(flatten)]
    output: Output,
}

impl Get {
    /// Shows a job.
    pub(crate) async fn run(self, connection: &Connection) -> anyhow::Result<Exit> {
        let cluster = connection.cluster().await?;
        let observed = cluster.observe(&self.name).await?;
        let now = Timestamp::now();
        let view = observed.view(now);
        let events = match self.events {
            true => Some(cluster.events(&observed, now).await?),
            false => None,
        };
        let details = Details { gpus: self.gpus, events: events.as_deref() };
        self.output.emit(&view, |view| view.text(&TimeZone::system(), &details))?;
        if self.output.format() == Format::Wide
            && let Some(why) = observed.pending_reason()
        {
            output::complain(&format!(
                "note: {why} (`ringmaster explain {}` says more)",
                self.name
            ));
        }
        Ok(Exit::DONE)
    }
}

/// Flags of `explain`.
#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// The job
    #[arg(value_name = "JOB")]
    name: String,
    #[command(flatten)]
    output: Output,
}

impl Explain {
    /// Says why a job stands where it stands.
    pub(crate) async fn run(self, connection: &Connection) -> anyhow::Result<Exit> {
        let cluster = connection.cluster().await?;
        let observed = cluster.observe(&self.name).await?;
        let now = Timestamp::now();
        let around = cluster.surroundings(&observed, now).await?;
        self.output.emit(&observed.explain(&around, now), jobs::Explanation::text)?;
        Ok(Exit::DONE)
    }
}

/// Flags of `list`.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// The jobs of all namespaces
    #[arg(short = 'A', long, alias = "allNamespaces")]
    all_namespaces: bool,
    /// The kind of job: mpijob
    #[arg(short = 'T', long = "type", value_parser = job_type, value_name = "TYPE")]
    _kind: Option<()>,
    #[command(flatten)]
    output: Output,
}

impl List {
    /// Lists jobs.
    pub(crate) async fn run(self, connection: &Connection) -> anyhow::Result<Exit> {
        let observed = connection.cluster().await?.observe_all(self.all_namespaces).await?;
        let now = Timestamp::now();
        let mut jobs: Vec<JobView> = observed.iter().map(|job| job.view(now)).collect();
        newest_first(&mut jobs);
        self.output.emit(&jobs, |jobs| list_text(jobs, self.all_namespaces))?;
        Ok(Exit::DONE)
    }
}

/// Flags of `logs`.
#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// The job
    #[arg(value_name = "JOB")]
    name: String,
    /// The kind of job: mpijob
    #[arg(short = 'T', long = "type", value_parser = job_type, value_name = "TYPE")]
    _kind: Option<()>,
    /// Go on until the pod ends; wait for it if it has not started
    #[arg(short, long)]
    follow: bool,
    /// Only what is newer than this, as 1h1m1s
    #[arg(long, value_name = "DURATION")]
    since: Option<SignedDuration>,
    /// Only what is newer than this time (RFC 3339)
    #[arg(long, value_name = "TIME", conflicts_with = "since")]
    since_time: Option<Timestamp>,
    /// Only so many lines from the end; -1 for all
    #[arg(short, long, value_name = "LINES", default_value_t = -1, allow_negative_numbers = true)]
    tail: i64,
    /// Begin each line with its time
    #[arg(long)]
    timestamps: bool,
    /// The pod; else the launcher's
    #[arg(short, long, value_name = "POD")]
    instance: Option<String>,
    /// The container
    #[arg(short, long, value_name = "NAME")]
    container: Option<String>,
}

impl Logs {
    /// Prints a log.
    pub(crate) async fn run(self, connection: &Connection) -> anyhow::Result<Exit> {
        let since = match self.since {
            Some(since) => Some(
                Duration::try_from(since)
                    .map_err(|_| Usage("--since must not be negative".to_owned()))?,
            ),
            None => None,
        };
        let options = LogOptions {
            follow: self.follow,
            since,
            since_time: self.since_time,
            tail: (self.tail >= 0).then_some(self.tail),
            timestamps: self.timestamps,
            instance: self.instance,
            container: self.container,
        };
        let cluster = connection.cluster().await?;
        let progress = Progress::new();
        let mut out = Quiet { out: std::io::stdout(), progress: &progress };
        let told =
            cluster.logs(&self.name, &options, &mut out, &|message| progress.tell(message)).await;
        progress.done();
        told?;
        Ok(Exit::DONE)
    }
}

/// stdout; the first byte takes the spinner away.
struct Quiet<'a> {
    out: std::io::Stdout,
    progress: &'a Progress,
}

impl std::io::Write for Quiet<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.progress.done();
        self.out.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

/// Flags of `delete`.
#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// The jobs
    #[arg(value_name = "JOB", required = true)]
    names: Vec<String>,
    /// The kind of job: mpijob
    #[arg(short = 'T', long = "type", value_parser = job_type, value_name = "TYPE")]
    _kind: Option<()>,
}

impl Delete {
    /// Deletes jobs; one that is not there is no error.
    pub(crate) async fn run(self, connection: &Connection) -> anyhow::Result<Exit> {
        let cluster = connection.cluster().await?;
        let mut first = None;
        for name in &self.names {
            let progress = Progress::new();
            let told = cluster.delete(name, &|message| progress.tell(message)).await;
            progress.done();
            match told {
                Ok(Deleted::Gone) => {
                    output::say(&format!(
                        "The training job {name} has been deleted successfully\n"
                    ))?;
                }
                Ok(Deleted::NeverThere) => output::complain(&format!(
                    "The training job '{name}' does not exist,skip to delete it"
                )),
                // The others are still deleted.
                Err(error) if first.is_none() => first = Some(error),
                Err(error) => output::complain(&format!("error: {error}")),
            }
        }
        match first {
            Some(error) => Err(error.into()),
            None => Ok(Exit::DONE),
        }
    }
}
