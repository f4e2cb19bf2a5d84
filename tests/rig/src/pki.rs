//! The certificates and kubeconfigs of a run.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

/// The CA of a run, which signs the certificates of servers and users.
pub struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Creates a CA and writes `ca.crt` and `ca.key` to a folder.
    pub fn make(folder: &Path) -> anyhow::Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = name("rig-ca", None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?;
        std::fs::write(folder.join("ca.crt"), certificate.pem())?;
        std::fs::write(folder.join("ca.key"), key.serialize_pem())?;
        Ok(Self { folder: folder.to_owned(), issuer: Issuer::new(params, key) })
    }

    /// Issues a server certificate for these names and addresses; writes `<file>.crt` and `<file>.key`.
    pub fn server(&self, file: &str, dns: &[&str], addresses: &[Ipv4Addr]) -> anyhow::Result<()> {
        let mut params = CertificateParams::new(dns.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>())?;
        params.subject_alt_names.extend(addresses.iter().map(|a| SanType::IpAddress(IpAddr::V4(*a))));
        params.distinguished_name = name(file, None);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(file, &params)
    }

    /// Issues a client certificate for a user, perhaps in a group; writes `<file>.crt` and `<file>.key`.
    pub fn user(&self, file: &str, user: &str, group: Option<&str>) -> anyhow::Result<()> {
        let mut params = CertificateParams::default();
        params.distinguished_name = name(user, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(file, &params)
    }

    /// Creates the key pair that signs service account tokens; writes `sa.key` and `sa.pub`.
    pub fn token_keys(&self) -> anyhow::Result<()> {
        let key = KeyPair::generate()?;
        std::fs::write(self.folder.join("sa.key"), key.serialize_pem())?;
        std::fs::write(self.folder.join("sa.pub"), key.public_key_pem())?;
        Ok(())
    }

    fn sign(&self, file: &str, params: &CertificateParams) -> anyhow::Result<()> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        std::fs::write(self.folder.join(format!("{file}.crt")), certificate.pem())?;
        std::fs::write(self.folder.join(format!("{file}.key")), key.serialize_pem())?;
        Ok(())
    }
}

fn name(common: &str, organization: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name
}

/// How the user of a kubeconfig authenticates.
pub enum Credential<'a> {
    /// By the client certificate `<name>.crt` and `<name>.key`, which [`Authority::user`] has written.
    Certificate(&'a str),
    /// By the token of a service account.
    Token(&'a str),
}

/// A kubeconfig for the API server at `url`, with the CA of the folder `pki`.
pub fn kubeconfig(pki: &Path, url: &str, credential: &Credential<'_>) -> serde_json::Value {
    let path = |file: String| pki.join(file).display().to_string();
    let user = match credential {
        Credential::Certificate(name) => serde_json::json!({
            "client-certificate": path(format!("{name}.crt")), "client-key": path(format!("{name}.key")),
        }),
        Credential::Token(token) => serde_json::json!({"token": token}),
    };
    serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "rig",
        "contexts": [{"name": "rig", "context": {"cluster": "rig", "user": "rig"}}],
        "clusters": [{"name": "rig", "cluster": {"server": url, "certificate-authority": path("ca.crt".into())}}],
        "users": [{"name": "rig", "user": user}],
    })
}
