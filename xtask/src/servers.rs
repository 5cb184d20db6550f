//! The servers that the tests start.

use std::process::Command;

use crate::tools::{root, run, target};

/// The credentials for the S3 server of the tests. It accepts any.
pub(crate) const S3_CREDENTIALS: [(&str, &str); 2] = [
    ("AWS_ACCESS_KEY_ID", "testkit"),
    ("AWS_SECRET_ACCESS_KEY", "testkit-secret"),
];

/// Installs those of the servers `redis`, `postgres`, `etcd`, `zookeeper` and `s3` that are named and missing.
pub(crate) fn ensure(names: &[&str]) -> Result<(), String> {
    let mut script = Command::new("sh");
    script.arg(root().join("xtask/src/install-servers.sh"));
    run(script.args(names).env("TARGET", target()))
}
