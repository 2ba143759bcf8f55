//! What a user tells of a program that is not in the throughput model's table.

use placement::{DEFAULT_BATCH, Workload, WorkloadError};

/// A program, as far as its user describes it. Everything is optional; a program of the table needs only `model`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Described {
    /// `FRAMEWORK/MODEL[:BATCH]`, of the model's table.
    pub model: Option<String>,
    /// Parameters of the network; four bytes of gradient each.
    pub parameters: Option<f64>,
    /// Bytes of gradient that a step exchanges; else four a parameter.
    pub gradient_bytes: Option<f64>,
    /// Seconds that one step computes on one GPU.
    pub step_time: Option<f64>,
    /// Samples that a GPU takes in a step.
    pub batch: Option<f64>,
}

/// Why a description is no workload.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum DescribedError {
    /// Some numbers are there, but not all that the model needs.
    #[error("a described job needs {0} (or --model FRAMEWORK/MODEL[:BATCH] alone)")]
    Incomplete(&'static str),
    /// A model of the table and numbers at once.
    #[error(
        "--model names a job of the table; leave out --parameters, --gradient-bytes, --step-time and --batch"
    )]
    Both,
    /// The model or a number is wrong.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
}

/// Gradients are exchanged as 32-bit numbers.
const BYTES_PER_PARAMETER: f64 = 4.0;

impl Described {
    /// Whether nothing is told.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn has_numbers(&self) -> bool {
        self.parameters.is_some()
            || self.gradient_bytes.is_some()
            || self.step_time.is_some()
            || self.batch.is_some()
    }

    /// The workload for the throughput model; `None` when nothing is told.
    ///
    /// # Errors
    /// A model that is not in the table, a number that is missing or not positive.
    pub fn workload(&self) -> Result<Option<Workload>, DescribedError> {
        match (&self.model, self.has_numbers()) {
            (None, false) => Ok(None),
            (Some(_), true) => Err(DescribedError::Both),
            (Some(model), false) => Ok(Some(model.parse()?)),
            (None, true) => {
                let bytes = match (self.gradient_bytes, self.parameters) {
                    (Some(bytes), _) => bytes,
                    (None, Some(parameters)) => parameters * BYTES_PER_PARAMETER,
                    (None, None) => {
                        return Err(DescribedError::Incomplete("--gradient-bytes or --parameters"));
                    }
                };
                let seconds = self.step_time.ok_or(DescribedError::Incomplete("--step-time"))?;
                let batch = self.batch.unwrap_or_else(|| f64::from(DEFAULT_BATCH));
                Ok(Some(Workload::described("described", batch, seconds, bytes)?))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_whole_or_an_error() {
        let nothing = Described::default();
        assert_eq!(nothing.workload(), Ok(None));
        let of_table = Described { model: Some("tf/vgg16".into()), ..nothing.clone() };
        assert_eq!(of_table.workload().unwrap().unwrap().name, "tf/vgg16:64");
        let numbers = Described { parameters: Some(1e6), step_time: Some(0.5), ..nothing.clone() };
        let workload = numbers.workload().unwrap().unwrap();
        assert_eq!((workload.gradient_bytes, workload.rate), (4e6, 128.0));
        for bad in [
            Described { step_time: Some(0.5), ..nothing.clone() },
            Described { parameters: Some(1e6), ..nothing.clone() },
            Described { parameters: Some(-1.0), step_time: Some(0.5), ..nothing.clone() },
            Described { batch: Some(32.0), ..of_table },
        ] {
            assert!(bad.workload().is_err(), "{bad:?}");
        }
    }
}
