//! Reads what people need to know of a certificate: its names and how long it is valid. Whether it
//! can be trusted is decided elsewhere.

use std::net::IpAddr;

use yasna::models::ObjectIdentifier;
use yasna::tags::{TAG_GENERALIZEDTIME, TAG_UTCTIME};
use yasna::{ASN1Error, ASN1ErrorKind, ASN1Result, BERReader, Tag, TagClass};

use super::Fingerprint;
use crate::kernel::time::Timestamp;

/// `subjectAltName`, the extension with the names.
const NAMES: [u64; 4] = [2, 5, 29, 17];
/// The tag of a DNS name and of an address among the names (RFC 5280, `GeneralName`).
const DNS_NAME: u64 = 2;
const ADDRESS: u64 = 7;

/// Facts about a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Its fingerprint.
    pub fingerprint: Fingerprint,
    /// The host names and addresses that it is for.
    pub names: Vec<String>,
    /// The beginning of its validity.
    pub not_before: Timestamp,
    /// The end of its validity.
    pub not_after: Timestamp,
}

/// The bytes are not an X.509 certificate.
#[derive(Debug, thiserror::Error)]
#[error("it is not an X.509 certificate: {0}")]
pub struct UnreadableCertificate(String);

impl CertificateFacts {
    /// Reads the certificate `der`.
    pub fn read(der: &[u8]) -> Result<Self, UnreadableCertificate> {
        let (not_before, not_after, names) = yasna::parse_der(der, certificate)
            .map_err(|fault| UnreadableCertificate(fault.to_string()))?;
        Ok(CertificateFacts {
            fingerprint: Fingerprint::of(der),
            names,
            not_before,
            not_after,
        })
    }

    /// Why it is not valid at `now`, if it is not.
    pub fn invalidity(&self, now: Timestamp) -> Option<String> {
        if now > self.not_after {
            return Some(format!("it expired at {}", self.not_after));
        }
        (now < self.not_before).then(|| format!("it is not valid before {}", self.not_before))
    }
}

type Parsed = (Timestamp, Timestamp, Vec<String>);

fn certificate(reader: BERReader<'_, '_>) -> ASN1Result<Parsed> {
    reader.read_sequence(|fields| {
        let parsed = fields.next().read_sequence(|fields| {
            // Version, serial number, algorithm and issuer.
            fields.read_optional(|field| {
                field.read_tagged(Tag::context(0), |version| version.read_der())
            })?;
            for _ in 0..3 {
                fields.next().read_der()?;
            }
            let (not_before, not_after) = fields
                .next()
                .read_sequence(|pair| Ok((time(pair.next())?, time(pair.next())?)))?;
            // Subject and key.
            for _ in 0..2 {
                fields.next().read_der()?;
            }
            for unique_id in [1, 2] {
                fields.read_optional(|field| {
                    field.read_tagged_implicit(Tag::context(unique_id), |id| id.read_bitvec_bytes())
                })?;
            }
            let names = fields.read_optional(|field| field.read_tagged(Tag::context(3), names))?;
            Ok((not_before, not_after, names.unwrap_or_default()))
        })?;
        // The algorithm and the signature.
        for _ in 0..2 {
            fields.next().read_der()?;
        }
        Ok(parsed)
    })
}

fn time(reader: BERReader<'_, '_>) -> ASN1Result<Timestamp> {
    let seconds = match reader.lookahead_tag()? {
        TAG_UTCTIME => reader.read_utctime()?.datetime().unix_timestamp(),
        TAG_GENERALIZEDTIME => reader.read_generalized_time()?.datetime().unix_timestamp(),
        _ => return Err(ASN1Error::new(ASN1ErrorKind::Invalid)),
    };
    Ok(Timestamp(seconds.saturating_mul(1000)))
}

/// The names in the list of extensions.
fn names(reader: BERReader<'_, '_>) -> ASN1Result<Vec<String>> {
    let mut found = Vec::new();
    reader.read_sequence_of(|extension| {
        extension.read_sequence(|fields| {
            let id = fields.next().read_oid()?;
            fields.read_optional(|flag| flag.read_bool())?;
            let value = fields.next().read_bytes()?;
            if id == ObjectIdentifier::from_slice(&NAMES) {
                found = yasna::parse_der(&value, general_names)?;
            }
            Ok(())
        })
    })?;
    Ok(found)
}

fn general_names(reader: BERReader<'_, '_>) -> ASN1Result<Vec<String>> {
    let mut found = Vec::new();
    reader.read_sequence_of(|name| {
        let tag = name.lookahead_tag()?;
        match tag.tag_number {
            DNS_NAME if tag.tag_class == TagClass::ContextSpecific => {
                found.push(name.read_tagged_implicit(tag, |text| text.read_ia5_string())?);
            }
            ADDRESS if tag.tag_class == TagClass::ContextSpecific => {
                let bytes = name.read_tagged_implicit(tag, |bytes| bytes.read_bytes())?;
                found.extend(address(&bytes).map(|address| address.to_string()));
            }
            _ => drop(name.read_der()?),
        }
        Ok(())
    })?;
    Ok(found)
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::self_signed;

    #[test]
    fn names_and_validity_are_read_back() {
        let names = ["a.example", "localhost", "192.0.2.1", "2001:db8::1"].map(str::to_owned);
        let now = Timestamp(1_796_000_000_000);
        let made = self_signed(&names, 90, now).unwrap();
        let facts = CertificateFacts::read(&made.der).unwrap();
        assert_eq!(facts.names, names);
        assert_eq!(facts.fingerprint, made.fingerprint());
        assert!(facts.not_before <= now);
        assert_eq!(facts.invalidity(now), None);
        let day = 24 * 60 * 60 * 1000;
        assert_eq!(facts.invalidity(now.plus_ms(89 * day)), None);
        let expired = facts.invalidity(now.plus_ms(91 * day)).unwrap();
        assert!(expired.contains("expired at 2027-02-2"), "{expired}");
        let early = facts.invalidity(now.minus_ms(30 * day)).unwrap();
        assert!(early.contains("not valid before"), "{early}");
    }

    #[test]
    fn what_is_no_certificate_is_refused_at_every_length() {
        let made = self_signed(&["a.example".to_owned()], 1, Timestamp(0)).unwrap();
        for length in 0..made.der.len() {
            assert!(
                CertificateFacts::read(&made.der[..length]).is_err(),
                "{length}"
            );
        }
        for at in 0..made.der.len() {
            // A changed byte is read or refused, and ends nothing.
            let mut bytes = made.der.clone();
            bytes[at] ^= 0xff;
            let _ = CertificateFacts::read(&bytes);
        }
    }
}
