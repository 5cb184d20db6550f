//! TLS to the server.

use std::fs;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::store::options::OpenOptions;
use crate::{Error, ErrorKind, Result};

/// TLS by the parameters of a URL. The certificate of the server is checked if authorities are given, or if `is_verified`.
pub(super) fn connector(
    is_verified: bool,
    ca_file: Option<&str>,
    options: &OpenOptions,
) -> Result<MakeRustlsConnect> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid("TLS is not available").with_source(error))?;
    let ca = match (&options.tls_ca, ca_file) {
        (Some(pem), _) => Some(pem.clone()),
        (None, Some(file)) => {
            let read = fs::read_to_string(file);
            let failed = |error| {
                invalid(&format!("the certificates in {file} cannot be read")).with_source(error)
            };
            Some(read.map_err(failed)?)
        }
        (None, None) => None,
    };
    let builder = match ca {
        None if !is_verified => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Unverified(provider))),
        ca => builder.with_root_certificates(roots(ca.as_deref())?),
    };
    let config = match &options.tls_identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain: Result<Vec<_>, _> =
                CertificateDer::pem_slice_iter(certificate.as_bytes()).collect();
            let chain = chain.map_err(|_| invalid("the certificate of this client is not PEM"))?;
            // Its error could quote the key.
            let key = PrivateKeyDer::from_pem_slice(key.expose().as_bytes());
            let key = key.map_err(|_| invalid("the private key of this client is not PEM"))?;
            let config = builder.with_client_auth_cert(chain, key);
            config.map_err(|error| {
                invalid("the certificate of this client cannot be used").with_source(error)
            })?
        }
    };
    Ok(MakeRustlsConnect::new(config))
}

fn roots(pem: Option<&str>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    match pem {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                let certificate =
                    certificate.map_err(|_| invalid("the trusted authorities are not PEM"))?;
                let added = roots.add(certificate);
                added.map_err(|error| {
                    invalid("a trusted authority cannot be used").with_source(error)
                })?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
    }
    Ok(roots)
}

fn invalid(message: &str) -> Error {
    Error::new(ErrorKind::InvalidConfig, message)
}

/// Accepts any certificate, as `sslmode=prefer` and `require` mean for every client of PostgreSQL: they encrypt, and do not
/// prove who the server is.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
