//! The servers that the tests start.

use std::process::Command;

use crate::tools::{root, run, target};

/// The credentials for the servers of buckets of the tests. Azurite accepts its public ones, the others accept any.
pub(crate) const BUCKET_CREDENTIALS: [(&str, &str); 4] = [
    ("AWS_ACCESS_KEY_ID", "testkit"),
    ("AWS_SECRET_ACCESS_KEY", "testkit-secret"),
    ("AZURE_STORAGE_ACCOUNT_NAME", "devstoreaccount1"),
    (
        "AZURE_STORAGE_ACCOUNT_KEY",
        "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
    ),
];

/// Installs those of the servers `redis`, `postgres`, `etcd`, `zookeeper` and `s3` that are named and missing.
pub(crate) fn ensure(names: &[&str]) -> Result<(), String> {
    let mut script = Command::new("sh");
    script.arg(root().join("xtask/src/install-servers.sh"));
    run(script.args(names).env("TARGET", target()))
}
