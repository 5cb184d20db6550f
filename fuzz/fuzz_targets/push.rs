//! Bytes as what a server tells without being asked.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| leasehold::fuzzing::push(data));
