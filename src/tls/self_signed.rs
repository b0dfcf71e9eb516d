//! Makes a self-signed certificate and its key.

use std::time::Duration;

use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair};
use rustls::pki_types::ServerName;

use super::Fingerprint;
use crate::kernel::time::Timestamp;

/// How far the beginning of the validity is back: clocks of clients may be slow.
const CLOCK_SKEW: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

/// A new self-signed certificate with its key.
pub struct SelfSigned {
    /// The certificate, DER.
    pub der: Vec<u8>,
    /// The private key, PKCS #8 DER.
    pub key: Vec<u8>,
}

impl SelfSigned {
    /// The fingerprint of the certificate.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.der)
    }

    /// The certificate as PEM text.
    pub fn certificate_pem(&self) -> String {
        pem("CERTIFICATE", &self.der)
    }

    /// The private key as PEM text.
    pub fn key_pem(&self) -> String {
        pem("PRIVATE KEY", &self.key)
    }
}

/// Makes a certificate for these host names and addresses that is valid for `days` from `now`. The
/// error says which name is not valid.
pub fn self_signed(names: &[String], days: u32, now: Timestamp) -> Result<SelfSigned, String> {
    let made = |fault: rcgen::Error| format!("the certificate could not be made: {fault}");
    if let Some(bad) = names.iter().find(|name| !is_name(name)) {
        return Err(format!("{bad:?} is neither a host name nor an address"));
    }
    let mut params = CertificateParams::new(names.to_vec()).map_err(made)?;
    let now = Duration::from_millis(u64::try_from(now.0).unwrap_or_default());
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(CLOCK_SKEW);
    params.not_after = epoch + now + DAY * days;
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "abide gateway");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().map_err(made)?;
    let certificate = params.self_signed(&key).map_err(made)?;
    Ok(SelfSigned {
        der: certificate.der().to_vec(),
        key: key.serialize_der(),
    })
}

/// True for a host name or address that a certificate can be for; `*.` may stand for one part of a
/// name.
pub fn is_name(name: &str) -> bool {
    ServerName::try_from(name.strip_prefix("*.").unwrap_or(name)).is_ok()
}

/// RFC 7468: base64 in lines of 64 characters between two marks.
fn pem(label: &str, der: &[u8]) -> String {
    use base64::Engine as _;

    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    for line in text.as_bytes().chunks(64) {
        pem.push_str(&String::from_utf8_lossy(line));
        pem.push('\n');
    }
    pem + &format!("-----END {label}-----\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_host_can_have_is_refused() {
        let made = |name: &str| self_signed(&[name.to_owned()], 1, Timestamp(0)).map(drop);
        for good in [
            "a",
            "a.example",
            "*.a.example",
            "192.0.2.1",
            "::1",
            "build_host",
        ] {
            made(good).unwrap();
        }
        for bad in ["", "a b", "a/b", "https://a", "*", "a.*", "ä", "a:1", "-"] {
            let refused = made(bad).unwrap_err();
            assert!(refused.contains(&format!("{bad:?}")), "{refused}");
        }
    }
}
