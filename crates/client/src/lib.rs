//! From a kubeconfig to API clients without blanket retry, and lean watches.
