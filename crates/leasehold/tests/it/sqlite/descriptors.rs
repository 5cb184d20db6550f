//! A process that may open few files.

use std::fs::File;

use leasehold_testkit::RunToEnd as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;

/// Set in the child.
const CHILD: &str = "LEASEHOLD_TEST_FEW_FILES";

/// As many files as the child may have open.
const FILES_MAX: u64 = 64;

/// However few files are left, the error names the reason.
#[tokio::test]
async fn too_many_open_files_are_named() {
    if std::env::var_os(CHILD).is_some() {
        return open_with_few_files().await;
    }
    let test = "sqlite::descriptors::too_many_open_files_are_named";
    let output = child(test).env(CHILD, "1").run_to_end();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "{text}");
}

/// Opens stores with one file more each, until one opens.
async fn open_with_few_files() {
    let limit = Rlimit {
        current: Some(FILES_MAX),
        ..getrlimit(Resource::Nofile)
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    let fixture = FileFixture::new();
    let mut taken: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let mut refusals = 0;
    while let Err(error) = store::open(&fixture.url(), &OpenOptions::default()).await {
        assert_eq!(error.kind(), ErrorKind::Store, "{error}");
        let text = error.to_string();
        assert!(
            text.contains("too many open files: raise ulimit -n"),
            "{text}"
        );
        assert!(taken.pop().is_some(), "no store opens");
        refusals += 1;
    }
    assert!(refusals > 2, "{refusals}");
}
