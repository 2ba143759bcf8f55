//! The laptop cluster: API server, Job controller, simulated nodes, scheduler and operator in one process.
