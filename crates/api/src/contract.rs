//! Every name of the wire contract, in one place: labels, annotations, resources and object names that Arena, kubectl
//! and the users of ACK's feature rely on, and our own beside them.

/// Label on a node: the mode in which it serves its GPUs, [`MODE_TOPOLOGY`] or [`MODE_DEFAULT`].
pub const MODE_LABEL: &str = "ack.node.gpu.schedule";
/// The node serves [`ALIYUN_GPU`], and its GPUs are placed by topology.
pub const MODE_TOPOLOGY: &str = "topology";
/// The node serves [`NVIDIA_GPU`].
pub const MODE_DEFAULT: &str = "default";
/// Annotation on a node: the mode in force. Deleting the label changes nothing.
pub const MODE_ANNOTATION: &str = "ringmaster.dev/mode";

/// GPUs that are placed by topology.
pub const ALIYUN_GPU: &str = "aliyun.com/gpu";
/// GPUs as NVIDIA's device plugin serves them.
pub const NVIDIA_GPU: &str = "nvidia.com/gpu";

/// Pod label: topology group.
pub const TOPOLOGY_GROUP: &str = "gpu-topology";
/// Pod label: workers of the topology group.
pub const TOPOLOGY_REPLICA: &str = "gpu-topology-replica";
/// Pod label: gang.
pub const GANG_NAME: &str = "pod-group.scheduling.sigs.k8s.io/name";
/// Pod label: members that must start together.
pub const GANG_MINIMUM: &str = "pod-group.scheduling.sigs.k8s.io/min-available";

/// Annotation on a bound pod: its own GPUs, a comma list of indices.
pub const GPU_GROUP: &str = "topology.kubernetes.io/gpu-group";
/// Annotation on a bound pod: the GPUs of all its gang's pods on the node.
pub const GPU_VISIBLE: &str = "topology.kubernetes.io/gpu-visible";
/// Annotation on a bound pod: UUIDs of its own GPUs, a comma list in the order of [`GPU_GROUP`].
pub const GPU_UUIDS: &str = "ringmaster.dev/gpu-uuids";
/// Annotation on a bound pod: bus bandwidth of its gang, GB/s.
pub const BUS_BANDWIDTH: &str = "ringmaster.dev/bus-bandwidth";
/// Annotation on a bound pod: its rank in the gang, from 0, in placement order.
pub const RANK: &str = "ringmaster.dev/rank";
/// Annotation on a pod of the sandbox in default mode: the GPUs that its simulated kubelet gave it.
pub const SIMULATED_GPUS: &str = "ringmaster.dev/simulated-gpus";
/// Annotation on a simulated node: pairs of GPUs whose links are down, `0-3,1-2`.
pub const DOWN_LINKS: &str = "ringmaster.dev/simulated-down-links";
/// Annotation on a simulated node: images that it has without a pull, a comma list.
pub const SIMULATED_IMAGES: &str = "ringmaster.dev/simulated-images";
/// Annotation on a simulated node: how many of the next pods with GPUs its kubelet refuses. Each new value counts anew.
pub const SIMULATED_REFUSALS: &str = "ringmaster.dev/simulated-refusals";

/// Annotation on a job: `FRAMEWORK/MODEL[:BATCH]`, for the throughput model.
pub const MODEL: &str = "ringmaster.dev/model";
/// Annotation on a job: number of parameters.
pub const PARAMETERS: &str = "ringmaster.dev/parameters";
/// Annotation on a job: bytes of gradients all-reduced each step.
pub const GRADIENT_BYTES: &str = "ringmaster.dev/gradient-bytes";
/// Annotation on a job: seconds that one step computes on one GPU.
pub const STEP_TIME: &str = "ringmaster.dev/step-time";
/// Annotation on a job: samples of one GPU a step.
pub const BATCH: &str = "ringmaster.dev/batch";

/// Label on a node report: the node. Arena needs it.
pub const REPORT_NODE_LABEL: &str = "nodename";
/// Namespace of the node reports.
pub const REPORT_NAMESPACE: &str = "kube-system";
/// Name of a node's report.
pub fn report_name(node: &str) -> String {
    format!("{node}-gputopo-report")
}

/// Label on a pod: group of its operator, [`MPI_GROUP`].
pub const GROUP_NAME: &str = "group_name";
/// Value of [`GROUP_NAME`].
pub const MPI_GROUP: &str = "kubeflow.org";
/// Label on a job's objects: the job.
pub const MPI_JOB_NAME: &str = "mpi_job_name";
/// Label on a pod: its part in the job, [`LAUNCHER`] or [`WORKER`].
pub const MPI_ROLE: &str = "mpi_role_type";
/// The pod runs mpirun.
pub const LAUNCHER: &str = "launcher";
/// The pod runs ranks.
pub const WORKER: &str = "worker";
/// Label on a worker pod: its index in the job.
pub const WORKER_INDEX: &str = "ringmaster.dev/worker-index";
/// Label on a worker pod: its own name. A StatefulSet would set it, and Arena's tensorboard selects worker 0 by it.
pub const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
/// Label by which Arena finds a job's pods: the job (Helm's release).
pub const RELEASE: &str = "release";
/// Label by which Arena finds the pods of MPI jobs, with [`MPI_APP`]. On a launcher's account and role: the job.
pub const APP: &str = "app";
/// Value of [`APP`] on pods.
pub const MPI_APP: &str = "mpijob";
/// Annotation on a job: `true` while a queueing system holds it.
pub const SUSPEND: &str = "scheduling.x-k8s.io/suspend";
/// Annotation on a launcher Job: how often it was started again because a worker was lost; counts as retries.
pub const RESTARTS: &str = "ringmaster.dev/launcher-restarts";

/// Name of a worker pod.
pub fn worker_name(job: &str, index: usize) -> String {
    format!("{job}-worker-{index}")
}
/// Name of the launcher Job, and of its account, role and role binding.
pub fn launcher_name(job: &str) -> String {
    format!("{job}-launcher")
}
/// Name of the ConfigMap with a job's hostfile, under [`HOSTFILE`] and [`MACHINEFILE`].
pub fn config_name(job: &str) -> String {
    format!("{job}-config")
}
/// Key of the hostfile, `POD slots=N` a line, as Open MPI reads it.
pub const HOSTFILE: &str = "hostfile";
/// Key of the same in the notation of MPICH and Intel MPI, `POD:N` a line.
pub const MACHINEFILE: &str = "machinefile";
/// Folder of both in the launcher.
pub const CONFIG_FOLDER: &str = "/etc/mpi";

/// The scheduler name of upstream's scheduler, which the sandbox's answers to.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";
/// Our own scheduler name.
pub const RINGMASTER: &str = "ringmaster";
