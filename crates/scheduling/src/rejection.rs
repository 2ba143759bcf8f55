//! Why a pod or gang was not placed: the first blocking constraint, with numbers.

use std::{collections::BTreeMap, fmt};

use placement::Shortage;
use serde::Serialize;

/// Why something has no place now.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "reason", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Rejection {
    /// A gate or a malformed label holds a pod back.
    HeldBack {
        /// The pod.
        pod: String,
        /// What holds it.
        by: String,
    },
    /// Fewer members exist than must start together.
    Gathering {
        /// Members that exist.
        members: usize,
        /// Members that must.
        minimum: usize,
    },
    /// It needs something that is not placed yet.
    Unsupported {
        /// What.
        what: String,
    },
    /// No node passes every filter.
    NoNode {
        /// Nodes there are.
        nodes: usize,
        /// Nodes by the first filter that refuses them.
        refused: BTreeMap<String, usize>,
    },
    /// Nodes pass, but together they have no room for all.
    Shortage {
        /// Nodes there are.
        nodes: usize,
        /// Nodes by the first filter that refuses them.
        refused: BTreeMap<String, usize>,
        /// What lacks.
        shortage: Shortage,
        /// GPUs that the nodes have but that serve in another mode.
        other_mode: usize,
    },
    /// A gang that has waited too long is not overtaken.
    Behind {
        /// The gang.
        gang: String,
        /// Minutes that it has waited.
        minutes: i64,
    },
}

impl Rejection {
    /// Whether only a change of the cluster's machines can help.
    pub fn never_fits(&self) -> bool {
        matches!(self, Self::Shortage { shortage, .. } if shortage.never_fits())
    }

    /// One word for it.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::HeldBack { .. } => "HeldBack",
            Self::Gathering { .. } => "Gathering",
            Self::Unsupported { .. } => "Unsupported",
            Self::NoNode { .. } => "NoNode",
            Self::Shortage { .. } => "Shortage",
            Self::Behind { .. } => "Behind",
        }
    }
}

/// `2 Insufficient cpu, 1 node(s) were unschedulable`, sorted as upstream sorts them.
fn counted(refused: &BTreeMap<String, usize>) -> String {
    let mut parts: Vec<String> =
        refused.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    parts.sort();
    parts.join(", ")
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HeldBack { pod, by } => write!(f, "pod {pod} is held back: {by}"),
            Self::Gathering { members, minimum } => {
                write!(f, "gang is gathering: {members} of {minimum} pods exist")
            }
            Self::Unsupported { what } => f.write_str(what),
            Self::NoNode { nodes, refused } if refused.is_empty() => {
                write!(f, "0/{nodes} nodes are available.")
            }
            Self::NoNode { nodes, refused } => {
                write!(f, "0/{nodes} nodes are available: {}.", counted(refused))
            }
            Self::Shortage { nodes, refused, shortage, other_mode } => {
                let Shortage { workers, gpus_per_worker, nodes: passing, free, fitting, capacity } =
                    shortage;
                write!(
                    f,
                    "{passing}/{nodes} nodes are available, but not for the whole gang: {workers} pods"
                )?;
                if *gpus_per_worker > 0 {
                    let need = workers * gpus_per_worker;
                    write!(
                        f,
                        " × {gpus_per_worker} GPU need {need} GPUs, {free} are free, {fitting} pods fit"
                    )?;
                } else {
                    write!(f, ", {fitting} fit")?;
                }
                match shortage.never_fits() {
                    true if *capacity == 0 => {
                        f.write_str(
                            "; it can never fit: no node has as many GPUs as one pod asks for",
                        )?;
                    }
                    true => {
                        write!(f, "; it can never fit: these nodes have {capacity} GPUs in all")?
                    }
                    false => {}
                }
                if *other_mode > 0 {
                    write!(f, "; {other_mode} more GPUs are on nodes in the other mode")?;
                }
                if !refused.is_empty() {
                    write!(f, "; refused: {}", counted(refused))?;
                }
                f.write_str(".")
            }
            Self::Behind { gang, minutes } => {
                write!(f, "gang {gang} has waited {minutes} minutes and is not overtaken")
            }
        }
    }
}
