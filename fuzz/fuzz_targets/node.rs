//! Bytes as what several connections say to a node of the watchdog.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| leasehold_watchdog::fuzzing::node(data));
