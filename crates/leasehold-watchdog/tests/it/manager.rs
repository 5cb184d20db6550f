//! A node and its service manager.
