//! The order of a set's members: along the links where they allow it, else along PCIe.

use topology::{GpuSet, PcieLevel, Topology};

/// Up to this many members every order is tried; beyond it the order is ascending.
const SEARCH_LIMIT: usize = 8;

/// 0 for a pair joined by links, else the PCIe level from near (1) to far (5).
fn hop(topology: &Topology, a: usize, b: usize) -> usize {
    if topology.link(a, b) > 0 {
        return 0;
    }
    let level = topology.level(a, b);
    1 + PcieLevel::ALL.iter().position(|&l| l == level).unwrap_or(PcieLevel::ALL.len())
}

/// The lowest path from `path` over all `members` whose hops are at most `worst`, and the closing hop too if `closed`.
fn extend(
    topology: &Topology,
    members: &[usize],
    path: &mut Vec<usize>,
    worst: usize,
    closed: bool,
) -> bool {
    let (first, last) = (path[0], path[path.len() - 1]);
    if path.len() == members.len() {
        return !closed || hop(topology, last, first) <= worst;
    }
    for &next in members {
        if !path.contains(&next) && hop(topology, last, next) <= worst {
            path.push(next);
            if extend(topology, members, path, worst, closed) {
                return true;
            }
            path.pop();
        }
    }
    false
}

/// The lowest ring whose slowest hop is at most `worst`, from the lowest member.
fn closed_ring(topology: &Topology, members: &[usize], worst: usize) -> Option<Vec<usize>> {
    let mut path = vec![*members.first()?];
    extend(topology, members, &mut path, worst, true).then_some(path)
}

/// The PCIe level of the slowest hop of the best ring over the members; `None` when every hop can be a link.
pub(crate) fn slowest_level(topology: &Topology, members: &[usize]) -> Option<PcieLevel> {
    let worst = if members.len() <= SEARCH_LIMIT {
        (0..=PcieLevel::ALL.len()).find(|&worst| closed_ring(topology, members, worst).is_some())
    } else {
        // Levels nest, so a ring of a level exists when the members hang together at it.
        (0..=PcieLevel::ALL.len()).find(|&worst| is_connected(topology, members, worst))
    }?;
    worst.checked_sub(1).and_then(|index| PcieLevel::ALL.get(index).copied())
}

fn is_connected(topology: &Topology, members: &[usize], worst: usize) -> bool {
    let Some(&first) = members.first() else { return true };
    let mut reached = GpuSet::single(first);
    let mut frontier = vec![first];
    while let Some(gpu) = frontier.pop() {
        for &next in members {
            if !reached.contains(next) && hop(topology, gpu, next) <= worst {
                reached.insert(next);
                frontier.push(next);
            }
        }
    }
    reached.len() == members.len()
}

/// The members in rank order.
pub(crate) fn order(topology: &Topology, set: GpuSet) -> Vec<usize> {
    let members: Vec<usize> = set.iter().collect();
    if members.len() < 3 || members.len() > SEARCH_LIMIT {
        return members;
    }
    let ring = closed_ring(topology, &members, 0);
    let chain = || {
        members.iter().find_map(|&start| {
            let mut path = vec![start];
            extend(topology, &members, &mut path, 0, false).then_some(path)
        })
    };
    let pcie =
        || (1..=PcieLevel::ALL.len()).find_map(|worst| closed_ring(topology, &members, worst));
    ring.or_else(chain).or_else(pcie).unwrap_or(members)
}
