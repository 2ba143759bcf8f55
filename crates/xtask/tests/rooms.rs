//! A crate is a room; arrows between rooms point down only.
#![allow(clippy::unwrap_used, reason = "a test ends where an assumption does not hold")]

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, MetadataCommand};

/// What each room may know; whoever may know a room may know what that room may know. `*` is everything.
const ROOMS: &[(&str, &[&str])] = &[
    ("topology", &[]),
    ("placement", &["topology"]),
    ("api", &["topology"]),
    ("client", &["api"]),
    ("scheduling", &["placement", "api"]),
    ("audit", &["scheduling", "api"]),
    ("scheduler", &["scheduling", "audit", "client"]),
    ("operator", &["api", "client"]),
    ("apiserver", &[]),
    ("nodes", &["api", "client", "placement"]),
    ("sandbox", &["apiserver", "nodes", "scheduler", "operator"]),
    ("jobs", &["api", "client", "placement"]),
    ("demo", &["jobs"]),
    ("ringmaster", &["*"]),
    ("rsh", &[]),
    ("xtask", &["client"]),
];

fn reach<'a>(
    room: &'a str,
    table: &BTreeMap<&'a str, &'a [&'a str]>,
    seen: &mut BTreeSet<&'a str>,
) {
    for below in table[room] {
        if *below != "*" && seen.insert(below) {
            reach(below, table, seen);
        }
    }
}

#[test]
fn arrows_point_down() {
    let table: BTreeMap<&str, &[&str]> = ROOMS.iter().copied().collect();
    let metadata = MetadataCommand::new().no_deps().exec().unwrap();
    let short = |name: &str| name.strip_prefix("ringmaster-").unwrap_or(name).to_owned();
    let rooms: BTreeSet<String> =
        metadata.packages.iter().map(|package| short(&package.name)).collect();
    assert_eq!(
        rooms,
        table.keys().map(|room| (*room).to_owned()).collect(),
        "every room is in the table"
    );
    let mut wrong = Vec::new();
    for package in &metadata.packages {
        let room = short(&package.name);
        let (name, allowed) = table.get_key_value(room.as_str()).unwrap();
        let mut known = BTreeSet::new();
        reach(name, &table, &mut known);
        for dependency in &package.dependencies {
            let below = short(&dependency.name);
            let ours = dependency.path.is_some() && dependency.kind == DependencyKind::Normal;
            if ours && !allowed.contains(&"*") && !known.contains(below.as_str()) {
                wrong.push(format!("{room} → {below}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}
