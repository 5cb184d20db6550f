//! Certificates of nodes that are reached over TCP.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, KeyPair};

/// A certificate for `127.0.0.1`, which is its own authority, and its key.
pub(super) struct Certs {
    pub(super) cert: PathBuf,
    pub(super) key: PathBuf,
}

impl Certs {
    pub(super) fn make(folder: &Path) -> Result<Self, String> {
        let failed = |error: rcgen::Error| error.to_string();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).map_err(failed)?;
        let pair = KeyPair::generate().map_err(failed)?;
        let signed = params.self_signed(&pair).map_err(failed)?;
        let certs = Self {
            cert: folder.join("node.pem"),
            key: folder.join("node.key"),
        };
        for (path, text) in [
            (&certs.cert, signed.pem()),
            (&certs.key, pair.serialize_pem()),
        ] {
            fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(certs)
    }
}
