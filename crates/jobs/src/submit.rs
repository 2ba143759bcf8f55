//! Creating a job, whole or not at all.

use std::time::Duration;

use api::MpiJob;
use jiff::Timestamp;
use k8s_openapi::api::{core::v1::ConfigMap, scheduling::v1::PriorityClass};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, PostParams, Preconditions},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

use crate::{
    Cluster, JobError, Manifest, Submission,
    error::{code, failed, reason},
    manifest::store_name,
};

/// How long a namesake that is being deleted is waited for.
const NAMESAKE_DEADLINE: Duration = Duration::from_secs(300);
/// A record without an owner that is younger than this may belong to a submission in flight.
const STALE_RECORD: i64 = 60;
/// How often the cluster is looked at.
const PERIOD: Duration = Duration::from_millis(200);

impl Cluster {
    /// Creates the job: the MPIJob, then what lies beside it and Arena's record, both owned by it. When anything fails,
    /// what was created is removed again. A namesake that is being deleted is waited for; `progress` is told so.
    ///
    /// # Errors
    /// The flags are wrong, a job of that name is there, or the cluster refuses.
    pub async fn submit(
        &self,
        submission: &Submission,
        salt: u32,
        progress: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<(), JobError> {
        submission.check()?;
        if let Some(class) = &submission.priority {
            let classes: Api<PriorityClass> = Api::all(self.clients.reads.clone());
            let found = classes.get_opt(class).await.map_err(failed("read priority class"))?;
            if found.is_none() {
                return Err(JobError::Priority(class.clone()));
            }
        }
        self.wait_for_namesake(&submission.name, progress).await?;
        self.clear_record(&submission.name).await?;
        let manifest = submission.manifest(&self.namespace, &self.user().await, salt);
        let job = self.create_job(&submission.name, &manifest).await?;
        let mut created = Vec::new();
        for object in manifest.beside.iter().chain([&manifest.store]) {
            match self.create_owned(object, &job).await {
                Ok(()) => created.push(object),
                Err(cause) => return Err(self.roll_back(&job, &created, cause).await),
            }
        }
        Ok(())
    }

    /// Waits until there is no job of that name, if the one there is is on its way out.
    async fn wait_for_namesake(
        &self,
        name: &str,
        progress: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<(), JobError> {
        let start = tokio::time::Instant::now();
        loop {
            match self.mpi_job(name).await? {
                None => return Ok(()),
                Some(job) if job.metadata.deletion_timestamp.is_none() => {
                    return Err(JobError::Exists(name.to_owned()));
                }
                Some(_) => progress(&format!("waiting until the old job {name} is gone")),
            }
            if start.elapsed() > NAMESAKE_DEADLINE {
                return Err(JobError::Waited {
                    seconds: NAMESAKE_DEADLINE.as_secs(),
                    what: format!("the old job {name} to be gone"),
                });
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Removes a record that outlived its job: its owner is gone, or it never got one.
    async fn clear_record(&self, name: &str) -> Result<(), JobError> {
        let store = store_name(name);
        let records: Api<ConfigMap> = self.read();
        let found = records.get_opt(&store).await.map_err(failed("read the job's record"))?;
        let Some(record) = found else { return Ok(()) };
        let labels = record.metadata.labels.as_ref();
        let ours =
            labels.and_then(|labels| labels.get("createdBy")).is_some_and(|by| by == "arena");
        let owned = record.metadata.owner_references.as_ref().is_some_and(|owners| {
            owners.iter().any(|owner| owner.kind == "MPIJob" && owner.name == name)
        });
        let made = record.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let stale =
            made.is_some_and(|made| Timestamp::now().duration_since(made).as_secs() > STALE_RECORD);
        if !ours || !(owned || stale) {
            return Err(JobError::StoreExists(store));
        }
        let api: Api<ConfigMap> = Api::namespaced(self.clients.writes.clone(), &self.namespace);
        let only_this = DeleteParams::default()
            .preconditions(Preconditions { uid: record.metadata.uid, resource_version: None });
        match api.delete(&store, &only_this).await {
            Ok(_) => Ok(()),
            // Somebody else removed it, or it is another by now: creating ours will tell.
            Err(error) if matches!(code(&error), Some(404 | 409)) => Ok(()),
            Err(error) => Err(failed(format!("remove the stale record {store}"))(error)),
        }
    }

    async fn create_job(&self, name: &str, manifest: &Manifest) -> Result<MpiJob, JobError> {
        let what = format!("create job {name}");
        let wanted: MpiJob = serde_json::from_value(manifest.mpi_job.clone())
            .map_err(|e| JobError::Api { what: what.clone(), reason: e.to_string() })?;
        let api: Api<MpiJob> = Api::namespaced(self.clients.writes.clone(), &self.namespace);
        let error = match api.create(&PostParams::default(), &wanted).await {
            Ok(job) => return Ok(job),
            Err(error) => error,
        };
        match code(&error) {
            Some(409) => Err(JobError::Exists(name.to_owned())),
            Some(404) if !reason(&error).contains("namespace") => Err(JobError::NoMpiJob),
            Some(_) => Err(failed(what)(error)),
            // The answer was lost: what is there now and was not before is ours.
            None => match self.mpi_job(name).await {
                Ok(Some(job)) if job.metadata.annotations == wanted.metadata.annotations => Ok(job),
                _ => Err(failed(what)(error)),
            },
        }
    }

    async fn create_owned(&self, object: &Value, owner: &MpiJob) -> Result<(), JobError> {
        let mut object = object.clone();
        object["metadata"]["ownerReferences"] = json!([{
            "apiVersion": crate::API_VERSION,
            "kind": "MPIJob",
            "name": owner.name(),
            "uid": owner.uid(),
            "controller": true,
            "blockOwnerDeletion": true,
        }]);
        let (api, name) = self.api_of(&object);
        let what = format!("create {} {name}", object["kind"].as_str().unwrap_or_default());
        let object: DynamicObject = serde_json::from_value(object)
            .map_err(|e| JobError::Api { what: what.clone(), reason: e.to_string() })?;
        api.create(&PostParams::default(), &object).await.map(|_| ()).map_err(failed(what))
    }

    /// The API of a core or apps object, and its name.
    pub(crate) fn api_of(&self, object: &Value) -> (Api<DynamicObject>, String) {
        let text = |pointer: &str| {
            object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let api_version = text("/apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let resource =
            ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &text("/kind")));
        let api = Api::namespaced_with(self.clients.writes.clone(), &self.namespace, &resource);
        (api, text("/metadata/name"))
    }

    /// Removes what a failed submission created. The job first: its deletion takes along what it owns.
    async fn roll_back(&self, job: &MpiJob, created: &[&Value], cause: JobError) -> JobError {
        let mut left = Vec::new();
        let jobs: Api<MpiJob> = Api::namespaced(self.clients.writes.clone(), &self.namespace);
        let only_this = DeleteParams::background()
            .preconditions(Preconditions { uid: job.metadata.uid.clone(), resource_version: None });
        if let Err(error) = jobs.delete(job.name(), &only_this).await
            && code(&error) != Some(404)
        {
            left.push(format!("job {}: {}", job.name(), reason(&error)));
        }
        for object in created {
            let (api, name) = self.api_of(object);
            if let Err(error) = api.delete(&name, &DeleteParams::default()).await
                && code(&error) != Some(404)
            {
                left.push(format!("{name}: {}", reason(&error)));
            }
        }
        if left.is_empty() {
            cause
        } else {
            JobError::RollBack { cause: Box::new(cause), left: left.join(", ") }
        }
    }
}
