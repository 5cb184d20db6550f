//! TLS of the stores that make their own connections: what they trust, and how this client shows who it is.

use std::fs;
use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};

use super::options::OpenOptions;
use crate::error::invalid;
use crate::{Result, Secret};

pub(super) fn builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid("TLS is not available").with_source(error))
}

/// The authorities of the options, or of a file that a URL names.
pub(super) fn authorities(options: &OpenOptions, file: Option<&str>) -> Result<Option<String>> {
    match &options.tls_ca {
        Some(pem) => Ok(Some(pem.clone())),
        None => file.map(text_of).transpose(),
    }
}

/// These authorities, or those of the system.
pub(super) fn roots(pem: Option<&str>) -> Result<RootCertStore> {
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

/// Adds the certificate of this client and its private key, if there are any.
pub(super) fn with_identity(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    identity: Option<&(String, Secret)>,
) -> Result<ClientConfig> {
    let Some((certificate, key)) = identity else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = certificates(certificate, "the certificate of this client is not PEM")?;
    // Its error could quote the key.
    let key = PrivateKeyDer::from_pem_slice(key.expose().as_bytes());
    let key = key.map_err(|_| invalid("the private key of this client is not PEM"))?;
    let config = builder.with_client_auth_cert(chain, key);
    config.map_err(|error| {
        invalid("the certificate of this client cannot be used").with_source(error)
    })
}

pub(super) fn text_of(file: &str) -> Result<String> {
    let failed = |error| invalid(format!("the file {file} cannot be read")).with_source(error);
    fs::read_to_string(file).map_err(failed)
}

fn certificates(pem: &str, error: &str) -> Result<Vec<CertificateDer<'static>>> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    read.map_err(|_| invalid(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_without_a_certificate_are_an_error() {
        let options = OpenOptions::default().tls_ca("not PEM");
        let pem = authorities(&options, None).unwrap();
        assert!(roots(pem.as_deref()).is_err());
    }
}
