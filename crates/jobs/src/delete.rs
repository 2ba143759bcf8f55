//! Deleting a job, whoever made it.

use std::time::Duration;

use api::MpiJob;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::DeleteParams};
use serde_json::json;

use crate::{
    Cluster, JobError,
    error::{code, failed},
    manifest::store_name,
};

/// How long the deleted job is waited for.
const DEADLINE: Duration = Duration::from_secs(600);
/// How often it is looked for.
const PERIOD: Duration = Duration::from_millis(200);

/// API version and kind of what Arena's record may list beside the job.
const KINDS: [(&str, &str, &str); 6] = [
    ("configmap", "v1", "ConfigMap"),
    ("service", "v1", "Service"),
    ("secret", "v1", "Secret"),
    ("serviceaccount", "v1", "ServiceAccount"),
    ("deployment.apps", "apps/v1", "Deployment"),
    ("ingress.networking.k8s.io", "networking.k8s.io/v1", "Ingress"),
];

/// Whether there was anything to delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deleted {
    /// It is gone.
    Gone,
    /// There was no such job.
    NeverThere,
}

impl Cluster {
    /// Deletes a job with all that belongs to it: the MPIJob (made by Arena, by us or from plain YAML), what its record
    /// lists, and the record. Waits until the MPIJob is gone; `progress` is told so.
    ///
    /// # Errors
    /// The cluster refuses, or the job does not go.
    pub async fn delete(
        &self,
        name: &str,
        progress: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Deleted, JobError> {
        let store = store_name(name);
        let records: Api<ConfigMap> = self.read();
        let record = records.get_opt(&store).await.map_err(failed("read the job's record"))?;
        let record = record.filter(|record| {
            let labels = record.metadata.labels.as_ref();
            labels.and_then(|labels| labels.get("createdBy")).is_some_and(|by| by == "arena")
        });
        let job = match self.mpi_job(name).await {
            // Without the kind there can still be a record.
            Err(JobError::NoMpiJob) if record.is_some() => None,
            found => found?,
        };
        if job.is_none() && record.is_none() {
            return Ok(Deleted::NeverThere);
        }
        if let Some(job) = &job {
            let jobs: Api<MpiJob> = Api::namespaced(self.clients.writes.clone(), &self.namespace);
            let answer = jobs.delete(name, &DeleteParams::background()).await;
            ignore_missing(answer.map(|_| ())).map_err(failed(format!("delete job {name}")))?;
            self.wait_until_gone(job, progress).await?;
        }
        if let Some(record) = record {
            let app = record.data.as_ref().and_then(|data| data.get("app"));
            for line in app.map_or("", String::as_str).lines() {
                self.delete_listed(line.trim()).await?;
            }
            let api: Api<ConfigMap> = Api::namespaced(self.clients.writes.clone(), &self.namespace);
            let answer = api.delete(&store, &DeleteParams::default()).await;
            ignore_missing(answer.map(|_| ()))
                .map_err(failed(format!("delete configmap {store}")))?;
        }
        Ok(Deleted::Gone)
    }

    async fn wait_until_gone(
        &self,
        job: &MpiJob,
        progress: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<(), JobError> {
        let start = tokio::time::Instant::now();
        while self.mpi_job(job.name()).await?.is_some_and(|now| now.uid() == job.uid()) {
            progress(&format!("waiting until job {} is gone", job.name()));
            if start.elapsed() > DEADLINE {
                return Err(JobError::Waited {
                    seconds: DEADLINE.as_secs(),
                    what: format!("job {} to be gone; a finalizer may hold it", job.name()),
                });
            }
            tokio::time::sleep(PERIOD).await;
        }
        Ok(())
    }

    /// Deletes `kind.group/name`; the job itself has been seen to.
    async fn delete_listed(&self, line: &str) -> Result<(), JobError> {
        let Some((kind, name)) = line.split_once('/') else { return Ok(()) };
        if kind == "mpijob.kubeflow.org" {
            return Ok(());
        }
        let Some((_, api_version, kind)) = KINDS.into_iter().find(|(word, ..)| *word == kind)
        else {
            tracing::warn!(
                "the job's record lists {line}, which is left: its kind is unknown here"
            );
            return Ok(());
        };
        let object =
            json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": name } });
        let (api, name) = self.api_of(&object);
        let answer = api.delete(&name, &DeleteParams::background()).await;
        ignore_missing(answer.map(|_| ())).map_err(failed(format!("delete {line}")))
    }
}

fn ignore_missing(answer: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match answer {
        Err(error) if code(&error) == Some(404) => Ok(()),
        answer => answer,
    }
}
