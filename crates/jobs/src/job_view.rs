//! A job as its user sees it: Arena's status, duration, instances and numbers, from the objects of the cluster.

use std::collections::BTreeMap;

use api::{MpiJob, Pod, contract};
use jiff::{Timestamp, tz::TimeZone};
use k8s_openapi::api::batch::v1::Job;
use serde::{Serialize, Serializer};
use topology::GpuSet;

use crate::{
    pod_view::{self, seconds, short_duration},
    tabulate,
};

/// What the cluster holds of a job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observed {
    /// The job.
    pub job: MpiJob,
    /// Its pods.
    pub pods: Vec<Pod>,
    /// The batch Job of its launcher.
    pub launcher: Option<Job>,
    /// Where its tensorboard is.
    pub tensorboard: String,
}

/// How a job stands, in Arena's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    /// Its launcher or a worker has not started.
    Pending,
    /// It runs.
    Running,
    /// Its launcher is done.
    Succeeded,
    /// Its launcher has failed.
    Failed,
}

impl Status {
    /// The word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Running => "RUNNING",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
        }
    }

    /// Whether nothing of it will change.
    pub const fn is_done(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// A job, with Arena's keys.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobView {
    /// UID of the MPIJob.
    pub uuid: String,
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Seconds from its creation to its end, or to now.
    #[serde(serialize_with = "in_seconds")]
    pub duration: i64,
    /// How it stands.
    pub status: Status,
    /// `mpijob`.
    pub trainer: &'static str,
    /// Where its tensorboard is.
    pub tensorboard: String,
    /// The launcher's pod.
    #[serde(rename = "chiefName")]
    pub chief_name: String,
    /// Its pods.
    pub instances: Vec<Instance>,
    /// Its priority class, or `N/A`.
    pub priority: String,
    /// GPUs it asks for.
    #[serde(rename = "requestGPUs")]
    pub request_gpus: i64,
    /// GPUs that its started pods hold.
    #[serde(rename = "allocatedGPUs")]
    pub allocated_gpus: i64,
    /// When it was made, in seconds of Unix time.
    #[serde(rename = "creationTimestamp")]
    pub creation_timestamp: i64,
    /// Bus bandwidth of its placement, GB/s, where our scheduler placed it.
    #[serde(rename = "busBandwidth", skip_serializing_if = "Option::is_none")]
    pub bus_bandwidth: Option<f64>,
    /// Model to register.
    #[serde(rename = "modelName")]
    pub model_name: String,
    /// Its version.
    #[serde(rename = "modelVersion")]
    pub model_version: String,
    /// Where it lies.
    #[serde(rename = "modelSource")]
    pub model_source: String,
}

/// A pod of a job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Instance {
    /// Its address.
    pub ip: String,
    /// kubectl's status word.
    pub status: String,
    /// Its name.
    pub name: String,
    /// Seconds that it waited or ran.
    #[serde(serialize_with = "in_seconds")]
    pub age: i64,
    /// Its node, or `N/A`.
    pub node: String,
    /// Its node's address, or `N/A`.
    #[serde(rename = "nodeIP")]
    pub node_ip: String,
    /// Whether it is the launcher.
    pub chief: bool,
    /// GPUs it asks for.
    #[serde(rename = "requestGPUs")]
    pub request_gpus: i64,
    /// The GPUs it holds.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "indices")]
    pub gpus: Option<GpuSet>,
    /// Measurements; none are taken.
    #[serde(rename = "gpuMetrics")]
    pub gpu_metrics: BTreeMap<String, f64>,
    /// When it was made, in seconds of Unix time.
    #[serde(rename = "creationTimestamp")]
    pub creation_timestamp: i64,
}

fn in_seconds<S: Serializer>(seconds: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{seconds}s"))
}

fn indices<S: Serializer>(gpus: &Option<GpuSet>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(gpus.unwrap_or_default().iter())
}

impl Observed {
    /// The launcher's pod: the newest that has started, else the newest.
    pub fn chief(&self) -> Option<&Pod> {
        self.pods
            .iter()
            .filter(|pod| {
                pod.labels().get(contract::MPI_ROLE).is_some_and(|role| role == contract::LAUNCHER)
            })
            .max_by_key(|pod| {
                let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
                (!pod_view::is_pending(pod), created)
            })
    }

    /// Why the job is not scheduled, in the scheduler's words: the condition of a pod that has no node.
    pub fn pending_reason(&self) -> Option<&str> {
        self.pods
            .iter()
            .filter(|pod| pod.spec.node_name.is_none() && pod_view::is_pending(pod))
            .flat_map(|pod| &pod.status.conditions)
            .find(|condition| condition.kind == "PodScheduled" && condition.status == "False")
            .map(|condition| condition.message.as_str())
            .filter(|message| !message.is_empty())
    }

    fn status(&self) -> Status {
        match self.job.launcher_status() {
            "Succeeded" => return Status::Succeeded,
            "Failed" => return Status::Failed,
            _ => {}
        }
        let started = self.launcher.is_some()
            && self.chief().is_some_and(|chief| !pod_view::is_pending(chief))
            && !self.pods.iter().any(pod_view::is_pending);
        if started { Status::Running } else { Status::Pending }
    }

    /// Seconds from the job's creation to the launcher's end, or to now.
    fn duration(&self, now: Timestamp) -> i64 {
        let Some(created) = self.job.metadata.creation_timestamp.as_ref() else { return 0 };
        let completed = self
            .launcher
            .as_ref()
            .and_then(|job| job.status.as_ref()?.completion_time.as_ref())
            .or_else(|| self.job.status.as_ref()?.completion_time.as_ref())
            .map(|time| time.0);
        let failed = || {
            let conditions = &self.chief()?.status.conditions;
            conditions.iter().filter_map(|c| c.last_transition_time.as_ref()).map(|t| t.0).max()
        };
        let end = match (completed, self.job.launcher_status()) {
            (Some(end), _) => end,
            (None, "Failed") => failed().unwrap_or(now),
            (None, _) => now,
        };
        seconds(created.0, end)
    }

    fn request_gpus(&self) -> i64 {
        let annotated = |annotations: Option<&BTreeMap<String, String>>| {
            annotations?.get("requestGPUsOfJobOwner")?.parse::<i64>().ok().filter(|&gpus| gpus > 0)
        };
        annotated(self.job.metadata.annotations.as_ref())
            .or_else(|| self.pods.iter().find_map(|pod| annotated(Some(pod.annotations()))))
            .unwrap_or_else(|| self.pods.iter().map(pod_view::gpus).sum())
    }

    /// The job as its user sees it at `now`.
    pub fn view(&self, now: Timestamp) -> JobView {
        let chief_name = self.chief().map_or("", Pod::name);
        let mut instances: Vec<Instance> =
            self.pods.iter().map(|pod| Instance::of(pod, pod.name() == chief_name, now)).collect();
        instances.sort_by(|a, b| index_order(&a.name).cmp(&index_order(&b.name)));
        let label = |key: &str| {
            let labels = self.job.metadata.labels.as_ref();
            labels.and_then(|labels| labels.get(key)).cloned().unwrap_or_default()
        };
        let priority = self.job.spec.template.pointer("/spec/priorityClassName");
        JobView {
            uuid: self.job.uid().to_owned(),
            name: self.job.name().to_owned(),
            namespace: self.job.namespace().to_owned(),
            duration: self.duration(now),
            status: self.status(),
            trainer: "mpijob",
            tensorboard: self.tensorboard.clone(),
            chief_name: chief_name.to_owned(),
            instances,
            priority: priority
                .and_then(serde_json::Value::as_str)
                .filter(|class| !class.is_empty())
                .unwrap_or("N/A")
                .to_owned(),
            request_gpus: self.request_gpus(),
            allocated_gpus: self
                .pods
                .iter()
                .filter(|pod| pod.status.start_time.is_some() && !pod_view::is_completed(pod))
                .map(pod_view::gpus)
                .sum(),
            creation_timestamp: unix(self.job.metadata.creation_timestamp.as_ref().map(|t| t.0)),
            bus_bandwidth: self
                .pods
                .iter()
                .find_map(|pod| pod.annotations().get(contract::BUS_BANDWIDTH)?.parse().ok()),
            model_name: label("modelName"),
            model_version: String::new(),
            model_source: String::new(),
        }
    }
}

fn unix(time: Option<Timestamp>) -> i64 {
    time.map_or(0, Timestamp::as_second)
}

/// Names in order, a number at the end by its value: worker-10 comes after worker-9.
pub(crate) fn index_order(name: &str) -> (&str, u64, &str) {
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (stem, number) = name.split_at(name.len() - digits);
    (stem, number.parse().unwrap_or_default(), name)
}

impl Instance {
    fn of(pod: &Pod, chief: bool, now: Timestamp) -> Self {
        let placed = !pod_view::is_pending(pod);
        let or_none = |text: Option<&str>| match text {
            Some(text) if placed && !text.is_empty() => text.to_owned(),
            _ => "N/A".to_owned(),
        };
        Self {
            ip: pod.status.pod_ip.clone(),
            status: pod_view::status(pod),
            name: pod.name().to_owned(),
            age: pod_view::age(pod, now),
            node: or_none(pod.spec.node_name.as_deref()),
            node_ip: or_none(Some(&pod.status.host_ip)),
            chief,
            request_gpus: pod_view::gpus(pod),
            gpus: pod_view::held(pod),
            gpu_metrics: BTreeMap::new(),
            creation_timestamp: unix(pod.metadata.creation_timestamp.as_ref().map(|time| time.0)),
        }
    }
}

/// What `get` shows besides the instances.
#[derive(Debug, Clone, Default)]
pub struct Details<'a> {
    /// The table of GPUs.
    pub gpus: bool,
    /// The events, by resource.
    pub events: Option<&'a [EventRow]>,
}

/// An event of one of a job's objects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EventRow {
    /// `kind/name`.
    pub source: String,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Seconds since it last happened.
    pub age: i64,
    /// Why, in one word.
    pub reason: String,
    /// Why, in words.
    pub message: String,
}

impl JobView {
    /// What `get` prints. Times are written in `zone`.
    pub fn text(&self, zone: &TimeZone, details: &Details<'_>) -> String {
        let time = |at: i64| {
            Timestamp::from_second(at).map_or_else(
                |_| String::new(),
                |time| time.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
            )
        };
        let end = if self.status.is_done() {
            time(self.creation_timestamp + self.duration)
        } else {
            String::new()
        };
        let mut text = format!(
            "Name:\t{}\nStatus:\t{}\nNamespace:\t{}\nPriority:\t{}\nTrainer:\t{}\nDuration:\t{}\nCreateTime:\t{}\nEndTime:\t{end}\n",
            self.name,
            self.status.name(),
            self.namespace,
            self.priority,
            self.trainer.to_uppercase(),
            short_duration(self.duration),
            time(self.creation_timestamp),
        );
        if !self.model_name.is_empty() {
            text += &format!("ModelName:\t{}\n", self.model_name);
        }
        text += "\nInstances:\n  NAME\tSTATUS\tAGE\tIS_CHIEF\tGPU(Requested)\tNODE\n";
        text += "  ----\t------\t---\t--------\t--------------\t----\n";
        for instance in &self.instances {
            text += &format!(
                "  {}\t{}\t{}\t{}\t{}\t{}\n",
                instance.name,
                instance.status,
                short_duration(instance.age),
                instance.chief,
                instance.request_gpus,
                instance.node,
            );
        }
        if details.gpus && self.status != Status::Succeeded {
            text += &self.gpu_table();
        }
        if !self.tensorboard.is_empty() {
            text += &format!(
                "\nTensorboard:\n  Your tensorboard will be available on: \n  {}\n",
                self.tensorboard
            );
        }
        if let Some(events) = details.events {
            text += &event_table(events);
        }
        tabulate(&text)
    }

    fn gpu_table(&self) -> String {
        let requested: i64 = self.instances.iter().map(|instance| instance.request_gpus).sum();
        if requested == 0 {
            return String::new();
        }
        let mut text = "\nGPUs:\n  INSTANCE\tNODE(IP)\tGPU(Requested)\tGPU(IndexId)\tGPU(DutyCycle)\tGPU Memory(Used/Total)\n".to_owned();
        text += "  --------\t--------\t--------------\t------------\t--------------\t----------------------\n";
        for instance in &self.instances {
            let indices = instance.gpus.map_or_else(|| "N/A".to_owned(), |gpus| gpus.to_string());
            text += &format!(
                "  {}\t{}\t{}\t{indices}\tN/A\tN/A\n",
                instance.name, instance.node_ip, instance.request_gpus
            );
        }
        let running = self.instances.iter().filter(|instance| instance.status == "Running");
        let allocated: i64 = running.map(|instance| instance.request_gpus).sum();
        text + &format!("\n  Allocated/Requested GPUs of Job: {allocated}/{requested}\n")
    }
}

fn event_table(events: &[EventRow]) -> String {
    let mut text = "\nEvents:\n".to_owned();
    if events.is_empty() {
        return text + "  No events for resources\n";
    }
    text += "  SOURCE\tTYPE\tAGE\tMESSAGE\n  ------\t----\t---\t-------\n";
    for (index, event) in events.iter().enumerate() {
        text += &format!(
            "  {}\t{}\t{}\t[{}] {}\n",
            event.source,
            event.kind,
            short_duration(event.age),
            event.reason,
            event.message.replace(['\n', '\t'], " ")
        );
        if events.get(index + 1).is_none_or(|next| next.source != event.source) {
            text.push('\n');
        }
    }
    text
}

/// Puts the newest job first.
pub fn newest_first(jobs: &mut [JobView]) {
    jobs.sort_by(|a, b| {
        b.creation_timestamp.cmp(&a.creation_timestamp).then_with(|| a.name.cmp(&b.name))
    });
}

/// What `list` prints; the namespace is a column when several are listed.
pub fn list_text(jobs: &[JobView], all_namespaces: bool) -> String {
    let column = |text: &str| if all_namespaces { format!("{text}\t") } else { String::new() };
    let mut text = column("NAMESPACE");
    text += "NAME\tSTATUS\tTRAINER\tDURATION\tGPU(Requested)\tGPU(Allocated)\tNODE\n";
    for job in jobs {
        let node = job.instances.iter().find(|instance| instance.chief);
        text += &column(&job.namespace);
        text += &format!(
            "{}\t{}\t{}\t{}\t{}\t{}\t{}\n",
            job.name,
            job.status.name(),
            job.trainer.to_uppercase(),
            short_duration(job.duration),
            job.request_gpus,
            if job.status.is_done() { "N/A".to_owned() } else { job.allocated_gpus.to_string() },
            node.map_or("N/A", |instance| &instance.node_ip),
        );
    }
    tabulate(&text)
}
