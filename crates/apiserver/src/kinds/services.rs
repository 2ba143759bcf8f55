//! Addresses and node ports of services.

use serde_json::{Value, json};

use crate::field::{self, object, set};
use crate::fresh;
use crate::status::Cause;
use crate::store::Store;

/// Node ports are given out from here on, as many as [`NODE_PORTS`].
const FIRST_NODE_PORT: u32 = 30_000;
const NODE_PORTS: u32 = 2_768;

/// The address given to the API server's own service.
pub(crate) const FIRST_ADDRESS: &str = "10.96.0.1";

/// Gives a service what it needs and has not: a cluster IP, node ports.
pub(super) fn allocate(store: &Store, service: &mut Value) -> Vec<Cause> {
    let spec = object(service, "spec");
    let kind = field::text(spec, &["type"]).to_owned();
    if kind == "ExternalName" {
        return Vec::new();
    }
    if field::text(spec, &["clusterIP"]).is_empty() {
        let taken = |ip: &str| {
            let all = store.list("services", "", None).objects;
            all.iter().any(|s| s.value()["spec"]["clusterIP"] == ip)
        };
        // 10.96.0.0/12 has a million addresses; the second try already is rare.
        let free = (0..64).map(|_| address(fresh::below(1 << 20))).find(|ip| !taken(ip));
        let Some(ip) = free else {
            return vec![Cause::forbidden("spec.clusterIP", "no free address was found")];
        };
        set(spec, "clusterIP", ip);
    }
    let ip = spec["clusterIP"].clone();
    set(spec, "clusterIPs", json!([ip]));
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        field::default(spec, "externalTrafficPolicy", "Cluster");
        for port in field::items_mut(spec, "ports") {
            if port["nodePort"].as_u64().unwrap_or(0) == 0 {
                set(port, "nodePort", FIRST_NODE_PORT + fresh::below(NODE_PORTS));
            }
        }
    }
    Vec::new()
}

fn address(number: u32) -> String {
    // The first 256 are left to those who choose.
    let number = 0x0a60_0000 | number.max(256);
    std::net::Ipv4Addr::from(number).to_string()
}

/// An update that leaves the address out keeps it.
pub(super) fn keep_address(old: &Value, service: &mut Value) {
    let spec = object(service, "spec");
    if field::text(spec, &["clusterIP"]).is_empty() && spec["type"] != "ExternalName" {
        field::copy(&old["spec"], spec, "clusterIP");
    }
    for port in field::items_mut(spec, "ports") {
        let same = field::items(&old["spec"]["ports"]).find(|p| p["port"] == port["port"]);
        if let Some(node_port) = same.and_then(|p| p.get("nodePort")) {
            field::default(port, "nodePort", node_port.clone());
        }
    }
}
