//! A process that may open few files.

use std::fs::File;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;
use crate::processes::child::run;

/// The number of files that the helper may have open.
const FILES_MAX: u64 = 64;

/// However few files are left, the error names the reason.
#[test]
fn too_many_open_files_are_named() {
    let fixture = FileFixture::new();
    run(&format!("few-files {}", fixture.url()));
}

/// In a helper: opens stores with one file more each, until one opens.
pub(super) async fn open_with_few_files(url: &str) {
    let limit = Rlimit {
        current: Some(FILES_MAX),
        ..getrlimit(Resource::Nofile)
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut taken: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let mut refusals = 0;
    while let Err(error) = store::open_with(url, &OpenOptions::default()).await {
        let advice = "too many open files: raise ulimit -n";
        assert_error(&error, ErrorKind::Store, &[advice]);
        assert!(taken.pop().is_some(), "no store opens");
        refusals += 1;
    }
    assert!(refusals > 2, "{refusals}");
}
