//! TLS to the server.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::Result;
use crate::store::options::OpenOptions;
use crate::store::tls;

/// TLS by the parameters of a URL. The certificate of the server is checked if authorities are given, or if `is_verified`.
pub(super) fn connector(
    is_verified: bool,
    ca_file: Option<&str>,
    options: &OpenOptions,
) -> Result<MakeRustlsConnect> {
    let ca = tls::authorities(options, ca_file)?;
    let builder = tls::builder()?;
    let builder = match ca {
        None if !is_verified => {
            let provider = Arc::clone(builder.crypto_provider());
            let unverified = Arc::new(Unverified(provider));
            builder
                .dangerous()
                .with_custom_certificate_verifier(unverified)
        }
        ca => builder.with_root_certificates(tls::roots(ca.as_deref())?),
    };
    let config = tls::with_identity(builder, options.tls_identity.as_ref())?;
    Ok(MakeRustlsConnect::new(config))
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
