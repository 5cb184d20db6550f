//! Tests of the command line, with real processes.

// Tests and their helpers fail by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod codes;
mod containers;
mod death;
mod doctor;
mod documents;
mod elections;
mod every_command;
mod help;
mod hold;
mod job_records;
mod jobs;
mod languages;
mod listings;
mod loss;
mod mistakes;
mod other_job;
mod other_user;
mod packaging;
mod redlock;
mod refresh;
mod schema;
mod sharing;
mod signals;
mod stores;
mod tools;
mod waiting;
mod watchdog;
