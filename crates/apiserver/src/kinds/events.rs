//! Events have two faces over one storage: `v1` (`involvedObject`, `message`), which is stored, and
//! `events.k8s.io/v1` (`regarding`, `note`).

use serde_json::Value;

use crate::field::{self, set};

/// Field names of `v1` and of `events.k8s.io/v1` for the same content.
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// The stored event as `events.k8s.io/v1` shows it.
pub(crate) fn to_new(event: &mut Value) {
    for (core, new) in NAMES {
        if let Some(value) = field::remove(event, core) {
            set(event, new, value);
        }
    }
    set(event, "apiVersion", "events.k8s.io/v1");
}

/// An event of `events.k8s.io/v1` as it is stored.
pub(crate) fn to_core(event: &mut Value) {
    for (core, new) in NAMES {
        if let Some(value) = field::remove(event, new) {
            set(event, core, value);
        }
    }
    set(event, "apiVersion", "v1");
}

/// A field selector of `events.k8s.io/v1` in the stored field names.
pub(crate) fn selector(text: &str) -> String {
    let clause = |clause: &str| {
        let (path, rest) = clause.split_at(clause.find(['=', '!']).unwrap_or(clause.len()));
        let (head, tail) = path.split_at(path.find('.').unwrap_or(path.len()));
        let core = NAMES.iter().find(|(_, new)| *new == head).map_or(head, |(core, _)| core);
        format!("{core}{tail}{rest}")
    };
    text.split(',').map(clause).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn both_faces_hold_the_same() {
        let core = json!({
            "apiVersion": "v1", "kind": "Event", "involvedObject": {"name": "a"}, "message": "m",
            "reportingComponent": "c", "source": {"component": "c"}, "count": 2,
        });
        let mut event = core.clone();
        to_new(&mut event);
        assert_eq!(event["regarding"]["name"], "a");
        assert_eq!(event["note"], "m");
        assert_eq!(event["apiVersion"], "events.k8s.io/v1");
        to_core(&mut event);
        assert_eq!(event, core);
    }

    #[test]
    fn selectors_are_renamed() {
        assert_eq!(selector("regarding.name=a,reason!=b"), "involvedObject.name=a,reason!=b");
    }
}
