//! What the client wants to get: the object, a table, or metadata alone.

use http::HeaderMap;

use crate::status::{Reason, Status};

/// The form of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Form {
    /// Objects as they are.
    Object,
    /// A `Table` of this version of meta.k8s.io.
    Table(String),
    /// `PartialObjectMetadata` of this version of meta.k8s.io.
    Metadata(String),
    /// Aggregated discovery of this version.
    Discovery(String),
}

/// The first form of the Accept header that can be served.
pub(crate) fn form(headers: &HeaderMap) -> Result<Form, Status> {
    let accept = headers.get(http::header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or("*/*");
    accept.split(',').find_map(clause).ok_or_else(|| {
        Status::new(
            Reason::NotAcceptable,
            "only the following media types are accepted: application/json",
        )
    })
}

fn clause(clause: &str) -> Option<Form> {
    let mut parts = clause.split(';').map(str::trim);
    if !matches!(parts.next()?, "application/json" | "*/*" | "application/*" | "") {
        return None;
    }
    let (mut shape, mut group, mut version) = ("", "", "");
    for part in parts {
        match part.split_once('=') {
            Some(("as", value)) => shape = value,
            Some(("g", value)) => group = value,
            Some(("v", value)) => version = value,
            Some(("stream", value)) if value != "watch" => return None,
            _ => {}
        }
    }
    match (shape, group) {
        ("", _) => Some(Form::Object),
        ("Table", "meta.k8s.io") if matches!(version, "v1" | "v1beta1") => {
            Some(Form::Table(version.to_owned()))
        }
        ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io")
            if matches!(version, "v1" | "v1beta1") =>
        {
            Some(Form::Metadata(version.to_owned()))
        }
        ("APIGroupDiscoveryList", "apidiscovery.k8s.io") if matches!(version, "v2" | "v2beta1") => {
            Some(Form::Discovery(version.to_owned()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_clause_that_can_be_served_counts() {
        for (accept, expected) in [
            ("application/json", Some(Form::Object)),
            ("*/*", Some(Form::Object)),
            ("application/vnd.kubernetes.protobuf,application/json", Some(Form::Object)),
            ("application/vnd.kubernetes.protobuf", None),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                Some(Form::Table("v1".to_owned())),
            ),
            ("application/json;as=Table;g=meta.k8s.io;v=v9,application/json", Some(Form::Object)),
            (
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
                Some(Form::Discovery("v2".to_owned())),
            ),
            (
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                Some(Form::Metadata("v1".to_owned())),
            ),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("accept", accept.parse().expect("a header value"));
            assert_eq!(form(&headers).ok(), expected, "{accept}");
        }
    }
}
