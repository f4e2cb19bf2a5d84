//! The command-line flags. Each can also be set by an environment variable.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use jiff::SignedDuration;
use noderotation_process::log::LogArgs;
use noderotation_shared::admission::StaticPools;
use noderotation_shared::zone::program_version;
use noderotation_shared::{duration, zone};

use crate::Error;

/// Admission webhook: refuses invalid RotationPolicies and NodePools, and changes of a rotation's state by anyone but the controller.
#[derive(Clone, Debug, Parser)]
#[command(name = "noderotation-webhook", version = program_version(), about, max_term_width = 100, args_override_self = true)]
pub struct Args {
    /// Namespace of the webhook's Service and Secret, and of the controller.
    #[arg(long, env = "NODEROTATION_NAMESPACE", default_value = "noderotation")]
    pub namespace: String,

    /// Service account of the controller, in the same namespace; only this account may change guarded keys.
    #[arg(long, env = "NODEROTATION_CONTROLLER_ACCOUNT", default_value = "noderotation-controller")]
    pub controller_account: String,

    /// Address on which admission is served, over TLS.
    #[arg(long, env = "NODEROTATION_LISTEN", default_value = "[::]:8443")]
    pub listen: SocketAddr,

    /// Address on which /healthz, /readyz and /metrics are served, without TLS.
    #[arg(long, env = "NODEROTATION_HEALTH_LISTEN", default_value = "[::]:8080")]
    pub health_listen: SocketAddr,

    /// Time zone of windows that name none; if unset, such windows are refused.
    #[arg(long, env = "NODEROTATION_DEFAULT_TIMEZONE", value_parser = time_zone)]
    pub default_timezone: Option<String>,

    /// Response to a policy that would govern a static NodePool.
    #[arg(long, env = "NODEROTATION_STATIC_POOLS", value_enum, default_value_t = StaticPoolsArg::Deny)]
    pub static_pools: StaticPoolsArg,

    /// Who issues and renews the serving certificate.
    #[arg(long, env = "NODEROTATION_CERTIFICATE", value_enum, default_value_t = CertificateArg::Own)]
    pub certificate: CertificateArg,

    /// With --certificate=files: folder of tls.crt and tls.key.
    #[arg(long, env = "NODEROTATION_CERTIFICATE_FOLDER", default_value = "/etc/noderotation/certificate")]
    pub certificate_folder: PathBuf,

    /// With --certificate=own: name of the Secret of CA and certificate.
    #[arg(long, env = "NODEROTATION_SECRET", default_value = "noderotation-webhook")]
    pub secret: String,

    /// Name of the Service by which the API server reaches the webhook.
    #[arg(long, env = "NODEROTATION_SERVICE", default_value = "noderotation-webhook")]
    pub service: String,

    /// With --certificate=own: name of the two webhook configurations whose caBundle is maintained.
    #[arg(long, env = "NODEROTATION_CONFIGURATIONS", default_value = "noderotation")]
    pub configurations: String,

    /// With --certificate=own: lifetime of a certificate; it is renewed after two thirds.
    #[arg(long, env = "NODEROTATION_CERTIFICATE_LIFETIME", default_value = "2160h", value_parser = lifetime)]
    pub certificate_lifetime: SignedDuration,

    /// With --certificate=own: lifetime of the CA, at least three times that of a certificate; the next CA is introduced after two thirds.
    #[arg(long, env = "NODEROTATION_AUTHORITY_LIFETIME", default_value = "17520h", value_parser = lifetime)]
    pub authority_lifetime: SignedDuration,

    /// With --certificate=own: longest time that an API server takes to use a changed caBundle.
    #[arg(long, env = "NODEROTATION_PROPAGATION", default_value = "1m", value_parser = lifetime)]
    pub propagation: SignedDuration,

    /// How long requests are still served after SIGTERM, until every API server has noticed that the Pod is not ready.
    #[arg(long, env = "NODEROTATION_SHUTDOWN_DELAY", default_value = "5s", value_parser = lifetime)]
    pub shutdown_delay: SignedDuration,

    /// Path of a kubeconfig; if unset: $KUBECONFIG, ~/.kube/config, or the Pod's service account.
    #[arg(long, env = "NODEROTATION_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,

    /// Format and level of the log.
    #[command(flatten)]
    pub log: LogArgs,
}

/// The response to a policy that would govern a static NodePool (§10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StaticPoolsArg {
    /// Refuse the policy.
    Deny,
    /// Admit it with a warning.
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

/// Who issues and renews the serving certificate (§10 *Certificate*).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CertificateArg {
    /// The webhook, with a CA of its own, both kept in a Secret.
    Own,
    /// Somebody else, who mounts it as files.
    Files,
}

impl Args {
    /// Checks flags against each other. clap has checked each flag by itself.
    pub fn check(&self) -> Result<(), Error> {
        let certificate = self.certificate_lifetime;
        if certificate.saturating_mul(3) > self.authority_lifetime {
            return Err(Error::AuthorityLifetime { authority: self.authority_lifetime, certificate });
        }
        if self.propagation.saturating_mul(3) > certificate {
            return Err(Error::Propagation { propagation: self.propagation, certificate });
        }
        Ok(())
    }
}

fn lifetime(text: &str) -> Result<SignedDuration, Error> {
    duration::parse(text).filter(SignedDuration::is_positive).ok_or(Error::Duration)
}

fn time_zone(text: &str) -> Result<String, Error> {
    match zone::find(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(unknown) => Err(Error::TimeZone { why: unknown.why, instead: unknown.instead }),
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
        // three times is enough
        Args::parse_from(["x", "--authority-lifetime", "6480h", "--propagation", "720h"]).check().unwrap();
        assert!(Args::parse_from(["x", "--authority-lifetime", "6479h"]).check().is_err());
        assert!(Args::parse_from(["x", "--propagation", "721h"]).check().is_err());
        let pools = |word: &str| Args::parse_from(["x", "--static-pools", word]).static_pools.into();
        assert_eq!((pools("deny"), pools("warn")), (StaticPools::Deny, StaticPools::Warn));
        assert!(
            Args::try_parse_from(["x", "--default-timezone", "JST"]).unwrap_err().to_string().contains("Asia/Tokyo")
        );
    }
}
