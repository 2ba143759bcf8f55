//! Logs and commands of a pod: passed on to the kubelet of its node, as they come.

use std::sync::Arc;

use axum::body::Body;
use http::{HeaderName, Method, Request, Response, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Front;
use super::path::Target;
use super::query::Query;
use crate::field::{self, items};
use crate::status::{Reason, Status};
use crate::tls;

/// The way to the kubelets.
#[derive(Clone)]
pub(crate) struct Kubelets {
    tls: TlsConnector,
}

impl std::fmt::Debug for Kubelets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Kubelets")
    }
}

impl Kubelets {
    pub(crate) fn new() -> Self {
        // A kubelet's certificate is its own; upstream does not check it either unless told to.
        Self { tls: TlsConnector::from(Arc::new(tls::trusting_client())) }
    }
}

/// Where a pod's kubelet listens, and the path of a container there.
struct Place {
    address: String,
    port: u16,
    path: String,
}

impl Front {
    pub(super) async fn log(
        &self,
        target: &Target,
        name: &str,
        query: &Query,
        request: Request<Body>,
    ) -> Result<Response<Body>, Status> {
        let place = self.place(target, name, query, "containerLogs")?;
        let names = [
            "follow",
            "previous",
            "sinceSeconds",
            "sinceTime",
            "timestamps",
            "tailLines",
            "limitBytes",
            "stream",
        ];
        let kept = query.pairs().iter().filter(|(key, _)| names.contains(&key.as_str()));
        let uri = uri(&place, kept.map(|(k, v)| (k.as_str(), v.as_str())))?;
        self.pass(&place, uri, request).await
    }

    pub(super) async fn exec(
        &self,
        target: &Target,
        name: &str,
        subresource: &str,
        query: &Query,
        request: Request<Body>,
    ) -> Result<Response<Body>, Status> {
        let place = self.place(target, name, query, subresource)?;
        if !request.headers().contains_key(header::UPGRADE) {
            return Err(Status::bad_request(
                "you must specify at least 1 of stdin, stdout, stderr and upgrade the connection",
            ));
        }
        // The kubelet's names of the same options.
        let renamed = query.pairs().iter().filter_map(|(key, value)| {
            let on = matches!(value.as_str(), "true" | "1" | "");
            match key.as_str() {
                "stdin" => on.then_some(("input", "1")),
                "stdout" => on.then_some(("output", "1")),
                "stderr" => on.then_some(("error", "1")),
                "tty" => on.then_some(("tty", "1")),
                "command" => Some(("command", value.as_str())),
                _ => None,
            }
        });
        let uri = uri(&place, renamed)?;
        self.pass(&place, uri, request).await
    }

    /// The kubelet of the pod's node, and the container that is meant.
    fn place(
        &self,
        target: &Target,
        name: &str,
        query: &Query,
        verb: &str,
    ) -> Result<Place, Status> {
        let pod = self.api.get(target, name)?.value();
        let container = container_of(&pod, name, query.get("container"))?;
        let host = field::text(&pod, &["spec", "nodeName"]);
        if host.is_empty() {
            return Err(Status::bad_request(format!("pod {name} does not have a host assigned")));
        }
        let node = self
            .api
            .store
            .get("nodes", host)
            .ok_or_else(|| Status::internal(format!("node {host:?} of pod {name} not found")))?
            .value();
        let address = items(&node["status"]["addresses"])
            .find(|a| a["type"] == "InternalIP")
            .map(|a| field::text(a, &["address"]).to_owned())
            .ok_or_else(|| Status::internal(format!("node {host:?} states no InternalIP")))?;
        let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64();
        let port = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
        let port =
            port.ok_or_else(|| Status::internal(format!("node {host:?} states no kubelet port")))?;
        let path = format!("/{verb}/{}/{name}/{container}", target.namespace);
        Ok(Place { address, port, path })
    }

    /// Sends the request to the kubelet, and its answer back; an upgraded connection is joined with the client's.
    async fn pass(
        &self,
        place: &Place,
        uri: Uri,
        mut request: Request<Body>,
    ) -> Result<Response<Body>, Status> {
        let far = |what: &str, why: &dyn std::fmt::Display| {
            Status::internal(format!(
                "error dialing kubelet {}:{}: {what}: {why}",
                place.address, place.port
            ))
        };
        let tcp = TcpStream::connect((place.address.as_str(), place.port))
            .await
            .map_err(|e| far("connect", &e))?;
        let _ = tcp.set_nodelay(true);
        let host = ServerName::try_from(place.address.clone()).map_err(|e| far("address", &e))?;
        let stream =
            self.kubelets.tls.connect(host, tcp).await.map_err(|e| far("handshake", &e))?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake::<_, Body>(TokioIo::new(stream))
                .await
                .map_err(|e| far("handshake", &e))?;
        let stop = self.stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                // What goes wrong later the client sees as the end of the stream.
                _ = connection.with_upgrades() => {}
            }
        });
        let client = hyper::upgrade::on(&mut request);
        let upgrades = request.headers().contains_key(header::UPGRADE);
        let onward = onward(place, uri, &request)?;
        let mut answer = sender.send_request(onward).await.map_err(|e| far("request", &e))?;
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS && upgrades {
            let kubelet = hyper::upgrade::on(&mut answer);
            let stop = self.stop.clone();
            tokio::spawn(async move {
                let (Ok(client), Ok(kubelet)) = tokio::join!(client, kubelet) else { return };
                let (mut client, mut kubelet) = (TokioIo::new(client), TokioIo::new(kubelet));
                tokio::select! {
                    () = stop.cancelled() => {}
                    // Either side may simply go; there is nobody left to tell.
                    _ = tokio::io::copy_bidirectional(&mut client, &mut kubelet) => {}
                }
            });
            let (parts, _) = answer.into_parts();
            return Ok(Response::from_parts(parts, Body::empty()));
        }
        let (mut parts, body) = answer.into_parts();
        parts.headers.remove(header::TRANSFER_ENCODING);
        parts.headers.remove(header::CONNECTION);
        if parts.status.is_success() {
            return Ok(Response::from_parts(parts, Body::new(body)));
        }
        // Kubelets answer errors in plain text; clients want a Status.
        let text = axum::body::to_bytes(Body::new(body), 64 * 1024).await.unwrap_or_default();
        let text = String::from_utf8_lossy(&text).trim().to_owned();
        Err(match parts.status {
            StatusCode::BAD_REQUEST => Status::bad_request(text),
            StatusCode::NOT_FOUND => Status::new(Reason::NotFound, text),
            _ => Status::internal(text),
        })
    }
}

fn onward(place: &Place, uri: Uri, request: &Request<Body>) -> Result<Request<Body>, Status> {
    let method = if request.method() == Method::POST { Method::POST } else { Method::GET };
    let mut onward = Request::new(Body::empty());
    *onward.method_mut() = method;
    *onward.uri_mut() = uri;
    let host = format!("{}:{}", place.address, place.port);
    let host = host.parse().map_err(Status::internal)?;
    onward.headers_mut().insert(header::HOST, host);
    for (name, value) in request.headers() {
        let passed = [header::CONNECTION, header::UPGRADE, header::USER_AGENT].contains(name)
            || is_handshake(name);
        if passed {
            onward.headers_mut().append(name, value.clone());
        }
    }
    Ok(onward)
}

/// Headers of the websocket and SPDY handshakes.
fn is_handshake(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.starts_with("sec-websocket-") || name.starts_with("x-stream-protocol-")
}

fn container_of(pod: &Value, name: &str, wanted: Option<&str>) -> Result<String, Status> {
    let names = |list: &str| -> Vec<String> {
        items(&pod["spec"][list]).map(|c| field::text(c, &["name"]).to_owned()).collect()
    };
    let (containers, init) = (names("containers"), names("initContainers"));
    match wanted {
        Some(wanted) => {
            let known = containers.iter().chain(&init).any(|name| name == wanted);
            known.then(|| wanted.to_owned()).ok_or_else(|| {
                Status::bad_request(format!("container {wanted} is not valid for pod {name}"))
            })
        }
        None => {
            let preferred = field::text(
                pod,
                &["metadata", "annotations", "kubectl.kubernetes.io/default-container"],
            );
            match containers.as_slice() {
                [only] => Ok(only.clone()),
                many if many.iter().any(|c| c == preferred) => Ok(preferred.to_owned()),
                many => {
                    let mut text = format!(
                        "a container name must be specified for pod {name}, choose one of: [{}]",
                        many.join(" ")
                    );
                    if !init.is_empty() {
                        text.push_str(&format!(
                            " or one of the init containers: [{}]",
                            init.join(" ")
                        ));
                    }
                    Err(Status::bad_request(text))
                }
            }
        }
    }
}

/// The kubelet's path with a query.
fn uri<'a>(place: &Place, pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Uri, Status> {
    let mut text = place.path.clone();
    for (i, (key, value)) in pairs.enumerate() {
        text.push(if i == 0 { '?' } else { '&' });
        text.push_str(key);
        text.push('=');
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                text.push(char::from(byte));
            } else {
                text.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    text.parse().map_err(Status::internal)
}
