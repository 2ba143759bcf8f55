//! Cluster state, GPU ledger, gangs, queue, the scheduling framework, plans and explanations. Pure.
