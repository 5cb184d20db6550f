//! `cargo xtask bench`: benchmarks that need more than the bench.

use crate::servers;
use crate::tools::{cargo_line, run};

/// Measures Leasehold and other libraries at the same work, with these options.
pub(crate) fn compare(args: &[String]) -> Result<(), String> {
    servers::ensure(&["redis", "etcd", "zookeeper"])?;
    let mut program = cargo_line("run --release --locked --package leasehold-bench --bin compare");
    run(program.arg("--").args(args))
}
