//! What the scheduler counts; names are kube-scheduler's where it has them.

use std::sync::Mutex;

use prometheus_client::{
    encoding::EncodeLabelSet,
    encoding::text::encode,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Outcome {
    result: &'static str,
    profile: &'static str,
}

/// The counters.
pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    attempts: Family<Outcome, Counter>,
    pub(crate) binds: Counter,
    pub(crate) bind_failures: Counter,
    pub(crate) pending: Gauge,
    pub(crate) evictions: Counter,
    pub(crate) plan_seconds: Histogram,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::default();
        let attempts = Family::<Outcome, Counter>::default();
        let (binds, bind_failures, evictions) =
            (Counter::default(), Counter::default(), Counter::default());
        let pending = Gauge::default();
        let buckets = [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0];
        let plan_seconds = Histogram::new(buckets);
        registry.register(
            "scheduler_schedule_attempts",
            "Attempts by result and profile",
            attempts.clone(),
        );
        registry.register("scheduler_binds", "Pods bound", binds.clone());
        registry.register(
            "scheduler_bind_failures",
            "Binds that failed for good",
            bind_failures.clone(),
        );
        registry.register(
            "scheduler_pending_units",
            "Gangs and single pods that wait",
            pending.clone(),
        );
        registry.register(
            "scheduler_gang_evictions",
            "Gangs started again as a whole",
            evictions.clone(),
        );
        registry.register(
            "scheduler_plan_duration_seconds",
            "Time to plan one unit",
            plan_seconds.clone(),
        );
        Self {
            registry: Mutex::new(registry),
            attempts,
            binds,
            bind_failures,
            pending,
            evictions,
            plan_seconds,
        }
    }

    pub(crate) fn attempt(&self, result: &'static str, profile: &'static str) {
        self.attempts.get_or_create(&Outcome { result, profile }).inc();
    }

    /// In Prometheus' text form.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        if let Ok(registry) = self.registry.lock() {
            // Writing to a string does not fail.
            let _ = encode(&mut text, &registry);
        }
        text
    }
}
