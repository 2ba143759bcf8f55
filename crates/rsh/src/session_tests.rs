//! The session against a websocket server in the same process.

use std::sync::Arc;

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer},
};
use tokio::net::TcpListener;
use tokio_tungstenite::{
    accept_hdr_async,
    tungstenite::handshake::server::{ErrorResponse, Request, Response},
};

use super::*;

fn tls(roots: RootCertStore) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

fn cluster(server: String) -> Cluster {
    Cluster {
        server,
        namespace: "ns".into(),
        container: Some("mpi".into()),
        token: Some("secret".into()),
        tls: tls(RootCertStore::empty()),
    }
}

fn invocation() -> Invocation {
    Invocation { pod: "w-0".into(), command: "cat; exit 3".into() }
}

/// The server's side of the handshake; what was asked for is written into `asked`.
async fn accept<T: AsyncRead + AsyncWrite + Unpin>(
    transport: T,
    protocol: &'static str,
    asked: &mut String,
) -> WebSocketStream<T> {
    #[expect(clippy::result_large_err, reason = "the signature is the library's")]
    let callback = |request: &Request, mut response: Response| -> Result<Response, ErrorResponse> {
        *asked = format!("{} {:?}", request.uri(), request.headers().get("authorization").unwrap());
        let protocol = HeaderValue::from_static(protocol);
        response.headers_mut().insert("Sec-WebSocket-Protocol", protocol);
        Ok(response)
    };
    accept_hdr_async(transport, callback).await.unwrap()
}

/// A server of one exec that echoes standard input to both outputs until it ends, then sends `status`.
async fn serve(
    protocol: &'static str,
    status: &'static str,
) -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        let (tcp, _) = listener.accept().await.unwrap();
        let mut asked = String::new();
        let mut socket = accept(tcp, protocol, &mut asked).await;
        while let Some(Ok(Message::Binary(bytes))) = socket.next().await {
            match bytes.split_first() {
                Some((&STDIN, payload)) => {
                    for channel in [STDOUT, STDERR] {
                        let message = [&[channel], payload].concat();
                        socket.send(Message::Binary(message.into())).await.unwrap();
                    }
                    if protocol.starts_with("v4") {
                        break;
                    }
                }
                Some((&CLOSE, [STDIN])) => break,
                other => panic!("unexpected message {other:?}"),
            }
        }
        let message = [&[STATUS], status.as_bytes()].concat();
        socket.send(Message::Binary(message.into())).await.unwrap();
        asked
    });
    (server, task)
}

#[tokio::test]
async fn streams_and_exit_code_come_back() {
    let failure = r#"{"status":"Failure","reason":"NonZeroExitCode","message":"command terminated",
        "details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#;
    for (protocol, status, code) in [
        ("v5.channel.k8s.io", failure, 3),
        ("v4.channel.k8s.io", failure, 3),
        ("v5.channel.k8s.io", r#"{"status":"Success"}"#, 0),
    ] {
        let (server, task) = serve(protocol, status).await;
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let input = &b"hello"[..];
        let got = exec(&cluster(server), &invocation(), input, &mut out, &mut err).await.unwrap();
        assert_eq!(
            (got, out.as_slice(), err.as_slice()),
            (code, input, input),
            "{protocol} {status}"
        );
        assert_eq!(
            task.await.unwrap(),
            "/api/v1/namespaces/ns/pods/w-0/exec?stdin=true&stdout=true&stderr=true&command=%2Fbin%2Fsh&command=-c\
             &command=cat%3B%20exit%203&container=mpi \"Bearer secret\""
        );
    }
}

#[tokio::test]
async fn a_command_that_answers_while_it_reads_does_not_block() {
    // More than all buffers on the way hold together.
    let input: Vec<u8> = (0..8_000_000_u32).map(|i| i.to_le_bytes()[0]).collect();
    let (server, _task) = serve("v5.channel.k8s.io", r#"{"status":"Success"}"#).await;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let run =
        async { exec(&cluster(server), &invocation(), input.as_slice(), &mut out, &mut err).await };
    let code = tokio::time::timeout(Duration::from_secs(60), run).await.unwrap().unwrap();
    assert!((code, out.as_slice(), err.as_slice()) == (0, input.as_slice(), input.as_slice()));
}

/// A server with a certificate that it signed itself, which answers one exec.
async fn serve_tls() -> (String, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let (tcp, _) = listener.accept().await.unwrap();
        // A client that does not trust us ends here.
        let Ok(tls) = acceptor.accept(tcp).await else { return };
        let mut socket = accept(tls, "v5.channel.k8s.io", &mut String::new()).await;
        let status = [&[STATUS], &br#"{"status":"Success"}"#[..]].concat();
        socket.send(Message::Binary(status.into())).await.unwrap();
    });
    (server, certificate)
}

#[tokio::test]
async fn the_servers_certificate_is_checked() {
    for trusted in [true, false] {
        let (server, certificate) = serve_tls().await;
        let mut roots = RootCertStore::empty();
        if trusted {
            roots.add(certificate).unwrap();
        }
        let cluster = Cluster { tls: tls(roots), ..cluster(server) };
        let result = exec(&cluster, &invocation(), &b""[..], Vec::new(), Vec::new()).await;
        match result {
            Ok(code) => assert!(trusted && code == 0),
            Err(error) => {
                assert!(!trusted && matches!(error, RshError::Connect { .. }), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn a_connection_that_ends_early_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (tcp, _) = listener.accept().await.unwrap();
        let mut socket = accept(tcp, "v5.channel.k8s.io", &mut String::new()).await;
        socket.send(Message::Binary(vec![STDOUT, b'x'].into())).await.unwrap();
    });
    let mut out = Vec::new();
    let error =
        exec(&cluster(server), &invocation(), &b""[..], &mut out, Vec::new()).await.unwrap_err();
    assert!(matches!(error, RshError::Broken { .. }), "{error}");
    assert_eq!(out, b"x", "what came before is passed on");
}

#[tokio::test]
async fn a_command_that_never_ran_is_an_error_with_its_message() {
    let status = r#"{"status":"Failure","reason":"InternalError","message":"container not found"}"#;
    let (server, _task) = serve("v5.channel.k8s.io", status).await;
    let error =
        exec(&cluster(server), &invocation(), &b""[..], Vec::new(), Vec::new()).await.unwrap_err();
    assert_eq!(error.to_string(), "pod w-0: container not found");
}

#[tokio::test]
async fn a_refusal_carries_the_servers_message() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        let mut request = [0; 4096];
        let _ = tcp.read(&mut request).await.unwrap();
        let body = r#"{"status":"Failure","message":"pods \"w-0\" not found"}"#;
        let head =
            format!("HTTP/1.1 404 Not Found\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        tcp.write_all(head.as_bytes()).await.unwrap();
    });
    let error =
        exec(&cluster(server), &invocation(), &b""[..], Vec::new(), Vec::new()).await.unwrap_err();
    assert!(error.to_string().contains("pods \"w-0\" not found"), "{error}");
}

#[tokio::test]
async fn an_unreachable_server_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = exec(&cluster(server.clone()), &invocation(), &b""[..], Vec::new(), Vec::new())
        .await
        .unwrap_err();
    assert!(error.to_string().contains(&server), "{error}");
}
