//! One action, carried out. Each may be repeated: an answer that was lost says nothing about what was done.

use api::{MpiJob, Pod, contract};
use client::Clients;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::Request,
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};

use crate::{
    launcher::{Config, Launcher},
    objects::COMPONENT,
    reconcile::{Action, Owner, owner},
};

/// Why an action was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ActError {
    /// The name is taken by an object that is on its way out.
    #[error("{name} of an earlier job is not gone yet")]
    Waiting {
        /// Its name.
        name: String,
    },
    /// The name is taken by somebody else's object.
    #[error("{name} belongs to somebody else")]
    Foreign {
        /// Its name.
        name: String,
    },
    /// The API server will not have it.
    #[error("{what} was refused: {message}")]
    Refused {
        /// What was to be done.
        what: String,
        /// The server's words.
        message: String,
    },
    /// There was no answer, or one that says "later".
    #[error("{what}: {source}")]
    Unanswered {
        /// What was to be done.
        what: String,
        /// What happened instead.
        source: kube::Error,
    },
}

fn failed(what: String) -> impl FnOnce(kube::Error) -> ActError {
    move |error| match error {
        kube::Error::Api(status) if matches!(status.code, 400 | 403 | 404 | 405 | 413 | 422) => {
            ActError::Refused { what, message: status.message }
        }
        source => ActError::Unanswered { what, source },
    }
}

/// Whether what was to be changed is no longer there, or is another: the watches will say.
fn is_outdated(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 404 | 409))
}

/// Carries out one action of a job.
pub(crate) async fn act(clients: &Clients, job: &MpiJob, action: &Action) -> Result<(), ActError> {
    let writes = || clients.writes.clone();
    let namespace = job.namespace();
    match action {
        Action::Create { path, object } => create(clients, job, path, object).await,
        Action::SetHostfiles { uid, hostfiles } => {
            let configs: Api<Config> = Api::namespaced(writes(), namespace);
            let patch = json!({"metadata": {"uid": uid}, "data": hostfiles});
            merge(&configs, &contract::config_name(job.name()), patch).await
        }
        Action::Suspend { uid, suspend, restarts } => {
            let launchers: Api<Launcher> = Api::namespaced(writes(), namespace);
            let note = json!({contract::RESTARTS: restarts.to_string()});
            let patch = json!({"metadata": {"uid": uid, "annotations": note}, "spec": {"suspend": suspend}});
            merge(&launchers, &contract::launcher_name(job.name()), patch).await
        }
        Action::DeleteWorker { name, uid } => {
            let pods: Api<Pod> = Api::namespaced(writes(), namespace);
            let only = Preconditions { uid: Some(uid.clone()), resource_version: None };
            match pods.delete(name, &DeleteParams::default().preconditions(only)).await {
                Err(error) if is_outdated(&error) => Ok(()),
                answer => answer.map(drop).map_err(failed(format!("delete pod {name}"))),
            }
        }
        Action::Status(status) => {
            let jobs: Api<MpiJob> = Api::namespaced(writes(), namespace);
            let patch = json!({"metadata": {"uid": job.uid()}, "status": status});
            let answer =
                jobs.patch_status(job.name(), &PatchParams::default(), &Patch::Merge(patch)).await;
            match answer {
                Err(error) if is_outdated(&error) => Ok(()),
                answer => answer.map(drop).map_err(failed(format!("status of {}", job.name()))),
            }
        }
        Action::Event { warning, reason, message } => {
            let event = event(job, *warning, reason, message, Timestamp::now());
            create(clients, job, &format!("/api/v1/namespaces/{namespace}/events"), &event).await
        }
    }
}

/// Changes fields of an object, which must still have the UID in the patch.
async fn merge<K>(api: &Api<K>, name: &str, patch: Value) -> Result<(), ActError>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    match api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
        // Whoever needs it waits for the next look.
        Err(error) if is_outdated(&error) => Err(ActError::Waiting { name: name.to_owned() }),
        answer => answer.map(drop).map_err(failed(format!("patch {name}"))),
    }
}

/// An event of the job. Events of one nanosecond with one reason are one.
fn event(job: &MpiJob, warning: bool, reason: &str, message: &str, now: Timestamp) -> Value {
    let name = format!("{}.{:x}.{}", job.name(), now.as_nanosecond(), reason.to_lowercase());
    let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": name, "namespace": job.namespace()},
        "involvedObject": {
            "apiVersion": "kubeflow.org/v1alpha1", "kind": "MPIJob",
            "namespace": job.namespace(), "name": job.name(), "uid": job.uid(),
        },
        "type": if warning { "Warning" } else { "Normal" },
        "reason": reason, "message": message, "count": 1,
        "firstTimestamp": time, "lastTimestamp": time, "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT, "reportingInstance": "",
    })
}

/// Makes an object; one of that name that is this job's counts as made.
async fn create(
    clients: &Clients,
    job: &MpiJob,
    path: &str,
    object: &Value,
) -> Result<(), ActError> {
    #[derive(Deserialize)]
    struct There {
        metadata: ObjectMeta,
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let what = || format!("create {} {name}", object["kind"].as_str().unwrap_or_default());
    let serde = |error| failed(what())(kube::Error::SerdeError(error));
    let build = |error| failed(what())(kube::Error::BuildRequest(error));
    let body = serde_json::to_vec(object).map_err(serde)?;
    let request = Request::new(path).create(&PostParams::default(), body).map_err(build)?;
    match clients.writes.request::<IgnoredAny>(request).await {
        Ok(_) => return Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(error) => return Err(failed(what())(error)),
    }
    let request = Request::new(path).get(&name, &kube::api::GetParams::default()).map_err(build)?;
    match clients.reads.request::<There>(request).await {
        Ok(there) => match owner(&there.metadata, job) {
            Owner::Us => Ok(()),
            Owner::Past => Err(ActError::Waiting { name }),
            Owner::Other => Err(ActError::Foreign { name }),
        },
        // It went in between; the next look makes it.
        Err(kube::Error::Api(status)) if status.code == 404 => Err(ActError::Waiting { name }),
        Err(error) => Err(failed(what())(error)),
    }
}

#[cfg(test)]
#[path = "act_tests.rs"]
mod tests;
