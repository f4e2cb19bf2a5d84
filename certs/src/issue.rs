//! New authorities and certificates.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

use crate::secret_data::{Certificate, CertificateAndKey};

/// Certificates are valid this much before they are made: another machine's clock may be behind.
pub const BACKDATED: SignedDuration = SignedDuration::from_mins(5);

/// A new authority.
pub fn authority(now: Timestamp, lifetime: SignedDuration) -> Result<CertificateAndKey, String> {
    let key = KeyPair::generate().map_err(|e| e.to_string())?;
    let mut params = params(now, until(now, lifetime), &format!("noderotation webhook authority of {now}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(&key).map_err(|e| e.to_string())?;
    Ok(CertificateAndKey { certificate: Certificate::read(&certificate.pem())?, key: key.serialize_pem() })
}

/// A serving certificate for these names; it never outlives its authority.
pub fn leaf(
    signer: &CertificateAndKey,
    names: &[String],
    now: Timestamp,
    lifetime: SignedDuration,
) -> Result<CertificateAndKey, String> {
    let signer_key = KeyPair::from_pem(&signer.key).map_err(|e| format!("the authority's key: {e}"))?;
    let issuer = Issuer::from_ca_cert_pem(&signer.certificate.pem, signer_key).map_err(|e| e.to_string())?;
    let key = KeyPair::generate().map_err(|e| e.to_string())?;
    let until = until(now, lifetime).min(signer.certificate.not_after);
    let mut params = params(now, until, "noderotation webhook");
    params.subject_alt_names = sans(names)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&key, &issuer).map_err(|e| e.to_string())?;
    Ok(CertificateAndKey { certificate: Certificate::read(&certificate.pem())?, key: key.serialize_pem() })
}

fn until(now: Timestamp, lifetime: SignedDuration) -> Timestamp {
    now.checked_add(lifetime).unwrap_or(Timestamp::MAX)
}

fn params(now: Timestamp, until: Timestamp, name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let at =
        |at: Timestamp| date_time_ymd(1970, 1, 1) + Duration::from_secs(u64::try_from(at.as_second()).unwrap_or(0));
    params.not_before = at(now.checked_sub(BACKDATED).unwrap_or(now));
    params.not_after = at(until);
    params
}

fn sans(names: &[String]) -> Result<Vec<rcgen::SanType>, String> {
    CertificateParams::new(names.to_vec()).map(|p| p.subject_alt_names).map_err(|e| e.to_string())
}
