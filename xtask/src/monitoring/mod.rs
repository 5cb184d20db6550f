//! `cargo xtask monitoring`: the dashboard and the alerts, checked with a real Prometheus.
//!
//! [`Prometheus`](prometheus::Prometheus) scrapes a node of the watchdog and processes of the example `metrics`. In a
//! healthy system each query of the dashboard returns data and no alert is active. Faults then activate the alerts. What
//! needs no Prometheus is a test of this crate, in [`files`].

mod faults;
mod files;
mod programs;
mod prometheus;
mod system;

use std::process::{self, Command};
use std::{env, fs};

use self::system::System;
use crate::tools::{cargo_line, find, root, run};

/// Checks the files with `promtool`, and the queries with a running system.
pub(crate) fn check() -> Result<(), String> {
    for program in ["prometheus", "promtool", "redis-server"] {
        if find(program).is_none() {
            return Err(format!(
                "{program} is not in PATH; the Debian packages prometheus and redis-server have it"
            ));
        }
    }
    for (subject, file) in [("rules", "alerts.yml"), ("config", "prometheus.yml")] {
        promtool(&["check", subject, file])?;
    }
    promtool(&["test", "rules", "alerts_test.yml"])?;
    // With the features that the tests of the workspace have, so that nothing is compiled a second time.
    run(&mut cargo_line(
        "build --workspace --locked --bin leasehold --example metrics",
    ))?;
    let directory = env::temp_dir().join(format!("leasehold-monitoring-{}", process::id()));
    fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
    let checked = System::start(&directory).and_then(|mut system| faults::check(&mut system));
    match checked {
        Ok(()) => fs::remove_dir_all(directory).map_err(|error| error.to_string()),
        Err(error) => Err(format!("{error}; the logs are in {}", directory.display())),
    }
}

fn promtool(arguments: &[&str]) -> Result<(), String> {
    let mut promtool = Command::new("promtool");
    promtool.current_dir(root().join(files::PROMETHEUS));
    run(promtool.args(arguments))
}
