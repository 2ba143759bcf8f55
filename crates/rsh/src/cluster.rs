//! Where the API server is and who we are: the pod's service account, or variables of ours.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore, pki_types::CertificateDer, pki_types::pem::PemObject};

use crate::RshError;

const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The API server and our credentials.
pub(crate) struct Cluster {
    /// `https://host:port`, or `http://…` for a proxy on the same machine.
    pub(crate) server: String,
    /// Whose pods are meant.
    pub(crate) namespace: String,
    /// Container of the pod in which the command runs; the pod's default one when not set.
    pub(crate) container: Option<String>,
    /// Bearer token.
    pub(crate) token: Option<String>,
    /// TLS settings that trust the cluster's authority.
    pub(crate) tls: Arc<ClientConfig>,
}

impl Cluster {
    /// The cluster of the pod we run in. `RINGMASTER_RSH_SERVER`, `…_NAMESPACE`, `…_CONTAINER`, `…_TOKEN_FILE` and
    /// `…_CA_FILE` each override one part.
    pub(crate) fn from_env(var: impl Fn(&str) -> Option<String>) -> Result<Self, RshError> {
        let set = |name: &str| var(name).filter(|value| !value.is_empty());
        let server = match set("RINGMASTER_RSH_SERVER") {
            Some(server) => server,
            None => {
                let part = |name: &'static str| set(name).ok_or(RshError::NotInCluster(name));
                let host = part("KUBERNETES_SERVICE_HOST")?;
                let host = if host.contains(':') { format!("[{host}]") } else { host };
                format!("https://{host}:{}", part("KUBERNETES_SERVICE_PORT")?)
            }
        };
        let file = |name: &str, default: &str| {
            set(name).unwrap_or_else(|| format!("{SERVICE_ACCOUNT}/{default}"))
        };
        let read = |file: String| {
            std::fs::read_to_string(&file).map_err(|source| RshError::Read { file, source })
        };
        let namespace = match set("RINGMASTER_RSH_NAMESPACE") {
            Some(namespace) => namespace,
            None => read(file("", "namespace"))?.trim().to_owned(),
        };
        let plain = server.starts_with("http://");
        let token_file = file("RINGMASTER_RSH_TOKEN_FILE", "token");
        let token = if plain && set("RINGMASTER_RSH_TOKEN_FILE").is_none() {
            None
        } else {
            Some(read(token_file)?.trim().to_owned())
        };
        let mut roots = RootCertStore::empty();
        if !plain {
            let file = file("RINGMASTER_RSH_CA_FILE", "ca.crt");
            let text = read(file.clone())?;
            for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
                certificate
                    .map_err(|e| e.to_string())
                    .and_then(|certificate| roots.add(certificate).map_err(|e| e.to_string()))
                    .map_err(|reason| RshError::Certificate { file: file.clone(), reason })?;
            }
            if roots.is_empty() {
                return Err(RshError::Certificate { file, reason: "it is empty".to_owned() });
            }
        }
        let tls =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(|e| RshError::Server { server: server.clone(), reason: e.to_string() })?
                .with_root_certificates(roots)
                .with_no_client_auth();
        Ok(Self {
            server,
            namespace,
            container: set("RINGMASTER_RSH_CONTAINER"),
            token,
            tls: Arc::new(tls),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(vars: &'static [(&str, &str)]) -> Result<Cluster, RshError> {
        Cluster::from_env(|name| {
            vars.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned())
        })
    }

    #[test]
    fn outside_a_cluster_the_missing_variable_is_named() {
        let error = with(&[]).err().unwrap().to_string();
        assert!(error.contains("KUBERNETES_SERVICE_HOST"), "{error}");
    }

    #[test]
    fn a_missing_credential_names_its_file() {
        let error = with(&[
            ("RINGMASTER_RSH_SERVER", "https://10.0.0.1:443"),
            ("RINGMASTER_RSH_NAMESPACE", "default"),
            ("RINGMASTER_RSH_TOKEN_FILE", "/nowhere/token"),
        ])
        .err()
        .unwrap()
        .to_string();
        assert!(error.contains("/nowhere/token"), "{error}");
    }
}
