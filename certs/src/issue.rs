//! Issuing: new CAs, and serving (leaf) certificates that they sign. Keys are ECDSA P-256, rcgen's default.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

use crate::Error;
use crate::secret_data::{Certificate, CertificateAndKey};

/// `notBefore` lies this far in the past: our clock may be ahead of that of an API server, which would refuse a certificate
/// of its future, or of another replica, which would replace it. A day covers a clock set to the wrong time zone.
pub const BACKDATED: SignedDuration = SignedDuration::from_hours(24);

/// A new self-signed CA, valid until `now + lifetime`, which may sign leaf certificates but no further CA.
pub fn authority(now: Timestamp, lifetime: SignedDuration) -> Result<CertificateAndKey, Error> {
    let key = KeyPair::generate().map_err(Error::Issue)?;
    let mut params = params(now, not_after(now, lifetime), &format!("noderotation webhook CA of {now}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(&key).map_err(Error::Issue)?;
    Ok(CertificateAndKey { certificate: Certificate::read(&certificate.pem())?, key: key.serialize_pem() })
}

/// A new leaf certificate for these DNS names, signed by the CA `signer`. Valid until `now + lifetime`, or until the CA
/// expires if that is sooner.
pub fn leaf(
    signer: &CertificateAndKey,
    names: &[String],
    now: Timestamp,
    lifetime: SignedDuration,
) -> Result<CertificateAndKey, Error> {
    let signer_key = KeyPair::from_pem(&signer.key).map_err(Error::Issue)?;
    let issuer = Issuer::from_ca_cert_pem(&signer.certificate.pem, signer_key).map_err(Error::Issue)?;
    let key = KeyPair::generate().map_err(Error::Issue)?;
    let not_after = not_after(now, lifetime).min(signer.certificate.not_after);
    let mut params = params(now, not_after, "noderotation webhook");
    params.subject_alt_names = sans(names)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&key, &issuer).map_err(Error::Issue)?;
    Ok(CertificateAndKey { certificate: Certificate::read(&certificate.pem())?, key: key.serialize_pem() })
}

fn not_after(now: Timestamp, lifetime: SignedDuration) -> Timestamp {
    now.checked_add(lifetime).unwrap_or(Timestamp::MAX)
}

fn params(now: Timestamp, not_after: Timestamp, common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    let at =
        |at: Timestamp| date_time_ymd(1970, 1, 1) + Duration::from_secs(u64::try_from(at.as_second()).unwrap_or(0));
    params.not_before = at(now.checked_sub(BACKDATED).unwrap_or(now));
    params.not_after = at(not_after);
    params
}

fn sans(names: &[String]) -> Result<Vec<rcgen::SanType>, Error> {
    CertificateParams::new(names.to_vec()).map(|params| params.subject_alt_names).map_err(Error::Issue)
}
