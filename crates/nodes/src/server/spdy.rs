//! Exec over SPDY/3.1, which kube-apiserver speaks to kubelets: a stream for each of standard input, the two outputs, the
//! terminal's size and the Status at the end.
//!
//! Frames and header blocks are those of the SPDY protocol, draft 3.1, sections 2.2 and 2.6. As in Kubernetes' own
//! implementation there is no flow control.

use std::collections::HashMap;

use axum::{body::Body, response::Response};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use http::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{
    Refused,
    exec::{self, Wanted},
};
use crate::{containers::Run, program::Channel};

/// The sub-protocol: the Status is an object, not a text.
const PROTOCOL: &str = "v4.channel.k8s.io";
const PROTOCOL_HEADER: &str = "x-stream-protocol-version";

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
/// The last frame of a stream in this direction.
const FIN: u8 = 1;

/// The words that both sides have in their compressor from the start: header names with their lengths, then a text.
const NAMES: &[&str] = &[
    "options",
    "head",
    "post",
    "put",
    "delete",
    "trace",
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "connection",
    "content-base",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-md5",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "location",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "retry-after",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "method",
    "get",
    "status",
    "200 OK",
    "version",
    "HTTP/1.1",
    "url",
    "public",
    "set-cookie",
    "keep-alive",
    "origin",
];
const TEXT: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505\
203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden\
404 Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept \
Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,\
application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdch\
charset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

fn dictionary() -> Vec<u8> {
    let mut words = Vec::new();
    for name in NAMES {
        words.extend(length(name.len()));
        words.extend(name.as_bytes());
    }
    words.extend(TEXT.as_bytes());
    words
}

fn length(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes()
}

/// A frame that came.
#[derive(Debug)]
enum Frame {
    /// A stream opens, with its kind.
    Open {
        stream: u32,
        kind: String,
    },
    Data {
        stream: u32,
        bytes: Vec<u8>,
        is_last: bool,
    },
    Ping(Vec<u8>),
    /// The other side goes, or gives a stream up.
    End,
    Other,
}

/// Reads frames; the header blocks of a connection are one compressed text.
struct Reader<R> {
    from: R,
    headers: Decompress,
}

fn malformed(what: &str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, format!("SPDY: {what}"))
}

impl<R: AsyncRead + Unpin> Reader<R> {
    fn new(from: R) -> Self {
        Self { from, headers: Decompress::new(true) }
    }

    /// Not to be dropped half-way: it would lose its place.
    async fn next(&mut self) -> std::io::Result<Frame> {
        let mut head = [0; 8];
        self.from.read_exact(&mut head).await?;
        let [a, b, c, d, flags, x, y, z] = head;
        let mut bytes = vec![0; u32::from_be_bytes([0, x, y, z]) as usize];
        self.from.read_exact(&mut bytes).await?;
        if a & 0x80 == 0 {
            let stream = u32::from_be_bytes([a, b, c, d]);
            return Ok(Frame::Data { stream, bytes, is_last: flags & FIN != 0 });
        }
        Ok(match u16::from_be_bytes([c, d]) {
            SYN_STREAM => {
                let [a, b, c, d, ..] = bytes[..] else {
                    return Err(malformed("a short SYN_STREAM"));
                };
                let stream = u32::from_be_bytes([a & 0x7f, b, c, d]);
                let block = bytes.get(10..).ok_or_else(|| malformed("a short SYN_STREAM"))?;
                let mut headers = self.headers(block)?;
                Frame::Open { stream, kind: headers.remove("streamtype").unwrap_or_default() }
            }
            PING => Frame::Ping(bytes),
            RST_STREAM | GOAWAY => Frame::End,
            _ => Frame::Other,
        })
    }

    fn headers(&mut self, block: &[u8]) -> std::io::Result<HashMap<String, String>> {
        let broken = |error: flate2::DecompressError| malformed(&error.to_string());
        let mut text = Vec::with_capacity(4096);
        let start = self.headers.total_in();
        let mut given = false;
        loop {
            let done = usize::try_from(self.headers.total_in() - start).unwrap_or(block.len());
            let left = block.get(done..).unwrap_or_default();
            if left.is_empty() && text.len() < text.capacity() {
                break;
            }
            text.reserve(4096);
            match self.headers.decompress_vec(left, &mut text, FlushDecompress::Sync) {
                Ok(_) => {}
                // The first block asks for the words that both sides know.
                Err(error) if error.needs_dictionary().is_some() && !given => {
                    self.headers.set_dictionary(&dictionary()).map_err(broken)?;
                    given = true;
                }
                Err(error) => return Err(broken(error)),
            }
        }
        pairs(&text).ok_or_else(|| malformed("a cut header block"))
    }
}

/// A count, then names and values with their lengths.
fn pairs(text: &[u8]) -> Option<HashMap<String, String>> {
    fn number<'a>(text: &mut &'a [u8]) -> Option<usize> {
        let (number, rest): (&'a [u8; 4], &'a [u8]) = text.split_first_chunk()?;
        *text = rest;
        usize::try_from(u32::from_be_bytes(*number)).ok()
    }
    fn word(text: &mut &[u8]) -> Option<String> {
        let length = number(text)?;
        let (word, rest) = text.split_at_checked(length)?;
        *text = rest;
        Some(String::from_utf8_lossy(word).into_owned())
    }
    let mut rest = text;
    let count = number(&mut rest)?;
    (0..count).map(|_| Some((word(&mut rest)?.to_lowercase(), word(&mut rest)?))).collect()
}

/// Writes frames.
struct Writer<W> {
    to: W,
    headers: Compress,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    fn new(to: W) -> std::io::Result<Self> {
        let mut headers = Compress::new(Compression::fast(), true);
        headers.set_dictionary(&dictionary()).map_err(|error| malformed(&error.to_string()))?;
        Ok(Self { to, headers })
    }

    async fn control(&mut self, kind: u16, body: &[u8]) -> std::io::Result<()> {
        let [_, x, y, z] = length(body.len());
        let [c, d] = kind.to_be_bytes();
        self.to.write_all(&[0x80, 3, c, d, 0, x, y, z]).await?;
        self.to.write_all(body).await?;
        self.to.flush().await
    }

    /// Agrees to a stream.
    async fn reply(&mut self, stream: u32) -> std::io::Result<()> {
        let mut body = stream.to_be_bytes().to_vec();
        let mut block = Vec::with_capacity(256);
        let none = 0_u32.to_be_bytes();
        self.headers
            .compress_vec(&none, &mut block, FlushCompress::Sync)
            .map_err(|error| malformed(&error.to_string()))?;
        body.extend(block);
        self.control(SYN_REPLY, &body).await
    }

    async fn data(&mut self, stream: u32, bytes: &[u8], is_last: bool) -> std::io::Result<()> {
        let [_, x, y, z] = length(bytes.len());
        let [a, b, c, d] = stream.to_be_bytes();
        self.to.write_all(&[a, b, c, d, u8::from(is_last), x, y, z]).await?;
        self.to.write_all(bytes).await?;
        self.to.flush().await
    }
}

pub(super) fn answer(
    run: Run,
    wanted: Wanted,
    mut request: Request<Body>,
) -> Result<Response, Refused> {
    let offered: Vec<&str> = request
        .headers()
        .get_all(PROTOCOL_HEADER)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(str::trim))
        .collect();
    if !offered.contains(&PROTOCOL) {
        let wrong = format!("none of {offered:?} is spoken here; {PROTOCOL} is");
        return Err((StatusCode::FORBIDDEN, wrong));
    }
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        if let Ok(upgraded) = upgraded.await {
            let (read, write) = tokio::io::split(TokioIo::new(upgraded));
            if let Err(error) = carry(read, write, run, wanted).await {
                tracing::debug!(%error, "exec ended early");
            }
        }
    });
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "SPDY/3.1")
        .header(PROTOCOL_HEADER, PROTOCOL)
        .body(Body::empty())
        .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

async fn carry(
    read: impl AsyncRead + Unpin + Send + 'static,
    write: impl AsyncWrite + Unpin,
    run: Run,
    wanted: Wanted,
) -> std::io::Result<()> {
    let mut writer = Writer::new(write)?;
    let (sender, mut frames) = tokio::sync::mpsc::channel(16);
    // A frame must be read whole, whatever else happens meanwhile.
    let reading = tokio::spawn(async move {
        let mut reader = Reader::new(read);
        loop {
            let frame = reader.next().await;
            let is_end = frame.is_err();
            if sender.send(frame).await.is_err() || is_end {
                return;
            }
        }
    });
    let result = converse(&mut writer, &mut frames, run, wanted).await;
    reading.abort();
    writer.to.shutdown().await?;
    result
}

async fn converse(
    writer: &mut Writer<impl AsyncWrite + Unpin>,
    frames: &mut tokio::sync::mpsc::Receiver<std::io::Result<Frame>>,
    run: Run,
    wanted: Wanted,
) -> std::io::Result<()> {
    let mut streams: HashMap<String, u32> = HashMap::new();
    let needed = [("error", true), ("stdin", wanted.stdin), ("stdout", wanted.stdout)];
    let needed = needed.into_iter().chain([("stderr", wanted.stderr && !wanted.tty)]);
    let needed: Vec<&str> = needed.filter(|(_, wanted)| *wanted).map(|(name, _)| name).collect();
    while !needed.iter().all(|name| streams.contains_key(*name)) {
        match frames.recv().await.ok_or_else(|| malformed("the client went"))?? {
            Frame::Open { stream, kind } => {
                writer.reply(stream).await?;
                streams.insert(kind, stream);
            }
            Frame::Ping(body) => writer.control(PING, &body).await?,
            Frame::End => return Ok(()),
            _ => {}
        }
    }
    let of = |name: &str| streams.get(name).copied();
    let mut running = exec::start(run, &wanted);
    loop {
        tokio::select! {
            output = running.output.recv() => match output {
                Some((channel, text)) => {
                    let stream = of(if channel == Channel::Out { "stdout" } else { "stderr" });
                    if let Some(stream) = stream {
                        writer.data(stream, text.as_bytes(), false).await?;
                    }
                }
                None => break,
            },
            frame = frames.recv() => match frame {
                Some(Ok(Frame::Data { stream, bytes, is_last })) if Some(stream) == of("stdin") => {
                    if wanted.tty && let Some(shown) = of("stdout") {
                        let echo = String::from_utf8_lossy(&bytes).replace('\r', "\r\n");
                        writer.data(shown, echo.as_bytes(), false).await?;
                    }
                    if let Some(input) = &running.input {
                        // A command that does not read has ended or will.
                        let _ = input.try_send(bytes);
                    }
                    if is_last {
                        running.input = None;
                    }
                }
                Some(Ok(Frame::Open { stream, .. })) => writer.reply(stream).await?,
                Some(Ok(Frame::Ping(body))) => writer.control(PING, &body).await?,
                Some(Ok(Frame::End) | Err(_)) | None => return Ok(()),
                Some(Ok(_)) => {}
            },
        }
    }
    let status = running.status().await.to_string();
    for name in ["stdout", "stderr"] {
        if let Some(stream) = of(name) {
            writer.data(stream, &[], true).await?;
        }
    }
    if let Some(stream) = of("error") {
        writer.data(stream, status.as_bytes(), true).await?;
    }
    // Until the client has read it all and goes.
    while let Some(Ok(frame)) = frames.recv().await {
        match frame {
            Frame::End => break,
            Frame::Ping(body) => writer.control(PING, &body).await?,
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dictionary_is_the_protocols() {
        let (mut a, mut b) = (1_u32, 0_u32);
        for byte in dictionary() {
            a = (a + u32::from(byte)) % 65_521;
            b = (b + a) % 65_521;
        }
        assert_eq!(b << 16 | a, 0xe3c6_a7c2, "its Adler-32, as every SPDY connection states it");
    }

    #[tokio::test]
    async fn header_blocks_are_read_one_after_the_other() {
        let (client, server) = tokio::io::duplex(1 << 16);
        let mut writer = Writer::new(client).unwrap();
        for (stream, kind) in [(1_u32, "error"), (3, "stdout")] {
            let mut text = 1_u32.to_be_bytes().to_vec();
            for word in ["streamtype", kind] {
                text.extend(length(word.len()));
                text.extend(word.as_bytes());
            }
            let mut block = Vec::with_capacity(1024);
            writer.headers.compress_vec(&text, &mut block, FlushCompress::Sync).unwrap();
            let mut body = stream.to_be_bytes().to_vec();
            body.extend([0; 6]);
            body.extend(block);
            writer.control(SYN_STREAM, &body).await.unwrap();
        }
        writer.data(3, b"hello", true).await.unwrap();
        let mut reader = Reader::new(server);
        for (expected, name) in [(1, "error"), (3, "stdout")] {
            match reader.next().await.unwrap() {
                Frame::Open { stream, kind } => {
                    assert_eq!((stream, kind.as_str()), (expected, name))
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(
            matches!(reader.next().await.unwrap(), Frame::Data { stream: 3, bytes, is_last: true } if bytes == b"hello")
        );
    }
}
