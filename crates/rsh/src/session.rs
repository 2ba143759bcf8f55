//! One exec: the channels of `pods/exec` over a websocket.
//!
//! Every binary message starts with its channel: 0 standard input, 1 standard output, 2 standard error, 3 the Status
//! that ends the command, 255 (from `v5.channel.k8s.io` on) "this channel is at its end".

use std::time::Duration;

use futures::{Sink, SinkExt, Stream, StreamExt};
use http::Uri;
use rustls::pki_types::ServerName;
use serde::Deserialize;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};
use tokio_rustls::TlsConnector;
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Bytes, Error as WsError, Message, client::IntoClientRequest, http::HeaderValue},
};

use crate::{RshError, cluster::Cluster, invocation::Invocation};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
const CLOSE: u8 = 255;

/// A daemon may say nothing for hours, and proxies close what is idle.
const PING_EVERY: Duration = Duration::from_secs(30);
/// Every ping is answered: after this long without any the other side is gone, and mpirun must hear of it.
const SILENCE: Duration = Duration::from_secs(120);

/// Protocols in order of preference; only the first can say that standard input has ended.
const PROTOCOLS: &str = "v5.channel.k8s.io, v4.channel.k8s.io";

/// Both kinds of connection behind one type.
trait Transport: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Transport for T {}

/// Runs the command in the pod; returns its exit code.
pub(crate) async fn exec(
    cluster: &Cluster,
    invocation: &Invocation,
    mut stdin: impl AsyncRead + Unpin,
    mut stdout: impl AsyncWrite + Unpin,
    mut stderr: impl AsyncWrite + Unpin,
) -> Result<u8, RshError> {
    let broken = |reason: String| RshError::Broken { pod: invocation.pod.clone(), reason };
    let (socket, can_close) = connect(cluster, invocation).await?;
    let (mut to_pod, mut from_pod) = socket.split();
    // The two directions must not wait for each other: a command that answers while it reads would block for ever.
    let input = send(&mut stdin, &mut to_pod, can_close);
    let output = receive(&invocation.pod, &mut from_pod, &mut stdout, &mut stderr);
    tokio::pin!(output);
    tokio::select! {
        code = &mut output => code,
        // The server may have closed its side after the command's end: what it said before that counts.
        error = input => match tokio::time::timeout(PING_EVERY, output).await {
            Ok(code) => code,
            Err(_) => Err(broken(error.to_string())),
        },
    }
}

/// Carries standard input to the pod, and keeps the connection from being taken for idle. Returns only on an error.
async fn send(
    stdin: &mut (impl AsyncRead + Unpin),
    to_pod: &mut (impl Sink<Message, Error = WsError> + Unpin),
    can_close: bool,
) -> WsError {
    let mut buffer = vec![0; 32 * 1024];
    let mut open = true;
    let mut pings = tokio::time::interval_at(Instant::now() + PING_EVERY, PING_EVERY);
    loop {
        let message = tokio::select! {
            read = stdin.read(&mut buffer), if open => match read {
                Ok(0) | Err(_) => {
                    open = false;
                    if !can_close {
                        continue;
                    }
                    Message::Binary(vec![CLOSE, STDIN].into())
                }
                Ok(count) => {
                    let bytes = buffer.get(..count).unwrap_or_default();
                    Message::Binary([&[STDIN], bytes].concat().into())
                }
            },
            _ = pings.tick() => Message::Ping(Bytes::new()),
        };
        if let Err(error) = to_pod.send(message).await {
            return error;
        }
    }
}

/// Carries both outputs from the pod; returns the command's exit code.
async fn receive(
    pod: &str,
    from_pod: &mut (impl Stream<Item = Result<Message, WsError>> + Unpin),
    stdout: &mut (impl AsyncWrite + Unpin),
    stderr: &mut (impl AsyncWrite + Unpin),
) -> Result<u8, RshError> {
    let broken = |reason: String| RshError::Broken { pod: pod.to_owned(), reason };
    let closed = || broken("it closed before the command ended".to_owned());
    loop {
        let message = match tokio::time::timeout(SILENCE, from_pod.next()).await {
            Ok(message) => message.ok_or_else(closed)?.map_err(|e| broken(e.to_string()))?,
            Err(_) => return Err(broken(format!("silence for {} s", SILENCE.as_secs()))),
        };
        let bytes: Bytes = match message {
            Message::Binary(bytes) => bytes,
            Message::Close(_) => return Err(closed()),
            _ => continue,
        };
        let Some((channel, payload)) = bytes.split_first() else { continue };
        match *channel {
            STDOUT => {
                write(stdout, payload).await.map_err(|e| broken(format!("standard output: {e}")))?
            }
            STDERR => {
                write(stderr, payload).await.map_err(|e| broken(format!("standard error: {e}")))?
            }
            STATUS => return exit_code(pod, payload),
            _ => {}
        }
    }
}

async fn write(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> std::io::Result<()> {
    to.write_all(bytes).await?;
    to.flush().await
}

/// Opens the websocket; the flag says whether the server takes the end of standard input.
async fn connect(
    cluster: &Cluster,
    invocation: &Invocation,
) -> Result<(WebSocketStream<Box<dyn Transport>>, bool), RshError> {
    let server = |reason: String| RshError::Server { server: cluster.server.clone(), reason };
    let uri: Uri =
        cluster.server.parse().map_err(|e: http::uri::InvalidUri| server(e.to_string()))?;
    let tls = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err(server("it starts with neither https:// nor http://".to_owned())),
    };
    let host = uri.host().ok_or_else(|| server("it names no host".to_owned()))?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
    let failed = |source| RshError::Connect { server: cluster.server.clone(), source };
    let tcp = TcpStream::connect((bare, port)).await.map_err(failed)?;
    tcp.set_nodelay(true).map_err(failed)?;
    let transport: Box<dyn Transport> = if tls {
        let name = ServerName::try_from(bare.to_owned()).map_err(|e| server(e.to_string()))?;
        Box::new(TlsConnector::from(cluster.tls.clone()).connect(name, tcp).await.map_err(failed)?)
    } else {
        Box::new(tcp)
    };

    let pod = &invocation.pod;
    let refused = |reason: String| RshError::Refused { pod: pod.clone(), reason };
    let url =
        format!("{}://{host}:{port}{}", if tls { "wss" } else { "ws" }, path(cluster, invocation));
    let mut request = url.into_client_request().map_err(|e| refused(e.to_string()))?;
    request.headers_mut().insert("Sec-WebSocket-Protocol", HeaderValue::from_static(PROTOCOLS));
    if let Some(token) = &cluster.token {
        let value =
            HeaderValue::try_from(format!("Bearer {token}")).map_err(|e| refused(e.to_string()))?;
        request.headers_mut().insert("Authorization", value);
    }
    let (socket, response) = client_async(request, transport).await.map_err(|e| match e {
        WsError::Http(response) => {
            let body = response.body().as_deref().unwrap_or_default();
            refused(match serde_json::from_slice::<Status>(body) {
                Ok(status) => status.message,
                Err(_) => format!("{} {}", response.status(), String::from_utf8_lossy(body)),
            })
        }
        other => refused(other.to_string()),
    })?;
    let protocol = response.headers().get("Sec-WebSocket-Protocol").and_then(|v| v.to_str().ok());
    Ok((socket, protocol == Some("v5.channel.k8s.io")))
}

/// Path and query of the exec.
fn path(cluster: &Cluster, invocation: &Invocation) -> String {
    let mut path = format!(
        "/api/v1/namespaces/{}/pods/{}/exec?stdin=true&stdout=true&stderr=true&command=%2Fbin%2Fsh&command=-c&command={}",
        escape(&cluster.namespace),
        escape(&invocation.pod),
        escape(&invocation.command),
    );
    if let Some(container) = &cluster.container {
        path.push_str("&container=");
        path.push_str(&escape(container));
    }
    path
}

/// Percent-encodes all but the unreserved characters of RFC 3986.
fn escape(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
        out
    })
}

/// The fields of a Kubernetes Status that tell how a command ended.
#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    status: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    details: Details,
}

#[derive(Deserialize, Default)]
struct Details {
    #[serde(default)]
    causes: Vec<Cause>,
}

#[derive(Deserialize)]
struct Cause {
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

/// The exit code in the Status on the error channel; an error when the command never ran.
fn exit_code(pod: &str, status: &[u8]) -> Result<u8, RshError> {
    let command = |message: String| RshError::Command { pod: pod.to_owned(), message };
    let status: Status = serde_json::from_slice(status)
        .map_err(|_| command(String::from_utf8_lossy(status).into_owned()))?;
    if status.status == "Success" {
        return Ok(0);
    }
    let code = status
        .details
        .causes
        .iter()
        .find(|cause| cause.reason == "ExitCode")
        .and_then(|c| c.message.parse().ok());
    match code {
        Some(code) if status.reason == "NonZeroExitCode" => Ok(code),
        _ => Err(command(status.message)),
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
