//! The content of the Secret: the CA that signs, perhaps the next and the previous one, and the leaf certificate.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::Error;

/// `data` of a Secret, decoded from base64.
pub type RawSecretData = BTreeMap<String, Vec<u8>>;

/// An X.509 certificate, with the fields that decisions need.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The certificate in PEM, with the rest of its chain where there is one.
    pub pem: String,
    /// The beginning of its validity.
    pub not_before: Timestamp,
    /// The end of its validity.
    pub not_after: Timestamp,
    /// The DNS names among its subject alternative names; empty for a CA.
    pub names: Vec<String>,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "certificate for {:?} until {}", self.names, self.not_after)
    }
}

impl Certificate {
    /// Reads the first certificate of a PEM text.
    pub fn read(pem: &str) -> Result<Self, Error> {
        let der = first(pem)?;
        let parsed = parse(&der)?;
        let names = match parsed.subject_alternative_name() {
            Ok(Some(extension)) => extension.value.general_names.iter().filter_map(dns_name).collect(),
            _ => Vec::new(),
        };
        let at = |seconds: i64| Timestamp::from_second(seconds).map_err(Error::Validity);
        let (from, until) = (parsed.validity().not_before.timestamp(), parsed.validity().not_after.timestamp());
        Ok(Self { pem: pem.to_owned(), not_before: at(from)?, not_after: at(until)?, names })
    }

    /// Whether its validity has begun and not ended at `now`.
    pub fn is_valid_at(&self, now: Timestamp) -> bool {
        self.not_before <= now && now < self.not_after
    }

    /// Whether this CA signed that certificate. `false` where either cannot be read.
    pub fn signed(&self, other: &Self) -> bool {
        let (Ok(own), Ok(other)) = (first(&self.pem), first(&other.pem)) else { return false };
        let (Ok(own), Ok(other)) = (parse(&own), parse(&other)) else { return false };
        own.subject() == other.issuer() && other.verify_signature(Some(own.public_key())).is_ok()
    }
}

fn first(pem: &str) -> Result<CertificateDer<'static>, Error> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(no_certificate)
}

fn no_certificate(source: pem::Error) -> Error {
    Error::Pem { expected: "certificate", source }
}

fn parse<'a>(der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, Error> {
    X509Certificate::from_der(der).map(|(_, parsed)| parsed).map_err(Error::Certificate)
}

fn dns_name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    }
}

/// A certificate with its private key.
#[derive(Clone, PartialEq, Eq)]
pub struct CertificateAndKey {
    /// The certificate.
    pub certificate: Certificate,
    /// The private key in PEM.
    pub key: String,
}

impl fmt::Debug for CertificateAndKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.certificate.fmt(f) // never the private key: debug output ends up in logs
    }
}

impl CertificateAndKey {
    /// Reads both from PEM. An error where one cannot be read, or they do not match.
    pub fn read(certificate: &str, key: &str) -> Result<Self, Error> {
        let pair = Self { certificate: Certificate::read(certificate)?, key: key.to_owned() };
        pair.certified().map(|_| pair)
    }

    /// Certificate chain and key in the form that rustls serves. An error where they do not match.
    pub fn certified(&self) -> Result<Arc<CertifiedKey>, Error> {
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(self.certificate.pem.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(no_certificate)?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes())
            .map_err(|source| Error::Pem { expected: "private key", source })?;
        let provider = rustls::crypto::ring::default_provider();
        CertifiedKey::from_der(chain, key, &provider).map(Arc::new).map_err(Error::Mismatch)
    }
}

/// Everything that the Secret holds, checked: keys match, and a CA in it signed the leaf certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretData {
    /// The CA that signs.
    pub signer: CertificateAndKey,
    /// The leaf certificate, which is served.
    pub leaf: CertificateAndKey,
    /// The CA that will sign, and since when it is in the Secret; `None` outside of a rollover.
    pub next: Option<(CertificateAndKey, Timestamp)>,
    /// The CA that signed before, and until when a leaf certificate that it signed may be valid; `None` once that has passed.
    pub previous: Option<(Certificate, Timestamp)>,
}

const LEAF: (&str, &str) = ("tls.crt", "tls.key");
const SIGNER: (&str, &str) = ("signer.crt", "signer.key");
const NEXT: (&str, &str) = ("next.crt", "next.key");
const NEXT_SINCE: &str = "next.since";
const PREVIOUS: &str = "previous.crt";
const PREVIOUS_UNTIL: &str = "previous.until";
/// The CAs to trust, under the key at which people and tools expect them.
const TRUSTED: &str = "ca.crt";

impl SecretData {
    /// Reads a Secret's data. The error names the entry that is unusable.
    pub fn read(data: &RawSecretData) -> Result<Self, Error> {
        let text = |key: &'static str| {
            let bytes = data.get(key).ok_or(Error::Missing(key))?;
            std::str::from_utf8(bytes).map_err(|_| Error::NotText(key))
        };
        let pair = |(certificate, key): (&'static str, &'static str)| {
            CertificateAndKey::read(text(certificate)?, text(key)?)
                .map_err(|error| error.at(format!("{certificate}, {key}")))
        };
        let at =
            |key: &'static str| text(key)?.trim().parse::<Timestamp>().map_err(|source| Error::Instant { key, source });
        let next = if data.contains_key(NEXT.0) { Some((pair(NEXT)?, at(NEXT_SINCE)?)) } else { None };
        let previous = if data.contains_key(PREVIOUS) {
            let certificate = Certificate::read(text(PREVIOUS)?).map_err(|error| error.at(PREVIOUS))?;
            Some((certificate, at(PREVIOUS_UNTIL)?))
        } else {
            None
        };
        let data = Self { signer: pair(SIGNER)?, leaf: pair(LEAF)?, next, previous };
        if !data.authorities().any(|authority| authority.signed(&data.leaf.certificate)) {
            return Err(Error::UnknownSigner);
        }
        Ok(data)
    }

    /// This content as a Secret's `data`.
    pub fn data(&self) -> RawSecretData {
        let mut data = RawSecretData::new();
        let mut put = |key: &str, text: String| data.insert(key.to_owned(), text.into_bytes());
        let mut pair = |(certificate, key): (&str, &str), pair: &CertificateAndKey| {
            put(certificate, pair.certificate.pem.clone());
            put(key, pair.key.clone());
        };
        pair(LEAF, &self.leaf);
        pair(SIGNER, &self.signer);
        if let Some((next, since)) = &self.next {
            pair(NEXT, next);
            put(NEXT_SINCE, since.to_string());
        }
        if let Some((previous, until)) = &self.previous {
            put(PREVIOUS, previous.pem.clone());
            put(PREVIOUS_UNTIL, until.to_string());
        }
        put(TRUSTED, self.trusted());
        data
    }

    /// Whether an API server can verify the leaf certificate at `now`: it is valid then, and so is the CA that signed it.
    pub fn is_usable_at(&self, now: Timestamp) -> bool {
        let leaf = &self.leaf.certificate;
        leaf.is_valid_at(now)
            && self.authorities().any(|authority| authority.is_valid_at(now) && authority.signed(leaf))
    }

    /// Whether API servers that trust this content's CAs trust what `signer` signs, too.
    pub fn trusts(&self, signer: &CertificateAndKey) -> bool {
        self.authorities().any(|authority| *authority == signer.certificate)
    }

    fn authorities(&self) -> impl Iterator<Item = &Certificate> {
        let next = self.next.iter().map(|(next, _)| &next.certificate);
        let previous = self.previous.iter().map(|(previous, _)| previous);
        std::iter::once(&self.signer.certificate).chain(next).chain(previous)
    }

    /// The CAs that API servers have to trust, in PEM: the value of every `caBundle`. They are sorted, so that a CA that
    /// merely changes its role changes no `caBundle`.
    pub fn trusted(&self) -> String {
        let mut all: Vec<String> = self.authorities().map(|a| format!("{}\n", a.pem.trim())).collect();
        all.sort_unstable();
        all.dedup();
        all.concat()
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::issue;

    const HOUR: SignedDuration = SignedDuration::from_hours(1);

    #[test]
    fn a_certificate_tells_its_names_and_its_validity() {
        let now: Timestamp = "2026-11-29T12:00:00Z".parse().unwrap();
        let signer = issue::authority(now, HOUR * 48).unwrap();
        let names = ["a.ns.svc", "b.ns.svc", "10.0.0.1"].map(str::to_owned);
        let Certificate { pem, not_before, not_after, names } =
            issue::leaf(&signer, &names, now, HOUR).unwrap().certificate;
        // an address is no DNS name
        assert_eq!(names, ["a.ns.svc", "b.ns.svc"]);
        assert_eq!((not_before, not_after), (now - HOUR * 24, now + HOUR));
        let read = Certificate::read(&pem).unwrap();
        let second = SignedDuration::from_secs(1);
        let valid =
            [not_before - second, not_before, now, not_after - second, not_after].map(|at| read.is_valid_at(at));
        assert_eq!(valid, [false, true, true, true, false]);
    }

    /// Another CA in the Secret being valid is no help: API servers verify the one that signed.
    #[test]
    fn a_leaf_is_usable_while_the_ca_that_signed_it_is_valid() {
        let now: Timestamp = "2026-11-29T12:00:00Z".parse().unwrap();
        let signer = issue::authority(now, HOUR * 1_000).unwrap();
        // by a clock two days ahead: valid from tomorrow on
        let ahead = issue::authority(now + HOUR * 48, HOUR * 1_000).unwrap();
        let names = ["webhook.noderotation.svc".to_owned()];
        let leaf = issue::leaf(&ahead, &names, now, HOUR * 500).unwrap();
        let data = SecretData { signer, leaf, next: None, previous: Some((ahead.certificate, now)) };
        assert!(!data.is_usable_at(now));
        assert!(data.is_usable_at(now + HOUR * 24));
        assert!(!data.is_usable_at(now + HOUR * 500), "the leaf certificate has expired");
    }
}
