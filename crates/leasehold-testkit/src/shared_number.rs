//! A number that processes share in a file which each of them maps.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::ptr;
use std::sync::atomic::AtomicU64;

const LENGTH: usize = size_of::<u64>();

/// Maps the number in a file until the end of the process. A new file has the number 0.
///
/// # Panics
///
/// If the file cannot be created or mapped.
#[expect(unsafe_code, reason = "no safe function maps a file")]
#[must_use]
pub fn shared_number(path: &Path) -> &'static AtomicU64 {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false);
    let file = options.open(path).unwrap();
    file.set_len(LENGTH as u64).unwrap();
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the kernel chooses the address, at the beginning of a page. The file is as long as the mapping, nothing
    // unmaps it, and all processes access it by this function, as an atomic number.
    unsafe {
        let address = libc::mmap(
            ptr::null_mut(),
            LENGTH,
            access,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        assert_ne!(address, libc::MAP_FAILED, "a file cannot be mapped");
        AtomicU64::from_ptr(address.cast())
    }
}
