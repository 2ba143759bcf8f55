//! Exec over a websocket, `v4.channel.k8s.io` and `v5.channel.k8s.io`: the first byte of a message is its channel.

use axum::{body::Body, response::Response};
use futures::{SinkExt, StreamExt};
use http::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        handshake::derive_accept_key,
        protocol::{CloseFrame, Role, frame::coding::CloseCode},
    },
};

use super::{
    Refused,
    exec::{self, Wanted},
};
use crate::{containers::Run, program::Channel};

/// The newest first; only it can say that standard input has ended.
const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
const CLOSE: u8 = 255;

pub(super) fn answer(
    run: Run,
    wanted: Wanted,
    mut request: Request<Body>,
) -> Result<Response, Refused> {
    let headers = request.headers();
    let key = headers.get(header::SEC_WEBSOCKET_KEY).map(|key| derive_accept_key(key.as_bytes()));
    let key =
        key.ok_or_else(|| (StatusCode::BAD_REQUEST, "Sec-WebSocket-Key is missing".to_owned()))?;
    let offered = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let offered: Vec<&str> = offered
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(str::trim))
        .collect();
    let protocol = PROTOCOLS.into_iter().find(|protocol| offered.contains(protocol));
    let protocol = protocol.ok_or_else(|| {
        let known = PROTOCOLS.join(", ");
        (StatusCode::BAD_REQUEST, format!("none of {offered:?} is spoken here; {known} are"))
    })?;
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        if let Ok(upgraded) = upgraded.await {
            let io = TokioIo::new(upgraded);
            let socket = WebSocketStream::from_raw_socket(io, Role::Server, None).await;
            // The client may go at any time; there is nobody left to tell.
            let _ = carry(socket, run, wanted).await;
        }
    });
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_ACCEPT, key)
        .header(header::SEC_WEBSOCKET_PROTOCOL, protocol)
        .body(Body::empty())
        .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

type Socket = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

async fn carry(
    mut socket: Socket,
    run: Run,
    wanted: Wanted,
) -> Result<(), tokio_tungstenite::tungstenite::Error> {
    let mut running = exec::start(run, &wanted);
    let message = |channel: u8, bytes: &[u8]| Message::Binary([&[channel], bytes].concat().into());
    loop {
        tokio::select! {
            output = running.output.recv() => match output {
                Some((channel, text)) => {
                    let channel = if channel == Channel::Out { STDOUT } else { STDERR };
                    socket.send(message(channel, text.as_bytes())).await?;
                }
                None => break,
            },
            incoming = socket.next() => match incoming {
                Some(Ok(Message::Binary(bytes))) => match bytes.split_first() {
                    Some((&STDIN, bytes)) => {
                        if wanted.tty {
                            socket.send(message(STDOUT, &echo(bytes))).await?;
                        }
                        if let Some(input) = &running.input {
                            // A command that does not read has ended or will.
                            let _ = input.try_send(bytes.to_vec());
                        }
                    }
                    Some((&CLOSE, [STDIN])) => running.input = None,
                    _ => {}
                },
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Ok(()),
                Some(Ok(_)) => {}
            },
        }
    }
    let status = running.status().await.to_string();
    socket.send(message(STATUS, status.as_bytes())).await?;
    let end = CloseFrame { code: CloseCode::Normal, reason: "".into() };
    socket.close(Some(end)).await?;
    // Until the client has closed its side too: it may still be reading.
    while let Some(Ok(_)) = socket.next().await {}
    Ok(())
}

/// What a terminal shows of what is typed.
fn echo(bytes: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(bytes).replace('\r', "\r\n").into_bytes()
}
