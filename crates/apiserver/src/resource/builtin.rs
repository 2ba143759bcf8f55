//! The table of built-in resources.

use std::sync::Arc;

use super::{Cells, Column, Columns, MergeRules, Resource, Scale, Subresource, Verbs};
use crate::table;

/// One row of the table; [`Row::build`] turns it into a [`Resource`].
struct Row {
    group_version: &'static str,
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    namespaced: bool,
    status: bool,
    all: bool,
}

impl Row {
    fn build(&self) -> Resource {
        let (group, version) =
            self.group_version.split_once('/').unwrap_or(("", self.group_version));
        let storage = if group.is_empty() {
            self.plural.to_owned()
        } else {
            format!("{}.{group}", self.plural)
        };
        Resource {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: self.kind.to_owned(),
            list_kind: format!("{}List", self.kind),
            plural: self.plural.to_owned(),
            singular: self.kind.to_lowercase(),
            short_names: self.short.iter().map(|s| (*s).to_owned()).collect(),
            categories: if self.all { vec!["all".to_owned()] } else { Vec::new() },
            namespaced: self.namespaced,
            verbs: Verbs::All,
            status: self.status,
            scale: None,
            others: Vec::new(),
            columns: table::columns_of(group, self.plural).unwrap_or_else(name_and_age),
            merge: Arc::new(MergeRules::plain()),
            schema: None,
            storage: storage.into(),
            storage_version: self.group_version.to_owned(),
        }
    }
}

/// The columns of a resource that has none of its own.
fn name_and_age() -> Columns {
    Columns { columns: vec![Column::name(), Column::age()], cells: Cells::NameAndAge }
}

impl Column {
    /// The first column of every table.
    pub(crate) fn name() -> Self {
        Self {
            name: "Name".to_owned(),
            kind: "string".to_owned(),
            format: "name".to_owned(),
            description: "Name must be unique within a namespace.".to_owned(),
            priority: 0,
            path: None,
        }
    }

    /// The age since creation.
    pub(crate) fn age() -> Self {
        Self::string("Age", "Time since the object was created.")
    }

    /// A text that is always shown.
    pub(crate) fn string(name: &str, description: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind: "string".to_owned(),
            format: String::new(),
            description: description.to_owned(),
            priority: 0,
            path: None,
        }
    }
}

const CLUSTER: bool = false;
const NAMESPACED: bool = true;

const fn row(
    group_version: &'static str,
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    namespaced: bool,
    status: bool,
) -> Row {
    Row { group_version, kind, plural, short, namespaced, status, all: false }
}

const fn in_all(mut row: Row) -> Row {
    row.all = true;
    row
}

/// Discovery lists resources in this order; groups in the order of their first row.
const ROWS: &[Row] = &[
    row("v1", "ConfigMap", "configmaps", &["cm"], NAMESPACED, false),
    row("v1", "Endpoints", "endpoints", &["ep"], NAMESPACED, false),
    row("v1", "Event", "events", &["ev"], NAMESPACED, false),
    row("v1", "LimitRange", "limitranges", &["limits"], NAMESPACED, false),
    row("v1", "Namespace", "namespaces", &["ns"], CLUSTER, true),
    row("v1", "Node", "nodes", &["no"], CLUSTER, true),
    row("v1", "PersistentVolumeClaim", "persistentvolumeclaims", &["pvc"], NAMESPACED, true),
    row("v1", "PersistentVolume", "persistentvolumes", &["pv"], CLUSTER, true),
    in_all(row("v1", "Pod", "pods", &["po"], NAMESPACED, true)),
    in_all(row("v1", "ReplicationController", "replicationcontrollers", &["rc"], NAMESPACED, true)),
    row("v1", "ResourceQuota", "resourcequotas", &["quota"], NAMESPACED, true),
    row("v1", "Secret", "secrets", &[], NAMESPACED, false),
    row("v1", "ServiceAccount", "serviceaccounts", &["sa"], NAMESPACED, false),
    in_all(row("v1", "Service", "services", &["svc"], NAMESPACED, true)),
    row(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        &["crd", "crds"],
        CLUSTER,
        true,
    ),
    row("apps/v1", "ControllerRevision", "controllerrevisions", &[], NAMESPACED, false),
    in_all(row("apps/v1", "DaemonSet", "daemonsets", &["ds"], NAMESPACED, true)),
    in_all(row("apps/v1", "Deployment", "deployments", &["deploy"], NAMESPACED, true)),
    in_all(row("apps/v1", "ReplicaSet", "replicasets", &["rs"], NAMESPACED, true)),
    in_all(row("apps/v1", "StatefulSet", "statefulsets", &["sts"], NAMESPACED, true)),
    row("events.k8s.io/v1", "Event", "events", &["ev"], NAMESPACED, false),
    row("authentication.k8s.io/v1", "TokenReview", "tokenreviews", &[], CLUSTER, false),
    row("authentication.k8s.io/v1", "SelfSubjectReview", "selfsubjectreviews", &[], CLUSTER, false),
    row(
        "authorization.k8s.io/v1",
        "LocalSubjectAccessReview",
        "localsubjectaccessreviews",
        &[],
        NAMESPACED,
        false,
    ),
    row(
        "authorization.k8s.io/v1",
        "SelfSubjectAccessReview",
        "selfsubjectaccessreviews",
        &[],
        CLUSTER,
        false,
    ),
    row(
        "authorization.k8s.io/v1",
        "SelfSubjectRulesReview",
        "selfsubjectrulesreviews",
        &[],
        CLUSTER,
        false,
    ),
    row(
        "authorization.k8s.io/v1",
        "SubjectAccessReview",
        "subjectaccessreviews",
        &[],
        CLUSTER,
        false,
    ),
    in_all(row("batch/v1", "CronJob", "cronjobs", &["cj"], NAMESPACED, true)),
    in_all(row("batch/v1", "Job", "jobs", &[], NAMESPACED, true)),
    row("networking.k8s.io/v1", "Ingress", "ingresses", &["ing"], NAMESPACED, true),
    row("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", &["netpol"], NAMESPACED, false),
    row("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", &["pdb"], NAMESPACED, true),
    row("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", &[], CLUSTER, false),
    row(
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        "clusterrolebindings",
        &[],
        CLUSTER,
        false,
    ),
    row("rbac.authorization.k8s.io/v1", "Role", "roles", &[], NAMESPACED, false),
    row("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", &[], NAMESPACED, false),
    row("storage.k8s.io/v1", "CSIDriver", "csidrivers", &[], CLUSTER, false),
    row("storage.k8s.io/v1", "CSINode", "csinodes", &[], CLUSTER, false),
    row("storage.k8s.io/v1", "StorageClass", "storageclasses", &["sc"], CLUSTER, false),
    row("storage.k8s.io/v1", "VolumeAttachment", "volumeattachments", &[], CLUSTER, true),
    row("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", &["pc"], CLUSTER, false),
    row("coordination.k8s.io/v1", "Lease", "leases", &[], NAMESPACED, false),
    row("node.k8s.io/v1", "RuntimeClass", "runtimeclasses", &[], CLUSTER, false),
    row("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", &[], NAMESPACED, false),
];

/// All built-in resources, in discovery's order.
pub(super) fn table() -> Vec<Resource> {
    ROWS.iter().map(Row::build).map(special).collect()
}

fn special(mut resource: Resource) -> Resource {
    let group = resource.group.clone();
    match (group.as_str(), resource.plural.as_str()) {
        ("authentication.k8s.io" | "authorization.k8s.io", _) => resource.verbs = Verbs::CreateOnly,
        // One storage, two views: see the events module.
        ("events.k8s.io", "events") => {
            resource.storage = "events".into();
            resource.storage_version = "v1".to_owned();
        }
        ("", "pods") => resource.others = pod_subresources(),
        ("", "serviceaccounts") => {
            resource.others = vec![Subresource {
                name: "token",
                body: ("authentication.k8s.io", "v1", "TokenRequest"),
                verbs: &["create"],
            }];
        }
        ("", "replicationcontrollers")
        | ("apps", "deployments" | "replicasets" | "statefulsets") => {
            resource.scale =
                Some(Scale::of("spec.replicas", "status.replicas", Some("spec.selector")));
        }
        _ => {}
    }
    resource.merge = Arc::new(merge_rules(&group, &resource.plural));
    if let Some(categories) = match (group.as_str(), resource.plural.as_str()) {
        ("apiextensions.k8s.io", _) => Some(vec!["api-extensions".to_owned()]),
        _ => None,
    } {
        resource.categories = categories;
    }
    resource
}

impl Scale {
    /// A scale by its paths, as in `spec.replicas`; a leading dot is allowed.
    pub(crate) fn of(spec: &str, status: &str, selector: Option<&str>) -> Self {
        let path = |text: &str| -> Vec<String> {
            text.trim_start_matches('.').split('.').map(str::to_owned).collect()
        };
        Self {
            spec_replicas: path(spec),
            status_replicas: path(status),
            selector: selector.map(path),
        }
    }
}

fn pod_subresources() -> Vec<Subresource> {
    let core = |name, kind, verbs| Subresource { name, body: ("", "v1", kind), verbs };
    vec![
        core("attach", "PodAttachOptions", &["create", "get"]),
        core("binding", "Binding", &["create"]),
        Subresource { name: "eviction", body: ("policy", "v1", "Eviction"), verbs: &["create"] },
        core("exec", "PodExecOptions", &["create", "get"]),
        core("log", "Pod", &["get"]),
    ]
}

fn merge_rules(group: &str, plural: &str) -> MergeRules {
    const CONDITIONS: (&str, &[&str]) = ("status.conditions", &["type"]);
    let plain = MergeRules::plain();
    let workload = || {
        MergeRules::plain()
            .pod_template("spec.template")
            .maps(&[CONDITIONS])
            .atomics(&["spec.selector"])
    };
    match (group, plural) {
        ("", "pods") => plain.pod_template("").maps(&[
            CONDITIONS,
            ("status.podIPs", &["ip"]),
            ("status.resourceClaimStatuses", &["name"]),
        ]),
        ("", "nodes") => plain
            .maps(&[CONDITIONS, ("status.addresses", &["type"])])
            .sets(&["spec.podCIDRs"])
            .patched(&[("spec.taints", "key")]),
        ("", "namespaces") => plain.maps(&[CONDITIONS]),
        ("", "services") => plain
            .maps(&[CONDITIONS, ("spec.ports", &["port", "protocol"])])
            .atomics(&["spec.selector"]),
        ("", "serviceaccounts") => {
            plain.maps(&[("secrets", &["name"])]).patched(&[("imagePullSecrets", "name")])
        }
        ("", "persistentvolumeclaims") => plain.maps(&[CONDITIONS]).atomics(&["spec.selector"]),
        ("", "replicationcontrollers") => workload(),
        ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets") => workload(),
        ("batch", "jobs") => MergeRules::plain()
            .pod_template("spec.template")
            .atomics(&["spec.selector"])
            .patched(&[("status.conditions", "type")]),
        ("batch", "cronjobs") => MergeRules::plain()
            .pod_template("spec.jobTemplate.spec.template")
            .atomics(&["spec.jobTemplate.spec.selector"]),
        ("policy", "poddisruptionbudgets") => plain.maps(&[CONDITIONS]).atomics(&["spec.selector"]),
        ("apiextensions.k8s.io", "customresourcedefinitions") => plain.maps(&[CONDITIONS]),
        _ => plain,
    }
}
