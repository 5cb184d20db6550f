//! Certificates of an authority that only a test trusts.

use std::fs;
use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

/// The files of an authority, a server and a client, in PEM. They go when it is dropped.
#[derive(Debug)]
pub struct Certs {
    _directory: TempDir,
    /// The certificate of the authority.
    pub ca: PathBuf,
    /// The certificate of the server.
    pub server: PathBuf,
    /// Its key.
    pub server_key: PathBuf,
    /// The certificate of the client.
    pub client: PathBuf,
    /// Its key.
    pub client_key: PathBuf,
}

impl Certs {
    /// Makes them for a server on `localhost` and `127.0.0.1`.
    ///
    /// # Panics
    ///
    /// If they cannot be made or written.
    #[must_use]
    pub fn make() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        // OpenSSL takes a certificate that names itself as its issuer for self-signed, and by
        // default all have the same name.
        let name = "Leasehold test authority";
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let ca = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        let certs = Self {
            ca: directory.path().join("ca.pem"),
            server: directory.path().join("server.pem"),
            server_key: directory.path().join("server.key"),
            client: directory.path().join("client.pem"),
            client_key: directory.path().join("client.key"),
            _directory: directory,
        };
        fs::write(&certs.ca, ca.pem()).expect("a file");
        for (names, cert, key) in [
            (
                &["localhost", "127.0.0.1"][..],
                &certs.server,
                &certs.server_key,
            ),
            (&["client"][..], &certs.client, &certs.client_key),
        ] {
            let names: Vec<_> = names.iter().map(ToString::to_string).collect();
            let pair = KeyPair::generate().expect("a key");
            let params = CertificateParams::new(names).expect("names");
            let signed = params.signed_by(&pair, &ca).expect("a certificate");
            fs::write(cert, signed.pem()).expect("a file");
            fs::write(key, pair.serialize_pem()).expect("a file");
        }
        certs
    }
}
