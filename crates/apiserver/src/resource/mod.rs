//! What the server knows of a resource, as data: one [`Resource`] per served (group, version, plural).

mod builtin;
mod merge;
mod registry;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

pub use merge::{ListRule, MergeRules};
pub use registry::Registry;

/// One resource of one API version.
#[derive(Debug, Clone)]
pub struct Resource {
    /// API group; empty for core.
    pub group: String,
    /// API version, e.g. `v1`.
    pub version: String,
    /// Kind, e.g. `Pod`.
    pub kind: String,
    /// Kind of a list, e.g. `PodList`.
    pub list_kind: String,
    /// Plural, the name in paths.
    pub plural: String,
    /// Singular, as kubectl accepts it.
    pub singular: String,
    /// Short names, as kubectl accepts them.
    pub short_names: Vec<String>,
    /// Categories, e.g. `all`.
    pub categories: Vec<String>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// What can be done with it.
    pub verbs: Verbs,
    /// Whether `/status` is apart from the main resource.
    pub status: bool,
    /// The fields behind `/scale`.
    pub scale: Option<Scale>,
    /// Subresources besides `status` and `scale`: name, kind of their body, verbs.
    pub others: Vec<Subresource>,
    /// What a table shows.
    pub columns: Columns,
    /// How patches merge lists and maps.
    pub merge: Arc<MergeRules>,
    /// The structural schema (`openAPIV3Schema`) of a custom resource; built-in kinds have none.
    pub schema: Option<Arc<Value>>,
    /// Where objects are stored: resources of equal `storage` are views of the same objects.
    pub storage: Arc<str>,
    /// The `apiVersion` of stored objects.
    pub storage_version: String,
}

/// The set of verbs a resource has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verbs {
    /// Stored objects: all of them.
    All,
    /// Only POST: reviews and the `bindings` of core.
    CreateOnly,
}

impl Verbs {
    /// The verbs in discovery's spelling and order.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Self::All => {
                &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
            }
            Self::CreateOnly => &["create"],
        }
    }
}

/// Where a `/scale` finds its numbers; paths as field names from the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scale {
    /// Path of the wanted replicas, e.g. `spec.replicas`.
    pub spec_replicas: Vec<String>,
    /// Path of the observed replicas.
    pub status_replicas: Vec<String>,
    /// Path of the selector: an object (LabelSelector) or text; may be absent.
    pub selector: Option<Vec<String>>,
}

/// A subresource with behaviour of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subresource {
    /// Its name in the path, e.g. `binding`.
    pub name: &'static str,
    /// Group, version and kind of its body.
    pub body: (&'static str, &'static str, &'static str),
    /// Its verbs.
    pub verbs: &'static [&'static str],
}

/// One column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The heading as the server sends it, e.g. `Ready`.
    pub name: String,
    /// OpenAPI type: `string`, `integer`, `date`, ….
    pub kind: String,
    /// OpenAPI format; `name` marks the object's name.
    pub format: String,
    /// What it means.
    pub description: String,
    /// 0 is always shown, more only with `-o wide`.
    pub priority: i64,
    /// For custom resources: the JSONPath of the cell, e.g. `.status.phase`.
    pub path: Option<String>,
}

/// The columns of a resource and how their cells are found.
#[derive(Debug, Clone)]
pub struct Columns {
    /// The headings; the first is the name.
    pub columns: Vec<Column>,
    /// How a row is made.
    pub cells: Cells,
}

/// How the cells of a row are made.
#[derive(Debug, Clone, Copy)]
pub enum Cells {
    /// Name and creation timestamp.
    NameAndAge,
    /// By a function of the object and the present; as many cells as columns.
    Printed(fn(&Value, Timestamp) -> Vec<Value>),
    /// Name, then the columns' own paths.
    Paths,
}

impl Resource {
    /// `apiVersion` of its objects: `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        group_version(&self.group, &self.version)
    }

    /// `PLURAL.GROUP`, as error texts name a resource; the plural alone for core.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// Whether it is defined by a CustomResourceDefinition.
    pub fn is_custom(&self) -> bool {
        self.schema.is_some()
    }
}

/// `GROUP/VERSION`, or the version alone for core.
pub fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}
