//! What is not there yet: it refuses, in words, rather than answer wrongly.
#![allow(dead_code, missing_docs, unused)]

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
