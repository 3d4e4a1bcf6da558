//! TLS as both ends speak it: 1.3 only, no resumption, a protocol name of ours. Where proofs are bound to the connection the
//! certificate says nothing, and is made anew at each start; with `mtls` it is the site's.

use crate::claim::Exporter;
use crate::error::AuthError;
use pillion_config::{Auth, AuthMethod};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    ClientConfig, ConnectionCommon, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme,
};
use std::path::Path;
use std::sync::Arc;

/// What is spoken, so that no other protocol's messages are taken for ours (RFC 7301).
const PROTOCOL: &[u8] = b"pillion1";
/// The label of the `tls-exporter` binding (RFC 9266, section 2).
const EXPORTER_LABEL: &[u8] = b"EXPORTER-Channel-Binding";
/// Stands in a certificate that says nothing.
const NO_NAME: &str = "pillion.invalid";

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}")]
pub struct SetupError {
    what: String,
    why: String,
}

impl From<SetupError> for AuthError {
    fn from(error: SetupError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

fn failed<E: std::fmt::Display>(what: impl Into<String>) -> impl FnOnce(E) -> SetupError {
    let what = what.into();
    move |error| SetupError { what, why: error.to_string() }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// What the site's files hold.
struct Site {
    authorities: Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Site {
    fn read(auth: &Auth) -> Result<Self, SetupError> {
        let ca = named(auth.ca_path.as_deref(), "ca_path")?;
        let mut authorities = RootCertStore::empty();
        for certificate in certificates(ca)? {
            authorities.add(certificate).map_err(failed(format!("cannot use {}", ca.display())))?;
        }
        let chain = certificates(named(auth.certificate_path.as_deref(), "certificate_path")?)?;
        let path = named(auth.private_key_path.as_deref(), "private_key_path")?;
        let key =
            PrivateKeyDer::from_pem_file(path).map_err(failed(format!("cannot read {}", path.display())))?;
        Ok(Self { authorities: Arc::new(authorities), chain, key })
    }
}

/// A path of the configuration that this method cannot do without.
fn named<'p>(path: Option<&'p Path>, key: &str) -> Result<&'p Path, SetupError> {
    path.ok_or_else(|| SetupError { what: format!("auth.{key}"), why: "it is not named".to_owned() })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, SetupError> {
    let what = format!("cannot read {}", path.display());
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = found.map_err(failed(what.clone()))?;
    if found.is_empty() {
        Err(SetupError { what, why: "there is no certificate in it".to_owned() })
    } else {
        Ok(found)
    }
}

/// The scheduler's end.
pub(crate) fn server(auth: &Auth) -> Result<ServerConfig, SetupError> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(failed("cannot set up TLS"))?;
    let mut config = if auth.method == Some(AuthMethod::Mtls) {
        let site = Site::read(auth)?;
        // Users have none, and prove by MUNGE who they are; an agent's claim is not believed without.
        let verifier = WebPkiClientVerifier::builder_with_provider(site.authorities, provider())
            .allow_unauthenticated()
            .build()
            .map_err(failed("cannot use auth.ca_path"))?;
        builder.with_client_cert_verifier(verifier).with_single_cert(site.chain, site.key)
    } else {
        let made = rcgen::generate_simple_self_signed(vec![NO_NAME.to_owned()]);
        let made = made.map_err(failed("cannot make a certificate"))?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        builder.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key.into())
    }
    .map_err(failed("cannot use the certificate"))?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// The end of an agent or of the command line. `with_site`: both ends show certificates of the site.
pub(crate) fn client(auth: &Auth, with_site: bool) -> Result<ClientConfig, SetupError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(failed("cannot set up TLS"))?;
    let mut config = if with_site {
        let site = Site::read(auth)?;
        builder
            .with_root_certificates(site.authorities)
            .with_client_auth_cert(site.chain, site.key)
            .map_err(failed("cannot use auth.certificate_path"))?
    } else {
        let verifier = Arc::new(AnyCertificate(provider()));
        builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
    };
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// The name that is asked for: the host, where its certificate is to be verified.
pub(crate) fn server_name(host: &str, with_site: bool) -> Result<ServerName<'static>, SetupError> {
    let name = if with_site { host } else { NO_NAME };
    ServerName::try_from(name.to_owned()).map_err(failed(format!("'{host}' can be in no certificate")))
}

/// What only the two ends of this connection know.
pub(crate) fn exporter<D>(connection: &ConnectionCommon<D>) -> Result<Exporter, AuthError> {
    let secret = connection.export_keying_material([0; 32], EXPORTER_LABEL, None);
    secret.map(Exporter).map_err(|error| AuthError::Unreachable(format!("TLS gave no exporter: {error}")))
}

/// Whether a certificate, which TLS has verified, has this DNS name.
pub(crate) fn is_of(certificate: &CertificateDer<'_>, name: &str) -> bool {
    let (Ok(parsed), Ok(name)) = (ParsedCertificate::try_from(certificate), ServerName::try_from(name))
    else {
        return false;
    };
    verify_server_name(&parsed, &name).is_ok()
}

/// Takes every certificate: who is at the other end is proven after TLS, over this connection's exporter. That the other end has
/// the certificate's key is still verified.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
