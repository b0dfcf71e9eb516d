//! Opens a connection to a gateway, encrypted if its URL says so, and checks its certificate. Used
//! by this module's clients and by the link of a node.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use super::{CONNECT_TIMEOUT, ClientError, GatewayUrl};
use crate::kernel::time::Timestamp;
use crate::tls::{self, CertificateFacts, Fingerprint};

/// Which certificate a gateway must show. It always must be within its validity, and the gateway
/// must prove that it has the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// One for the host of the URL, signed by an authority that this system trusts.
    System,
    /// The one with this fingerprint, for whichever host.
    Pinned(Fingerprint),
    /// Any: the caller decides by the fingerprint that [`connect`] returns, before it sends
    /// anything.
    FirstUse,
}

/// An open connection to a gateway.
pub type GatewayStream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// Connects to the host and port of `url`. With `https://` or `wss://` the connection is encrypted
/// once this returns, and the fingerprint of the gateway's certificate is returned, too. Nothing
/// is sent to a gateway whose certificate is refused, or over a connection without encryption
/// although the URL asks for it.
pub async fn connect(
    url: &str,
    trust: Trust,
) -> Result<(GatewayStream, Option<Fingerprint>), ClientError> {
    let address = GatewayUrl::parse(url)?;
    let no_daemon = |message: String| ClientError::NoDaemon {
        url: url.to_owned(),
        message,
    };
    let opening = TcpStream::connect((&*address.host, address.port));
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, opening)
        .await
        .map_err(|_| no_daemon("no connection within 10 s".to_owned()))?
        .map_err(|error| no_daemon(error.to_string()))?;
    // Requests are small and awaited, so delaying them (Nagle) helps no client.
    stream
        .set_nodelay(true)
        .map_err(|error| no_daemon(error.to_string()))?;
    if !address.tls {
        return Ok((Either::Left(stream), None));
    }
    let name = ServerName::try_from(address.host).map_err(|_| ClientError::Url {
        url: url.to_owned(),
        message: "its host is neither a name nor an address".to_owned(),
    })?;
    let check = CertificateCheck::new(trust).map_err(|fault| no_daemon(fault.to_string()))?;
    let check = Arc::new(check);
    let config = ClientConfig::builder_with_provider(Arc::clone(&check.provider))
        .with_safe_default_protocol_versions()
        .map_err(|fault| no_daemon(fault.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&check) as Arc<dyn ServerCertVerifier>)
        .with_no_client_auth();
    let shaking = TlsConnector::from(Arc::new(config)).connect(name, stream);
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, shaking)
        .await
        .map_err(|_| no_daemon("no TLS handshake within 10 s".to_owned()))?
        .map_err(|error| check.failure(url, &error))?;
    Ok((Either::Right(Box::new(stream)), check.shown()))
}

/// Checks the certificate of one handshake, and keeps what it was.
#[derive(Debug)]
struct CertificateCheck {
    trust: Trust,
    provider: Arc<CryptoProvider>,
    /// The system's check, if that is what counts.
    system: Option<rustls_platform_verifier::Verifier>,
    seen: Mutex<Seen>,
}

/// The certificate that was shown.
#[derive(Clone, Debug, Default)]
struct Seen {
    fingerprint: Option<Fingerprint>,
    refusal: Option<String>,
    /// Whether it would be accepted if it were pinned.
    may_be_pinned: bool,
}

impl CertificateCheck {
    fn new(trust: Trust) -> Result<Self, rustls::Error> {
        let provider = tls::provider();
        let system = match trust {
            Trust::System => Some(rustls_platform_verifier::Verifier::new(Arc::clone(
                &provider,
            ))?),
            Trust::Pinned(_) | Trust::FirstUse => None,
        };
        Ok(CertificateCheck {
            trust,
            provider,
            system,
            seen: Mutex::default(),
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Seen> {
        // Each change is one assignment.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shown(&self) -> Option<Fingerprint> {
        self.lock().fingerprint
    }

    /// The client's error for a handshake that failed with `fault`.
    fn failure(&self, url: &str, fault: &io::Error) -> ClientError {
        let url = url.to_owned();
        let Seen {
            fingerprint,
            refusal,
            may_be_pinned,
        } = self.lock().clone();
        if let (Some(shown), Some(why)) = (fingerprint, refusal) {
            return match self.trust {
                Trust::Pinned(pinned) if pinned != shown => {
                    ClientError::OtherCertificate { url, pinned, shown }
                }
                _ => ClientError::Untrusted {
                    url,
                    shown,
                    why,
                    may_be_pinned,
                },
            };
        }
        let inner = fault.get_ref();
        let inner = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match inner {
            // Whatever it answers, it is not TLS.
            Some(rustls::Error::InvalidMessage(_)) => ClientError::NoTls { url },
            _ => ClientError::NoDaemon {
                url,
                message: format!("the TLS handshake failed: {fault}"),
            },
        }
    }
}

/// Why a self-contained check refuses the certificate, if it does.
fn pin_refusal(trust: Trust, der: &[u8], shown: Fingerprint, now: UnixTime) -> Option<String> {
    if let Trust::Pinned(pinned) = trust
        && pinned != shown
    {
        return Some("it is not the pinned one".to_owned());
    }
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    match CertificateFacts::read(der) {
        Ok(facts) => facts.invalidity(Timestamp(now.saturating_mul(1000))),
        Err(fault) => Some(fault.to_string()),
    }
}

/// What the system's check says, for people.
fn in_words(fault: &rustls::Error, host: &ServerName<'_>) -> String {
    match fault {
        rustls::Error::InvalidCertificate(fault) => match fault {
            CertificateError::UnknownIssuer => {
                "no authority that this system trusts has signed it".to_owned()
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!("it is not for the host {}", host.to_str())
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "it has expired".to_owned()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "it is not valid yet".to_owned()
            }
            fault => fault.to_string(),
        },
        fault => fault.to_string(),
    }
}

impl ServerCertVerifier for CertificateCheck {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let shown = Fingerprint::of(certificate);
        let of_pin = pin_refusal(self.trust, certificate, shown, now);
        let may_be_pinned = of_pin.is_none();
        let refusal = match &self.system {
            Some(system) => {
                let checked =
                    system.verify_server_cert(certificate, intermediates, name, ocsp, now);
                // An expired certificate is not the authority's fault.
                checked
                    .err()
                    .map(|fault| of_pin.unwrap_or_else(|| in_words(&fault, name)))
            }
            None => of_pin,
        };
        let accepted = refusal.is_none();
        *self.lock() = Seen {
            fingerprint: Some(shown),
            refusal,
            may_be_pinned,
        };
        match accepted {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rustls::ServerConfig;
    use rustls::pki_types::PrivatePkcs8KeyDer;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use crate::clock::Clock;
    use crate::tls::SelfSigned;

    /// A server that echoes what it gets over TLS, and the URL to reach it by.
    async fn server(made: &SelfSigned) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("wss://{}", listener.local_addr().unwrap());
        let key = PrivatePkcs8KeyDer::from(made.key.clone()).into();
        let config = ServerConfig::builder_with_provider(tls::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.der.clone().into()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(stream) = acceptor.accept(stream).await else {
                    continue;
                };
                let (mut from, mut to) = tokio::io::split(stream);
                tokio::spawn(async move { tokio::io::copy(&mut from, &mut to).await });
            }
        });
        url
    }

    fn made(days: u32, now: Timestamp) -> SelfSigned {
        tls::self_signed(&["localhost".to_owned()], days, now).unwrap()
    }

    #[tokio::test]
    async fn the_pinned_certificate_is_accepted_and_no_other() {
        let made = made(1, Clock::system().now());
        let url = server(&made).await;
        for trust in [Trust::FirstUse, Trust::Pinned(made.fingerprint())] {
            let (mut stream, shown) = connect(&url, trust).await.unwrap();
            assert_eq!(shown, Some(made.fingerprint()));
            stream.write_all(b"abc").await.unwrap();
            let mut back = [0; 3];
            stream.read_exact(&mut back).await.unwrap();
            assert_eq!(&back, b"abc");
        }

        let other = Fingerprint::of(b"another");
        let error = connect(&url, Trust::Pinned(other)).await.unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(error, ClientError::OtherCertificate { .. }),
            "{text}"
        );
        assert!(text.contains(&other.to_string()), "{text}");
        assert!(text.contains(&made.fingerprint().to_string()), "{text}");

        let error = connect(&url, Trust::System).await.unwrap_err();
        let ClientError::Untrusted { shown, why, .. } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(*shown, made.fingerprint());
        assert!(why.contains("no authority"), "{why}");
    }

    #[tokio::test]
    async fn an_expired_certificate_is_refused_even_if_it_is_pinned() {
        let expired = made(1, Timestamp(1_700_000_000_000));
        let url = server(&expired).await;
        for trust in [Trust::FirstUse, Trust::Pinned(expired.fingerprint())] {
            let error = connect(&url, trust).await.unwrap_err();
            let ClientError::Untrusted { why, .. } = &error else {
                panic!("{error:?}");
            };
            assert!(why.contains("it expired at 2023-11-15"), "{why}");
        }
    }

    #[tokio::test]
    async fn a_server_without_tls_is_told_from_one_that_is_not_there() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let plain = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream
                .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                .await
                .unwrap();
            // The client closes first.
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
        });
        let url = format!("https://{address}");
        let error = connect(&url, Trust::FirstUse).await.unwrap_err();
        assert!(matches!(error, ClientError::NoTls { .. }), "{error:?}");
        plain.await.unwrap();
        let error = connect(&url, Trust::FirstUse).await.unwrap_err();
        assert!(matches!(error, ClientError::NoDaemon { .. }), "{error:?}");
    }
}
