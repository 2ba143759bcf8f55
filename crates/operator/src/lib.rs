//! The MPIJob operator: reconcile as a pure state machine, and a thin driver.
