//! How many link-disjoint rings or chains fit into the links of a set of GPUs: the integer optimum.

/// Links between the members of a set, by position in the set. At most eight members.
pub(crate) type Links = Vec<Vec<u32>>;

/// Candidate rings or chains: the edges each takes, as one bits.
struct Columns {
    masks: Vec<u64>,
    /// How many columns may take each edge.
    capacity: Vec<u32>,
    /// For each vertex and direction the edges there; every column takes at least one of each group.
    groups: Vec<u64>,
    /// Edges that one column takes.
    length: u32,
}

/// Most link-disjoint directed Hamiltonian rings; a ring takes one direction of one link a hop. For two members that is
/// the number of links between them.
pub(crate) fn rings(links: &Links) -> u32 {
    let n = links.len();
    if n == 2 {
        return links[0][1];
    }
    let edge = |a: usize, b: usize| a * n + b;
    let mut masks = Vec::new();
    visit_paths(links, &mut vec![0], &mut |path| {
        let (first, last) = (path[0], path[n - 1]);
        if links[last][first] > 0 {
            let hops = path.windows(2).fold(0, |mask, hop| mask | 1 << edge(hop[0], hop[1]));
            masks.push(hops | 1_u64 << edge(last, first));
        }
    });
    let capacity = (0..n * n).map(|e| links[e / n][e % n]).collect();
    let leaving = |v: usize| {
        (0..n).filter(|&w| links[v][w] > 0).fold(0, |mask, w| mask | 1_u64 << edge(v, w))
    };
    let entering = |v: usize| {
        (0..n).filter(|&w| links[v][w] > 0).fold(0, |mask, w| mask | 1_u64 << edge(w, v))
    };
    let groups = (0..n).flat_map(|v| [leaving(v), entering(v)]).collect();
    Columns { masks, capacity, groups, length: u32::try_from(n).unwrap_or(u32::MAX) }.most()
}

/// Most link-disjoint Hamiltonian chains; a chain takes both directions of one link a hop.
pub(crate) fn chains(links: &Links) -> u32 {
    let n = links.len();
    if n == 2 {
        return links[0][1];
    }
    let edge = |a: usize, b: usize| a.min(b) * n + a.max(b);
    let mut masks = Vec::new();
    for start in 0..n {
        visit_paths(links, &mut vec![start], &mut |path| {
            if path[0] < path[n - 1] {
                masks.push(
                    path.windows(2).fold(0, |mask, hop| mask | 1_u64 << edge(hop[0], hop[1])),
                );
            }
        });
    }
    // Two chains over the same edges are one column.
    masks.sort_unstable();
    masks.dedup();
    let capacity =
        (0..n * n).map(|e| if e / n < e % n { links[e / n][e % n] } else { 0 }).collect();
    let at = |v: usize| {
        (0..n).filter(|&w| links[v][w] > 0).fold(0, |mask, w| mask | 1_u64 << edge(v, w))
    };
    let groups = (0..n).map(at).collect();
    Columns { masks, capacity, groups, length: u32::try_from(n - 1).unwrap_or(u32::MAX) }.most()
}

/// Calls `found` with every Hamiltonian path that starts as `path` does.
fn visit_paths(links: &Links, path: &mut Vec<usize>, found: &mut impl FnMut(&[usize])) {
    if path.len() == links.len() {
        found(path);
        return;
    }
    let last = path[path.len() - 1];
    for next in 0..links.len() {
        if links[last][next] > 0 && !path.contains(&next) {
            path.push(next);
            visit_paths(links, path, found);
            path.pop();
        }
    }
}

impl Columns {
    /// The largest number of columns, repetitions allowed, that respects the capacities.
    fn most(&self) -> u32 {
        if self.masks.is_empty() {
            return 0;
        }
        let total: u32 = self.capacity.iter().sum();
        let weakest =
            self.groups.iter().map(|&group| self.room(&self.capacity, group)).min().unwrap_or(0);
        let upper = weakest.min(total / self.length);
        let everything: Vec<u32> = (0..).take(self.masks.len()).collect();
        (1..=upper)
            .rev()
            .find(|&count| self.fits(count, &mut self.capacity.clone(), &everything))
            .unwrap_or(0)
    }

    /// Capacity left in a group of edges.
    fn room(&self, capacity: &[u32], mut group: u64) -> u32 {
        let mut room = 0;
        while group != 0 {
            room += capacity[group.trailing_zeros() as usize];
            group &= group - 1;
        }
        room
    }

    /// Whether `count` more columns, each one of `usable`, respect what is left of the capacities.
    fn fits(&self, count: u32, capacity: &mut Vec<u32>, usable: &[u32]) -> bool {
        if count == 0 {
            return true;
        }
        let full =
            (0..64).filter(|&e| capacity.get(e) == Some(&0)).fold(0, |mask, e| mask | 1_u64 << e);
        let usable: Vec<u32> =
            usable.iter().copied().filter(|&c| self.masks[c as usize] & full == 0).collect();
        // Each column takes an edge of each group: a group with room for exactly `count` columns wants every edge used.
        let mut forced = 0;
        for &group in &self.groups {
            let room = self.room(capacity, group);
            if room < count {
                return false;
            }
            if room == count {
                forced |= group & !full;
            }
        }
        if self.room(capacity, u64::MAX >> (64 - capacity.len().min(64))) < count * self.length {
            return false;
        }
        let takes =
            |edge: u32| usable.iter().filter(move |&&c| self.masks[c as usize] >> edge & 1 == 1);
        // Branch on the forced edge that the fewest columns take; without one, on the first column: in or out.
        let edge = (0..64_u32).filter(|e| forced >> e & 1 == 1).min_by_key(|&e| takes(e).count());
        if let Some(edge) = edge {
            let candidates: Vec<u32> = takes(edge).copied().collect();
            return candidates.into_iter().any(|c| {
                self.with(c, capacity, |capacity| self.fits(count - 1, capacity, &usable))
            });
        }
        let Some((&first, rest)) = usable.split_first() else { return false };
        self.with(first, capacity, |capacity| self.fits(count - 1, capacity, &usable))
            || self.fits(count, capacity, rest)
    }

    /// Runs `then` with the capacities less those of one column.
    fn with(
        &self,
        column: u32,
        capacity: &mut Vec<u32>,
        then: impl FnOnce(&mut Vec<u32>) -> bool,
    ) -> bool {
        let edges = |mut mask: u64| {
            std::iter::from_fn(move || {
                let edge = (mask != 0).then(|| mask.trailing_zeros() as usize)?;
                mask &= mask - 1;
                Some(edge)
            })
        };
        let mask = self.masks[column as usize];
        edges(mask).for_each(|edge| capacity[edge] -= 1);
        let outcome = then(capacity);
        edges(mask).for_each(|edge| capacity[edge] += 1);
        outcome
    }
}

/// Network strength: the least, over all partitions of the members into two parts or more, of the links between the
/// parts divided by the parts less one. An all-reduce of M bytes moves at least 2(p−1)M bytes between p parts, and
/// fractional packing of spanning trees attains it (Tutte, Nash-Williams).
pub(crate) fn strength(links: &Links) -> f64 {
    fn grow(links: &Links, part_of: &mut Vec<usize>, parts: usize, between: u32, least: &mut f64) {
        let member = part_of.len();
        if member == links.len() {
            if parts > 1 {
                let parts = u32::try_from(parts - 1).map_or(f64::INFINITY, f64::from);
                *least = least.min(f64::from(between) / parts);
            }
            return;
        }
        for part in 0..=parts {
            let cut: u32 =
                (0..member).filter(|&m| part_of[m] != part).map(|m| links[m][member]).sum();
            part_of.push(part);
            grow(links, part_of, parts.max(part + 1), between + cut, least);
            part_of.pop();
        }
    }
    let mut least = f64::INFINITY;
    grow(links, &mut Vec::new(), 0, 0, &mut least);
    if least.is_finite() { least } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(n: usize, links: u32) -> Links {
        (0..n).map(|a| (0..n).map(|b| if a == b { 0 } else { links }).collect()).collect()
    }

    /// The complete directed graph falls into n−1 rings except for four and six vertices (Tillson 1980).
    #[test]
    fn complete_graphs() {
        for (n, expected) in [(3, 2), (4, 2), (5, 4), (6, 4), (7, 6), (8, 7)] {
            assert_eq!(rings(&complete(n, 1)), expected, "{n} GPUs");
        }
        for (n, expected) in [(3, 1), (4, 2), (5, 2), (6, 3), (7, 3), (8, 4)] {
            assert_eq!(chains(&complete(n, 1)), expected, "{n} GPUs");
        }
        assert_eq!(rings(&complete(4, 4)), 12);
        assert!((strength(&complete(4, 1)) - 2.0).abs() < 1e-12);
    }
}
