//! A job's log: which pod's, and its stream.

use std::time::Duration;

use api::{MpiJob, Pod};
use futures::AsyncReadExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use kube::{Api, api::LogParams};

use crate::{Cluster, JobError, Observed, error::failed, pod_view};

/// What of a log is shown.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LogOptions {
    /// Whether to go on until the pod ends.
    pub follow: bool,
    /// Only the last so many seconds.
    pub since: Option<Duration>,
    /// Only what was written since.
    pub since_time: Option<Timestamp>,
    /// Only the last so many lines.
    pub tail: Option<i64>,
    /// Whether each line begins with its time.
    pub timestamps: bool,
    /// The pod; else the launcher's.
    pub instance: Option<String>,
    /// The container; else the only one.
    pub container: Option<String>,
}

/// How often a pod that has not started is looked at.
const PERIOD: Duration = Duration::from_millis(200);

impl Observed {
    /// The pod whose log is meant: the one named, the only one, or the launcher.
    ///
    /// # Errors
    /// There is none, or several and no launcher.
    pub fn instance(&self, named: Option<&str>) -> Result<&Pod, JobError> {
        let job = self.job.name();
        if let Some(name) = named {
            return self.pods.iter().find(|pod| pod.name() == name).ok_or_else(|| {
                JobError::Instance { instance: name.to_owned(), job: job.to_owned() }
            });
        }
        match self.pods.as_slice() {
            [] => Err(JobError::NoInstances(job.to_owned())),
            [only] => Ok(only),
            pods => self.chief().ok_or_else(|| {
                JobError::ManyInstances(pods.iter().map(|pod| pod.name().to_owned()).collect())
            }),
        }
    }
}

impl Cluster {
    /// Writes the log of a job's pod to `out`. With `follow` it first waits until the launcher has started (or the pod
    /// named), and `progress` is told so.
    ///
    /// # Errors
    /// No such job or pod, a pod that has not started, a stream that broke, an `out` that is closed.
    pub async fn logs(
        &self,
        name: &str,
        options: &LogOptions,
        out: &mut (dyn std::io::Write + Send),
        progress: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<(), JobError> {
        let pod = if options.follow {
            self.wait_for_instance(name, options, progress).await?
        } else {
            let observed = self.observe(name).await?;
            observed.instance(options.instance.as_deref())?.clone()
        };
        let initialising = pod_view::status(&pod).starts_with("Init:");
        let container = match &options.container {
            Some(container) => Some(container.clone()),
            // While the code is fetched, that is the log there is.
            None if initialising => pod
                .spec
                .init_containers
                .iter()
                .find(|container| container.name == "init-code")
                .map(|container| container.name.clone()),
            // A pod of several containers has one that is the job's.
            None => pod.spec.containers.first().map(|container| container.name.clone()),
        };
        // A log may be silent for as long as it likes.
        let mut config = self.clients.config.clone();
        config.read_timeout = None;
        let patient = kube::Client::try_from(config).map_err(failed("make a client"))?;
        let api: Api<core::Pod> = Api::namespaced(patient, &self.namespace);
        let parameters = LogParams {
            container,
            follow: options.follow,
            since_seconds: options
                .since
                .map(|since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX)),
            since_time: options.since_time,
            tail_lines: options.tail,
            timestamps: options.timestamps,
            ..LogParams::default()
        };
        let what = format!("read the log of {}", pod.name());
        let stream = api.log_stream(pod.name(), &parameters).await;
        let mut stream = std::pin::pin!(stream.map_err(failed(what.clone()))?);
        let mut chunk = vec![0; 16 << 10];
        loop {
            let length = stream
                .read(&mut chunk)
                .await
                .map_err(|e| JobError::Api { what: what.clone(), reason: e.to_string() })?;
            if length == 0 {
                return Ok(());
            }
            out.write_all(chunk.get(..length).unwrap_or_default())?;
            out.flush()?;
        }
    }

    async fn wait_for_instance(
        &self,
        name: &str,
        options: &LogOptions,
        progress: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Pod, JobError> {
        loop {
            let observed = self.observe(name).await?;
            let found = match &options.instance {
                Some(instance) => Some(observed.instance(Some(instance))?),
                None => observed.chief(),
            };
            let told = match found {
                Some(pod) if has_log(pod, options) => return Ok(pod.clone()),
                Some(pod) => {
                    format!("waiting for {} to start ({})", pod.name(), pod_view::status(pod))
                }
                None if observed.job.is_done() => {
                    return observed.instance(None).cloned();
                }
                None => waiting_for_launcher(&observed.job, &observed),
            };
            progress(&told);
            tokio::time::sleep(PERIOD).await;
        }
    }
}

/// Whether a container of the pod that can be read has started.
fn has_log(pod: &Pod, options: &LogOptions) -> bool {
    !pod_view::is_pending(pod)
        || options.container.is_some() && pod_view::status(pod).starts_with("Init:")
}

fn waiting_for_launcher(job: &MpiJob, observed: &Observed) -> String {
    let running = observed.pods.iter().filter(|pod| pod.status.phase == "Running").count();
    let workers = job.spec.replicas.unwrap_or(1);
    format!("waiting for the launcher of {}: {running} of {workers} workers run", job.name())
}
