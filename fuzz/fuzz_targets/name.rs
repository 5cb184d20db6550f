//! Texts as names, scopes and ids.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| leasehold::fuzzing::name(data));
