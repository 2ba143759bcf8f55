//! Simulated nodes, kubelets and the programs that run on them; a plain API client.
//!
//! So far the pure parts: the hand-over of GPUs, a small shell, mpirun's command line, and what a benchmark prints. The
//! kubelets that carry them out are to come.

pub mod devices;
pub mod mpirun;
pub mod report_run;
pub mod shell;
