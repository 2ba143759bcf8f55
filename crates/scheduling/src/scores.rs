//! Plugins that score nodes, as upstream's do: same formulas, same integers.

use std::collections::{BTreeMap, BTreeSet};

use api::{LabelSelector, pod::TopologySpreadConstraint};

use crate::{
    cluster::NodeRecord,
    filters,
    framework::{Context, Plugin},
    shape::{Demand, Shape},
};

/// Highest score.
const MOST: i64 = 100;

/// Scales scores so that the highest is 100; `reverse` makes few good.
fn scale(scores: &mut [i64], reverse: bool) {
    let most = scores.iter().copied().max().unwrap_or_default();
    for score in scores.iter_mut() {
        let scaled = if most == 0 { 0 } else { MOST * *score / most };
        *score = if reverse { MOST - scaled } else { scaled };
    }
}

/// Taints: those that forbid filter, those that only discourage score.
pub(crate) struct TaintToleration;

fn tolerated(shape: &Shape, taint: &api::pod::Taint) -> bool {
    shape.tolerations.iter().any(|toleration| toleration.tolerates(taint))
}

impl Plugin for TaintToleration {
    fn name(&self) -> &'static str {
        "TaintToleration"
    }

    fn filter(&self, context: &Context<'_>, node: &NodeRecord) -> Option<String> {
        let forbids =
            |taint: &&api::pod::Taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
        let bad = node.taints.iter().filter(forbids).any(|taint| !tolerated(context.shape, taint));
        bad.then(|| "node(s) had untolerated taint(s)".to_owned())
    }

    fn score(&self, context: &Context<'_>, nodes: &[&NodeRecord]) -> Option<Vec<i64>> {
        let discourages = |taint: &&api::pod::Taint| {
            taint.effect == "PreferNoSchedule" && !tolerated(context.shape, taint)
        };
        Some(
            nodes
                .iter()
                .map(|node| count(node.taints.iter().filter(discourages).count()))
                .collect(),
        )
    }

    fn normalize(&self, scores: &mut [i64]) {
        scale(scores, true);
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Node selector and node affinity.
pub(crate) struct NodeAffinity;

/// Sum of the weights of the preferred terms that a node satisfies.
pub(crate) fn preferred(shape: &Shape, node: &NodeRecord) -> i64 {
    let terms = shape.node_affinity.preferred.iter();
    terms
        .filter(|term| term.preference.matches(&node.name, &node.labels))
        .map(|term| i64::from(term.weight))
        .sum()
}

/// Whether a node is one that selector and affinity name.
fn selected(shape: &Shape, node: &NodeRecord) -> bool {
    shape.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
        && shape
            .node_affinity
            .required
            .as_ref()
            .is_none_or(|required| required.matches(&node.name, &node.labels))
}

impl Plugin for NodeAffinity {
    fn name(&self) -> &'static str {
        "NodeAffinity"
    }

    fn filter(&self, context: &Context<'_>, node: &NodeRecord) -> Option<String> {
        (!selected(context.shape, node))
            .then(|| "node(s) didn't match Pod's node affinity/selector".to_owned())
    }

    fn score(&self, context: &Context<'_>, nodes: &[&NodeRecord]) -> Option<Vec<i64>> {
        let shape = context.shape;
        (!shape.node_affinity.preferred.is_empty())
            .then(|| nodes.iter().map(|node| preferred(shape, node)).collect())
    }

    fn normalize(&self, scores: &mut [i64]) {
        scale(scores, false);
    }
}

/// Resources: whether they are there, and that the emptiest node is best (LeastAllocated, CPU and memory alike).
pub(crate) struct NodeResourcesFit;

/// What the node would use with the pod on it, CPU and memory, as the scores count them.
fn used_with(node: &NodeRecord, demand: &Demand) -> [(i64, i64); 2] {
    [
        (node.used.scored_cpu + demand.scored_cpu, node.allocatable.cpu),
        (node.used.scored_memory + demand.scored_memory, node.allocatable.memory),
    ]
}

impl Plugin for NodeResourcesFit {
    fn name(&self) -> &'static str {
        "NodeResourcesFit"
    }

    fn filter(&self, context: &Context<'_>, node: &NodeRecord) -> Option<String> {
        let lacking = filters::lacking(context, node);
        (!lacking.is_empty()).then(|| lacking.join(", "))
    }

    fn score(&self, context: &Context<'_>, nodes: &[&NodeRecord]) -> Option<Vec<i64>> {
        let score = |node: &&NodeRecord| {
            let resources = used_with(node, &context.shape.demand);
            let there = resources.iter().filter(|(_, capacity)| *capacity > 0);
            let (sum, weights) = there.fold((0, 0), |(sum, weights), (used, capacity)| {
                let left = if used > capacity { 0 } else { (capacity - used) * MOST / capacity };
                (sum + left, weights + 1)
            });
            if weights == 0 { 0 } else { sum / weights }
        };
        Some(nodes.iter().map(score).collect())
    }
}

/// CPU and memory should be used in equal shares.
pub(crate) struct BalancedAllocation;

impl Plugin for BalancedAllocation {
    fn name(&self) -> &'static str {
        "NodeResourcesBalancedAllocation"
    }

    fn score(&self, context: &Context<'_>, nodes: &[&NodeRecord]) -> Option<Vec<i64>> {
        let demand = &context.shape.demand;
        if demand.cpu == 0 && demand.memory == 0 {
            // Upstream skips pods that ask for nothing.
            return None;
        }
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            reason = "upstream counts in floats"
        )]
        let score = |node: &&NodeRecord| {
            let share = |used: i64, there: i64| {
                if there == 0 { 1.0 } else { (used as f64 / there as f64).min(1.0) }
            };
            let cpu = share(node.used.cpu + demand.cpu, node.allocatable.cpu);
            let memory = share(node.used.memory + demand.memory, node.allocatable.memory);
            ((1.0 - (cpu - memory).abs() / 2.0) * MOST as f64) as i64
        };
        Some(nodes.iter().map(score).collect())
    }
}

/// A node that has the images need not pull them.
pub(crate) struct ImageLocality;

/// Below this many bytes an image does not count; above the other, per container, no more counts.
const SMALL_IMAGE: i64 = 23 * 1024 * 1024;
const LARGE_IMAGE: i64 = 1000 * 1024 * 1024;

/// `image` with the tag that is meant without one.
fn tagged(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    if last.contains(':') || last.contains('@') {
        image.to_owned()
    } else {
        format!("{image}:latest")
    }
}

impl Plugin for ImageLocality {
    fn name(&self) -> &'static str {
        "ImageLocality"
    }

    fn score(&self, context: &Context<'_>, nodes: &[&NodeRecord]) -> Option<Vec<i64>> {
        let has = |node: &NodeRecord, image: &str| {
            node.images
                .iter()
                .find(|there| there.names.iter().any(|name| name == image))
                .map(|there| there.size_bytes)
        };
        let images: Vec<(String, i64)> = context
            .shape
            .images
            .iter()
            .map(|image| tagged(image))
            .map(|image| {
                let nodes =
                    context.cluster.nodes().filter(|node| has(node, &image).is_some()).count();
                (image, count(nodes))
            })
            .collect();
        let total = count(context.cluster.nodes().len()).max(1);
        let ceiling = LARGE_IMAGE * count(images.len().max(1));
        let score = |node: &&NodeRecord| {
            let sum: i64 = images
                .iter()
                .map(|(image, spread)| has(node, image).unwrap_or(0) * spread / total)
                .sum();
            MOST * (sum.clamp(SMALL_IMAGE, ceiling) - SMALL_IMAGE) / (ceiling - SMALL_IMAGE)
        };
        Some(nodes.iter().map(score).collect())
    }
}

/// Spread of like pods over topology domains.
pub(crate) struct PodTopologySpread;

const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

/// A constraint with the selector that counts.
struct Spread {
    key: String,
    skew: i64,
    selector: LabelSelector,
}

/// The pod's constraints of one kind; for scoring, upstream's defaults where the pod has none and a service selects it.
fn constraints(context: &Context<'_>, kind: &str) -> (Vec<Spread>, bool) {
    let shape = context.shape;
    let own: Vec<&TopologySpreadConstraint> = shape.spread.iter().collect();
    if !own.is_empty() || kind == "DoNotSchedule" {
        let wanted = own.into_iter().filter(|constraint| {
            let unsatisfiable = constraint.when_unsatisfiable.as_str();
            if unsatisfiable.is_empty() { kind == "DoNotSchedule" } else { unsatisfiable == kind }
        });
        let spreads = wanted
            .map(|constraint| {
                let mut selector = constraint.label_selector.clone().unwrap_or_default();
                for key in &constraint.match_label_keys {
                    if let Some(value) = shape.labels.get(key) {
                        selector.match_labels.insert(key.clone(), value.clone());
                    }
                }
                Spread {
                    key: constraint.topology_key.clone(),
                    skew: constraint.max_skew.into(),
                    selector,
                }
            })
            .collect();
        return (spreads, true);
    }
    let mut selector = LabelSelector::default();
    for labels in context.cluster.service_selectors(&shape.namespace) {
        if labels.iter().all(|(key, value)| shape.labels.get(key) == Some(value)) {
            selector.match_labels.extend(labels.clone());
        }
    }
    if selector.match_labels.is_empty() {
        return (Vec::new(), false);
    }
    let default =
        |key: &str, skew| Spread { key: key.to_owned(), skew, selector: selector.clone() };
    (vec![default(HOSTNAME, 3), default(ZONE, 5)], false)
}

/// Pods on a node that the selector counts.
fn matching(context: &Context<'_>, node: &NodeRecord, selector: &LabelSelector) -> i64 {
    let pods = node.pods.iter().filter_map(|uid| context.cluster.pod(uid));
    count(
        pods.filter(|pod| {
            *pod.namespace == *context.shape.namespace
                && !pod.terminating
                && selector.matches(&pod.shape.labels)
        })
        .count(),
    )
}

impl Plugin for PodTopologySpread {
    fn name(&self) -> &'static str {
        "PodTopologySpread"
    }

    fn filter(&self, context: &Context<'_>, node: &NodeRecord) -> Option<String> {
        let (spreads, _) = constraints(context, "DoNotSchedule");
        for (spread, constraint) in spreads
            .iter()
            .zip(context.shape.spread.iter().filter(|c| c.when_unsatisfiable != "ScheduleAnyway"))
        {
            let Some(domain) = node.labels.get(&spread.key) else {
                return Some(
                    "node(s) didn't match pod topology spread constraints (missing required label)"
                        .to_owned(),
                );
            };
            let mut domains: BTreeMap<&String, i64> = BTreeMap::new();
            let honours = constraint.node_affinity_policy.as_deref() != Some("Ignore");
            for other in
                context.cluster.nodes().filter(|other| !honours || selected(context.shape, other))
            {
                if let Some(domain) = other.labels.get(&spread.key) {
                    *domains.entry(domain).or_default() +=
                        matching(context, other, &spread.selector);
                }
            }
            let few =
                constraint.min_domains.is_some_and(|least| count(domains.len()) < i64::from(least));
            let least = if few { 0 } else { domains.values().copied().min().unwrap_or_default() };
            let itself = i64::from(context.shape.selects(&spread.selector));
            let here = domains.get(domain).copied().unwrap_or_default();
            if here + itself - least > spread.skew {
                return Some("node(s) didn't match pod topology spread constraints".to_owned());
            }
        }
        None
    }

    fn score(&self, context: &Context<'_>, nodes: &[&NodeRecord]) -> Option<Vec<i64>> {
        let (spreads, require_all) = constraints(context, "ScheduleAnyway");
        if spreads.is_empty() {
            return None;
        }
        let ignored = |node: &NodeRecord| {
            require_all && spreads.iter().any(|spread| !node.labels.contains_key(&spread.key))
        };
        let mut sums = vec![0.0; nodes.len()];
        for spread in &spreads {
            let domain = |node: &NodeRecord| node.labels.get(&spread.key).cloned();
            let domains: BTreeSet<String> = nodes
                .iter()
                .filter(|node| !ignored(node))
                .filter_map(|node| domain(node))
                .collect();
            let mut pods: BTreeMap<String, i64> = BTreeMap::new();
            for node in context.cluster.nodes() {
                if let Some(domain) = domain(node).filter(|domain| domains.contains(domain)) {
                    *pods.entry(domain).or_default() += matching(context, node, &spread.selector);
                }
            }
            let size = if spread.key == HOSTNAME {
                nodes.iter().filter(|node| !ignored(node)).count()
            } else {
                domains.len()
            };
            #[expect(clippy::cast_precision_loss, reason = "upstream counts in floats")]
            let weight = ((size + 2) as f64).ln();
            for (sum, node) in sums.iter_mut().zip(nodes) {
                if let Some(pods) = domain(node).and_then(|domain| pods.get(&domain)) {
                    #[expect(clippy::cast_precision_loss, reason = "upstream counts in floats")]
                    let part = *pods as f64 * weight + (spread.skew - 1) as f64;
                    *sum += part;
                }
            }
        }
        #[expect(clippy::cast_possible_truncation, reason = "a few pods times a logarithm")]
        let rounded = |sum: f64| sum.round() as i64;
        Some(
            nodes
                .iter()
                .zip(sums)
                .map(|(node, sum)| if ignored(node) { -1 } else { rounded(sum) })
                .collect(),
        )
    }

    fn normalize(&self, scores: &mut [i64]) {
        let counted = || scores.iter().copied().filter(|score| *score >= 0);
        let (least, most) =
            (counted().min().unwrap_or_default(), counted().max().unwrap_or_default());
        for score in scores.iter_mut() {
            *score = match *score {
                -1 => 0,
                _ if most == 0 => MOST,
                score => MOST * (most + least - score) / most,
            };
        }
    }
}
