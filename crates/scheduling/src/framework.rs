//! The scheduling framework: upstream's extension points, with one more for gangs, and the profiles made of them.
//!
//! A plugin implements the points it cares for. PreFilter to NormalizeScore are asked about a shape of pod, which all
//! pods of a gang share. Reserve and Permit see the whole plan; PreBind, Bind and PostBind belong to whoever carries a
//! plan out, and are values there.

use crate::{
    cluster::{Cluster, NodeRecord, PodRecord},
    filters, scores,
    shape::Shape,
};

/// What a plugin sees of a scheduling attempt.
pub struct Context<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// The shape of pod that is placed.
    pub shape: &'a Shape,
}

/// A plugin of the framework. Every point has a neutral default.
pub trait Plugin: Send + Sync {
    /// Upstream's name where there is one.
    fn name(&self) -> &'static str;

    /// Whether a pod may enter the queue; `Some` says what holds it back.
    fn pre_enqueue(&self, _pod: &PodRecord) -> Option<String> {
        None
    }

    /// Whether the shape can be placed at all; `Some` says why not.
    fn pre_filter(&self, _context: &Context<'_>) -> Option<String> {
        None
    }

    /// Whether a node can take the shape; `Some` is upstream's reason why not.
    fn filter(&self, _context: &Context<'_>, _node: &NodeRecord) -> Option<String> {
        None
    }

    /// Raw scores of the nodes that passed every filter, in their order; `None` when the plugin has nothing to say.
    fn score(&self, _context: &Context<'_>, _nodes: &[&NodeRecord]) -> Option<Vec<i64>> {
        None
    }

    /// Brings raw scores to 0–100.
    fn normalize(&self, _scores: &mut [i64]) {}
}

/// How gangs are placed in a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GangPlacement {
    /// All members together, by topology.
    Together,
    /// One pod after the other, by score.
    OneByOne,
}

/// A set of plugins with their weights.
pub struct Profile {
    /// Its name.
    pub name: &'static str,
    /// Plugins in the order in which they are asked; the weight is that of their score.
    pub plugins: Vec<(Box<dyn Plugin>, i64)>,
    /// How gangs are placed.
    pub gangs: GangPlacement,
}

/// What a node must be for any pod, in upstream's order.
fn common() -> Vec<(Box<dyn Plugin>, i64)> {
    vec![
        (Box::new(filters::Supported), 0),
        (Box::new(filters::NodeUnschedulable), 0),
        (Box::new(scores::TaintToleration), 3),
        (Box::new(scores::NodeAffinity), 2),
        (Box::new(filters::NodePorts), 0),
        (Box::new(filters::NodeMode), 0),
        (Box::new(scores::NodeResourcesFit), 1),
        (Box::new(scores::PodTopologySpread), 2),
    ]
}

impl Profile {
    /// Gangs and GPUs by topology.
    pub fn ringmaster() -> Self {
        Self { name: api::contract::RINGMASTER, plugins: common(), gangs: GangPlacement::Together }
    }

    /// Upstream's default plugins and weights, one pod at a time.
    pub fn default_scheduler() -> Self {
        let mut plugins = common();
        plugins.push((Box::new(scores::BalancedAllocation), 1));
        plugins.push((Box::new(scores::ImageLocality), 1));
        Self { name: api::contract::DEFAULT_SCHEDULER, plugins, gangs: GangPlacement::OneByOne }
    }

    /// The nodes that pass every filter, and how many each reason refused.
    pub fn filter<'a>(
        &self,
        context: &Context<'a>,
    ) -> (Vec<&'a NodeRecord>, std::collections::BTreeMap<String, usize>) {
        let mut refused = std::collections::BTreeMap::new();
        let passing = context
            .cluster
            .nodes()
            .filter(|node| {
                match self.plugins.iter().find_map(|(plugin, _)| plugin.filter(context, node)) {
                    Some(reason) => {
                        *refused.entry(reason).or_insert(0) += 1;
                        false
                    }
                    None => true,
                }
            })
            .collect();
        (passing, refused)
    }

    /// Weighted sum of the normalised scores of `nodes`.
    pub fn score(&self, context: &Context<'_>, nodes: &[&NodeRecord]) -> Vec<i64> {
        let mut total = vec![0; nodes.len()];
        for (plugin, weight) in self.plugins.iter().filter(|(_, weight)| *weight > 0) {
            let Some(mut scores) = plugin.score(context, nodes) else { continue };
            plugin.normalize(&mut scores);
            for (sum, score) in total.iter_mut().zip(scores) {
                *sum += weight * score;
            }
        }
        total
    }
}
