//! From a kubeconfig to API clients without blanket retry, and lean watches.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig},
};

mod event;
mod readable;
mod wait;
mod watch;

pub use event::{About, event, post, tell};
pub use wait::{TimedOut, wait_until};
pub use watch::{Change, watch};

/// Two clients of one API server.
#[derive(Clone)]
pub struct Clients {
    /// For lists, watches and gets: an answer that says "later" is asked again.
    pub reads: kube::Client,
    /// For writes: nothing is sent twice. A request may have been carried out though its answer was lost, so whoever
    /// writes looks before writing again.
    pub writes: kube::Client,
    /// The namespace of the kubeconfig's context.
    pub namespace: String,
    /// What the connection was made from; other clients, of other settings, can be made of it.
    pub config: Config,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig cannot be read.
    #[error("cannot read kubeconfig {file}: {reason}")]
    Kubeconfig {
        /// The file.
        file: String,
        /// Why.
        reason: String,
    },
    /// There is none, and this is no pod.
    #[error("no kubeconfig: give --kubeconfig FILE or set KUBECONFIG ({reason})")]
    None {
        /// What was tried.
        reason: String,
    },
    /// The settings make no client.
    #[error("kubeconfig {file}: {reason}")]
    Unusable {
        /// The file.
        file: String,
        /// Why.
        reason: String,
    },
}

impl Clients {
    /// From `file`; without one from `KUBECONFIG`, `~/.kube/config`, or the pod that this runs in.
    ///
    /// # Errors
    /// No kubeconfig, or one that cannot be used; names the file.
    pub async fn from_kubeconfig(file: Option<&Path>) -> Result<Self, ClientError> {
        let config = match file {
            Some(file) => from_file(file).await?,
            None => match std::env::var("KUBECONFIG") {
                // Naming a file means that one: falling back to the pod's own cluster would be a surprise. A list of
                // files is merged, and some of it may be missing.
                Ok(named) if !named.is_empty() && !named.contains(':') => {
                    from_file(Path::new(&named)).await?
                }
                _ => Config::infer()
                    .await
                    .map_err(|e| ClientError::None { reason: with_cause(&e) })?,
            },
        };
        let file =
            file.map_or_else(|| "of the environment".to_owned(), |file| file.display().to_string());
        Self::from_config(config).map_err(|reason| ClientError::Unusable { file, reason })
    }

    /// From settings made elsewhere.
    ///
    /// # Errors
    /// The settings make no client.
    pub fn from_config(mut config: Config) -> Result<Self, String> {
        // A watch is silent for as long as nothing happens; its server ends it after five minutes.
        config.read_timeout = Some(Duration::from_secs(330));
        let mut writes = config.clone();
        writes.default_retry = false;
        writes.read_timeout = Some(Duration::from_secs(30));
        let client = |config: Config| kube::Client::try_from(config).map_err(|e| e.to_string());
        Ok(Self {
            namespace: config.default_namespace.clone(),
            reads: client(config.clone())?,
            writes: client(writes)?,
            config,
        })
    }
}

async fn from_file(file: &Path) -> Result<Config, ClientError> {
    let named =
        |reason: String| ClientError::Kubeconfig { file: file.display().to_string(), reason };
    let kubeconfig =
        Kubeconfig::read_from(PathBuf::from(file)).map_err(|e| named(with_cause(&e)))?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|e| named(with_cause(&e)))
}

/// An error with the errors below it.
fn with_cause(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let below = error.to_string();
        if !text.contains(&below) {
            text = format!("{text}: {below}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_missing_or_broken_kubeconfig_is_named() {
        let missing = Path::new("/nowhere/config");
        let error = Clients::from_kubeconfig(Some(missing)).await.err().unwrap().to_string();
        assert!(error.contains("/nowhere/config"), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let broken = folder.path().join("config");
        std::fs::write(&broken, "clusters: 7").unwrap();
        let error = Clients::from_kubeconfig(Some(&broken)).await.err().unwrap().to_string();
        assert!(error.contains("config"), "{error}");
    }
}
