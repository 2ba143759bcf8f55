//! `submit mpi`: Arena's flags, and ours beside them.

use clap::{ArgAction, Args, Subcommand};
use jobs::{ConfigFile, JobError, Submission, SubmissionError, User};
use serde_json::json;

use crate::{
    args::Connection,
    exit::{Exit, Usage},
    output::{self, Format, Output},
    plan::Numbers,
    progress::Progress,
};

/// The kinds of job.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Submit an MPI job: a launcher that runs COMMAND, and workers
    #[command(visible_aliases = ["mpi", "mj"])]
    Mpijob(Box<Mpi>),
}

/// Flags of `submit mpi`.
#[derive(Debug, Args)]
pub(crate) struct Mpi {
    /// Name of the job
    #[arg(long, required = true)]
    name: String,
    /// Image of the containers
    #[arg(long, default_value = "", hide_default_value = true)]
    image: String,
    /// GPUs of each worker
    #[arg(long, default_value_t = 0, allow_negative_numbers = true, value_name = "N")]
    gpus: i64,
    /// Workers; the launcher comes on top
    #[arg(long, default_value_t = 1, allow_negative_numbers = true, value_name = "N")]
    workers: i64,
    #[command(flatten)]
    scheduling: Scheduling,
    #[command(flatten)]
    container: Container,
    #[command(flatten)]
    metadata: Metadata,
    #[command(flatten)]
    code: Code,
    #[command(flatten)]
    program: Program,
    /// Print what would be created; the cluster is not asked
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: Output,
    /// What the launcher's shell runs; several words are joined by spaces
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

/// A flag that is true when it stands alone, and may be `=true` or `=false`.
fn go_bool(word: &str) -> Result<bool, String> {
    match word {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("it is neither true nor false".to_owned()),
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Scheduling")]
struct Scheduling {
    /// Start all workers together or none
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_parser = go_bool, value_name = "BOOL", hide_default_value = true)]
    gang: bool,
    /// Place the GPUs by topology
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_parser = go_bool, value_name = "BOOL", hide_default_value = true)]
    gputopology: bool,
    /// Priority class; a higher one is placed first (nothing is preempted)
    #[arg(short, long, value_name = "CLASS")]
    priority: Option<String>,
    /// Scheduler, where it is not the cluster's default
    #[arg(long, value_name = "NAME")]
    scheduler: Option<String>,
    /// Label that nodes must have
    #[arg(long, value_name = "KEY=VALUE")]
    selector: Vec<String>,
    /// Taint to tolerate, or `all`
    #[arg(long, value_name = "KEY=VALUE:EFFECT,OPERATOR")]
    toleration: Vec<String>,
    /// Suspend the job until kube-queue lets it go
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_parser = go_bool, value_name = "BOOL", hide_default_value = true)]
    queue: bool,
    /// How often a failed launcher starts again
    #[arg(long, default_value_t = 0, allow_negative_numbers = true, value_name = "TIMES")]
    retry: i64,
    /// Which workers go when the launcher is done: All, Running or None
    #[arg(long, default_value = "All", value_name = "POLICY")]
    clean_task_policy: String,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Containers")]
struct Container {
    /// CPU of each worker
    #[arg(long, allow_hyphen_values = true)]
    cpu: Option<String>,
    /// Memory of each worker
    #[arg(long, allow_hyphen_values = true)]
    memory: Option<String>,
    /// Another device, as amd.com/gpu=1
    #[arg(long, value_name = "NAME=QUANTITY")]
    device: Vec<String>,
    /// Give the workers an RDMA device
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_parser = go_bool, value_name = "BOOL", hide_default_value = true)]
    rdma: bool,
    /// Directory that COMMAND runs in
    #[arg(long, alias = "workingDir", default_value = "/root", value_name = "DIRECTORY")]
    working_dir: String,
    /// Variable of the environment
    #[arg(short, long, value_name = "KEY=VALUE")]
    env: Vec<String>,
    /// Volume claim and where it is mounted
    #[arg(short, long, value_name = "CLAIM:PATH")]
    data: Vec<String>,
    /// Directory of the node and where it is mounted
    #[arg(long, alias = "dataDir", value_name = "PATH[:PATH]")]
    data_dir: Vec<String>,
    /// File that the containers get, and where
    #[arg(long, value_name = "FILE[:PATH]")]
    config_file: Vec<String>,
    /// Pull secret
    #[arg(long, value_name = "NAME")]
    image_pull_secret: Vec<String>,
    /// Always, IfNotPresent or Never
    #[arg(long, default_value = "Always", value_name = "POLICY")]
    image_pull_policy: String,
    /// Shell that runs COMMAND
    #[arg(long, default_value = "sh")]
    shell: String,
    /// Share the node's network
    #[arg(long = "hostNetwork", alias = "host-network", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_parser = go_bool, value_name = "BOOL", hide_default_value = true)]
    host_network: bool,
    /// Share the node's IPC namespace
    #[arg(long = "hostIPC", alias = "host-ipc", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_parser = go_bool, value_name = "BOOL", hide_default_value = true)]
    host_ipc: bool,
    /// Share the node's process namespace
    #[arg(long = "hostPID", alias = "host-pid", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_parser = go_bool, value_name = "BOOL", hide_default_value = true)]
    host_pid: bool,
    /// Mount the volume claims in the launcher too
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_parser = go_bool, value_name = "BOOL", hide_default_value = true)]
    mounts_on_launcher: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Metadata")]
struct Metadata {
    /// Annotation of the job and its pods
    #[arg(short, long, value_name = "KEY=VALUE")]
    annotation: Vec<String>,
    /// Label of the job and its pods
    #[arg(short, long, value_name = "KEY=VALUE")]
    label: Vec<String>,
    /// Name of the model that the job makes
    #[arg(long, value_name = "NAME")]
    model_name: Option<String>,
    /// Where that model lies
    #[arg(long, value_name = "URI")]
    model_source: Option<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Code and logs")]
struct Code {
    /// How the code is fetched: git or rsync
    #[arg(long, alias = "syncMode", value_name = "MODE")]
    sync_mode: Option<String>,
    /// Where it comes from
    #[arg(long, alias = "syncSource", value_name = "SOURCE")]
    sync_source: Option<String>,
    /// Image that fetches it
    #[arg(long, alias = "syncImage", value_name = "IMAGE")]
    sync_image: Option<String>,
    /// Run a tensorboard beside the job
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_parser = go_bool, value_name = "BOOL", hide_default_value = true)]
    tensorboard: bool,
    /// Its image
    #[arg(long, alias = "tensorboardImage", value_name = "IMAGE")]
    tensorboard_image: Option<String>,
    /// What it shows
    #[arg(long, default_value = "/training_logs", value_name = "DIRECTORY")]
    logdir: String,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "What the program computes (for the throughput model)")]
struct Program {
    /// A job of the model's table, as tf/vgg16:64
    #[arg(long, value_name = "FRAMEWORK/MODEL[:BATCH]")]
    model: Option<String>,
    #[command(flatten)]
    numbers: Numbers,
}

impl Mpi {
    fn submission(self) -> Result<Submission, SubmissionError> {
        let home = std::env::var_os("HOME").map(std::path::PathBuf::from);
        let Self { scheduling, container, metadata, code, program, .. } = self;
        Ok(Submission {
            name: self.name,
            image: self.image,
            gpus: self.gpus,
            workers: self.workers,
            retry: scheduling.retry,
            working_dir: container.working_dir,
            env: container.env,
            data: container.data,
            data_dir: container.data_dir,
            device: container.device,
            annotation: metadata.annotation,
            label: metadata.label,
            rdma: container.rdma,
            gang: scheduling.gang,
            priority: scheduling.priority.filter(|class| !class.is_empty()),
            queue: scheduling.queue,
            toleration: scheduling.toleration,
            selector: scheduling.selector,
            config_files: container
                .config_file
                .iter()
                .map(|spec| ConfigFile::read(spec, home.as_deref()))
                .collect::<Result<_, _>>()?,
            image_pull_secret: container.image_pull_secret,
            image_pull_policy: container.image_pull_policy,
            shell: container.shell,
            scheduler: scheduling.scheduler.filter(|name| !name.is_empty()),
            host_network: container.host_network,
            host_ipc: container.host_ipc,
            host_pid: container.host_pid,
            model_name: metadata.model_name.filter(|name| !name.is_empty()),
            model_source: metadata.model_source.filter(|source| !source.is_empty()),
            tensorboard: code.tensorboard,
            tensorboard_image: code.tensorboard_image.filter(|image| !image.is_empty()),
            logdir: code.logdir,
            sync_mode: code.sync_mode.filter(|mode| !mode.is_empty()),
            sync_source: code.sync_source.filter(|source| !source.is_empty()),
            sync_image: code.sync_image.filter(|image| !image.is_empty()),
            cpu: container.cpu.filter(|cpu| !cpu.is_empty()),
            memory: container.memory.filter(|memory| !memory.is_empty()),
            gputopology: scheduling.gputopology,
            mounts_on_launcher: container.mounts_on_launcher,
            clean_task_policy: scheduling.clean_task_policy,
            command: self.command.join(" "),
            described: program.numbers.described(program.model),
        })
    }
}

/// Submits a job.
pub(crate) async fn run(command: Command, connection: &Connection) -> anyhow::Result<Exit> {
    let Command::Mpijob(mpi) = command;
    let (dry_run, output) = (mpi.dry_run, mpi.output);
    let usage = |error: SubmissionError| Usage(error.to_string());
    let submission = mpi.submission().map_err(usage)?;
    submission.check().map_err(usage)?;
    for line in submission.ignored() {
        output::complain(&format!("warning: {line}"));
    }
    if dry_run {
        let namespace = connection.namespace.as_deref().unwrap_or("default");
        let user = User { name: "unknown".to_owned() };
        let manifest = submission.manifest(namespace, &user, 0);
        let mut items = vec![manifest.mpi_job];
        items.extend(manifest.beside);
        items.push(manifest.store);
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
        // As text there is nothing better than the YAML.
        let output = if output.format() == Format::Wide { Output::yaml() } else { output };
        output.emit(&list, |_| String::new())?;
        return Ok(Exit::DONE);
    }
    let cluster = connection.cluster().await?;
    let progress = Progress::new();
    let told = cluster.submit(&submission, salt(), &|message| progress.tell(message)).await;
    progress.done();
    told.map_err(|error| match error {
        JobError::Submission(error) => anyhow::Error::new(usage(error)),
        error => error.into(),
    })?;
    let (name, namespace) = (&submission.name, cluster.namespace());
    let created =
        json!({ "name": name, "namespace": namespace, "resource": "mpijob.kubeflow.org" });
    output.emit(&created, |_| format!("mpijob.kubeflow.org/{name} created\n"))?;
    output::complain(&format!("The Job {name} has been submitted successfully"));
    output::complain(&format!(
        "You can run `ringmaster get {name} --type mpijob -n {namespace}` to check the job status"
    ));
    Ok(Exit::DONE)
}

/// A number that tells one tensorboard's log directory from another's.
fn salt() -> u32 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.subsec_nanos())
}
