//! Which resources are served right now: the built-in table and what custom resource definitions add.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Resource, builtin};

/// The served resources, an immutable snapshot. Definitions make a new one.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    builtin: Vec<Arc<Resource>>,
    /// By the definition's name (`PLURAL.GROUP`); one entry per served version, the preferred one first.
    custom: BTreeMap<String, Vec<Arc<Resource>>>,
}

impl Registry {
    /// The built-in resources alone.
    pub fn builtin() -> Self {
        Self {
            builtin: builtin::table().into_iter().map(Arc::new).collect(),
            custom: BTreeMap::new(),
        }
    }

    /// All resources, built-in ones first.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.builtin.iter().chain(self.custom.values().flatten())
    }

    /// The resource under `/apis/GROUP/VERSION/PLURAL`.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.all().find(|r| r.plural == plural && r.group == group && r.version == version)
    }

    /// The resource of a kind, as `apiVersion` and `kind` of an object or an owner reference name it.
    pub fn find_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.all().find(|r| r.kind == kind && r.group == group && r.version == version)
    }

    /// The resource that shows the objects of a storage as they are stored.
    pub fn find_storage(&self, storage: &str) -> Option<&Arc<Resource>> {
        let mut views = self.all().filter(|r| r.storage.as_ref() == storage);
        let first = views.next()?;
        let stored = |r: &&Arc<Resource>| r.api_version() == r.storage_version;
        Some(if stored(&first) { first } else { views.find(stored).unwrap_or(first) })
    }

    /// Whether a version of a group has any resource.
    pub fn has_version(&self, group: &str, version: &str) -> bool {
        self.all().any(|r| r.group == group && r.version == version)
    }

    /// The groups with their versions, in discovery's order: core first, the preferred version of a group first.
    pub fn groups(&self) -> Vec<(String, Vec<String>)> {
        let mut groups: Vec<(String, Vec<String>)> = Vec::new();
        for resource in self.all() {
            let known = groups.iter_mut().find(|(group, _)| *group == resource.group);
            match known {
                Some((_, versions)) if versions.contains(&resource.version) => {}
                Some((_, versions)) => versions.push(resource.version.clone()),
                None => groups.push((resource.group.clone(), vec![resource.version.clone()])),
            }
        }
        groups
    }

    /// Adds or replaces what the definition called `name` serves; an empty list removes it.
    pub fn with_definition(&self, name: &str, resources: Vec<Resource>) -> Self {
        let mut next = self.clone();
        if resources.is_empty() {
            next.custom.remove(name);
        } else {
            next.custom.insert(name.to_owned(), resources.into_iter().map(Arc::new).collect());
        }
        next
    }
}
