//! The lines that a benchmark prints: like the real programs', with the modelled throughput. Iteration times carry a
//! small seeded jitter, and every mean and deviation is computed from the iterations that are printed.

use super::mpirun::{Benchmark, Style};

/// What a run prints, and after how many modelled seconds each part.
pub(crate) type Script = Vec<(f64, String)>;

/// Share of an iteration time by which it varies.
const JITTER: f64 = 0.003;

/// SplitMix64: a stream of numbers from a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Between −1 and 1, even.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit a float")]
    fn symmetric(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }
}

/// The run of a benchmark on `gpus` GPUs whose steps take `step` seconds.
pub(crate) fn run(benchmark: &Benchmark, gpus: usize, step: f64, seed: u64) -> Script {
    let mut random = Random(seed);
    let batch = benchmark.workload.batch;
    let mut rate =
        |steps: f64| (batch / (step * (1.0 + JITTER * random.symmetric())), steps * step);
    match benchmark.style {
        Style::PyTorch => pytorch(benchmark, gpus, &mut rate, step),
        Style::TensorFlow => tensorflow(benchmark, gpus, &mut rate, step),
    }
}

fn total(gpus: usize) -> f64 {
    u32::try_from(gpus).map_or(0.0, f64::from)
}

/// Mean, and 1.96 standard deviations, as the program prints it.
fn mean_and_spread(rates: &[f64]) -> (f64, f64) {
    let count = total(rates.len()).max(1.0);
    let mean = rates.iter().sum::<f64>() / count;
    let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / count;
    (mean, 1.96 * variance.sqrt())
}

/// Ten iterations of ten steps, after a warm-up of ten steps.
fn pytorch(
    benchmark: &Benchmark,
    gpus: usize,
    rate: &mut dyn FnMut(f64) -> (f64, f64),
    step: f64,
) -> Script {
    let mut script = vec![
        (
            0.0,
            format!(
                "Model: {}\nBatch size: {}\nNumber of GPUs: {gpus}\nRunning warmup...\n",
                benchmark.model, benchmark.workload.batch
            ),
        ),
        (10.0 * step, "Running benchmark...\n".to_owned()),
    ];
    let mut rates = Vec::new();
    for number in 0..10 {
        let (images, seconds) = rate(10.0);
        rates.push(images);
        script.push((seconds, format!("Iter #{number}: {images:.1} img/sec per GPU\n")));
    }
    let (mean, spread) = mean_and_spread(&rates);
    let all = total(gpus);
    script.push((
        0.0,
        format!("Img/sec per GPU: {mean:.1} +-{spread:.1}\nTotal img/sec on {gpus} GPU(s): {:.1} +-{:.1}\n", mean * all, spread * all),
    ));
    script
}

/// A hundred steps, reported every ten, after a warm-up of ten.
fn tensorflow(
    benchmark: &Benchmark,
    gpus: usize,
    rate: &mut dyn FnMut(f64) -> (f64, f64),
    step: f64,
) -> Script {
    let batch = benchmark.workload.batch;
    let mut script = vec![
        (
            0.0,
            format!(
                "Model:       {}\nBatch size:  {} global\n             {batch} per device\nNum batches: 100\nDevices:     {gpus} GPUs \
                 (horovod)\nRunning warm up\n",
                benchmark.model,
                batch * total(gpus)
            ),
        ),
        (10.0 * step, "Done warm up\nStep\tImg/sec\ttotal_loss\n".to_owned()),
    ];
    let mut rates = Vec::new();
    for number in 1..=10 {
        let (images, seconds) = rate(10.0);
        rates.push(images);
        let (mean, spread) = mean_and_spread(&rates);
        script.push((
            seconds,
            format!(
                "{}\timages/sec: {mean:.1} +/- {:.1} (jitter = {:.1})\n",
                number * 10,
                spread / 1.96,
                spread
            ),
        ));
    }
    let (mean, _) = mean_and_spread(&rates);
    let rule = "-".repeat(64);
    script.push((0.0, format!("{rule}\ntotal images/sec: {:.2}\n{rule}\n", mean * total(gpus))));
    script
}

#[cfg(test)]
mod tests {
    use placement::{Rates, Workload};

    use super::*;

    fn lines(style: Style, framework: &str) -> Vec<String> {
        let workload = Workload::known(framework, "vgg16", 64, Rates::Calibrated).unwrap();
        let step = workload.step_seconds(4, 86.8);
        let script = run(&Benchmark { style, model: "vgg16".into(), workload }, 4, step, 7);
        script
            .into_iter()
            .flat_map(|(_, text)| text.lines().map(str::to_owned).collect::<Vec<_>>())
            .collect()
    }

    #[test]
    fn the_means_are_those_of_the_printed_iterations() {
        let lines = lines(Style::PyTorch, "pytorch");
        let iterations: Vec<f64> = lines
            .iter()
            .filter(|line| line.starts_with("Iter #"))
            .map(|line| {
                line.split([' ', ':']).filter_map(|word| word.parse::<f64>().ok()).next().unwrap()
            })
            .collect();
        let mean = iterations.iter().sum::<f64>() / 10.0;
        let printed: f64 = lines
            .iter()
            .find_map(|line| {
                line.strip_prefix("Img/sec per GPU: ")?.split(' ').next()?.parse().ok()
            })
            .unwrap();
        assert!((mean - printed).abs() < 0.1, "{mean} {printed}");
        assert!(lines.last().unwrap().starts_with("Total img/sec on 4 GPU(s): 8"), "{lines:?}");
    }

    #[test]
    fn the_total_is_the_models_within_half_a_percent_and_the_same_every_time() {
        let total = |lines: Vec<String>| -> f64 {
            lines
                .iter()
                .find_map(|line| line.strip_prefix("total images/sec: ")?.parse().ok())
                .unwrap()
        };
        let first = total(lines(Style::TensorFlow, "tf"));
        assert!((first / 991.92 - 1.0).abs() < 0.005, "{first}");
        assert!((total(lines(Style::TensorFlow, "tf")) - first).abs() < 1e-9);
    }
}
