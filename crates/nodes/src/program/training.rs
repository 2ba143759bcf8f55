//! mpirun over the pods of its hostfile, and what is trained there at the speed of their placement.

use std::sync::Arc;

use api::{Pod, contract};
use placement::{Arrangement, Class};
use topology::GpuSet;

use super::{
    Io, Place,
    benchmark::{self, Script},
    hash,
    mpirun::{self, Mpirun},
    shell::{self, Command},
};

/// Modelled seconds that a program runs which the model does not know.
const UNKNOWN_PROGRAM: f64 = 60.0;

/// A pod that ranks run in.
struct Worker {
    pod: Arc<Pod>,
    ranks: usize,
    gpus: GpuSet,
}

/// Runs a program that is none of the shell's.
pub(super) async fn run(place: &Place, io: &Io, words: &[String]) -> u8 {
    let name = words.first().map_or("", |word| word.rsplit('/').next().unwrap_or(word));
    let ran = match name {
        _ if place.is_exec => {
            io.complain(&format!(
                "simulated: there is no {name:?} here; sh, echo, cat, env, hostname, sleep, exit and nvidia-smi topo are"
            ));
            return 127;
        }
        "mpirun" | "mpiexec" | "mpiexec.hydra" | "orterun" | "prterun" => {
            launch(place, io, words.get(1..).unwrap_or_default()).await
        }
        _ => {
            let worker = Worker {
                pod: Arc::clone(&place.pod),
                ranks: held(&place.pod).len().max(1),
                gpus: held(&place.pod),
            };
            train(place, io, &[worker], words).await
        }
    };
    ran.unwrap_or_else(|problem| {
        io.complain(problem.trim_end());
        1
    })
}

/// The GPUs that a pod was given.
fn held(pod: &Pod) -> GpuSet {
    let planned = pod.gpu_group().ok().flatten();
    planned.or_else(|| pod.simulated_gpus().ok().flatten()).unwrap_or(GpuSet::EMPTY)
}

/// mpirun: starts the ranks where the hostfile says, and ends when they do or a worker is lost.
async fn launch(place: &Place, io: &Io, words: &[String]) -> Result<u8, String> {
    let asked = Mpirun::parse(words)?;
    let workers = workers(place, &asked).await?;
    let lost = async {
        let mut changes = place.world.changes();
        loop {
            let lost = workers.iter().find(|worker| !serves(place, &worker.pod));
            if let Some(lost) = lost {
                return lost.pod.name().to_owned();
            }
            if changes.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    };
    tokio::select! {
        ended = ranks(place, io, &workers, &asked.program) => ended,
        lost = lost => Err(format!(
            "ORTE has lost communication with a remote daemon.\n\n  HNP daemon   : on node {}\n  Remote daemon: on node {lost}\n\n\
             This is usually due to either a failure of the TCP network connection to the node, or possibly an internal failure of\n\
             the daemon itself.",
            place.pod.name()
        )),
    }
}

/// Whether a worker that was there still is.
fn serves(place: &Place, pod: &Pod) -> bool {
    place.world.pod(pod.namespace(), pod.name()).is_some_and(|now| {
        now.uid() == pod.uid()
            && !now.is_terminating()
            && now.status.phase == "Running"
            && now.is_ready()
    })
}

/// The pods of the hostfile, with the ranks that each gets.
async fn workers(place: &Place, asked: &Mpirun) -> Result<Vec<Worker>, String> {
    let named = [
        "OMPI_MCA_orte_default_hostfile",
        "PRTE_MCA_prte_default_hostfile",
        "I_MPI_HYDRA_HOST_FILE",
        "HYDRA_HOST_FILE",
    ];
    let file = asked
        .hostfile
        .as_deref()
        .or_else(|| named.iter().find_map(|name| place.env.get(*name).map(String::as_str)));
    let hosts = match file {
        Some(file) => mpirun::hostfile(&place.file(file).await?),
        None => vec![(place.pod.name().to_owned(), held(&place.pod).len().max(1))],
    };
    let slots: usize = hosts.iter().map(|(_, slots)| slots).sum();
    let ranks = asked.ranks.unwrap_or(slots);
    if ranks > slots {
        let program = asked.program.first().map_or("", String::as_str);
        return Err(mpirun::too_few_slots(ranks, program));
    }
    let mut left = ranks;
    let mut workers = Vec::new();
    for (host, slots) in hosts {
        if left == 0 {
            break;
        }
        let pod = place
            .world
            .pod(place.pod.namespace(), &host)
            .filter(|pod| file.is_none() || serves(place, pod))
            .ok_or_else(|| {
                format!(
                    "ORTE was unable to reliably start one or more daemons.\n\n  Host: {host}\n\nThe pod is not there or not ready."
                )
            })?;
        let here = slots.min(left);
        left -= here;
        workers.push(Worker { gpus: used(place, &pod, here), ranks: here, pod });
    }
    Ok(workers)
}

/// The GPUs that the first ranks of a pod take: one each, in the order of the node's ring.
fn used(place: &Place, pod: &Pod, ranks: usize) -> GpuSet {
    let held = held(pod);
    if ranks >= held.len() {
        return held;
    }
    let machine = place.world.machine(pod.spec.node_name.as_deref().unwrap_or_default());
    let order = machine.map_or_else(|| held.iter().collect(), |machine| machine.ranks(held));
    order.into_iter().take(ranks).collect()
}

/// The program of all ranks. One of the shell's runs in each; any other is trained once for all.
async fn ranks(
    place: &Place,
    io: &Io,
    workers: &[Worker],
    program: &[String],
) -> Result<u8, String> {
    if matches!(shell::command(program, &place.env), Command::Program(_)) {
        return train(place, io, workers, program).await;
    }
    let size: usize = workers.iter().map(|worker| worker.ranks).sum();
    let worker_of_rank =
        workers.iter().flat_map(|worker| std::iter::repeat_n(&worker.pod, worker.ranks));
    let runs = worker_of_rank.enumerate().map(|(rank, pod)| {
        let container = pod.spec.containers.first().map_or("", |c| c.name.as_str());
        let (world, reads) = (Arc::clone(&place.world), place.reads.clone());
        let mut inside = Place::new(world, reads, Arc::clone(pod), container, place.pace);
        let mut env = (*inside.env).clone();
        env.insert("OMPI_COMM_WORLD_RANK".to_owned(), rank.to_string());
        env.insert("OMPI_COMM_WORLD_SIZE".to_owned(), size.to_string());
        inside.env = Arc::new(env);
        async move { super::run(&inside, io, program).await }
    });
    let codes = futures::future::join_all(runs).await;
    Ok(codes.into_iter().find(|code| *code != 0).unwrap_or(0))
}

/// Trains at the speed that the model gives for where the workers stand.
async fn train(
    place: &Place,
    io: &Io,
    workers: &[Worker],
    program: &[String],
) -> Result<u8, String> {
    let known = mpirun::benchmark(program, &place.pod)?;
    let gpus: usize = workers.iter().map(|worker| worker.gpus.len()).sum();
    let Some(known) = known.filter(|_| gpus > 0) else {
        let line = program.join(" ");
        io.print(&format!(
            "simulated: there is no model of {line:?} on {gpus} GPUs (annotations {}, {} and {} describe one); it ends well after {UNKNOWN_PROGRAM} s\n",
            contract::PARAMETERS, contract::GRADIENT_BYTES, contract::STEP_TIME,
        ));
        place.pace.wait(UNKNOWN_PROGRAM).await;
        return Ok(0);
    };
    let (names, machines) = machines(place, workers)?;
    let arrangement = Arrangement {
        nodes: machines.iter().map(Arc::as_ref).collect(),
        workers: workers
            .iter()
            .map(|worker| {
                let node = worker.pod.spec.node_name.as_deref().unwrap_or_default();
                (names.iter().position(|name| name == node).unwrap_or_default(), worker.gpus)
            })
            .collect(),
        host_identity: workers.iter().all(|worker| worker.pod.shares_host()),
    };
    let exchange = arrangement.exchange();
    let stands = names.iter().enumerate().map(|(index, name)| {
        let sets = arrangement.workers.iter().filter(|(node, _)| *node == index);
        format!("{name} {}", sets.fold(GpuSet::EMPTY, |all, (_, gpus)| all.union(*gpus)))
    });
    let stands = stands.collect::<Vec<_>>().join(", ");
    let bus = if exchange.bus.is_finite() {
        format!(", all-reduce {:.2} GB/s over {}", exchange.bus, exchange.path)
    } else {
        String::new()
    };
    io.print(&format!("simulated: no GPU runs; speeds are modelled for GPUs {stands}{bus}\n"));
    let step = known.workload.step_seconds(gpus, exchange.bus);
    let seed = place.pace.seed ^ hash(place.pod.name());
    play(place, io, benchmark::run(&known, gpus, step, seed)).await;
    Ok(0)
}

/// The nodes of the workers and their links as they are now.
fn machines(place: &Place, workers: &[Worker]) -> Result<(Vec<String>, Vec<Arc<Class>>), String> {
    let mut names: Vec<String> = Vec::new();
    let mut machines = Vec::new();
    for worker in workers {
        let node = worker.pod.spec.node_name.as_deref().unwrap_or_default();
        if !names.iter().any(|name| name == node) {
            let machine = place.world.machine(node).ok_or_else(|| {
                format!(
                    "simulated: pod {} is on node {node}, which is not simulated here",
                    worker.pod.name()
                )
            })?;
            names.push(node.to_owned());
            machines.push(machine);
        }
    }
    Ok((names, machines))
}

async fn play(place: &Place, io: &Io, script: Script) {
    for (seconds, text) in script {
        place.pace.wait(seconds).await;
        io.print(&text);
    }
}
