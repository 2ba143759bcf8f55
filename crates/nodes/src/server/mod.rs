//! The kubelets' HTTPS server: logs and exec. One serves for all nodes, since a pod's name says whose it is. Like the
//! API server's own calls to kubelets it is not checked who asks: it listens where only the API server should reach it.

mod exec;
mod logs;
mod spdy;
mod tls;
mod websocket;

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{Path, Query, State},
    response::{IntoResponse, Response},
    routing::get,
};
use http::{Request, StatusCode, header};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::containers::{Containers, Run};

/// A client that does not speak must not hold a connection.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A refusal, in plain text as kubelets answer.
type Refused = (StatusCode, String);

/// Opens the port; the answer says which it is.
pub(crate) async fn listen(address: IpAddr) -> std::io::Result<(TcpListener, u16)> {
    let listener = TcpListener::bind(SocketAddr::new(address, 0)).await?;
    let port = listener.local_addr()?.port();
    Ok((listener, port))
}

/// The certificate that is shown to the API server.
pub(crate) fn certificate(names: Vec<String>) -> Result<TlsAcceptor, String> {
    tls::acceptor(names).map_err(|error| format!("cannot make a certificate: {error}"))
}

/// Serves until `shutdown`.
pub(crate) async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    containers: Arc<Containers>,
    shutdown: CancellationToken,
) {
    let router = Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/containerLogs/{namespace}/{pod}/{container}", get(container_logs))
        .route("/exec/{namespace}/{pod}/{container}", get(execute).post(execute))
        .with_state(containers);
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let (router, acceptor) = (router.clone(), acceptor.clone());
                let shutdown = shutdown.clone();
                tokio::spawn(async move {
                    tokio::select! {
                        () = shutdown.cancelled() => {}
                        () = connection(stream, acceptor, router) => {}
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, router: Router) {
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else {
        return;
    };
    let service = TowerToHyperService::new(router);
    let builder = auto::Builder::new(TokioExecutor::new());
    if let Err(error) = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await
    {
        tracing::debug!(%error, "connection ended");
    }
}

type Named = Path<(String, String, String)>;
type Pairs = Query<Vec<(String, String)>>;

fn find(
    containers: &Containers,
    Path((namespace, pod, container)): &Named,
) -> Result<Run, Refused> {
    containers.find(namespace, pod, container).ok_or_else(|| {
        let waiting = format!(
            "container {container:?} in pod {pod:?} is waiting to start: ContainerCreating"
        );
        (StatusCode::BAD_REQUEST, waiting)
    })
}

async fn container_logs(
    State(containers): State<Arc<Containers>>,
    named: Named,
    Query(pairs): Pairs,
) -> Response {
    let answer = find(&containers, &named).and_then(|run| logs::answer(&run, &pairs));
    answer.unwrap_or_else(IntoResponse::into_response)
}

async fn execute(
    State(containers): State<Arc<Containers>>,
    named: Named,
    Query(pairs): Pairs,
    request: Request<Body>,
) -> Response {
    let run = match find(&containers, &named) {
        Ok(run) if run.is_running => run,
        Ok(_) => {
            let Path((_, pod, container)) = named;
            let gone = format!("container {container:?} in pod {pod:?} does not run");
            return (StatusCode::NOT_FOUND, gone).into_response();
        }
        Err(refused) => return refused.into_response(),
    };
    let wanted = exec::Wanted::read(&pairs);
    let upgrade = request.headers().get(header::UPGRADE).and_then(|value| value.to_str().ok());
    let answer = match upgrade.map(str::to_ascii_lowercase).as_deref() {
        Some("websocket") => websocket::answer(run, wanted, request),
        Some("spdy/3.1") => spdy::answer(run, wanted, request),
        _ => Err((
            StatusCode::BAD_REQUEST,
            "exec needs an upgrade to websocket or SPDY/3.1".to_owned(),
        )),
    };
    answer.unwrap_or_else(IntoResponse::into_response)
}
