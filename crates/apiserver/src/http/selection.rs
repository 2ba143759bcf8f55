//! Which objects a list, a watch or a collective deletion is about.

use super::path::Target;
use super::query::Query;
use crate::kinds::events;
use crate::selector::{Fields, Labels};
use crate::status::Status;
use crate::store::{Lane, Object};

/// Namespace, name, labels and fields.
#[derive(Debug)]
pub(crate) struct Selection {
    labels: Option<Labels>,
    fields: Option<Fields>,
    name: Option<String>,
    lane: Lane,
}

impl Selection {
    pub(crate) fn read(target: &Target, query: &Query) -> Result<Self, Status> {
        let labels = query.get("labelSelector").map(Labels::parse).transpose()?;
        let text = query.get("fieldSelector").map(|text| {
            let renamed = target.resource.group == "events.k8s.io";
            if renamed { events::selector(text) } else { text.to_owned() }
        });
        let fields = text.as_deref().map(Fields::parse).transpose()?;
        if let Some(fields) = &fields {
            fields.check(&target.resource)?;
        }
        let wanted = |path: &str| fields.as_ref().and_then(|f| f.exactly(path)).map(str::to_owned);
        let name = target.name.clone().or_else(|| wanted("metadata.name"));
        let node = (target.resource.storage.as_ref() == "pods").then(|| wanted("spec.nodeName"));
        let lane = match (&name, node.flatten()) {
            (Some(name), _) if !target.resource.namespaced || !target.namespace.is_empty() => {
                Lane::Key(target.key(name))
            }
            (_, Some(node)) => Lane::Node(node),
            _ if target.namespace.is_empty() => Lane::Any,
            _ => Lane::Namespace(target.namespace.clone()),
        };
        Ok(Self { labels, fields, name, lane })
    }

    /// The narrowest lane that holds all that is selected.
    pub(crate) fn lane(&self) -> Lane {
        self.lane.clone()
    }

    pub(crate) fn selects(&self, object: &Object) -> bool {
        let in_lane = match &self.lane {
            Lane::Namespace(namespace) => object.namespace() == namespace,
            Lane::Key(key) => object.key == *key,
            Lane::Any | Lane::Node(_) => true,
        };
        in_lane
            && self.name.as_deref().is_none_or(|name| object.name() == name)
            && self.labels.as_ref().is_none_or(|labels| labels.matches(&object.head))
            && self.fields.as_ref().is_none_or(|fields| fields.matches(&object.head))
    }
}
