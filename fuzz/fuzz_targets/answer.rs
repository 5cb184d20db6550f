//! Bytes as a server's answer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| leasehold::fuzzing::answer(data));
