//! The query string: options of reads and writes.

use axum::extract::Query as Pairs;
use http::Uri;
use serde_json::Value;

use crate::status::Status;

/// The options of a request, as they were sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    pub(crate) fn parse(uri: &Uri) -> Result<Self, Status> {
        let Pairs(pairs) = Pairs::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|e| Status::bad_request(format!("malformed query: {e}")))?;
        Ok(Self { pairs })
    }

    /// The first value of `name`; an empty one counts as absent.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.pairs.iter().find(|(key, _)| key == name)?;
        Some(found.1.as_str()).filter(|value| !value.is_empty())
    }

    /// All pairs, in order.
    pub(crate) fn pairs(&self) -> &[(String, String)] {
        &self.pairs
    }

    /// Whether a flag is set: `true`, `1`, or the name alone.
    pub(crate) fn flag(&self, name: &str) -> bool {
        let found = self.pairs.iter().find(|(key, _)| key == name);
        found.is_some_and(|(_, value)| matches!(value.as_str(), "" | "true" | "1"))
    }

    /// A whole number.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, Status> {
        self.get(name)
            .map(|text| {
                text.parse().map_err(|_| {
                    Status::bad_request(format!("{name}: invalid value {text:?}: not a number"))
                })
            })
            .transpose()
    }

    /// `dryRun=All`.
    ///
    /// # Errors
    /// Another value.
    pub(crate) fn dry_run(&self) -> Result<bool, Status> {
        match self.get("dryRun") {
            None => Ok(false),
            Some("All") => Ok(true),
            Some(other) => Err(Status::bad_request(format!(
                "dryRun: Unsupported value: {other:?}: supported values: \"All\""
            ))),
        }
    }

    /// A resource version: absent and `0` are told apart by the caller.
    pub(crate) fn revision(&self, name: &str) -> Result<Option<u64>, Status> {
        self.get(name)
            .map(|text| {
                text.parse().map_err(|_| {
                    Status::bad_request(format!("Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"))
                })
            })
            .transpose()
    }
}

/// The options of a deletion: the body's, else the query's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DeleteOptions {
    pub(crate) grace_seconds: Option<i64>,
    /// `None` leaves it to the kind.
    pub(crate) propagation: Option<Propagation>,
    pub(crate) uid: Option<String>,
    pub(crate) revision: Option<String>,
    pub(crate) dry_run: bool,
}

/// What becomes of the objects that the deleted one owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// They are deleted after it.
    Background,
    /// They are deleted before it.
    Foreground,
    /// They are let go.
    Orphan,
}

impl DeleteOptions {
    pub(crate) fn read(query: &Query, body: &Value) -> Result<Self, Status> {
        let text = |name: &str| body[name].as_str().or_else(|| query.get(name));
        let grace_seconds = match (&body["gracePeriodSeconds"], query.get("gracePeriodSeconds")) {
            (Value::Number(number), _) => number.as_i64(),
            (_, Some(text)) => Some(text.parse().map_err(|_| {
                Status::bad_request(format!("gracePeriodSeconds: invalid value {text:?}"))
            })?),
            _ => None,
        };
        let propagation = match text("propagationPolicy") {
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some("Orphan") => Some(Propagation::Orphan),
            Some(other) => {
                return Err(Status::bad_request(format!(
                    "invalid propagationPolicy {other:?}: must be Orphan, Background or Foreground"
                )));
            }
            None if body["orphanDependents"] == true || query.flag("orphanDependents") => {
                Some(Propagation::Orphan)
            }
            None => None,
        };
        let dry_run = query.dry_run()? || body["dryRun"][0] == "All";
        let precondition = |name: &str| body["preconditions"][name].as_str().map(str::to_owned);
        Ok(Self {
            grace_seconds: grace_seconds.map(|seconds| if seconds < 0 { 1 } else { seconds }),
            propagation,
            uid: precondition("uid"),
            revision: precondition("resourceVersion"),
            dry_run,
        })
    }
}
