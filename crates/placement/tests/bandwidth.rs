//! B(S) and its bound against the reference tables: units of links that an integer programme found, gap 0.

#![allow(clippy::unwrap_used, reason = "a test ends where an assumption does not hold")]

use std::{collections::BTreeMap, path::Path};

use placement::Class;
use topology::{GpuSet, LinkTable, PcieLevel, Product, catalogue};

/// GB/s per link and direction of a machine, from the definition and not from the code under test.
fn link(machine: &str, product: Product) -> f64 {
    match product {
        Product::V100 => 21.7,
        Product::P100 => 18.0,
        Product::A100 if machine.contains("bridged") => 17.3,
        Product::A100 => 19.6,
        Product::H100 => 20.6,
        other => LinkTable::default().link(other, false),
    }
}

#[test]
fn every_set_of_every_point_to_point_machine() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/bandwidth");
    let mut sets = 0;
    for machine in catalogue::machines() {
        let Ok(text) = std::fs::read_to_string(folder.join(format!("{}.tsv", machine.name))) else {
            continue;
        };
        let class = Class::new(machine.topology(), &LinkTable::default());
        let b = link(machine.name, machine.product);
        for row in text.lines().skip(1) {
            let fields: Vec<&str> = row.split('\t').collect();
            let set: GpuSet = fields[0].parse().unwrap();
            let [rings, chains, strength]: [f64; 3] = [1, 2, 3].map(|i| fields[i].parse().unwrap());
            let k = set.len() as f64;
            let share = 2.0 * (k - 1.0) / k;
            let (bus, bound) = if rings == 0.0 && chains == 0.0 {
                let level: PcieLevel = fields[4].parse().unwrap();
                let pcie = match level {
                    PcieLevel::Pix | PcieLevel::Pxb => 10.0,
                    PcieLevel::Phb => 9.0,
                    PcieLevel::Node => 8.0,
                    PcieLevel::Sys => 6.0,
                };
                (pcie, pcie)
            } else {
                let chain = if set.len() > 2 { 0.92 * chains * b * share } else { 0.0 };
                (f64::max(rings * b, chain), strength * b * share)
            };
            let got = class.bandwidth(set);
            let close = |x: f64, y: f64| (x - y).abs() <= 0.001 * y;
            assert!(
                close(got.bus, bus) && close(got.bound, bound),
                "{} {{{set}}}: {got:?}, not {bus} {bound}",
                machine.name
            );
            assert_eq!(got.closed, rings > 0.0, "{} {{{set}}}", machine.name);
            sets += 1;
        }
    }
    assert_eq!(
        sets,
        std::fs::read_dir(&folder)
            .unwrap()
            .map(|f| { std::fs::read_to_string(f.unwrap().path()).unwrap().lines().count() - 1 })
            .sum::<usize>()
    );
}

#[test]
fn the_bound_is_never_below_the_bandwidth() {
    for machine in catalogue::machines().filter(|machine| machine.topology().len() <= 8) {
        let class = Class::new(machine.topology(), &LinkTable::default());
        for bits in 0..1_u64 << class.topology().len() {
            let bandwidth = class.bandwidth(GpuSet::from_bits(bits));
            assert!(bandwidth.bound >= bandwidth.bus, "{} {bits:b}", machine.name);
        }
    }
}

/// The best set of every free mask and size is the maximum over all its subsets, by brute force.
#[test]
fn best_is_the_maximum_over_all_subsets() {
    for machine in catalogue::machines().filter(|machine| machine.topology().len() <= 8) {
        let class = Class::new(machine.topology(), &LinkTable::default());
        let all = 1_u64 << class.topology().len();
        let mut most: BTreeMap<(u64, usize), f64> = BTreeMap::new();
        for free in 0..all {
            // Every submask, by counting down.
            let mut sub = free;
            loop {
                let set = GpuSet::from_bits(sub);
                let bus = class.bandwidth(set).bus;
                let entry = most.entry((free, set.len())).or_insert(bus);
                *entry = entry.max(bus);
                if sub == 0 {
                    break;
                }
                sub = (sub - 1) & free;
            }
        }
        for ((free, size), bus) in most {
            let (set, best) = class.best(GpuSet::from_bits(free), size).unwrap();
            assert_eq!(
                (set.len(), best.bus),
                (size, bus),
                "{} free {free:b} size {size}",
                machine.name
            );
        }
        assert_eq!(class.best(GpuSet::first(2), 3), None);
    }
}

#[test]
fn ranks_run_along_the_links() {
    let class = Class::new(catalogue::machine("gn6v").unwrap().topology(), &LinkTable::default());
    for set in class.topology().gpus().subsets(4) {
        let ranks = class.ranks(set);
        assert_eq!(ranks.iter().copied().collect::<GpuSet>(), set);
        let linked = |a: usize, b: usize| class.topology().link(a, b) > 0;
        let closes = (0..4).all(|i| linked(ranks[i], ranks[(i + 1) % 4]));
        assert_eq!(closes, class.bandwidth(set).closed, "{set} {ranks:?}");
    }
}
