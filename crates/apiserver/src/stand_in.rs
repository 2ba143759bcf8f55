//! What is not there yet: it refuses, in words, rather than answer wrongly.
#![allow(dead_code, missing_docs, unused)]

pub(crate) mod patch {
    use crate::resource::Resource;
    use crate::status::Status;
    use serde_json::Value;
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(crate) enum PatchKind {
        Json,
        Merge,
        Strategic,
        Apply,
    }
    pub(crate) struct Request<'a> {
        pub(crate) kind: PatchKind,
        pub(crate) body: &'a [u8],
        pub(crate) manager: &'a str,
        pub(crate) force: bool,
        pub(crate) strict: bool,
        pub(crate) subresource: &'a str,
    }
    pub(crate) fn check_unknown_fields(_: &Resource, _: &Value) -> Result<(), Status> {
        Ok(())
    }
    pub(crate) fn track(_: &Resource, _: &str, _: Option<&Value>, _: &mut Value, _: &str) {}
    pub(crate) fn apply(r: &Request<'_>, current: &Value, _: &Resource) -> Result<Value, Status> {
        let mut next = current.clone();
        let body: Value = serde_json::from_slice(r.body).map_err(Status::internal)?;
        match r.kind {
            PatchKind::Json => {
                let p: json_patch::Patch =
                    serde_json::from_value(body).map_err(Status::internal)?;
                json_patch::patch(&mut next, &p).map_err(Status::internal)?;
            }
            PatchKind::Merge => json_patch::merge(&mut next, &body),
            PatchKind::Strategic | PatchKind::Apply => {
                return Err(Status::unsupported_media_type(&[
                    "application/json-patch+json",
                    "application/merge-patch+json",
                ]));
            }
        }
        Ok(next)
    }
}
pub(crate) mod selector {
    use crate::resource::Resource;
    use crate::status::Status;
    use serde_json::Value;
    #[derive(Debug)]
    pub(crate) struct Labels(Vec<(String, String)>);
    #[derive(Debug)]
    pub(crate) struct Fields(Vec<(String, String)>);
    /// Equality only: any other requirement is refused.
    fn pairs(t: &str) -> Result<Vec<(String, String)>, Status> {
        let equality = |p: &str| {
            let (key, value) = p
                .split_once('=')
                .filter(|(key, _)| !key.ends_with('!') && !key.contains([' ', '(']))?;
            Some((key.to_owned(), value.trim_start_matches('=').to_owned()))
        };
        let refuse = |p: &str| {
            Status::bad_request(format!("selector {p:?}: only key=value is supported yet"))
        };
        t.split(',')
            .filter(|p| !p.is_empty())
            .map(|p| equality(p).ok_or_else(|| refuse(p)))
            .collect()
    }
    impl Labels {
        pub(crate) fn parse(t: &str) -> Result<Self, Status> {
            Ok(Self(pairs(t)?))
        }
        pub(crate) fn matches(&self, v: &Value) -> bool {
            self.0.iter().all(|(k, w)| v["metadata"]["labels"][k] == *w)
        }
    }
    impl Fields {
        pub(crate) fn parse(t: &str) -> Result<Self, Status> {
            Ok(Self(pairs(t)?))
        }
        pub(crate) fn check(&self, _: &Resource) -> Result<(), Status> {
            Ok(())
        }
        pub(crate) fn exactly(&self, p: &str) -> Option<&str> {
            self.0.iter().find(|(k, _)| k == p).map(|(_, v)| v.as_str())
        }
        pub(crate) fn matches(&self, v: &Value) -> bool {
            self.0.iter().all(|(k, w)| {
                v.pointer(&format!("/{}", k.replace('.', "/")))
                    .and_then(Value::as_str)
                    .unwrap_or("")
                    == w
            })
        }
    }
}
pub(crate) mod protobuf {
    use serde_json::Value;
    pub(crate) fn to_json(_: &[u8]) -> Result<Value, crate::status::Status> {
        Err(crate::status::Status::bad_request("protobuf bodies are not supported yet; send JSON"))
    }
}
pub(crate) mod openapi {
    use crate::resource::Registry;
    use serde_json::{Value, json};
    pub(crate) fn v2() -> &'static [u8] {
        b""
    }
    pub(crate) fn v3_index(_: &Registry) -> Value {
        json!({"paths": {}})
    }
    pub(crate) fn v3(_: &Registry, _: &str, _: &str) -> Option<String> {
        None
    }
}
