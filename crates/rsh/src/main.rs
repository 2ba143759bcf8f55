//! ringmaster-rsh: mpirun's remote shell, an exec through the Kubernetes API. Small and static.

fn main() {}
