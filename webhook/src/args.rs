//! Flags; each has an environment variable.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use jiff::SignedDuration;
use noderotation_process::log::LogArgs;
use noderotation_shared::admission::StaticPools;
use noderotation_shared::{duration, zone};

/// Refuses wrong RotationPolicies and NodePools, and guards the keys of a rotation, before anything is stored.
#[derive(Clone, Debug, Parser)]
#[command(name = "noderotation-webhook", version, about, max_term_width = 100, args_override_self = true)]
pub struct Args {
    /// Namespace of the webhook's Service and Secret, and of the controller.
    #[arg(long, env = "NODEROTATION_NAMESPACE", default_value = "noderotation")]
    pub namespace: String,

    /// Service account of the controller, in the same namespace: it alone may change guarded keys.
    #[arg(long, env = "NODEROTATION_CONTROLLER_ACCOUNT", default_value = "noderotation-controller")]
    pub controller_account: String,

    /// Where admission is served, by TLS.
    #[arg(long, env = "NODEROTATION_LISTEN", default_value = "0.0.0.0:8443")]
    pub listen: SocketAddr,

    /// Where /healthz, /readyz and /metrics are served.
    #[arg(long, env = "NODEROTATION_HEALTH_LISTEN", default_value = "0.0.0.0:8080")]
    pub health_listen: SocketAddr,

    /// Time zone of windows that name none; unset: they have to name one.
    #[arg(long, env = "NODEROTATION_DEFAULT_TIMEZONE", value_parser = time_zone)]
    pub default_timezone: Option<String>,

    /// What a policy gets that would govern a static NodePool.
    #[arg(long, env = "NODEROTATION_STATIC_POOLS", value_enum, default_value_t = StaticPoolsArg::Deny)]
    pub static_pools: StaticPoolsArg,

    /// Who keeps the certificate.
    #[arg(long, env = "NODEROTATION_CERTIFICATE", value_enum, default_value_t = CertificateArg::Own)]
    pub certificate: CertificateArg,

    /// With --certificate=files: the folder with tls.crt and tls.key.
    #[arg(long, env = "NODEROTATION_CERTIFICATE_FOLDER", default_value = "/etc/noderotation/certificate")]
    pub certificate_folder: PathBuf,

    /// With --certificate=own: the Secret of authority and certificate.
    #[arg(long, env = "NODEROTATION_SECRET", default_value = "noderotation-webhook")]
    pub secret: String,

    /// The Service by which the API server reaches the webhook.
    #[arg(long, env = "NODEROTATION_SERVICE", default_value = "noderotation-webhook")]
    pub service: String,

    /// With --certificate=own: the name of both webhook configurations, whose caBundle is kept.
    #[arg(long, env = "NODEROTATION_CONFIGURATIONS", default_value = "noderotation")]
    pub configurations: String,

    /// With --certificate=own: how long a certificate is valid; renewed after two thirds.
    #[arg(long, env = "NODEROTATION_CERTIFICATE_LIFETIME", default_value = "2160h", value_parser = lifetime)]
    pub certificate_lifetime: SignedDuration,

    /// With --certificate=own: how long an authority is valid; replaced after two thirds. At least three certificates long.
    #[arg(long, env = "NODEROTATION_AUTHORITY_LIFETIME", default_value = "17520h", value_parser = lifetime)]
    pub authority_lifetime: SignedDuration,

    /// With --certificate=own: how long every API server may take to see a changed caBundle.
    #[arg(long, env = "NODEROTATION_PROPAGATION", default_value = "1m", value_parser = lifetime)]
    pub propagation: SignedDuration,

    /// After a signal requests are served for this long, until no API server sends any more.
    #[arg(long, env = "NODEROTATION_SHUTDOWN_DELAY", default_value = "5s", value_parser = lifetime)]
    pub shutdown_delay: SignedDuration,

    /// Kubeconfig; unset: $KUBECONFIG, ~/.kube/config, or the Pod's service account.
    #[arg(long, env = "NODEROTATION_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,

    /// Log lines.
    #[command(flatten)]
    pub log: LogArgs,
}

/// What a policy gets that would govern a static NodePool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StaticPoolsArg {
    /// A refusal.
    Deny,
    /// A warning.
    Warn,
}

impl From<StaticPoolsArg> for StaticPools {
    fn from(arg: StaticPoolsArg) -> Self {
        match arg {
            StaticPoolsArg::Deny => Self::Deny,
            StaticPoolsArg::Warn => Self::Warn,
        }
    }
}

/// Who keeps the certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CertificateArg {
    /// The webhook itself, in a Secret, with an authority of its own.
    Own,
    /// Somebody else, in files.
    Files,
}

impl Args {
    /// What one flag cannot say alone.
    pub fn check(&self) -> Result<(), String> {
        if self.certificate_lifetime.saturating_mul(3) > self.authority_lifetime {
            return Err(format!(
                "--authority-lifetime {} must be at least three times --certificate-lifetime {}: an authority signs several certificates before the next one takes over",
                duration::format(self.authority_lifetime),
                duration::format(self.certificate_lifetime)
            ));
        }
        if self.propagation.saturating_mul(3) > self.certificate_lifetime {
            return Err(format!(
                "--propagation {} must be at most a third of --certificate-lifetime {}",
                duration::format(self.propagation),
                duration::format(self.certificate_lifetime)
            ));
        }
        Ok(())
    }
}

fn lifetime(text: &str) -> Result<SignedDuration, String> {
    duration::parse(text)
        .filter(SignedDuration::is_positive)
        .ok_or_else(|| "write a duration above zero such as 2160h".into())
}

fn time_zone(text: &str) -> Result<String, String> {
    match zone::find(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(unknown) => Err(format!("{}; write {}", unknown.why, unknown.instead)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn flags_are_consistent() {
        Args::command().debug_assert();
        Args::parse_from(["x"]).check().unwrap();
        assert!(Args::parse_from(["x", "--authority-lifetime", "2161h"]).check().is_err());
        assert!(Args::parse_from(["x", "--propagation", "2160h"]).check().is_err());
        assert!(
            Args::try_parse_from(["x", "--default-timezone", "JST"]).unwrap_err().to_string().contains("Asia/Tokyo")
        );
    }
}
