//! The server: a listening socket, TLS, and the tasks behind it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::Api;
use crate::http::Front;
use crate::tls::{self, TlsError};
use crate::{collector, fresh};

/// A handshake that takes longer than this is given up.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long running requests get at the end.
const DRAIN: Duration = Duration::from_secs(2);

/// What a server is started with.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The bearer token that may do everything; without one, a random one.
    pub token: Option<String>,
    /// The name of cluster and context in the kubeconfig.
    pub name: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            token: None,
            name: "sandbox".to_owned(),
        }
    }
}

/// Why a server does not start, or its kubeconfig is not written.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// No certificates.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The kubeconfig cannot be written.
    #[error("cannot write kubeconfig {file}: {source}")]
    Kubeconfig {
        /// The file.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// A running API server.
#[derive(Debug)]
pub struct Server {
    api: Arc<Api>,
    address: SocketAddr,
    name: String,
    token: String,
    authority: String,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Server {
    /// Starts a server with the objects of a new cluster: namespaces, their accounts, priority classes.
    ///
    /// # Errors
    /// The address is taken or not this machine's; no certificate can be made.
    pub async fn start(options: Options) -> Result<Self, ServerError> {
        let listen = |source| ServerError::Listen { address: options.listen, source };
        let listener = TcpListener::bind(options.listen).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let serving = tls::serving(&[address.ip(), IpAddr::V4(Ipv4Addr::LOCALHOST)])?;
        let token = options.token.unwrap_or_else(fresh::token);
        let (api, feed) = Api::new(serving.authority.clone(), token.clone());
        api.bootstrap();
        let stop = CancellationToken::new();
        let tasks = TaskTracker::new();
        tasks.spawn(collector::run(Arc::clone(&api), feed, stop.clone()));
        let front = Front::new(Arc::clone(&api), stop.clone());
        let acceptor = TlsAcceptor::from(Arc::new(serving.config));
        tasks.spawn(accept(listener, acceptor, front, stop.clone(), tasks.clone()));
        Ok(Self {
            api,
            address,
            name: options.name,
            token,
            authority: serving.authority,
            stop,
            tasks,
        })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// `https://ADDRESS:PORT`.
    pub fn url(&self) -> String {
        let ip = self.address.ip();
        let ip = if ip.is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { ip };
        format!("https://{}", SocketAddr::new(ip, self.address.port()))
    }

    /// The bearer token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The certificate of the authority, in PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The revision of the last write.
    pub fn revision(&self) -> u64 {
        self.api.store.revision()
    }

    /// A kubeconfig (YAML) with one context, whose namespace is `default`.
    pub fn kubeconfig(&self) -> String {
        let (name, url, token) = (&self.name, self.url(), &self.token);
        let authority = STANDARD.encode(&self.authority);
        format!(
            "apiVersion: v1\n\
             kind: Config\n\
             clusters:\n\
             - name: {name}\n  cluster:\n    server: {url}\n    certificate-authority-data: {authority}\n\
             users:\n\
             - name: {name}\n  user:\n    token: {token}\n\
             contexts:\n\
             - name: {name}\n  context:\n    cluster: {name}\n    user: {name}\n    namespace: default\n\
             current-context: {name}\n"
        )
    }

    /// Writes the kubeconfig to a file that only its owner can read; the directory must exist.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_kubeconfig(&self, file: &Path) -> Result<(), ServerError> {
        use std::io::Write as _;
        let failed = |source| ServerError::Kubeconfig { file: file.to_owned(), source };
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut opened = options.open(file).map_err(failed)?;
        opened.write_all(self.kubeconfig().as_bytes()).map_err(failed)
    }

    /// Ends watches and connections, and the server.
    pub async fn stop(self) {
        self.stop.cancel();
        self.api.store.end_watches();
        self.tasks.close();
        // A client that holds its connection open must not hold the process.
        let _ = tokio::time::timeout(DRAIN, self.tasks.wait()).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    front: Front,
    stop: CancellationToken,
    tasks: TaskTracker,
) {
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let serving = serve(stream, acceptor.clone(), front.clone(), stop.clone());
                tasks.spawn(serving);
            }
            Err(error) => {
                // Out of file descriptors, most likely: others close some soon.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, front: Front, stop: CancellationToken) {
    let _ = stream.set_nodelay(true);
    let stream = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%error, "TLS handshake failed");
            return;
        }
        Err(_) => return,
    };
    let service = TowerToHyperService::new(front.router());
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    // Hundreds of watches and writes share one connection of an h2 client.
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(1_000);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        result = connection.as_mut() => {
            if let Err(error) = result {
                tracing::debug!(%error, "connection ended");
            }
        }
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(DRAIN, connection).await;
        }
    }
}
