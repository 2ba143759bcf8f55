//! How patches merge lists and maps: the merge keys of upstream's types, as a table of paths.
//!
//! A path is the chain of field names from the object's root, joined with dots; elements of lists add nothing to
//! it: `spec.containers.ports` are the ports of any container. What the table does not name is the default: a list is
//! replaced as a whole, a map is merged key by key.

use std::collections::BTreeMap;

use serde_json::Value;

/// How one list is merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListRule {
    /// Entries are objects told apart by fields.
    Map {
        /// The key of server-side apply: the values of these fields together.
        keys: Vec<String>,
        /// The merge key of a strategic merge patch; `None` replaces the list in such a patch.
        patch_key: Option<String>,
        /// Strategic merge patches of an entry drop the fields that `$retainKeys` does not name.
        retain_keys: bool,
    },
    /// Entries are scalars, each at most once.
    Set,
    /// Replaced as a whole by server-side apply, merged by this key in a strategic merge patch.
    AtomicPatched {
        /// The merge key of a strategic merge patch.
        patch_key: String,
    },
}

/// The merge rules of one resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MergeRules {
    lists: BTreeMap<String, ListRule>,
    atomic_maps: Vec<String>,
}

impl MergeRules {
    /// The rule of the list at `path`; `None` says that it is replaced as a whole.
    pub fn list(&self, path: &str) -> Option<&ListRule> {
        self.lists.get(path)
    }

    /// Whether server-side apply treats the object at `path` as one value.
    pub fn is_atomic_map(&self, path: &str) -> bool {
        self.atomic_maps.iter().any(|p| p == path)
    }

    fn map(&mut self, path: &str, keys: &[&str]) {
        let rule = ListRule::Map {
            keys: keys.iter().map(|k| (*k).to_owned()).collect(),
            patch_key: keys.first().map(|k| (*k).to_owned()),
            retain_keys: path.ends_with("volumes") || path.ends_with("resourceClaims"),
        };
        self.lists.insert(path.to_owned(), rule);
    }

    fn set(&mut self, path: &str) {
        self.lists.insert(path.to_owned(), ListRule::Set);
    }

    fn atomic(&mut self, path: &str) {
        self.atomic_maps.push(path.to_owned());
    }

    fn metadata(&mut self, at: &str) {
        self.map(&format!("{at}ownerReferences"), &["uid"]);
        self.set(&format!("{at}finalizers"));
    }

    /// The rules that hold for the metadata of every object.
    pub(super) fn plain() -> Self {
        let mut rules = Self::default();
        rules.metadata("metadata.");
        rules
    }

    /// Adds the rules of a pod template at `path` (`spec.template`), or of a pod (empty).
    pub(super) fn pod_template(mut self, path: &str) -> Self {
        let at = if path.is_empty() { String::new() } else { format!("{path}.") };
        if !path.is_empty() {
            self.metadata(&format!("{at}metadata."));
        }
        let spec = format!("{at}spec.");
        for list in ["containers", "initContainers", "ephemeralContainers"] {
            let each = format!("{spec}{list}");
            self.map(&each, &["name"]);
            self.map(&format!("{each}.ports"), &["containerPort", "protocol"]);
            self.map(&format!("{each}.env"), &["name"]);
            self.map(&format!("{each}.volumeMounts"), &["mountPath"]);
            self.map(&format!("{each}.volumeDevices"), &["devicePath"]);
            self.map(&format!("{each}.resources.claims"), &["name"]);
            for source in ["secretKeyRef", "configMapKeyRef", "fieldRef", "resourceFieldRef"] {
                self.atomic(&format!("{each}.env.valueFrom.{source}"));
            }
        }
        for list in ["volumes", "imagePullSecrets", "schedulingGates", "resourceClaims"] {
            self.map(&format!("{spec}{list}"), &["name"]);
        }
        self.map(&format!("{spec}hostAliases"), &["ip"]);
        self.map(
            &format!("{spec}topologySpreadConstraints"),
            &["topologyKey", "whenUnsatisfiable"],
        );
        self.atomic(&format!("{spec}nodeSelector"));
        self.atomic(&format!("{spec}topologySpreadConstraints.labelSelector"));
        self
    }

    /// Adds lists of objects: path and keys.
    pub(super) fn maps(mut self, lists: &[(&str, &[&str])]) -> Self {
        for (path, keys) in lists {
            self.map(path, keys);
        }
        self
    }

    /// Adds sets of scalars.
    pub(super) fn sets(mut self, paths: &[&str]) -> Self {
        for path in paths {
            self.set(path);
        }
        self
    }

    /// Adds maps that server-side apply replaces as a whole.
    pub(super) fn atomics(mut self, paths: &[&str]) -> Self {
        for path in paths {
            self.atomic(path);
        }
        self
    }

    /// Adds lists that only strategic merge patches merge.
    pub(super) fn patched(mut self, lists: &[(&str, &str)]) -> Self {
        for (path, key) in lists {
            let rule = ListRule::AtomicPatched { patch_key: (*key).to_owned() };
            self.lists.insert((*path).to_owned(), rule);
        }
        self
    }

    /// The rules that a structural schema states with `x-kubernetes-list-type` and its kin.
    #[allow(dead_code, reason = "custom resources are not served yet")]
    pub(crate) fn of_schema(schema: &Value) -> Self {
        let mut rules = Self::plain();
        rules.read_schema("", schema);
        rules
    }

    #[allow(dead_code, reason = "custom resources are not served yet")]
    fn read_schema(&mut self, path: &str, schema: &Value) {
        match schema["x-kubernetes-list-type"].as_str() {
            Some("map") => {
                let keys = schema["x-kubernetes-list-map-keys"].as_array();
                let keys: Vec<&str> =
                    keys.into_iter().flatten().filter_map(Value::as_str).collect();
                self.map(path, &keys);
            }
            Some("set") => self.set(path),
            _ => {}
        }
        if schema["x-kubernetes-map-type"] == "atomic" {
            self.atomic(path);
        }
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            self.read_schema(&below, field);
        }
        if schema["items"].is_object() {
            self.read_schema(path, &schema["items"]);
        }
    }
}
