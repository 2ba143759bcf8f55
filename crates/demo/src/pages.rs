//! The eight runs of the product pages, with the flags that they are submitted with and what they published.

use jobs::Submission;

/// Which page a run is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framework {
    /// TensorFlow with Horovod.
    TensorFlow,
    /// PyTorch with Horovod.
    PyTorch,
}

/// How its GPUs are scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// By topology: nodes that are labelled so, and `--gputopology=true --gang`.
    Topology,
    /// By the default scheduler.
    Default,
}

/// One run of a page.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// The page.
    pub framework: Framework,
    /// The model.
    pub model: &'static str,
    /// How it is scheduled.
    pub mode: Mode,
    /// Images per second that the page shows.
    pub published: f64,
}

/// The runs, in the order of the pages.
pub const PAGES: [Run; 8] = {
    use Framework::{PyTorch, TensorFlow};
    use Mode::{Default, Topology};
    [
        Run { framework: TensorFlow, model: "vgg16", mode: Topology, published: 991.92 },
        Run { framework: TensorFlow, model: "vgg16", mode: Default, published: 200.47 },
        Run { framework: TensorFlow, model: "resnet50", mode: Topology, published: 1471.55 },
        Run { framework: TensorFlow, model: "resnet50", mode: Default, published: 745.38 },
        Run { framework: PyTorch, model: "vgg16", mode: Topology, published: 820.5 },
        Run { framework: PyTorch, model: "vgg16", mode: Default, published: 435.2 },
        Run { framework: PyTorch, model: "resnet50", mode: Topology, published: 1321.9 },
        Run { framework: PyTorch, model: "resnet50", mode: Default, published: 1251.8 },
    ]
};

/// Workers of every run, of one GPU each.
pub(crate) const WORKERS: i64 = 4;

impl Framework {
    /// The word in job names.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::TensorFlow => "tensorflow",
            Self::PyTorch => "pytorch",
        }
    }

    /// The throughput model's word.
    pub(crate) fn known_as(self) -> &'static str {
        match self {
            Self::TensorFlow => "tf",
            Self::PyTorch => "pytorch",
        }
    }

    /// The page's image.
    pub fn image(self) -> &'static str {
        match self {
            Self::TensorFlow => {
                "registry.cn-hangzhou.aliyuncs.com/kubernetes-image-hub/tensorflow-benchmark:tf2.3.0-py3.7-cuda10.1"
            }
            Self::PyTorch => {
                "registry.cn-hangzhou.aliyuncs.com/kubernetes-image-hub/pytorch-benchmark:torch1.6.0-py3.7-cuda10.1"
            }
        }
    }

    fn program(self, model: &str) -> String {
        match self {
            Self::TensorFlow => format!(
                "/tensorflow/benchmarks/scripts/tf_cnn_benchmarks/tf_cnn_benchmarks.py --model={model} --batch_size=64 \
                 --variable_update=horovod"
            ),
            Self::PyTorch => {
                format!("/examples/pytorch_synthetic_benchmark.py --model={model} --batch-size=64")
            }
        }
    }

    /// What the log says before the images per second of all GPUs.
    pub(crate) fn total(self) -> &'static str {
        match self {
            Self::TensorFlow => "total images/sec: ",
            Self::PyTorch => "Total img/sec on 4 GPU(s): ",
        }
    }
}

impl Run {
    /// The page's job name.
    pub fn job(&self) -> String {
        let topology = if self.mode == Mode::Topology { "topo-" } else { "" };
        format!("{}-{topology}{WORKERS}-{}", self.framework.word(), self.model)
    }

    /// What the page submits.
    pub fn submission(&self) -> Submission {
        let by_topology = self.mode == Mode::Topology;
        Submission {
            name: self.job(),
            gpus: 1,
            workers: WORKERS,
            gang: by_topology,
            gputopology: by_topology,
            image: self.framework.image().to_owned(),
            command: format!(
                "mpirun --allow-run-as-root -np \"{WORKERS}\" -bind-to none -map-by slot -x NCCL_DEBUG=INFO -x \
                 NCCL_SOCKET_IFNAME=eth0 -x LD_LIBRARY_PATH -x PATH --mca pml ob1 --mca btl_tcp_if_include eth0 --mca \
                 oob_tcp_if_include eth0 --mca orte_keep_fqdn_hostnames t --mca btl ^openib python {}",
                self.framework.program(self.model)
            ),
            ..Submission::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_called_as_on_the_pages() {
        let names: Vec<String> = PAGES.iter().map(Run::job).collect();
        assert_eq!(names[0], "tensorflow-topo-4-vgg16");
        assert_eq!(names[7], "pytorch-4-resnet50");
        assert!(PAGES.iter().all(|run| run.submission().check().is_ok()));
    }
}
