//! The result of one measurement, and how several are combined.

use std::time::Duration;

use serde::Serialize;

/// One measurement of one round.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// Number of calls, syncs or starts.
    pub count: usize,
    /// Median: milliseconds, except for figures that are not durations, such as MiB of memory or
    /// percent of a core.
    pub p50: f64,
    /// 99th percentile, in the unit of `p50`.
    pub p99: f64,
    /// Number per second.
    pub rate: f64,
    /// Processor time of the server per call, microseconds.
    pub server_cpu_us: Option<f64>,
    /// The share of the machine's processors that neither server nor load used meanwhile.
    pub others: Option<f64>,
}

impl Sample {
    /// Computes a sample from single durations, in any order, that took `whole` in total.
    pub fn of(times: Vec<Duration>, whole: Duration) -> Self {
        let millis = times.iter().map(|time| time.as_secs_f64() * 1000.0);
        Sample::of_values(millis.collect(), whole)
    }

    /// Computes a sample from single values, in any order, that took `whole` in total.
    pub fn of_values(mut values: Vec<f64>, whole: Duration) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| {
            let place = (values.len() as f64 * share).ceil() as usize;
            values.get(place.saturating_sub(1)).copied()
        };
        Sample {
            count: values.len(),
            p50: at(0.5).unwrap_or_default(),
            p99: at(0.99).unwrap_or_default(),
            rate: values.len() as f64 / whole.as_secs_f64(),
            server_cpu_us: None,
            others: None,
        }
    }

    /// Computes the median and the maximum of values that are not durations.
    pub fn of_amounts(values: &[f64]) -> Self {
        let spread = Spread::of(values.iter().copied());
        Sample {
            count: values.len(),
            p50: spread.map_or(0.0, |spread| spread.median),
            p99: spread.map_or(0.0, |spread| spread.max),
            rate: 0.0,
            server_cpu_us: None,
            others: None,
        }
    }
}

/// The median of several values and their range.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    /// The median; the mean of the two middle values where there are two.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

impl Spread {
    /// The spread of `values`; `None` if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let half = values.len() / 2;
        let median = match values.len() % 2 {
            0 => (values[half - 1] + values[half]) / 2.0,
            _ => values[half],
        };
        Some(Spread { median, min, max })
    }
}
