//! The images of a node.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use serde_json::{Value, json};

/// Bytes of any image: about what the product pages' benchmark image has. There is no registry to ask.
const SIZE: u64 = 3_200_000_000;
/// Images that a kubelet tells of.
const TOLD: usize = 50;

/// Names of the images that are there.
#[derive(Debug, Default)]
pub(crate) struct Images(Mutex<BTreeSet<String>>);

impl Images {
    /// True if it was not there.
    pub(crate) fn add(&self, image: &str) -> bool {
        !image.is_empty() && self.0.lock().insert(tagged(image))
    }

    pub(crate) fn has(&self, image: &str) -> bool {
        self.0.lock().contains(&tagged(image))
    }

    /// As the node's status lists them.
    pub(crate) fn json(&self) -> Value {
        let images = self.0.lock();
        images.iter().take(TOLD).map(|name| json!({"names": [name], "sizeBytes": SIZE})).collect()
    }
}

/// A name without a tag means the latest.
fn tagged(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    if last.contains([':', '@']) { image.to_owned() } else { format!("{image}:latest") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_tag_is_the_latest() {
        let images = Images::default();
        assert!(images.add("registry:5000/a") && !images.add("registry:5000/a:latest"));
        assert!(images.has("registry:5000/a") && !images.has("registry:5000/a:1"));
    }
}
