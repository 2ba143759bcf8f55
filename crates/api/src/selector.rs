//! Label selectors and node selectors.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A label selector: every part must hold; an empty one selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels with exactly these values.
    #[serde(default)]
    pub match_labels: BTreeMap<String, String>,
    /// Requirements.
    #[serde(default)]
    pub match_expressions: Vec<Requirement>,
}

/// One requirement on a label or field.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Requirement {
    /// The label or field.
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
    pub operator: String,
    /// What it is compared with.
    #[serde(default)]
    pub values: Vec<String>,
}

impl Requirement {
    /// Whether `value`, that of the key if it has one, satisfies the requirement. An operator that is none never holds.
    pub fn holds(&self, value: Option<&str>) -> bool {
        let listed = |value: &str| self.values.iter().any(|v| v == value);
        let compared = |holds: fn(i64, i64) -> bool| {
            let [bound] = self.values.as_slice() else { return false };
            match (value.and_then(|v| v.parse().ok()), bound.parse().ok()) {
                (Some(value), Some(bound)) => holds(value, bound),
                _ => false,
            }
        };
        match self.operator.as_str() {
            "In" => value.is_some_and(listed),
            "NotIn" => !value.is_some_and(listed),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "Gt" => compared(|value, bound| value > bound),
            "Lt" => compared(|value, bound| value < bound),
            _ => false,
        }
    }
}

impl LabelSelector {
    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self
                .match_expressions
                .iter()
                .all(|r| r.holds(labels.get(&r.key).map(String::as_str)))
    }
}

/// A node selector: one of the terms must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelector {
    /// The terms.
    #[serde(default)]
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// One term of a node selector: every requirement must hold, and there must be one.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelectorTerm {
    /// On labels.
    #[serde(default)]
    pub match_expressions: Vec<Requirement>,
    /// On fields; `metadata.name` is the only one.
    #[serde(default)]
    pub match_fields: Vec<Requirement>,
}

impl NodeSelectorTerm {
    /// Whether a node of that name and labels satisfies the term.
    pub fn matches(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let field = |key: &str| (key == "metadata.name").then_some(name);
        let some = !(self.match_expressions.is_empty() && self.match_fields.is_empty());
        some && self
            .match_expressions
            .iter()
            .all(|r| r.holds(labels.get(&r.key).map(String::as_str)))
            && self.match_fields.iter().all(|r| r.holds(field(&r.key)))
    }
}

impl NodeSelector {
    /// Whether a node of that name and labels is selected.
    pub fn matches(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        self.node_selector_terms.iter().any(|term| term.matches(name, labels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators() {
        let labels = BTreeMap::from([
            ("zone".to_owned(), "a".to_owned()),
            ("cores".to_owned(), "64".to_owned()),
        ]);
        for (key, operator, values, expected) in [
            ("zone", "In", vec!["a", "b"], true),
            ("zone", "In", vec!["b"], false),
            ("none", "In", vec!["a"], false),
            ("zone", "NotIn", vec!["a"], false),
            ("none", "NotIn", vec!["a"], true),
            ("zone", "Exists", vec![], true),
            ("none", "Exists", vec![], false),
            ("none", "DoesNotExist", vec![], true),
            ("cores", "Gt", vec!["32"], true),
            ("cores", "Gt", vec!["64"], false),
            ("cores", "Lt", vec!["65"], true),
            ("zone", "Lt", vec!["65"], false),
            ("zone", "Like", vec!["a"], false),
        ] {
            let requirement = Requirement {
                key: key.into(),
                operator: operator.into(),
                values: values.into_iter().map(Into::into).collect(),
            };
            let term = NodeSelectorTerm {
                match_expressions: vec![requirement.clone()],
                match_fields: vec![],
            };
            assert_eq!(term.matches("n1", &labels), expected, "{requirement:?}");
        }
        assert!(
            !NodeSelectorTerm::default().matches("n1", &labels),
            "an empty term selects nothing"
        );
        assert!(
            LabelSelector::default().matches(&labels),
            "an empty label selector selects everything"
        );
        let by_name = Requirement {
            key: "metadata.name".into(),
            operator: "In".into(),
            values: vec!["n1".into()],
        };
        let term = NodeSelectorTerm { match_expressions: vec![], match_fields: vec![by_name] };
        assert!(term.matches("n1", &labels) && !term.matches("n2", &labels));
    }
}
