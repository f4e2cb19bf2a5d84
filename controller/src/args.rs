//! Flags; each has an environment variable.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use noderotation_process::log::LogArgs;
use noderotation_shared::keys;
use noderotation_shared::zone::program_version;

use crate::leader::Timing;

/// Rotates Karpenter nodes inside maintenance windows, replacement first.
#[derive(Clone, Debug, Parser)]
#[command(name = "noderotation-controller", version = program_version(), about, max_term_width = 100, args_override_self = true)]
pub struct Args {
    /// Namespace of the lease and of the placeholder Pods.
    #[arg(long, env = "NODEROTATION_NAMESPACE", default_value = "noderotation")]
    pub namespace: String,

    /// Name of this replica in the lease; a random suffix is added. In a Pod: its name.
    #[arg(long, env = "POD_NAME", default_value = "noderotation-controller")]
    pub identity: String,

    /// PriorityClass of the placeholder Pods; must be lower than that of any workload.
    #[arg(long, env = "NODEROTATION_PRIORITY_CLASS", default_value = "noderotation-placeholder")]
    pub priority_class: String,

    /// Image of the placeholder Pods; it has to do nothing.
    #[arg(long, env = "NODEROTATION_PLACEHOLDER_IMAGE", default_value = "registry.k8s.io/pause:3.10")]
    pub placeholder_image: String,

    /// Labels of the placeholder Pods beside their own, as a JSON object of strings.
    #[arg(long, env = "NODEROTATION_PLACEHOLDER_LABELS", default_value = "{}", value_parser = further_keys)]
    pub placeholder_labels: FurtherKeys,

    /// Annotations of the placeholder Pods beside their own, as a JSON object of strings.
    #[arg(long, env = "NODEROTATION_PLACEHOLDER_ANNOTATIONS", default_value = "{}", value_parser = further_keys)]
    pub placeholder_annotations: FurtherKeys,

    /// Secrets of --namespace with which the kubelet pulls --placeholder-image, separated by commas.
    #[arg(long, env = "NODEROTATION_PLACEHOLDER_PULL_SECRETS", value_delimiter = ',')]
    pub placeholder_pull_secrets: Vec<String>,

    /// Where /healthz, /readyz and /metrics are served; the default is every address, IPv4 and IPv6.
    #[arg(long, env = "NODEROTATION_LISTEN", default_value = "[::]:8080")]
    pub listen: SocketAddr,

    /// NodePools worked on at a time, from 1.
    #[arg(long, env = "NODEROTATION_WORKERS", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub workers: u8,

    /// How long a lease lasts after its last renewal.
    #[arg(long, env = "NODEROTATION_LEASE_DURATION", default_value = "15s", value_parser = seconds)]
    pub lease_duration: Duration,

    /// A leader that could not renew for this long ends its process; less than --lease-duration.
    #[arg(long, env = "NODEROTATION_RENEW_DEADLINE", default_value = "10s", value_parser = seconds)]
    pub renew_deadline: Duration,

    /// How often the lease is renewed.
    #[arg(long, env = "NODEROTATION_RETRY_PERIOD", default_value = "2s", value_parser = seconds)]
    pub retry_period: Duration,

    /// Requests per second to the API server, lease requests aside.
    #[arg(long, env = "NODEROTATION_API_RATE", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    pub api_rate: u16,

    /// Requests that may be sent at once before --api-rate holds.
    #[arg(long, env = "NODEROTATION_API_BURST", default_value_t = 40, value_parser = clap::value_parser!(u16).range(1..))]
    pub api_burst: u16,

    /// Show for each node when it comes due, as a metric: one more series for each node.
    #[arg(long, env = "NODEROTATION_NODE_METRICS")]
    pub node_metrics: bool,

    /// Kubeconfig; unset: $KUBECONFIG, ~/.kube/config, or the Pod's service account.
    #[arg(long, env = "NODEROTATION_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,

    /// Remove everything that this program has written to nodes, NodeClaims and NodePools, and end; needs the lease, so no
    /// controller may be running.
    #[arg(long)]
    pub cleanup: bool,

    /// With --cleanup: refuse while this Deployment, the controller's, exists; for a Job after uninstallation.
    #[arg(long, requires = "cleanup", value_name = "NAME")]
    pub cleanup_unless_deployed: Option<String>,

    /// Form and level of the log lines.
    #[command(flatten)]
    pub log: LogArgs,
}

impl Args {
    /// The durations of leader election.
    pub fn timing(&self) -> Timing {
        Timing { duration: self.lease_duration, renew_deadline: self.renew_deadline, retry_period: self.retry_period }
    }

    /// Checks what no flag can check alone; the error is a sentence for the user.
    pub fn check(&self) -> anyhow::Result<()> {
        let (duration, deadline, period) = (self.lease_duration, self.renew_deadline, self.retry_period);
        anyhow::ensure!(
            deadline < duration,
            "--renew-deadline {deadline:?} must be shorter than --lease-duration {duration:?}: a leader has to stop before another may start"
        );
        anyhow::ensure!(
            period < deadline,
            "--retry-period {period:?} must be shorter than --renew-deadline {deadline:?}"
        );
        Ok(())
    }
}

/// Labels or annotations that an operator wants on objects of ours.
pub type FurtherKeys = BTreeMap<String, String>;

/// Keys with our prefix and Karpenter's decide something, so they are ours to set.
fn further_keys(text: &str) -> Result<FurtherKeys, String> {
    let keys: FurtherKeys = serde_json::from_str(text)
        .map_err(|error| format!("write a JSON object of strings such as {{\"team\": \"a\"}}: {error}"))?;
    let is_taken = |key: &&String| [keys::PREFIX, KARPENTER].iter().any(|prefix| key.starts_with(prefix));
    match keys.keys().find(is_taken) {
        Some(key) => Err(format!("{key}: noderotation sets this key itself; leave it out")),
        None => Ok(keys),
    }
}

/// The prefix of Karpenter's labels and annotations.
const KARPENTER: &str = "karpenter.sh/";

fn seconds(text: &str) -> Result<Duration, String> {
    noderotation_shared::duration::parse(text)
        .and_then(|d| Duration::try_from(d).ok())
        .filter(|d| !d.is_zero())
        .ok_or_else(|| "write a duration above zero such as 15s".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn flags_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn labels_of_placeholders_are_strings_and_none_of_ours() {
        let parse = |text: &str| Args::try_parse_from(["x", "--placeholder-labels", text]);
        assert_eq!(parse(r#"{"team": "a"}"#).unwrap().placeholder_labels["team"], "a");
        for (text, part) in [
            ("team=a", "write a JSON object of strings"),
            (r#"{"team": 1}"#, "write a JSON object of strings"),
            (r#"{"noderotation.io/surge-for": "x"}"#, "noderotation.io/surge-for: noderotation sets this key itself"),
            (r#"{"karpenter.sh/nodepool": "x"}"#, "karpenter.sh/nodepool: noderotation sets this key itself"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_leader_stops_before_another_starts() {
        let args = Args::parse_from(["x", "--renew-deadline", "20s"]);
        assert!(args.check().is_err());
        assert!(Args::parse_from(["x"]).check().is_ok());
        assert!(Args::try_parse_from(["x", "--lease-duration", "10"]).is_err());
    }
}
