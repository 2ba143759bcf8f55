//! mpirun's command line and hostfile, and the benchmark that it starts.

use std::collections::BTreeMap;

use api::{Pod, contract};
use placement::{DEFAULT_BATCH, Rates, Workload};

/// What mpirun is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mpirun {
    /// Ranks; all slots without.
    pub(crate) ranks: Option<usize>,
    /// The hostfile that it names.
    pub(crate) hostfile: Option<String>,
    /// The program and its arguments.
    pub(crate) program: Vec<String>,
}

/// Options of mpirun that take one word, and those that take two.
const WITH_ONE: &[&str] = &[
    "x",
    "bind-to",
    "map-by",
    "rank-by",
    "H",
    "host",
    "hosts",
    "wdir",
    "wd",
    "path",
    "prefix",
    "output-filename",
    "iface",
    "launcher",
    "launcher-exec",
    "ppn",
    "perhost",
    "N",
    "npernode",
    "timeout",
];
const WITH_TWO: &[&str] = &["mca", "gmca", "genv", "env", "prtemca", "pmixmca"];

impl Mpirun {
    /// Reads the words after `mpirun`.
    pub(crate) fn parse(words: &[String]) -> Result<Self, String> {
        let (mut ranks, mut hostfile) = (None, None);
        let mut words = words.iter();
        let mut program = Vec::new();
        while let Some(word) = words.next() {
            let Some(option) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
                program = [word].into_iter().chain(words).cloned().collect();
                break;
            };
            let (option, inline) = option
                .split_once('=')
                .map_or((option, None), |(option, value)| (option, Some(value)));
            match option {
                "np" | "n" | "c" => {
                    let value =
                        inline.or_else(|| words.next().map(String::as_str)).unwrap_or_default();
                    let number = value.parse().ok().filter(|&ranks: &usize| ranks > 0);
                    ranks = Some(number.ok_or_else(|| {
                        format!("mpirun: -np {value:?} is not a positive number")
                    })?);
                }
                "hostfile" | "machinefile" => {
                    hostfile = inline.map(str::to_owned).or_else(|| words.next().cloned());
                }
                _ if inline.is_some() => {}
                _ if WITH_ONE.contains(&option) => drop(words.next()),
                _ if WITH_TWO.contains(&option) => {
                    words.next();
                    words.next();
                }
                _ => {}
            }
        }
        if program.is_empty() {
            return Err("mpirun: no executable was given".to_owned());
        }
        Ok(Self { ranks, hostfile, program })
    }
}

/// Hosts and slots of a hostfile, in the notation of Open MPI (`POD slots=2`) or of MPICH (`POD:2`).
pub(crate) fn hostfile(text: &str) -> Vec<(String, usize)> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let first = words.next()?;
        let (host, slots) = first.split_once(':').unwrap_or((first, ""));
        let named = words.find_map(|word| word.strip_prefix("slots="));
        Some((host.to_owned(), named.unwrap_or(slots).parse().unwrap_or(1)))
    };
    text.lines().filter(|text| !text.trim_start().starts_with('#')).filter_map(line).collect()
}

/// What Open MPI says when there are fewer slots than ranks.
pub(crate) fn too_few_slots(ranks: usize, program: &str) -> String {
    let rule = "-".repeat(74);
    format!(
        "{rule}\nThere are not enough slots available in the system to satisfy the {ranks}\nslots that were requested by the \
         application:\n\n  {program}\n\nEither request fewer slots for your application, or make more slots\navailable for \
         use.\n{rule}\n"
    )
}

/// How a benchmark prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// tf_cnn_benchmarks.
    TensorFlow,
    /// pytorch_synthetic_benchmark.
    PyTorch,
}

/// A program whose speed the model knows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Benchmark {
    /// How it prints.
    pub(crate) style: Style,
    /// The model's name, as it prints it.
    pub(crate) model: String,
    /// What it computes and exchanges.
    pub(crate) workload: Workload,
}

/// The benchmark of a program; `None` for one that the model does not know, an error for numbers that cannot be.
pub(crate) fn benchmark(program: &[String], pod: &Pod) -> Result<Option<Benchmark>, String> {
    let line = program.join(" ");
    let option = |names: &[&str]| {
        program.iter().enumerate().find_map(|(at, word)| {
            let (name, value) = word
                .split_once('=')
                .map_or((word.as_str(), None), |(name, value)| (name, Some(value)));
            names
                .contains(&name)
                .then(|| value.map(str::to_owned).or_else(|| program.get(at + 1).cloned()))
                .flatten()
        })
    };
    let style = if line.contains("tf_cnn_benchmarks") {
        Some((Style::TensorFlow, "tf"))
    } else if line.contains("pytorch_synthetic_benchmark") {
        Some((Style::PyTorch, "pytorch"))
    } else {
        None
    };
    if let Some((style, framework)) = style {
        let model = option(&["--model"]).unwrap_or_else(|| "resnet50".to_owned());
        let batch = match option(&["--batch_size", "--batch-size"]) {
            Some(batch) => {
                batch.parse().map_err(|_| format!("batch size {batch:?} is not a number"))?
            }
            None => DEFAULT_BATCH,
        };
        return match Workload::known(framework, &model, batch, Rates::Calibrated) {
            Ok(workload) => Ok(Some(Benchmark { style, model, workload })),
            Err(_) => described(pod.annotations(), &model, style),
        };
    }
    described(pod.annotations(), "model", Style::PyTorch)
}

/// A program that the job's annotations describe.
fn described(
    notes: &BTreeMap<String, String>,
    model: &str,
    style: Style,
) -> Result<Option<Benchmark>, String> {
    if let Some(name) = notes.get(contract::MODEL) {
        let workload: Workload =
            name.parse().map_err(|e| format!("annotation {}: {e}", contract::MODEL))?;
        return Ok(Some(Benchmark { style, model: name.clone(), workload }));
    }
    let number = |key: &str| match notes.get(key) {
        Some(text) => text
            .parse::<f64>()
            .map(Some)
            .map_err(|_| format!("annotation {key}: {text:?} is not a number")),
        None => Ok(None),
    };
    let gradient = number(contract::GRADIENT_BYTES)?
        .or(number(contract::PARAMETERS)?.map(|parameters| 4.0 * parameters));
    let (Some(gradient), Some(step)) = (gradient, number(contract::STEP_TIME)?) else {
        return Ok(None);
    };
    let batch = number(contract::BATCH)?.unwrap_or_else(|| f64::from(DEFAULT_BATCH));
    let workload = Workload::described(model, batch, step, gradient).map_err(|e| e.to_string())?;
    Ok(Some(Benchmark { style, model: model.to_owned(), workload }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    const PAGE: &str = "--allow-run-as-root -np 4 -bind-to none -map-by slot -x NCCL_DEBUG=INFO -x PATH --mca pml ob1 \
                        --mca btl ^openib python /tensorflow/tf_cnn_benchmarks.py --model=vgg16 --batch_size=64";

    #[test]
    fn the_pages_command_line() {
        let parsed = Mpirun::parse(&words(PAGE)).unwrap();
        assert_eq!((parsed.ranks, parsed.program[0].as_str()), (Some(4), "python"));
        let benchmark = benchmark(&parsed.program, &Pod::default()).unwrap().unwrap();
        assert_eq!(
            (benchmark.style, benchmark.workload.name.as_str()),
            (Style::TensorFlow, "tf/vgg16:64")
        );
        assert!(
            Mpirun::parse(&words("-np 0 a")).is_err() && Mpirun::parse(&words("-np 4")).is_err()
        );
    }

    #[test]
    fn hostfiles() {
        let expected = [("a".to_owned(), 2), ("b".to_owned(), 1)];
        assert_eq!(hostfile("a slots=2\n# no\nb\n"), expected);
        assert_eq!(hostfile("a:2\nb\n"), expected);
    }

    #[test]
    fn a_described_program_is_modelled_and_an_unknown_one_is_not() {
        let mut pod = Pod::default();
        assert_eq!(benchmark(&words("python x.py"), &pod), Ok(None));
        let notes =
            [(contract::PARAMETERS, "1e6"), (contract::STEP_TIME, "0.1"), (contract::BATCH, "8")];
        pod.metadata.annotations =
            Some(notes.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect());
        let workload = benchmark(&words("python x.py"), &pod).unwrap().unwrap().workload;
        assert_eq!((workload.gradient_bytes, workload.rate), (4e6, 80.0));
        pod.metadata.annotations =
            Some([(contract::MODEL.to_owned(), "tf/lenet".to_owned())].into());
        assert!(benchmark(&words("python x.py"), &pod).is_err());
    }
}
