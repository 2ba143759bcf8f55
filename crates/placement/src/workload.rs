//! What a training job computes and exchanges: the parameters of the throughput model, in one table.

use std::{fmt, str::FromStr};

use serde::Serialize;

/// Where a compute rate comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Rates {
    /// Calibrated on the four topology rows of the product pages.
    Calibrated,
    /// From independent public benchmarks of one GPU.
    Independent,
}

/// A training job as the model sees it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    /// `FRAMEWORK/MODEL:BATCH`, or what the user calls it.
    pub name: String,
    /// Images (samples) that one GPU takes in a step.
    pub batch: f64,
    /// Images per second of one GPU that has nothing to exchange.
    pub rate: f64,
    /// Bytes of gradients that are all-reduced each step.
    pub gradient_bytes: f64,
    /// Share of the backward pass under which communication hides, 0–1.
    pub overlap: f64,
}

/// The overlap that fits the product pages' eight figures best, with calibrated rates (fit A).
pub const OVERLAP: f64 = 0.38;
/// GB/s between pods of one node that a collective takes for separate hosts: TCP over loopback (fit A).
pub const LOOPBACK: f64 = 2.40;

/// The same two for the independent rates (fit B).
const INDEPENDENT_OVERLAP: f64 = 0.29;

/// Bytes of a gradient in single precision.
const BYTES_PER_PARAMETER: f64 = 4.0;

/// One row: a model under a framework on one V100.
struct Row {
    framework: &'static str,
    model: &'static str,
    parameters: u32,
    /// Images/s of four GPUs under topology scheduling, as published: communication is hidden, so a quarter of it is the
    /// rate of one.
    published_topology: f64,
    /// Images/s of one GPU from public benchmarks.
    independent: f64,
}

/// Parameter counts are the models'; published figures the product pages'; independent rates: tf_cnn_benchmarks on a V100
/// (VGG16), NGC TensorFlow and PyTorch on a V100 (ResNet50), PyTorch on p3 (VGG16).
const TABLE: [Row; 4] = [
    Row {
        framework: "tf",
        model: "vgg16",
        parameters: 138_357_544,
        published_topology: 991.92,
        independent: 249.0,
    },
    Row {
        framework: "tf",
        model: "resnet50",
        parameters: 25_557_032,
        published_topology: 1471.55,
        independent: 362.44,
    },
    Row {
        framework: "pytorch",
        model: "vgg16",
        parameters: 138_357_544,
        published_topology: 820.5,
        independent: 191.6,
    },
    Row {
        framework: "pytorch",
        model: "resnet50",
        parameters: 25_557_032,
        published_topology: 1321.9,
        independent: 348.62,
    },
];

/// Workers of the published runs.
const PUBLISHED_WORKERS: f64 = 4.0;
/// Images a GPU takes in a step unless said otherwise, as on the product pages.
pub const DEFAULT_BATCH: u32 = 64;

/// The words name no job that the model knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadError {
    /// Not `FRAMEWORK/MODEL[:BATCH]`.
    #[error("{0:?} is not FRAMEWORK/MODEL[:BATCH] (as tf/vgg16:64)")]
    Form(String),
    /// A framework or model that is not in the table.
    #[error("there is no model of {0:?}; known are {known}", known = known())]
    Unknown(String),
    /// A number that cannot be.
    #[error("{what} must be a positive number, not {value}")]
    NotPositive {
        /// Which.
        what: &'static str,
        /// What it is.
        value: String,
    },
}

fn known() -> String {
    TABLE
        .iter()
        .map(|row| format!("{}/{}", row.framework, row.model))
        .collect::<Vec<_>>()
        .join(", ")
}

impl Workload {
    /// A job of the table.
    ///
    /// # Errors
    /// The framework or model is not in it, or the batch is 0.
    pub fn known(
        framework: &str,
        model: &str,
        batch: u32,
        rates: Rates,
    ) -> Result<Self, WorkloadError> {
        let framework = match framework {
            "tensorflow" => "tf",
            "torch" | "pt" => "pytorch",
            other => other,
        };
        let row = TABLE
            .iter()
            .find(|row| row.framework == framework && row.model == model)
            .ok_or_else(|| WorkloadError::Unknown(format!("{framework}/{model}")))?;
        if batch == 0 {
            return Err(WorkloadError::NotPositive { what: "the batch", value: "0".to_owned() });
        }
        let (rate, overlap) = match rates {
            Rates::Calibrated => (row.published_topology / PUBLISHED_WORKERS, OVERLAP),
            Rates::Independent => (row.independent, INDEPENDENT_OVERLAP),
        };
        Ok(Self {
            name: format!("{framework}/{model}:{batch}"),
            batch: f64::from(batch),
            rate,
            gradient_bytes: BYTES_PER_PARAMETER * f64::from(row.parameters),
            overlap,
        })
    }

    /// A job that its user describes: samples a step and GPU, seconds a step computes on one GPU, gradient bytes.
    ///
    /// # Errors
    /// A number that is not positive.
    pub fn described(
        name: &str,
        batch: f64,
        step_seconds: f64,
        gradient_bytes: f64,
    ) -> Result<Self, WorkloadError> {
        for (what, value) in [
            ("the batch", batch),
            ("the step time", step_seconds),
            ("the gradient size", gradient_bytes),
        ] {
            if !(value.is_finite() && value > 0.0) {
                return Err(WorkloadError::NotPositive { what, value: value.to_string() });
            }
        }
        Ok(Self {
            name: name.to_owned(),
            batch,
            rate: batch / step_seconds,
            gradient_bytes,
            overlap: OVERLAP,
        })
    }

    /// Seconds of one step of `gpus` GPUs whose all-reduce runs at `bus` GB/s:
    /// t_c + max(0, 2(n−1)/n · G/B − φ · ⅔ t_c).
    pub fn step_seconds(&self, gpus: usize, bus: f64) -> f64 {
        let compute = self.batch / self.rate;
        let backward = compute * 2.0 / 3.0;
        let exchange = if gpus > 1 {
            crate::class::share(gpus) * self.gradient_bytes / (bus * 1e9)
        } else {
            0.0
        };
        compute + (exchange - self.overlap * backward).max(0.0)
    }

    /// Images per second of `gpus` GPUs whose all-reduce runs at `bus` GB/s.
    pub fn images_per_second(&self, gpus: usize, bus: f64) -> f64 {
        let gpus_f = u32::try_from(gpus).map_or(f64::INFINITY, f64::from);
        gpus_f * self.batch / self.step_seconds(gpus, bus)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// `FRAMEWORK/MODEL[:BATCH]` with calibrated rates.
impl FromStr for Workload {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let form = || WorkloadError::Form(text.to_owned());
        let (framework, rest) = text.split_once('/').ok_or_else(form)?;
        let (model, batch) = match rest.split_once(':') {
            Some((model, batch)) => (model, batch.parse().map_err(|_| form())?),
            None => (rest, DEFAULT_BATCH),
        };
        Self::known(framework, model, batch, Rates::Calibrated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!("tf/vgg16".parse::<Workload>().unwrap().name, "tf/vgg16:64");
        assert_eq!("pt/resnet50:32".parse::<Workload>().unwrap().batch, 32.0);
        for bad in ["vgg16", "tf/vgg16:x", "tf/vgg16:0", "tf/lenet"] {
            assert!(bad.parse::<Workload>().is_err(), "{bad}");
        }
        assert!(Workload::described("x", 1.0, 0.0, 1.0).is_err());
    }
}
