//! What the Secret holds: the authority that signs, perhaps the next and the previous one, and the certificate served.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// `data` of a Secret, decoded.
pub type RawSecretData = BTreeMap<String, Vec<u8>>;

/// A certificate and what is read of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    /// As text.
    pub pem: String,
    /// From when.
    pub not_before: Timestamp,
    /// Until when.
    pub not_after: Timestamp,
    /// The DNS names it is for.
    pub names: Vec<String>,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "certificate for {:?} until {}", self.names, self.not_after)
    }
}

impl Certificate {
    /// Reads the first certificate of a text.
    pub fn read(pem: &str) -> Result<Self, String> {
        let der = first(pem)?;
        let parsed = parse(&der)?;
        let names = match parsed.subject_alternative_name() {
            Ok(Some(extension)) => extension.value.general_names.iter().filter_map(dns_name).collect(),
            _ => Vec::new(),
        };
        let at = |seconds: i64| Timestamp::from_second(seconds).map_err(|e| e.to_string());
        let (from, until) = (parsed.validity().not_before.timestamp(), parsed.validity().not_after.timestamp());
        Ok(Self { pem: pem.to_owned(), not_before: at(from)?, not_after: at(until)?, names })
    }

    /// Whether this authority signed that certificate.
    pub fn signed(&self, other: &Self) -> bool {
        let (Ok(own), Ok(other)) = (first(&self.pem), first(&other.pem)) else { return false };
        let (Ok(own), Ok(other)) = (parse(&own), parse(&other)) else { return false };
        own.subject() == other.issuer() && other.verify_signature(Some(own.public_key())).is_ok()
    }
}

fn first(pem: &str) -> Result<CertificateDer<'static>, String> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|e| format!("no certificate: {e}"))
}

fn parse<'a>(der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, String> {
    X509Certificate::from_der(der).map(|(_, parsed)| parsed).map_err(|e| format!("no certificate: {e}"))
}

fn dns_name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    }
}

/// A certificate with its key.
#[derive(Clone, PartialEq, Eq)]
pub struct CertificateAndKey {
    /// The certificate.
    pub certificate: Certificate,
    /// Its key, as text.
    pub key: String,
}

impl fmt::Debug for CertificateAndKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.certificate.fmt(f) // never the key
    }
}

impl CertificateAndKey {
    /// Reads both; the error says what is wrong.
    pub fn read(certificate: &str, key: &str) -> Result<Self, String> {
        let pair = Self { certificate: Certificate::read(certificate)?, key: key.to_owned() };
        pair.certified().map(|_| pair)
    }

    /// For handshakes. An error where the key is not that of the certificate.
    pub fn certified(&self) -> Result<Arc<CertifiedKey>, String> {
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(self.certificate.pem.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|e| format!("no certificate: {e}"))?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|e| format!("no private key: {e}"))?;
        let provider = rustls::crypto::ring::default_provider();
        CertifiedKey::from_der(chain, key, &provider)
            .map(Arc::new)
            .map_err(|e| format!("certificate and key do not fit together: {e}"))
    }
}

/// Everything the Secret holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretData {
    /// The authority that signs.
    pub signer: CertificateAndKey,
    /// The certificate that is served.
    pub leaf: CertificateAndKey,
    /// The authority that will sign, and since when it is in the Secret.
    pub next: Option<(CertificateAndKey, Timestamp)>,
    /// The authority that signed before, and until when something that it signed may be valid.
    pub previous: Option<(Certificate, Timestamp)>,
}

const LEAF: (&str, &str) = ("tls.crt", "tls.key");
const SIGNER: (&str, &str) = ("signer.crt", "signer.key");
const NEXT: (&str, &str) = ("next.crt", "next.key");
const NEXT_SINCE: &str = "next.since";
const PREVIOUS: &str = "previous.crt";
const PREVIOUS_UNTIL: &str = "previous.until";
/// Where everybody looks for the certificates to trust.
const TRUSTED: &str = "ca.crt";

impl SecretData {
    /// Reads a Secret's data. The error says what cannot be used.
    pub fn read(data: &RawSecretData) -> Result<Self, String> {
        let text = |key: &str| {
            let bytes = data.get(key).ok_or_else(|| format!("{key} is missing"))?;
            std::str::from_utf8(bytes).map_err(|_| format!("{key} is not text"))
        };
        let pair = |(certificate, key): (&str, &str)| {
            CertificateAndKey::read(text(certificate)?, text(key)?)
                .map_err(|why| format!("{certificate}, {key}: {why}"))
        };
        let at = |key: &str| text(key)?.trim().parse::<Timestamp>().map_err(|e| format!("{key}: {e}"));
        let next = if data.contains_key(NEXT.0) { Some((pair(NEXT)?, at(NEXT_SINCE)?)) } else { None };
        let previous = if data.contains_key(PREVIOUS) {
            Some((Certificate::read(text(PREVIOUS)?).map_err(|why| format!("{PREVIOUS}: {why}"))?, at(PREVIOUS_UNTIL)?))
        } else {
            None
        };
        let data = Self { signer: pair(SIGNER)?, leaf: pair(LEAF)?, next, previous };
        if !data.authorities().any(|authority| authority.signed(&data.leaf.certificate)) {
            return Err("tls.crt is signed by none of the authorities in the Secret".into());
        }
        Ok(data)
    }

    /// As a Secret's data.
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

    fn authorities(&self) -> impl Iterator<Item = &Certificate> {
        let next = self.next.iter().map(|(next, _)| &next.certificate);
        let previous = self.previous.iter().map(|(previous, _)| previous);
        std::iter::once(&self.signer.certificate).chain(next).chain(previous)
    }

    /// What an API server has to trust, as text. In an order of its own, so that a change of roles changes nothing.
    pub fn trusted(&self) -> String {
        let mut all: Vec<String> = self.authorities().map(|a| format!("{}\n", a.pem.trim())).collect();
        all.sort_unstable();
        all.dedup();
        all.concat()
    }
}
