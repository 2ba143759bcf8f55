//! Development commands: the real control plane, end-to-end suites, benchmarks.

fn main() {}
