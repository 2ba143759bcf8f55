//! The throughput model against the product pages' figures and the what-if table.

#![allow(clippy::unwrap_used, reason = "a test ends where an assumption does not hold")]

use placement::{Arrangement, Class, Path, Rates, Workload};
use topology::{GpuSet, LinkTable, catalogue};

fn gn6v() -> Class {
    Class::new(catalogue::machine("gn6v").unwrap().topology(), &LinkTable::default())
}

/// Workers of one GPU each: `(node, gpu)` in rank order.
fn speed(job: &str, workers: &[(usize, usize)], host_identity: bool) -> (f64, Path) {
    let class = gn6v();
    let workload: Workload = job.parse().unwrap();
    let arrangement = Arrangement {
        nodes: vec![&class, &class],
        workers: workers.iter().map(|&(node, gpu)| (node, GpuSet::single(gpu))).collect(),
        host_identity,
    };
    let exchange = arrangement.exchange();
    (workload.images_per_second(workers.len(), exchange.bus), exchange.path)
}

const QUAD: [(usize, usize); 4] = [(0, 0), (0, 1), (0, 2), (0, 3)];
const ALTERNATING: [(usize, usize); 4] = [(0, 0), (1, 0), (0, 1), (1, 1)];
const CONTIGUOUS: [(usize, usize); 4] = [(0, 0), (0, 3), (1, 0), (1, 3)];
const PCIE: [(usize, usize); 4] = [(0, 0), (0, 1), (0, 2), (0, 7)];

#[test]
fn the_eight_published_figures_within_five_percent() {
    for (job, published, workers, identity, path) in [
        ("tf/vgg16", 991.92, QUAD, true, Path::Links),
        ("tf/vgg16", 200.47, ALTERNATING, false, Path::Network),
        ("tf/resnet50", 1471.55, QUAD, true, Path::Links),
        ("tf/resnet50", 745.38, ALTERNATING, false, Path::Network),
        ("pytorch/vgg16", 820.5, QUAD, true, Path::Links),
        ("pytorch/vgg16", 435.2, QUAD, false, Path::Loopback),
        ("pytorch/resnet50", 1321.9, QUAD, true, Path::Links),
        ("pytorch/resnet50", 1251.8, QUAD, false, Path::Loopback),
    ] {
        let (modelled, by) = speed(job, &workers, identity);
        assert_eq!(by, path, "{job}");
        assert!((modelled / published - 1.0).abs() < 0.05, "{job}: {modelled} for {published}");
    }
}

#[test]
fn the_what_ifs_within_two_percent() {
    for (job, workers, identity, expected) in [
        ("tf/vgg16", PCIE, true, 898.0),
        ("tf/resnet50", PCIE, true, 1472.0),
        ("tf/vgg16", QUAD, false, 473.0),
        ("tf/resnet50", QUAD, false, 1317.0),
        ("tf/vgg16", CONTIGUOUS, true, 341.0),
        ("tf/resnet50", CONTIGUOUS, true, 1100.0),
        ("tf/vgg16", ALTERNATING, true, 196.0),
        ("tf/resnet50", ALTERNATING, true, 763.0),
    ] {
        let (modelled, _) = speed(job, &workers, identity);
        assert!(
            (modelled / expected - 1.0).abs() < 0.02,
            "{job} {workers:?}: {modelled} for {expected}"
        );
    }
}

#[test]
fn independent_rates_are_within_seven_percent() {
    for (framework, model, published) in [
        ("tf", "vgg16", 991.92),
        ("tf", "resnet50", 1471.55),
        ("pt", "vgg16", 820.5),
        ("pt", "resnet50", 1321.9),
    ] {
        let workload = Workload::known(framework, model, 64, Rates::Independent).unwrap();
        let error = workload.images_per_second(4, 86.8) / published - 1.0;
        assert!(error.abs() < 0.07, "{framework}/{model}: {error}");
    }
}

#[test]
fn a_dropped_link_changes_the_speed() {
    let whole = gn6v();
    let machine = catalogue::machine("gn6v").unwrap();
    let broken =
        Class::new(machine.topology().without_link(0, 3).without_link(1, 2), &LinkTable::default());
    let at = |class: &Class| class.bandwidth(GpuSet::first(4)).bus;
    assert!(at(&broken) < at(&whole));
}
