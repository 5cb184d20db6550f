//! Texts as URLs of a store.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| leasehold::fuzzing::address(data));
