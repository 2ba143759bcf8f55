//! Lean Kubernetes objects, quantities, selectors, pod arithmetic, MPIJob types and the contract names.
