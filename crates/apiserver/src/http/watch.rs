//! Watches: a stream of lines, one JSON event each.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures::stream;
use http::{HeaderMap, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval};
use tokio_util::sync::CancellationToken;

use super::Front;
use super::accept::{self, Form};
use super::answer;
use super::path::Target;
use super::query::Query;
use super::read::future;
use super::selection::Selection;
use crate::api::{Api, shown, shown_json};
use crate::resource::Resource;
use crate::status::Status;
use crate::store::{Change, Object, Since, TooOld, watch_line};
use crate::table::{self, Include};

/// How often a quiet watch is told how far it is.
const BOOKMARKS: Duration = Duration::from_secs(60);
/// A watch without a time limit of its own is ended after this; upstream takes between one and two half hours.
const LIFE: Duration = Duration::from_secs(45 * 60);
/// Lines are sent together up to this size.
const CHUNK: usize = 64 * 1024;

/// One running watch.
struct Watching {
    api: Arc<Api>,
    resource: Arc<Resource>,
    selection: Selection,
    form: Form,
    include: Include,
    /// Whether the next table carries the column definitions.
    headings: bool,
    bookmarks: bool,
    changes: mpsc::Receiver<Arc<Change>>,
    /// Lines that are ready.
    ready: VecDeque<Bytes>,
    tick: Interval,
    end: Instant,
    stop: CancellationToken,
    ended: bool,
}

impl Front {
    pub(super) fn watch(
        &self,
        target: &Target,
        query: &Query,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, Status> {
        let form = accept::form(headers)?;
        let include = Include::read(query.get("includeObject"))?;
        let selection = Selection::read(target, query)?;
        let wanted = query.revision("resourceVersion")?.unwrap_or(0);
        let present = self.api.store.revision();
        if wanted > present {
            return Err(future(wanted, present));
        }
        let initial = query.flag("sendInitialEvents");
        if initial && query.get("resourceVersionMatch") != Some("NotOlderThan") {
            return Err(Status::bad_request(
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
        }
        // Without a revision a watch begins with what is there; so does one that asks for it.
        let stated = query.get("sendInitialEvents").is_some();
        let since = if initial || (wanted == 0 && !stated) {
            Since::Now
        } else if wanted == 0 {
            Since::Revision(present)
        } else {
            Since::Revision(wanted)
        };
        let life = query.number("timeoutSeconds")?.filter(|s| *s > 0).map(Duration::from_secs);
        let watch = match self.api.store.watch(&target.resource.storage, selection.lane(), since) {
            Ok(watch) => watch,
            Err(TooOld(oldest)) => {
                // As upstream: the watch begins, and its only event says why it ends.
                let status = Status::expired(wanted, oldest).to_value().to_string();
                let line = watch_line("ERROR", status.as_bytes());
                return Ok(answer::json(StatusCode::OK, line));
            }
        };
        let mut watching = Watching {
            api: Arc::clone(&self.api),
            resource: Arc::clone(&target.resource),
            selection,
            form,
            include,
            headings: true,
            bookmarks: query.flag("allowWatchBookmarks"),
            changes: watch.changes,
            ready: VecDeque::new(),
            tick: tokio::time::interval_at(Instant::now() + BOOKMARKS, BOOKMARKS),
            end: Instant::now() + life.unwrap_or(LIFE),
            stop: self.stop.clone(),
            ended: false,
        };
        for object in &watch.initial {
            watching.push_initial(object);
        }
        if initial && watching.bookmarks {
            watching.push_bookmark(watch.revision, true);
        }
        for change in &watch.missed {
            watching.push(change);
        }
        let body = stream::unfold(watching, |mut watching| async move {
            let chunk = watching.next().await?;
            Some((Ok::<Bytes, std::convert::Infallible>(chunk), watching))
        });
        let mut response = answer::json(StatusCode::OK, Bytes::new());
        *response.body_mut() = Body::from_stream(body);
        Ok(response)
    }
}

impl Watching {
    /// The next lines; `None` ends the watch.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            while let Ok(change) = self.changes.try_recv() {
                self.push(&change);
                if self.ready.len() > 512 {
                    break;
                }
            }
            if let Some(chunk) = self.chunk() {
                return Some(chunk);
            }
            if self.ended {
                return None;
            }
            tokio::select! {
                change = self.changes.recv() => match change {
                    Some(change) => self.push(&change),
                    // Too far behind, or the end of the server.
                    None => self.ended = true,
                },
                () = tokio::time::sleep_until(self.end) => {
                    self.bookmark();
                    self.ended = true;
                }
                _ = self.tick.tick() => self.bookmark(),
                () = self.stop.cancelled() => self.ended = true,
            }
        }
    }

    /// Ready lines, several at once.
    fn chunk(&mut self) -> Option<Bytes> {
        let first = self.ready.pop_front()?;
        if self.ready.is_empty() {
            return Some(first);
        }
        let mut chunk = BytesMut::from(first.as_ref());
        while chunk.len() < CHUNK
            && let Some(line) = self.ready.pop_front()
        {
            chunk.extend_from_slice(&line);
        }
        Some(chunk.freeze())
    }

    fn push_initial(&mut self, object: &Arc<Object>) {
        if !self.selection.selects(object) {
            return;
        }
        let line = if self.form == Form::Object {
            watch_line("ADDED", &shown_json(&self.resource, object))
        } else {
            self.line("ADDED", object.value())
        };
        self.ready.push_back(line);
    }

    fn push(&mut self, change: &Change) {
        let Some(verb) = change.verb(|object| self.selection.selects(object)) else { return };
        let plain = self.form == Form::Object
            && self.resource.storage_version == self.resource.api_version();
        let line =
            if plain { change.line(verb) } else { self.line(verb.as_str(), change.object(verb)) };
        self.ready.push_back(line);
    }

    fn line(&mut self, kind: &str, stored: Value) -> Bytes {
        let object = shown(&self.resource, stored);
        let object = match &self.form {
            Form::Object | Form::Discovery(_) => object,
            Form::Metadata(version) => table::partial(&object, version),
            Form::Table(version) => {
                let meta = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                let headings = std::mem::take(&mut self.headings);
                let rows = std::iter::once(object);
                table::table(&self.resource, version, meta, rows, self.include, headings)
            }
        };
        watch_line(kind, object.to_string().as_bytes())
    }

    /// Says how far the watch is, if the client asked for that. What the store's revision counts is in the channel
    /// already, so the channel is emptied between.
    fn bookmark(&mut self) {
        let revision = self.api.store.revision();
        while let Ok(change) = self.changes.try_recv() {
            self.push(&change);
        }
        if self.bookmarks {
            self.push_bookmark(revision, false);
        }
    }

    fn push_bookmark(&mut self, revision: u64, end_of_initial: bool) {
        let mut metadata =
            json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if end_of_initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let mark = json!({
            "kind": self.resource.kind, "apiVersion": self.resource.api_version(), "metadata": metadata,
        });
        let object = match &self.form {
            Form::Object | Form::Discovery(_) => mark,
            Form::Metadata(version) => table::partial(&mark, version),
            Form::Table(version) => {
                let meta = json!({"resourceVersion": revision.to_string()});
                let rows = std::iter::once(mark);
                table::table(&self.resource, version, meta, rows, Include::Object, false)
            }
        };
        self.ready.push_back(watch_line("BOOKMARK", object.to_string().as_bytes()));
    }
}
