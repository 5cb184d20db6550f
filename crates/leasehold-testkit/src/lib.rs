//! Real servers and processes for tests.
