//! Bytes as a server's reply.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| leasehold::fuzzing::reply(data));
