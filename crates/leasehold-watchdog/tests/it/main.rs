//! The watchdog over real servers, real sockets and real processes.

mod actor;
mod bed;
mod deaths;
