//! The ringmaster binary: flags and output formats.

fn main() {}
