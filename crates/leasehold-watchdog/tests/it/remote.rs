//! Others, over TLS.
