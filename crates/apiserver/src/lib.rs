//! An embedded Kubernetes API server: one generic store and one table of resources as data.
