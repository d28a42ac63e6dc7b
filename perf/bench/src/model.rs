//! What a deployment will cost an application, from what was measured of it: a few multiplications.
//!
//! ```text
//! enqueue   = step - launches x (native launch - enqueue)      the application's thread, where it is the bottleneck
//! worker    = launches x (native launch + dispatch)            the worker's executor
//! waiting   = round trips x round trip
//! copying   = bytes / bandwidth - bytes / native bandwidth     never less than 0
//! step'     = max(host bound ? enqueue : step, worker) + waiting + copying
//! slowdown  = step' / step
//! ```
//! A coefficient that nobody has measured is `null` in the file, and what depends on it is shown as not measured.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

const SHIPPED: &str = include_str!("../model.json");

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// What the fields mean, for whoever opens the file.
    pub about: Vec<String>,
    pub native: Native,
    /// A worker's own work for one posted launch, besides the driver's.
    pub dispatch_us: Coefficient,
    /// What both ends of a carrier over a network add to a call, the network's own time left out.
    #[serde(default = "Coefficient::absent")]
    pub carrying_us: Coefficient,
    pub workloads: BTreeMap<String, Workload>,
}

/// The bare GPU.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Native {
    pub launch_us: Coefficient,
    pub pinned_gbps: Coefficient,
    pub pageable_to_device_gbps: Coefficient,
    pub pageable_to_host_gbps: Coefficient,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// What one step is.
    pub step: String,
    pub step_us: Coefficient,
    /// The application's thread is the bottleneck natively, not the GPU.
    pub is_host_bound: bool,
    pub launches: Coefficient,
    pub round_trips: Coefficient,
    pub pinned_bytes: Coefficient,
    pub pageable_bytes_to_device: Coefficient,
    pub pageable_bytes_to_host: Coefficient,
    /// Measured slowdown by transport, to judge the model by.
    pub measured_slowdown: BTreeMap<String, Coefficient>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Coefficient {
    pub value: Option<f64>,
    pub source: String,
}

impl Coefficient {
    /// Of a file that was written before there was such a coefficient.
    fn absent() -> Coefficient {
        Coefficient { value: None, source: "not in the file".into() }
    }
}

/// What was measured of a deployment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Deployment {
    pub round_trip_us: f64,
    pub enqueue_us: f64,
    pub pinned_gbps: f64,
    pub pageable_to_device_gbps: f64,
    pub pageable_to_host_gbps: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Expected {
    /// Waiting and copying, in a step.
    pub added_us: f64,
    /// `Err` names the coefficients that are missing.
    pub slowdown: Result<f64, String>,
}

impl Model {
    pub fn read(path: Option<&Path>) -> Result<Model, String> {
        let (name, text) = match path {
            None => ("the built-in model".into(), SHIPPED.to_owned()),
            Some(path) => {
                let text = std::fs::read_to_string(path);
                let text = text.map_err(|e| format!("reading {} failed: {e}", path.display()))?;
                (path.display().to_string(), text)
            }
        };
        serde_json::from_str(&text).map_err(|e| format!("{name} is no model: {e}"))
    }

    /// `Err` names the coefficients without which nothing can be said.
    pub fn expect(&self, workload: &Workload, on: &Deployment) -> Result<Expected, String> {
        let mut missing = Missing::default();
        let native = &self.native;
        let waiting = missing.of("round_trips", &workload.round_trips) * on.round_trip_us;
        let copying = [
            ("pinned_bytes", &workload.pinned_bytes, "pinned_gbps", &native.pinned_gbps, on.pinned_gbps),
            (
                "pageable_bytes_to_device",
                &workload.pageable_bytes_to_device,
                "pageable_to_device_gbps",
                &native.pageable_to_device_gbps,
                on.pageable_to_device_gbps,
            ),
            (
                "pageable_bytes_to_host",
                &workload.pageable_bytes_to_host,
                "pageable_to_host_gbps",
                &native.pageable_to_host_gbps,
                on.pageable_to_host_gbps,
            ),
        ];
        let copying = copying.map(|(bytes_name, bytes, rate_name, rate, ours)| match missing.of(bytes_name, bytes) {
            0.0 => 0.0,
            bytes => copy_us(bytes, ours, missing.of(rate_name, rate)),
        });
        missing.complete()?;
        let added_us = waiting + copying.iter().sum::<f64>();
        let mut missing = Missing::default();
        let step = missing.of("step_us", &workload.step_us);
        let launches = missing.of("launches", &workload.launches);
        let launch = missing.of("native launch_us", &native.launch_us);
        let dispatch = missing.of("dispatch_us", &self.dispatch_us);
        let enqueue = if workload.is_host_bound { step - launches * (launch - on.enqueue_us) } else { step };
        let slowdown = (enqueue.max(launches * (launch + dispatch)) + added_us) / step;
        Ok(Expected { added_us, slowdown: missing.complete().map(|()| slowdown) })
    }
}

fn copy_us(bytes: f64, ours_gbps: f64, native_gbps: f64) -> f64 {
    (bytes / ours_gbps / 1e3 - bytes / native_gbps / 1e3).max(0.0)
}

#[derive(Default)]
struct Missing(Vec<&'static str>);

impl Missing {
    fn of(&mut self, name: &'static str, coefficient: &Coefficient) -> f64 {
        coefficient.value.unwrap_or_else(|| {
            self.0.push(name);
            f64::NAN
        })
    }

    fn complete(self) -> Result<(), String> {
        if self.0.is_empty() { Ok(()) } else { Err(format!("not measured: {}", self.0.join(", "))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPLOYMENT: Deployment = Deployment {
        round_trip_us: 10.0,
        enqueue_us: 0.3,
        pinned_gbps: 10.0,
        pageable_to_device_gbps: 5.0,
        pageable_to_host_gbps: 5.0,
    };

    fn known(value: f64) -> Coefficient {
        Coefficient { value: Some(value), source: "a test".into() }
    }

    fn model() -> Model {
        Model {
            about: Vec::new(),
            native: Native {
                launch_us: known(3.3),
                pinned_gbps: known(50.0),
                pageable_to_device_gbps: known(10.0),
                pageable_to_host_gbps: known(10.0),
            },
            dispatch_us: known(0.2),
            carrying_us: known(9.0),
            workloads: BTreeMap::new(),
        }
    }

    fn workload() -> Workload {
        Workload {
            step: "a test".into(),
            step_us: known(1000.0),
            is_host_bound: true,
            launches: known(100.0),
            round_trips: known(2.0),
            pinned_bytes: known(0.0),
            pageable_bytes_to_device: known(1e6),
            pageable_bytes_to_host: known(0.0),
            measured_slowdown: BTreeMap::new(),
        }
    }

    #[test]
    fn a_step_adds_up() {
        let expected = model().expect(&workload(), &DEPLOYMENT).unwrap();
        // 2 x 10 us of waiting; 1 MB at 5 instead of 10 GB/s takes 100 us more.
        assert!((expected.added_us - 120.0).abs() < 1e-9, "{expected:?}");
        // 100 launches take 3 us less each.
        assert!((expected.slowdown.unwrap() - 0.82).abs() < 1e-9);
    }

    #[test]
    fn the_worker_bounds_a_stream_of_launches() {
        let workload = Workload { launches: known(1000.0), round_trips: known(0.0), ..workload() };
        let workload = Workload { pageable_bytes_to_device: known(0.0), ..workload };
        let expected = model().expect(&workload, &DEPLOYMENT).unwrap();
        assert!((expected.slowdown.unwrap() - 3.5).abs() < 1e-9);
    }

    #[test]
    fn what_is_not_measured_is_named() {
        let unknown = Coefficient { value: None, source: "nobody".into() };
        let expected = model().expect(&Workload { step_us: unknown.clone(), ..workload() }, &DEPLOYMENT).unwrap();
        assert_eq!(expected.slowdown, Err("not measured: step_us".into()));
        let nothing = model().expect(&Workload { round_trips: unknown, ..workload() }, &DEPLOYMENT);
        assert_eq!(nothing, Err("not measured: round_trips".into()));
    }

    #[test]
    fn a_model_of_before_is_read_and_what_it_has_not_is_not_measured() {
        let mut older: serde_json::Value = serde_json::from_str(SHIPPED).unwrap();
        assert!(older.as_object_mut().unwrap().remove("carrying_us").is_some());
        let path = std::env::temp_dir().join(format!("orion-bench-model-{}.json", std::process::id()));
        std::fs::write(&path, older.to_string()).unwrap();
        let model = Model::read(Some(&path));
        std::fs::remove_file(&path).unwrap();
        let model = model.unwrap();
        assert_eq!(model.carrying_us.value, None);
        model.expect(&model.workloads["training"], &DEPLOYMENT).unwrap().slowdown.unwrap();
    }

    #[test]
    fn the_shipped_model_is_one() {
        let model = Model::read(None).unwrap();
        for name in ["training", "generation", "small-ops"] {
            assert!(model.workloads.contains_key(name), "{name}");
            model.expect(&model.workloads[name], &DEPLOYMENT).unwrap();
        }
    }
}
