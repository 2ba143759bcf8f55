//! `containerLogs`: the log of a container, whole or in part, and as it grows.

use std::sync::Arc;

use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures::stream;
use http::{StatusCode, header};
use jiff::{SignedDuration, Timestamp};

use super::Refused;
use crate::{
    containers::Run,
    log::{Excerpt, Log, Piece},
};

/// What is asked of a log, by kubectl's names.
#[derive(Debug, Default)]
struct Options {
    follow: bool,
    previous: bool,
    timestamps: bool,
    excerpt: Excerpt,
    limit: Option<usize>,
}

impl Options {
    fn read(pairs: &[(String, String)]) -> Result<Self, Refused> {
        let mut options = Self::default();
        for (name, value) in pairs {
            let wrong = || (StatusCode::BAD_REQUEST, format!("{name}={value}: invalid value"));
            let is_on = matches!(value.as_str(), "true" | "1");
            match name.as_str() {
                "follow" => options.follow = is_on,
                "previous" => options.previous = is_on,
                "timestamps" => options.timestamps = is_on,
                "tailLines" => options.excerpt.tail = Some(value.parse().map_err(|_| wrong())?),
                "limitBytes" => options.limit = Some(value.parse().map_err(|_| wrong())?),
                "sinceTime" => options.excerpt.since = Some(value.parse().map_err(|_| wrong())?),
                "sinceSeconds" => {
                    let seconds = value.parse().map_err(|_| wrong())?;
                    let since = Timestamp::now() - SignedDuration::from_secs(seconds);
                    options.excerpt.since = Some(since);
                }
                _ => {}
            }
        }
        Ok(options)
    }

    fn print(&self, pieces: &[Piece]) -> String {
        let mut text = String::new();
        for piece in pieces {
            if self.timestamps {
                text.push_str(&piece.time.strftime("%Y-%m-%dT%H:%M:%S.%9fZ ").to_string());
            }
            text.push_str(&piece.text);
        }
        text
    }
}

/// The answer to a request for a log.
pub(super) fn answer(run: &Run, pairs: &[(String, String)]) -> Result<Response, Refused> {
    let options = Options::read(pairs)?;
    let log = if options.previous {
        run.previous.clone().ok_or_else(|| {
            let (container, pod) = (&run.place.container, run.place.pod.name());
            (
                StatusCode::BAD_REQUEST,
                format!("previous terminated container {container:?} in pod {pod:?} not found"),
            )
        })?
    } else {
        Arc::clone(&run.log)
    };
    let position = log.start(options.excerpt);
    let body = if options.follow {
        following(log, position, options)
    } else {
        let mut text = options.print(&log.read(position).0);
        if let Some(limit) = options.limit {
            let end = (0..=limit.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
            text.truncate(end.unwrap_or_default());
        }
        Body::from(text)
    };
    let mut response = Response::new(body);
    let plain = header::HeaderValue::from_static("text/plain");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    Ok(response)
}

fn following(log: Arc<Log>, position: usize, options: Options) -> Body {
    let changes = log.follow();
    let state = (log, position, changes, options, false);
    Body::from_stream(stream::unfold(
        state,
        |(log, position, mut changes, options, ended)| async move {
            if ended {
                return None;
            }
            loop {
                changes.borrow_and_update();
                let (pieces, position, ended) = log.read(position);
                if !pieces.is_empty() || ended {
                    let text = Bytes::from(options.print(&pieces));
                    return Some((
                        Ok::<_, std::io::Error>(text),
                        (log, position, changes, options, ended),
                    ));
                }
                if changes.changed().await.is_err() {
                    return None;
                }
            }
        },
    ))
}
