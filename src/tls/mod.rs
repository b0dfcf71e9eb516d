//! TLS: fingerprints, reading and making certificates. Used by the client, the gateway, the daemon
//! and the command line.

mod certificate;
mod fingerprint;
mod identity;
mod self_signed;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

pub use certificate::{CertificateFacts, UnreadableCertificate};
pub use fingerprint::{Fingerprint, NotAFingerprint};
pub use identity::{ServerIdentity, UnusableIdentity};
pub use self_signed::{SelfSigned, is_name, self_signed};

/// The cryptography of all TLS connections.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
