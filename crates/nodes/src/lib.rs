//! Simulated nodes and kubelets: status, lease, pod life, device hand-over, programs, logs and exec. A plain API client.
