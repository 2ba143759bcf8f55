//! What a container runs. Nothing is executed: a small shell is interpreted, mpirun and the benchmarks behind it are
//! modelled.

mod benchmark;
mod mpirun;
mod shell;
mod training;

use std::{collections::BTreeMap, pin::Pin, sync::Arc, time::Duration};

use api::{Pod, contract};
use futures::future::pending;
use tokio::sync::{Mutex, mpsc};

use crate::world::World;
use shell::{Command, Step, When};

/// Which output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    Out,
    Err,
}

/// Where a program's output goes.
pub(crate) trait Output: Send + Sync {
    /// Takes a piece of it.
    fn write(&self, channel: Channel, text: &str);
}

/// Standard input and the two outputs.
#[derive(Clone)]
pub(crate) struct Io {
    pub(crate) output: Arc<dyn Output>,
    /// Ends when the sender is gone; `None` is at its end from the start.
    pub(crate) input: Option<Arc<Mutex<mpsc::Receiver<Vec<u8>>>>>,
}

impl Io {
    fn print(&self, text: &str) {
        self.output.write(Channel::Out, text);
    }

    fn complain(&self, text: &str) {
        self.output.write(Channel::Err, &format!("{text}\n"));
    }

    async fn input(&self) -> Option<Vec<u8>> {
        self.input.as_ref()?.lock().await.recv().await
    }
}

/// How fast simulated time goes, and what its dice are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Real seconds of a modelled one.
    pub(crate) scale: f64,
    /// Of the jitter.
    pub(crate) seed: u64,
}

impl Pace {
    /// Waits a modelled time.
    async fn wait(&self, seconds: f64) {
        tokio::time::sleep(Duration::from_secs_f64(seconds * self.scale)).await;
    }
}

/// FNV-1a: the same dice for the same name on every machine.
pub(crate) fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The inside of a container.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) world: Arc<World>,
    pub(crate) reads: kube::Client,
    pub(crate) pod: Arc<Pod>,
    pub(crate) container: String,
    pub(crate) env: Arc<BTreeMap<String, String>>,
    pub(crate) pace: Pace,
    /// Whether this is a command beside the container's own program.
    pub(crate) is_exec: bool,
}

impl Place {
    /// Inside a container of a pod. Its GPUs are those that the pod's annotations say, as the device plugin hands them
    /// over: its own, and, visible to NCCL, those of its gang on the node.
    pub(crate) fn new(
        world: Arc<World>,
        reads: kube::Client,
        pod: Arc<Pod>,
        container: &str,
        pace: Pace,
    ) -> Self {
        let env = environment(&pod, container);
        Self {
            world,
            reads,
            pod,
            container: container.to_owned(),
            env: Arc::new(env),
            pace,
            is_exec: false,
        }
    }

    fn spec(&self) -> Option<&api::pod::Container> {
        let spec = &self.pod.spec;
        spec.containers.iter().chain(&spec.init_containers).find(|c| c.name == self.container)
    }

    /// What the container was made to run, `$(NAME)` replaced; empty for the image's own program.
    fn words(&self) -> Vec<String> {
        let Some(container) = self.spec() else { return Vec::new() };
        let words = container.command.iter().chain(&container.args);
        words.map(|word| expand(word, &self.env)).collect()
    }

    /// A text file that a ConfigMap is mounted as.
    async fn file(&self, path: &str) -> Result<String, String> {
        let missing = || format!("{path}: No such file or directory");
        let container = self.spec().ok_or_else(missing)?;
        let mount = container
            .volume_mounts
            .iter()
            .filter(|mount| path.starts_with(&mount.mount_path))
            .max_by_key(|mount| mount.mount_path.len())
            .ok_or_else(missing)?;
        let volume = self.pod.spec.volumes.iter().find(|v| {
            v.get("name").and_then(serde_json::Value::as_str) == Some(mount.name.as_str())
        });
        let map = volume
            .and_then(|volume| volume.get("configMap")?.get("name")?.as_str())
            .ok_or_else(missing)?;
        let maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap> =
            kube::Api::namespaced(self.reads.clone(), self.pod.namespace());
        let data = maps.get(map).await.map_err(|e| format!("{path}: {e}"))?.data;
        let file = path[mount.mount_path.len()..].trim_start_matches('/');
        data.unwrap_or_default().remove(file).ok_or_else(missing)
    }
}

/// The variables of a container.
fn environment(pod: &Pod, container: &str) -> BTreeMap<String, String> {
    let mut env: BTreeMap<String, String> = [
        ("HOSTNAME".to_owned(), host_name(pod).to_owned()),
        (
            "PATH".to_owned(),
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
        ),
    ]
    .into();
    let note = |key: &str| pod.annotations().get(key).cloned();
    let own = note(contract::GPU_GROUP).or_else(|| note(contract::SIMULATED_GPUS));
    if let Some(own) = own.filter(|_| pod.gpus().total() > 0) {
        let visible = note(contract::GPU_VISIBLE).unwrap_or_else(|| own.clone());
        env.insert("NVIDIA_VISIBLE_DEVICES".to_owned(), visible);
        env.insert("CUDA_VISIBLE_DEVICES".to_owned(), own);
    }
    let spec = &pod.spec;
    let container =
        spec.containers.iter().chain(&spec.init_containers).find(|c| c.name == container);
    for variable in container.map(|container| &container.env).into_iter().flatten() {
        let value = expand(variable.value.as_deref().unwrap_or_default(), &env);
        env.insert(variable.name.clone(), value);
    }
    env
}

/// A pod on the host's network has the host's name.
fn host_name(pod: &Pod) -> &str {
    let node = pod.spec.node_name.as_deref();
    node.filter(|_| pod.spec.host_network).unwrap_or_else(|| pod.name())
}

/// Replaces `$(NAME)` by the variable; one that is not there stays as it is, and `$$(` is a plain `$(`.
fn expand(text: &str, env: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("$(") {
        let (before, from) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('$') {
            out.push_str(before);
            out.push_str("$(");
            rest = &from[2..];
            continue;
        }
        out.push_str(before);
        let known = from.find(')').and_then(|end| Some((end, env.get(&from[2..end])?)));
        match known {
            Some((end, value)) => {
                out.push_str(value);
                rest = &from[end + 1..];
            }
            None => {
                out.push_str("$(");
                rest = &from[2..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// Runs the container's own program to its end; returns the exit code.
pub(crate) async fn run_container(place: Place, io: Io) -> u8 {
    let words = place.words();
    if words.is_empty() {
        io.print(&format!(
            "simulated: the program of image {:?} is not known; it runs until it is stopped\n",
            place.spec().map_or("", |container| container.image.as_str())
        ));
        return pending().await;
    }
    run(&place, &io, &words).await
}

/// Runs one command to its end; returns the exit code.
pub(crate) fn run<'a>(
    place: &'a Place,
    io: &'a Io,
    words: &'a [String],
) -> Pin<Box<dyn Future<Output = u8> + Send + 'a>> {
    Box::pin(async move {
        match shell::command(words, &place.env) {
            Command::Sleep(seconds) => {
                match Duration::try_from_secs_f64(seconds) {
                    Ok(time) => tokio::time::sleep(time).await,
                    Err(_) => pending().await,
                }
                0
            }
            Command::Echo(text) => {
                io.print(&text);
                0
            }
            Command::Exit(code) | Command::Nothing(code) => code,
            Command::Cat => {
                while let Some(bytes) = io.input().await {
                    io.print(&String::from_utf8_lossy(&bytes));
                }
                0
            }
            Command::Env => {
                for (name, value) in place.env.iter() {
                    io.print(&format!("{name}={value}\n"));
                }
                0
            }
            Command::Hostname => {
                io.print(&format!("{}\n", host_name(&place.pod)));
                0
            }
            Command::Topology => {
                let node = place.pod.spec.node_name.as_deref().unwrap_or_default();
                match place.world.machine(node) {
                    Some(machine) => {
                        io.print(&machine.topology().to_topo_m());
                        0
                    }
                    None => {
                        io.complain("nvidia-smi: no GPU was found");
                        6
                    }
                }
            }
            Command::Interactive => interactive(place, io).await,
            Command::Shell(steps) => run_steps(place, io, steps).await.code,
            Command::Program(words) => training::run(place, io, &words).await,
            Command::Wrong(text, code) => {
                io.complain(&text);
                code
            }
        }
    })
}

/// How a list of steps ended, and whether `exit` ended it.
struct Ended {
    code: u8,
    exit: bool,
}

async fn run_steps(place: &Place, io: &Io, steps: Vec<Step>) -> Ended {
    let mut code = 0;
    for step in steps {
        let skipped = match step.when {
            When::Always => false,
            When::Succeeded => code != 0,
            When::Failed => code == 0,
        };
        if skipped {
            continue;
        }
        code = run(place, io, &step.words).await;
        if let Command::Exit(code) = shell::command(&step.words, &place.env) {
            return Ended { code, exit: true };
        }
    }
    Ended { code, exit: false }
}

/// Runs the lines of standard input, with a prompt before each.
async fn interactive(place: &Place, io: &Io) -> u8 {
    let mut code = 0;
    let mut text = String::new();
    io.print("# ");
    while let Some(bytes) = io.input().await {
        // A terminal ends its lines with a carriage return.
        text.push_str(&String::from_utf8_lossy(&bytes).replace('\r', "\n"));
        while let Some(end) = text.find('\n') {
            let line: String = text.drain(..=end).collect();
            let ended = run_steps(place, io, shell::parse(&line, &place.env)).await;
            code = ended.code;
            if ended.exit {
                return code;
            }
            io.print("# ");
        }
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_in_commands() {
        let env = BTreeMap::from([("A".to_owned(), "x".to_owned())]);
        for (text, expected) in [
            ("$(A)b", "xb"),
            ("$(B)", "$(B)"),
            ("$$(A)", "$(A)"),
            ("$(A", "$(A"),
            ("a$(A)$(A)", "axx"),
        ] {
            assert_eq!(expand(text, &env), expected, "{text}");
        }
    }

    #[test]
    fn a_container_sees_its_gpus_and_those_of_its_gang() {
        let mut pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "w", "namespace": "d", "annotations": {
                contract::GPU_GROUP: "3", contract::GPU_VISIBLE: "0,3"}},
            "spec": {"nodeName": "n", "hostNetwork": true, "containers": [{"name": "c",
                "env": [{"name": "B", "value": "on $(HOSTNAME)"}],
                "resources": {"limits": {contract::ALIYUN_GPU: "1"}}}]},
        }))
        .unwrap();
        let env = environment(&pod, "c");
        let shown = |key: &str| env.get(key).map(String::as_str);
        assert_eq!(shown("CUDA_VISIBLE_DEVICES"), Some("3"));
        assert_eq!(shown("NVIDIA_VISIBLE_DEVICES"), Some("0,3"));
        assert_eq!(shown("B"), Some("on n"));
        pod.spec.containers[0].resources.limits.clear();
        assert!(!environment(&pod, "c").contains_key("CUDA_VISIBLE_DEVICES"));
    }
}
