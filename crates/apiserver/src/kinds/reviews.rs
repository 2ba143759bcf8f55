//! Reviews: questions that are answered and not stored. Whoever holds a token may do everything here.

use serde_json::{Value, json};

use crate::field::{object, set};
use crate::resource::Resource;

/// Who a bearer token stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    /// The name, e.g. `kubernetes-admin`.
    pub(crate) name: String,
    /// The uid.
    pub(crate) uid: String,
    /// The groups.
    pub(crate) groups: Vec<String>,
}

impl User {
    /// The user of the kubeconfig.
    pub(crate) fn admin() -> Self {
        Self {
            name: "kubernetes-admin".to_owned(),
            uid: "kubernetes-admin".to_owned(),
            groups: vec!["system:masters".to_owned(), "system:authenticated".to_owned()],
        }
    }

    fn info(&self) -> Value {
        json!({"username": self.name, "uid": self.uid, "groups": self.groups})
    }
}

/// Answers a review; `known` tells whose a token is.
pub(crate) fn answer(
    resource: &Resource,
    mut review: Value,
    user: &User,
    known: impl Fn(&str) -> Option<User>,
) -> Value {
    let status = match resource.kind.as_str() {
        "TokenReview" => match known(review["spec"]["token"].as_str().unwrap_or_default()) {
            Some(user) => json!({"authenticated": true, "user": user.info()}),
            None => json!({"authenticated": false, "error": "invalid bearer token", "user": {}}),
        },
        "SelfSubjectReview" => json!({"userInfo": user.info()}),
        "SelfSubjectRulesReview" => json!({
            "incomplete": false,
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        }),
        _ => json!({"allowed": true, "reason": "everyone may do everything"}),
    };
    set(&mut review, "status", status);
    set(&mut review, "apiVersion", resource.api_version());
    set(&mut review, "kind", resource.kind.as_str());
    let metadata = object(&mut review, "metadata");
    if metadata["creationTimestamp"].is_null() {
        set(metadata, "creationTimestamp", Value::Null);
    }
    review
}
