//! The placement of gangs: against brute force, and its rules one by one.

#![allow(clippy::unwrap_used, reason = "a test ends where an assumption does not hold")]

use std::sync::Arc;

use placement::{Class, Classes, NodeOption, Objective, Placement, Profile, Request, place};
use proptest::prelude::*;
use topology::{GpuSet, LinkTable, Topology, catalogue};

fn class(machine: &str) -> Arc<Class> {
    Arc::new(Class::new(catalogue::machine(machine).unwrap().topology(), &LinkTable::default()))
}

fn node(name: &str, class: &Arc<Class>, free: &str) -> NodeOption {
    let free = if free == "all" { class.topology().gpus() } else { free.parse().unwrap() };
    NodeOption {
        name: name.into(),
        class: class.clone(),
        free,
        max_workers: 110,
        preferred: 0,
        siblings: GpuSet::EMPTY,
    }
}

fn gang(workers: usize) -> Request {
    Request::new(workers, 1)
}

/// `n1:0,3 n2:1,2`.
fn shown(placement: &Placement) -> String {
    placement.pieces.iter().map(|p| format!("{}:{}", p.node, p.gpus)).collect::<Vec<_>>().join(" ")
}

#[test]
fn one_node_is_the_maximum_over_all_subsets() {
    for machine in catalogue::machines().filter(|machine| machine.topology().len() <= 8) {
        let class = class(machine.name);
        for bits in 1..1_u64 << class.topology().len() {
            let free = GpuSet::from_bits(bits);
            let mut node = node("n", &class, "");
            node.free = free;
            for size in 1..=free.len() {
                let most =
                    free.subsets(size).map(|set| class.bandwidth(set).bus).fold(0.0, f64::max);
                let placement =
                    place(&gang(size), std::slice::from_ref(&node), &Profile::default()).unwrap();
                assert_eq!(
                    placement.bus_bandwidth.unwrap_or(f64::INFINITY),
                    most,
                    "{} {free} {size}",
                    machine.name
                );
                assert!(placement.optimal && placement.pieces[0].gpus.is_subset(free));
            }
        }
    }
}

#[test]
fn the_rules_one_by_one() {
    let v100 = class("gn6v");
    let dgx = class("dgx1-v100-4xib-ucxpy");
    let h100 = class("h100-8gpu-hgx-8nic-pix-node");
    for (what, request, nodes, expected) in [
        ("the ring of a quad", gang(4), vec![node("a", &v100, "all")], "a:0,1,2,3"),
        ("a double link", gang(2), vec![node("a", &v100, "0,1,2,4")], "a:0,4"),
        (
            "the better node",
            gang(4),
            vec![node("a", &v100, "0,1,2,7"), node("b", &v100, "4,5,6,7")],
            "b:4,5,6,7",
        ),
        (
            "the fuller of two equal",
            gang(4),
            vec![node("a", &v100, "all"), node("b", &v100, "4,5,6,7")],
            "b:4,5,6,7",
        ),
        (
            "a single GPU where it breaks least",
            gang(1),
            vec![node("a", &v100, "all"), node("b", &v100, "7")],
            "b:7",
        ),
        (
            "two nodes when one has no room",
            gang(12),
            vec![node("a", &v100, "all"), node("b", &v100, "all")],
            "a:0,1,2,3,4,5,6,7 b:0,1,2,3",
        ),
        (
            "the least capable product",
            gang(2),
            vec![node("a", &h100, "all"), node("b", &v100, "all")],
            "b:0,3",
        ),
        (
            "the product that has room",
            gang(8),
            vec![node("a", &h100, "all"), node("b", &v100, "0,1,2")],
            "a:0,1,2,3,4,5,6,7",
        ),
        (
            "both rails",
            gang(4),
            vec![node("a", &dgx, "0,1,4,5"), node("b", &dgx, "0,1,2,3")],
            "b:0,1,2,3",
        ),
    ] {
        let placement = place(&request, &nodes, &Profile::default()).unwrap();
        let got = shown(&placement);
        if what == "two nodes when one has no room" {
            assert_eq!(placement.pieces.len(), 2, "{what}: {got}");
            assert_eq!(placement.bus_bandwidth, Some(1.49), "{what}");
        } else {
            assert_eq!(got, expected, "{what}");
        }
    }
}

#[test]
fn a_missing_member_goes_next_to_its_siblings() {
    let v100 = class("gn6v");
    let mut home = node("b", &v100, "3,5,7");
    home.siblings = "0,1,2".parse().unwrap();
    let placement = place(&gang(1), &[node("a", &v100, "all"), home], &Profile::default()).unwrap();
    assert_eq!(shown(&placement), "b:3");
    assert!(placement.pieces[0].closed && placement.bus_bandwidth > Some(80.0));
}

#[test]
fn workers_of_several_gpus_stay_whole() {
    let v100 = class("gn6v");
    let nodes = [node("a", &v100, "0,1,2,3,4"), node("b", &v100, "0,3,5")];
    let placement = place(&Request::new(3, 2), &nodes, &Profile::default()).unwrap();
    assert_eq!(placement.pieces.iter().map(|p| p.gpus.len()).collect::<Vec<_>>(), [4, 2]);
    let shortage = place(&Request::new(4, 2), &nodes, &Profile::default()).unwrap_err();
    assert_eq!((shortage.free, shortage.fitting, shortage.never_fits()), (8, 3, false));
    assert!(place(&gang(17), &nodes, &Profile::default()).unwrap_err().never_fits());
    let giant = place(&Request::new(1, 9), &nodes, &Profile::default()).unwrap_err();
    assert!(
        giant.to_string().ends_with("no node has as many GPUs as one worker asks for"),
        "{giant}"
    );
}

#[test]
fn a_known_model_trades_bandwidth_it_does_not_need_for_whole_sets() {
    let v100 = class("gn6v");
    // {0,3} has a double link and breaks the quad; {4,5} is left over. ResNet50 does not need the double link.
    let nodes = [node("a", &v100, "0,1,2,3"), node("b", &v100, "4,5")];
    let unknown = place(&gang(2), &nodes, &Profile::default()).unwrap();
    assert_eq!((shown(&unknown).as_str(), unknown.objective), ("a:0,3", Objective::BusBandwidth));
    let mut request = gang(2);
    request.workload = Some("tf/resnet50".parse().unwrap());
    let known = place(&request, &nodes, &Profile::default()).unwrap();
    assert_eq!((shown(&known).as_str(), known.objective), ("b:4,5", Objective::Throughput));
    assert!(known.throughput.unwrap() > 0.98 * 2.0 * 367.8);
}

#[test]
fn the_runner_up_is_strictly_worse() {
    let v100 = class("gn6v");
    let placement = place(&gang(4), &[node("a", &v100, "all")], &Profile::default()).unwrap();
    let worse = placement.runner_up.unwrap();
    assert!((worse.bus_bandwidth.unwrap() - 59.9).abs() < 0.1);
    let last = place(&gang(8), &[node("a", &v100, "all")], &Profile::default()).unwrap();
    assert_eq!(last.runner_up, None);
}

/// The bottleneck of the best placement over two small nodes, by trying every pair of sets.
fn brute_force(workers: usize, nodes: &[NodeOption], network: f64) -> f64 {
    let mut most = f64::NEG_INFINITY;
    for a in 0..=workers {
        for x in nodes[0].free.subsets(a) {
            for y in nodes[1].free.subsets(workers - a) {
                let bus = |node: &NodeOption, set: GpuSet| {
                    let inside = node.class.bandwidth(set).bus;
                    let spans = !x.is_empty() && !y.is_empty();
                    if spans { inside.min(node.class.network(set, network)) } else { inside }
                };
                most = most.max(bus(&nodes[0], x).min(bus(&nodes[1], y)));
            }
        }
    }
    most
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn two_nodes_match_brute_force_in_any_order(
        first in 0..4_usize, second in 0..4_usize, a in any::<u8>(), b in any::<u8>(), workers in 1..9_usize,
    ) {
        let machines = ["gn6v", "dgx1-v100-4xib-ucxpy", "v100-8gpu-32gb-1nic", "v100-azure-ndv2-pcie-only"];
        let mut classes = Classes::new(LinkTable::default());
        let mut option = |name: &str, machine: usize, free: u8| NodeOption {
            free: GpuSet::from_bits(free.into()),
            ..node(name, &classes.of(catalogue::machine(machines[machine]).unwrap().topology()), "")
        };
        let mut nodes = vec![option("a", first, a), option("b", second, b)];
        let profile = Profile::default();
        match place(&gang(workers), &nodes, &profile) {
            Err(shortage) => prop_assert!(shortage.free < workers),
            Ok(placement) => {
                let most = brute_force(workers, &nodes, profile.network);
                prop_assert_eq!(placement.bus_bandwidth.unwrap_or(f64::INFINITY), most);
                prop_assert_eq!(placement.pieces.iter().map(|p| p.gpus.len()).sum::<usize>(), workers);
                for piece in &placement.pieces {
                    let node = nodes.iter().find(|node| node.name == piece.node).unwrap();
                    prop_assert!(piece.gpus.is_subset(node.free));
                }
                if let Some(worse) = &placement.runner_up {
                    prop_assert!(worse.bus_bandwidth < placement.bus_bandwidth);
                }
                nodes.reverse();
                prop_assert_eq!(place(&gang(workers), &nodes, &profile).unwrap(), placement);
            }
        }
    }
}

#[test]
fn workers_without_gpus_take_the_fewest_nodes() {
    let none = Arc::new(Class::new(
        Topology::unlinked(topology::Product::Pcie, 0, topology::PcieLevel::Sys),
        &LinkTable::default(),
    ));
    let mut small = node("a", &none, "");
    small.max_workers = 2;
    let nodes = [small, node("b", &none, "")];
    let placement = place(&Request::new(3, 0), &nodes, &Profile::default()).unwrap();
    assert_eq!(placement.pieces.len(), 3);
    assert!(placement.pieces.iter().all(|piece| &*piece.node == "b"));
    assert_eq!(place(&Request::new(200, 0), &nodes, &Profile::default()).unwrap_err().fitting, 112);
}
