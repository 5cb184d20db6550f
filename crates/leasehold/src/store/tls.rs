//! TLS to the members.

use std::fs;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::members::{Files, invalid};
use super::options::OpenOptions;
use crate::{Result, Secret};

/// TLS by the files of a URL, or by the texts that replace them, for a protocol that has a name in the handshake or none.
pub(super) fn connector(
    files: &Files,
    options: &OpenOptions,
    protocol: Option<&str>,
) -> Result<TlsConnector> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid("TLS is not available").with_source(error))?;
    let ca = match (&options.tls_ca, &files.ca) {
        (Some(pem), _) => Some(pem.clone()),
        (None, Some(file)) => Some(text_of(file)?),
        (None, None) => None,
    };
    let builder = builder.with_root_certificates(roots(ca.as_deref())?);
    let identity = match (&options.tls_identity, &files.cert, &files.key) {
        (Some(identity), ..) => Some(identity.clone()),
        (None, Some(cert), Some(key)) => Some((text_of(cert)?, Secret::from(text_of(key)?))),
        _ => None,
    };
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates(&certificate, "the certificate of this client is not PEM")?;
            // Its error could quote the key.
            let key = PrivateKeyDer::from_pem_slice(key.expose().as_bytes());
            let key = key.map_err(|_| invalid("the private key of this client is not PEM"))?;
            let config = builder.with_client_auth_cert(chain, key);
            config.map_err(|error| {
                invalid("the certificate of this client cannot be used").with_source(error)
            })?
        }
    };
    config.alpn_protocols = protocol.map(Vec::from).into_iter().collect();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn text_of(file: &str) -> Result<String> {
    let failed = |error| invalid(&format!("the file {file} cannot be read")).with_source(error);
    fs::read_to_string(file).map_err(failed)
}

fn certificates(pem: &str, error: &str) -> Result<Vec<CertificateDer<'static>>> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    read.map_err(|_| invalid(error))
}

fn roots(pem: Option<&str>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    match pem {
        Some(pem) => {
            for certificate in certificates(pem, "the trusted authorities are not PEM")? {
                let added = roots.add(certificate);
                added.map_err(|error| {
                    invalid("a trusted authority cannot be used").with_source(error)
                })?;
            }
            if roots.is_empty() {
                return Err(invalid(
                    "the trusted authorities contain no certificate in PEM",
                ));
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_without_a_certificate_are_an_error() {
        let options = OpenOptions::default().tls_ca("not PEM");
        assert!(connector(&Files::default(), &options, None).is_err());
    }
}
