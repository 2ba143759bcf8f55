//! What can go wrong between a job's user and the cluster.

use crate::SubmissionError;

/// Why a command about a job failed. Arena's words where it has some.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The flags are wrong.
    #[error(transparent)]
    Submission(#[from] SubmissionError),
    /// No such job.
    #[error(
        "Not found training job {name} in namespace {namespace},please use 'ringmaster submit' to create it."
    )]
    NotFound {
        /// The job.
        name: String,
        /// Where it was looked for.
        namespace: String,
    },
    /// There is one of that name.
    #[error("the job {0} is already exist, please delete it first. use 'ringmaster delete {0}'")]
    Exists(String),
    /// There is a record of that name.
    #[error("the job configmap {0} is already exist, please delete it first")]
    StoreExists(String),
    /// No such priority class.
    #[error(
        "the priority {0} doesn't exist. Please check with `kubectl get pc` to get a valid priority"
    )]
    Priority(String),
    /// The cluster knows no MPIJob.
    #[error("the cluster does not serve MPIJob (kubeflow.org/v1alpha1): its CRD is not installed")]
    NoMpiJob,
    /// No pod to show.
    #[error("not found instances of the job {0}")]
    NoInstances(String),
    /// Several pods and no launcher.
    #[error(
        "There is {count} instances have been found:\n\n{names}\n\nplease use '-i' or '--instance' to filter.",
        count = .0.len(), names = .0.join("\n")
    )]
    ManyInstances(Vec<String>),
    /// No such pod.
    #[error(
        "invalid instance name {instance} in job {job},please use 'ringmaster get {job}' to make sure instance name"
    )]
    Instance {
        /// The pod.
        instance: String,
        /// The job.
        job: String,
    },
    /// No node to show.
    #[error("failed to display nodes's informations: not found nodes")]
    NoNodes,
    /// Something did not happen in time.
    #[error("waited {seconds} s for {what}")]
    Waited {
        /// Seconds.
        seconds: u64,
        /// For what.
        what: String,
    },
    /// The API server refused, or was not reached.
    #[error("cannot {what}: {reason}")]
    Api {
        /// What was tried.
        what: String,
        /// Why it failed.
        reason: String,
    },
    /// Something was created and could not be taken back.
    #[error("{cause}; and what had been created could not be removed: {left}")]
    RollBack {
        /// What went wrong first.
        cause: Box<Self>,
        /// What is left, and why.
        left: String,
    },
    /// stdout is closed.
    #[error(transparent)]
    Output(#[from] std::io::Error),
}

/// What the API server or the connection said, without the wrapping.
pub fn reason(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return match status.message.as_str() {
            "" => format!("{} ({})", status.reason, status.code),
            message => message.to_owned(),
        };
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(below) = cause {
        let said = below.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = below.source();
    }
    text
}

/// Says what was tried.
pub(crate) fn failed(what: impl Into<String>) -> impl FnOnce(kube::Error) -> JobError {
    let what = what.into();
    move |error| JobError::Api { what, reason: reason(&error) }
}

/// The HTTP code, where the API server answered.
pub(crate) fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}
