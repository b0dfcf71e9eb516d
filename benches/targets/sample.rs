//! What one measurement gave, and how several are put together.

use std::time::Duration;

use serde::Serialize;

/// One measurement of one round.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// How many calls, syncs or starts.
    pub count: usize,
    /// Half of them took less: milliseconds, except for figures that are no times, such as
    /// MiB of memory or percent of a core.
    pub p50: f64,
    /// All but one in a hundred took less.
    pub p99: f64,
    /// So many a second.
    pub rate: f64,
    /// Processor time that the server took for each, microseconds.
    pub server_cpu_us: Option<f64>,
    /// The share of the machine's processors that went to neither server nor load meanwhile.
    pub others: Option<f64>,
}

impl Sample {
    /// From single times, in any order, that together took `whole`.
    pub fn of(times: Vec<Duration>, whole: Duration) -> Self {
        let millis = times.iter().map(|time| time.as_secs_f64() * 1000.0);
        Sample::of_values(millis.collect(), whole)
    }

    /// From single values, in any order, that together took `whole`.
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

    /// Of values that are no times: the middle one and the largest.
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

/// The middle of several values, and how far they lie apart.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    /// The middle one; the mean of both where there are two.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of these values; `None` of none.
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
