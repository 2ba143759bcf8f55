//! A job as the command line describes it, and what must hold of it before anything is created.

use std::path::{Path, PathBuf};

use api::Quantity;
use serde::Serialize;

use crate::{Described, DescribedError};

/// Longest name of a job: its pods' names must still be labels.
const LONGEST_NAME: usize = 49;

/// Everything that `submit mpi` was told. Lists are as written (`key=value` and so on).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Submission {
    /// Job's name.
    pub name: String,
    /// Image of every container.
    pub image: String,
    /// GPUs of each worker.
    pub gpus: i64,
    /// Workers.
    pub workers: i64,
    /// How often a failed launcher starts again.
    pub retry: i64,
    /// Directory the command runs in.
    pub working_dir: String,
    /// Environment, `key=value`.
    pub env: Vec<String>,
    /// Volume claims, `claim:/path`.
    pub data: Vec<String>,
    /// Directories of the node, `path[:path]`.
    pub data_dir: Vec<String>,
    /// Other devices, `name=quantity`.
    pub device: Vec<String>,
    /// Annotations, `key=value`.
    pub annotation: Vec<String>,
    /// Labels, `key=value`.
    pub label: Vec<String>,
    /// Whether the workers get an RDMA device.
    pub rdma: bool,
    /// Whether all workers start together.
    pub gang: bool,
    /// Priority class.
    pub priority: Option<String>,
    /// Whether the job waits for kube-queue.
    pub queue: bool,
    /// Tolerations, `key=value:effect,operator` or `all`.
    pub toleration: Vec<String>,
    /// Labels that the nodes must have, `key=value`.
    pub selector: Vec<String>,
    /// Files of the caller's that the containers get.
    #[serde(skip)]
    pub config_files: Vec<ConfigFile>,
    /// Names of pull secrets.
    pub image_pull_secret: Vec<String>,
    /// `Always`, `IfNotPresent` or `Never`.
    pub image_pull_policy: String,
    /// Shell that runs the command.
    pub shell: String,
    /// Scheduler, where it is not the cluster's default.
    pub scheduler: Option<String>,
    /// Whether pods share the node's network.
    pub host_network: bool,
    /// Whether pods share the node's IPC.
    #[serde(rename = "hostIPC")]
    pub host_ipc: bool,
    /// Whether pods share the node's processes.
    #[serde(rename = "hostPID")]
    pub host_pid: bool,
    /// Model to register.
    pub model_name: Option<String>,
    /// Where the model lies.
    pub model_source: Option<String>,
    /// Whether a tensorboard runs beside the job.
    pub tensorboard: bool,
    /// Its image.
    pub tensorboard_image: Option<String>,
    /// What it shows.
    pub logdir: String,
    /// `git` or `rsync`.
    pub sync_mode: Option<String>,
    /// Where the code comes from.
    pub sync_source: Option<String>,
    /// Image of the container that fetches it.
    pub sync_image: Option<String>,
    /// CPU of each worker.
    pub cpu: Option<String>,
    /// Memory of each worker.
    pub memory: Option<String>,
    /// Whether the GPUs are placed by topology.
    pub gputopology: bool,
    /// Whether the launcher gets the volume claims too.
    pub mounts_on_launcher: bool,
    /// `All`, `Running` or `None`.
    pub clean_task_policy: String,
    /// What the shell runs.
    pub command: String,
    /// What the throughput model is told of the program.
    #[serde(skip)]
    pub described: Described,
}

impl Default for Submission {
    /// Arena's defaults, and no name, image and command.
    fn default() -> Self {
        Self {
            name: String::new(),
            image: String::new(),
            gpus: 0,
            workers: 1,
            retry: 0,
            working_dir: "/root".to_owned(),
            env: Vec::new(),
            data: Vec::new(),
            data_dir: Vec::new(),
            device: Vec::new(),
            annotation: Vec::new(),
            label: Vec::new(),
            rdma: false,
            gang: false,
            priority: None,
            queue: false,
            toleration: Vec::new(),
            selector: Vec::new(),
            config_files: Vec::new(),
            image_pull_secret: Vec::new(),
            image_pull_policy: "Always".to_owned(),
            shell: "sh".to_owned(),
            scheduler: None,
            host_network: false,
            host_ipc: false,
            host_pid: false,
            model_name: None,
            model_source: None,
            tensorboard: false,
            tensorboard_image: None,
            logdir: "/training_logs".to_owned(),
            sync_mode: None,
            sync_source: None,
            sync_image: None,
            cpu: None,
            memory: None,
            gputopology: false,
            mounts_on_launcher: false,
            clean_task_policy: "All".to_owned(),
            command: String::new(),
            described: Described::default(),
        }
    }
}

/// A file of the caller's, for `--config-file`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFile {
    /// Where it appears in the container; absolute.
    pub container: PathBuf,
    /// What is in it.
    pub content: String,
}

impl ConfigFile {
    /// Reads the file of `host[:container]`. `~/` is `home`; the path in the container is the host's when it is not
    /// given.
    ///
    /// # Errors
    /// The form is wrong, the path in the container is not absolute, the file cannot be read.
    pub fn read(spec: &str, home: Option<&Path>) -> Result<Self, SubmissionError> {
        let mut parts = spec.split(':');
        let (Some(host), container, None) = (parts.next(), parts.next(), parts.next()) else {
            return Err(SubmissionError::ConfigFileForm);
        };
        let host = match (host.strip_prefix("~/"), home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => PathBuf::from(host),
        };
        let fail =
            |source| SubmissionError::ConfigFile { file: host.display().to_string(), source };
        let host = std::path::absolute(&host).map_err(fail)?;
        let container = container.map_or_else(|| host.clone(), PathBuf::from);
        if !container.is_absolute() || container.file_name().is_none() {
            return Err(SubmissionError::ContainerPath);
        }
        let content = std::fs::read_to_string(&host).map_err(fail)?;
        Ok(Self { container, content })
    }
}

/// Why a job is not submitted.
#[derive(Debug, thiserror::Error)]
pub enum SubmissionError {
    /// No name.
    #[error("--name must be set")]
    NoName,
    /// The name's pods could not be named.
    #[error("the len {len} of name {name} is too long, it should be less than {LONGEST_NAME}")]
    LongName {
        /// Characters.
        len: usize,
        /// The name.
        name: String,
    },
    /// Not a DNS label.
    #[error(
        "the job name must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character"
    )]
    Name,
    /// No image.
    #[error("--image must be set")]
    NoImage,
    /// A number or quantity that cannot be.
    #[error("--{0} is invalid")]
    Invalid(&'static str),
    /// A value that is none of those there are.
    #[error("unsupported cleanTaskPolicy {0}")]
    CleanTaskPolicy(String),
    /// A device that is not `name=quantity`.
    #[error("invalid device '{0}', refer to amd.com/gpu=1")]
    DeviceForm(String),
    /// A device's name.
    #[error("device name '{0}' is not a qualified name")]
    DeviceName(String),
    /// GPUs have a flag of their own.
    #[error("please use '--gpus {0}' instead of '--device nvidia.com/gpu={0}'")]
    DeviceGpus(String),
    /// A device's quantity.
    #[error("device value '{0}' is not a valid quantity, refer to amd.com/gpu=1")]
    DeviceQuantity(String),
    /// A claim that is not `name:/path`.
    #[error("dataset {0} has incorrect format, should like data_name:/data0")]
    Dataset(String),
    /// A claim twice.
    #[error("your PVC name: {0} is repeated")]
    DatasetTwice(String),
    /// A path that is no directory to mount.
    #[error("{0}: the path must be absolute and not \"/\"")]
    MountPath(String),
    /// A node's directory.
    #[error("invalid DataDir: '{0}'")]
    DataDir(String),
    /// `--config-file` is wrong.
    #[error(
        "invalid format for assigning config file,it should be '--config-file <host_path_file>:<container_path_file>'"
    )]
    ConfigFileForm,
    /// The path in the container.
    #[error("the path of file in container must be absolute path")]
    ContainerPath,
    /// The file.
    #[error("cannot read config file {file}: {source}")]
    ConfigFile {
        /// The file.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// A model without its place.
    #[error("model version source must be specified when registering a model version")]
    ModelSource,
    /// Sync without a source.
    #[error("--sync-source should be set when --sync-mode is set")]
    NoSyncSource,
    /// Neither git nor rsync.
    #[error("Unknown sync mode: {0}, it should be git or rsync")]
    SyncMode(String),
    /// Not a pull policy.
    #[error("unsupported image pull policy {0}, it should be Always, IfNotPresent or Never")]
    PullPolicy(String),
    /// No command.
    #[error("not found command args")]
    NoCommand,
    /// The description for the throughput model.
    #[error(transparent)]
    Described(#[from] DescribedError),
}

impl Submission {
    /// Checks everything that can be checked without a cluster.
    ///
    /// # Errors
    /// The first flag that is wrong, in Arena's words where it has some.
    pub fn check(&self) -> Result<(), SubmissionError> {
        check_name(&self.name)?;
        if self.model_name.is_some() && self.model_source.is_none() {
            return Err(SubmissionError::ModelSource);
        }
        self.check_volumes()?;
        for device in &self.device {
            check_device(device)?;
        }
        match (self.sync_mode.as_deref(), &self.sync_source) {
            (None, _) | (Some("git" | "rsync"), Some(_)) => {}
            (Some("git" | "rsync"), None) => return Err(SubmissionError::NoSyncSource),
            (Some(mode), _) => return Err(SubmissionError::SyncMode(mode.to_owned())),
        }
        if self.image.is_empty() {
            return Err(SubmissionError::NoImage);
        }
        if !matches!(self.clean_task_policy.as_str(), "None" | "Running" | "All") {
            return Err(SubmissionError::CleanTaskPolicy(self.clean_task_policy.clone()));
        }
        if !matches!(self.image_pull_policy.as_str(), "Always" | "IfNotPresent" | "Never") {
            return Err(SubmissionError::PullPolicy(self.image_pull_policy.clone()));
        }
        if self.gpus < 0 || i32::try_from(self.gpus).is_err() {
            return Err(SubmissionError::Invalid("gpus"));
        }
        if self.workers < 1 || i32::try_from(self.workers).is_err() {
            return Err(SubmissionError::Invalid("workers"));
        }
        if self.retry < 0 || i32::try_from(self.retry).is_err() {
            return Err(SubmissionError::Invalid("retry"));
        }
        for (flag, value) in [("cpu", &self.cpu), ("memory", &self.memory)] {
            let valid = value.as_ref().is_none_or(|text| text.parse::<Quantity>().is_ok());
            if !valid {
                return Err(SubmissionError::Invalid(flag));
            }
        }
        if self.command.trim().is_empty() {
            return Err(SubmissionError::NoCommand);
        }
        self.described.workload()?;
        Ok(())
    }

    fn check_volumes(&self) -> Result<(), SubmissionError> {
        let mut claims = std::collections::BTreeSet::new();
        for dataset in &self.data {
            let form = || SubmissionError::Dataset(dataset.clone());
            let (claim, path) = dataset.split_once(':').ok_or_else(form)?;
            if !is_dns_label(claim) || path.contains(':') {
                return Err(form());
            }
            check_mount(path)?;
            if !claims.insert(claim) {
                return Err(SubmissionError::DatasetTwice(claim.to_owned()));
            }
        }
        for directory in &self.data_dir {
            let fail = || SubmissionError::DataDir(directory.clone());
            let parts: Vec<&str> = directory.split(':').collect();
            if parts.len() > 2 || parts.iter().any(|path| check_mount(path).is_err()) {
                return Err(fail());
            }
        }
        Ok(())
    }

    /// What was written but has no effect, a line each: entries that are not in the form their flag asks for.
    pub fn ignored(&self) -> Vec<String> {
        let pairs = [
            ("env", &self.env),
            ("annotation", &self.annotation),
            ("label", &self.label),
            ("selector", &self.selector),
        ];
        let mut lines: Vec<String> = pairs
            .into_iter()
            .flat_map(|(flag, entries)| entries.iter().map(move |entry| (flag, entry)))
            .filter(|(_, entry)| !entry.contains('='))
            .map(|(flag, entry)| format!("--{flag} {entry} is not key=value and is left out"))
            .collect();
        lines.extend(
            self.toleration
                .iter()
                .filter(|entry| *entry != "all" && toleration(entry).is_none())
                .map(|entry| {
                    format!("--toleration {entry} is not key=value:effect,operator and is left out")
                }),
        );
        lines
    }
}

/// The parts of `key=value:effect,operator`.
pub(crate) fn toleration(entry: &str) -> Option<[&str; 4]> {
    let (key, rest) = entry.split_once('=')?;
    let (value, rest) = rest.split_once(':')?;
    let (effect, operator) = rest.split_once(',')?;
    Some([key, value, effect, operator])
}

fn check_name(name: &str) -> Result<(), SubmissionError> {
    if name.is_empty() {
        return Err(SubmissionError::NoName);
    }
    if name.len() > LONGEST_NAME {
        return Err(SubmissionError::LongName { len: name.len(), name: name.to_owned() });
    }
    if is_dns_label(name) { Ok(()) } else { Err(SubmissionError::Name) }
}

/// `[a-z0-9]([-a-z0-9]*[a-z0-9])?`, of at most 63 characters.
fn is_dns_label(text: &str) -> bool {
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.first().copied().is_some_and(plain)
        && bytes.last().copied().is_some_and(plain)
        && bytes.iter().all(|&c| plain(c) || c == b'-')
}

fn check_mount(path: &str) -> Result<(), SubmissionError> {
    let absolute = path.starts_with('/') && !path.trim_matches('/').is_empty();
    if absolute { Ok(()) } else { Err(SubmissionError::MountPath(path.to_owned())) }
}

fn check_device(device: &str) -> Result<(), SubmissionError> {
    let (name, value) = device
        .split_once('=')
        .filter(|(name, value)| !name.is_empty() && !value.is_empty())
        .ok_or_else(|| SubmissionError::DeviceForm(device.to_owned()))?;
    let (prefix, short) = name.split_once('/').map_or((None, name), |(p, s)| (Some(p), s));
    let word = |text: &str| {
        let bytes = text.as_bytes();
        let inner = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
        !bytes.is_empty()
            && bytes.len() <= 63
            && bytes.iter().all(|&c| inner(c))
            && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
            && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
    };
    let domain = |text: &str| text.len() <= 253 && text.split('.').all(is_dns_label);
    if !word(short) || !prefix.is_none_or(domain) {
        return Err(SubmissionError::DeviceName(name.to_owned()));
    }
    if name.eq_ignore_ascii_case(api::contract::NVIDIA_GPU) {
        return Err(SubmissionError::DeviceGpus(value.to_owned()));
    }
    if value.parse::<Quantity>().is_err() {
        return Err(SubmissionError::DeviceQuantity(device.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Submission {
        Submission {
            name: "a".into(),
            image: "i".into(),
            command: "true".into(),
            ..Submission::default()
        }
    }

    #[test]
    fn every_wrong_flag_is_named() {
        assert!(good().check().is_ok());
        let long = "a".repeat(200);
        let cases: Vec<(Submission, &str)> = vec![
            (Submission { name: String::new(), ..good() }, "--name must be set"),
            (Submission { name: long, ..good() }, "the len 200 of name aaa"),
            (Submission { name: "A".into(), ..good() }, "the job name must consist of"),
            (Submission { name: "a.b".into(), ..good() }, "the job name must consist of"),
            (Submission { image: String::new(), ..good() }, "--image must be set"),
            (Submission { gpus: -1, ..good() }, "--gpus is invalid"),
            (Submission { workers: 0, ..good() }, "--workers is invalid"),
            (Submission { cpu: Some("x".into()), ..good() }, "--cpu is invalid"),
            (Submission { memory: Some("1Gx".into()), ..good() }, "--memory is invalid"),
            (Submission { clean_task_policy: "all".into(), ..good() }, "unsupported cleanTask"),
            (Submission { command: " ".into(), ..good() }, "not found command args"),
            (Submission { device: vec!["x".into()], ..good() }, "invalid device 'x'"),
            (Submission { device: vec!["a//b=1".into()], ..good() }, "not a qualified name"),
            (
                Submission { device: vec!["nvidia.com/gpu=2".into()], ..good() },
                "please use '--gpus 2'",
            ),
            (Submission { device: vec!["amd.com/gpu=x".into()], ..good() }, "valid quantity"),
            (Submission { data: vec!["pvc".into()], ..good() }, "incorrect format"),
            (Submission { data: vec!["pvc:/".into()], ..good() }, "must be absolute"),
            (
                Submission { data: vec!["pvc:/a".into(), "pvc:/b".into()], ..good() },
                "your PVC name: pvc is repeated",
            ),
            (Submission { data_dir: vec!["a:b:c".into()], ..good() }, "invalid DataDir: 'a:b:c'"),
            (Submission { model_name: Some("m".into()), ..good() }, "model version source"),
            (Submission { sync_mode: Some("git".into()), ..good() }, "--sync-source should"),
            (Submission { sync_mode: Some("hdfs".into()), ..good() }, "Unknown sync mode: hdfs"),
            (
                Submission {
                    described: Described { batch: Some(1.0), ..Described::default() },
                    ..good()
                },
                "a described job needs",
            ),
        ];
        for (submission, words) in cases {
            let error = submission.check().unwrap_err().to_string();
            assert!(error.contains(words), "{error} / {words}");
        }
    }

    #[test]
    fn a_config_file_is_read_with_its_place() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.json"), "{}").unwrap();
        let read = |spec: &str| ConfigFile::read(spec, Some(folder.path()));
        let file = read("~/a.json:/etc/app/b.json").unwrap();
        assert_eq!((file.content.as_str(), file.container), ("{}", "/etc/app/b.json".into()));
        for (spec, words) in [
            ("~/a.json:b.json", "must be absolute path"),
            ("~/a.json:/b:/c", "invalid format"),
            ("~/none", "cannot read config file"),
        ] {
            let error = read(spec).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn what_has_no_effect_is_told() {
        let submission = Submission {
            env: vec!["A".into(), "B=1".into()],
            toleration: vec!["all".into(), "x".into()],
            ..good()
        };
        assert_eq!(submission.ignored().len(), 2);
    }
}
