//! What requests and watches count (§11); a program registers it beside its own.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use noderotation_shared::watch_cursor::STALE_AFTER;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, LabelSetEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::watch::fresh::Freshness;

/// A family of counters with `N` labels.
pub type Counters<const N: usize> = Family<LabelSet<N>, Counter<u64, AtomicU64>>;

/// `N` label pairs in a fixed order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LabelSet<const N: usize>(pub [(&'static str, String); N]);

impl<const N: usize> EncodeLabelSet for LabelSet<N> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.0.as_slice().encode(encoder)
    }
}

/// Adds `build_info`: the program's version and that of its time zone database.
pub fn register_build(registry: &mut Registry, version: &str) {
    let build = Info::new(LabelSet([
        ("version", version.to_owned()),
        ("tzdata", noderotation_shared::zone::database_version().to_owned()),
    ]));
    registry.register("build", "Version of the program and of its time zone database", build);
}

/// The text of `/metrics`, in OpenMetrics format.
pub fn page(registry: &Registry) -> String {
    let mut page = String::new();
    // writing to a String cannot fail
    let _ = prometheus_client::encoding::text::encode(&mut page, registry);
    page
}

/// Requests to the API server and lists of watches.
#[derive(Debug, Default)]
pub struct ClientMetrics {
    requests: Counters<3>,
    lists: Counters<2>,
}

impl ClientMetrics {
    /// Adds these counters to a program's `/metrics`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("api_requests", "Requests to the API server", self.requests.clone());
        registry.register("watch_lists", "Complete lists, by reason", self.lists.clone());
    }

    /// Counts a request by the HTTP status of its answer; 0 where none came.
    pub fn api_request(&self, verb: &'static str, resource: &'static str, code: u16) {
        let labels =
            LabelSet([("verb", verb.to_owned()), ("resource", resource.to_owned()), ("code", code.to_string())]);
        self.requests.get_or_create(&labels).inc();
    }

    /// Counts a complete list, or a streamed initial state, and why it was needed.
    pub fn watch_list(&self, resource: &'static str, reason: &'static str) {
        self.lists.get_or_create(&LabelSet([("resource", resource.to_owned()), ("reason", reason.to_owned())])).inc();
    }
}

/// The gauges `watch_age_seconds` and `watch_stale`, computed at each scrape.
pub struct WatchAges(pub Arc<Freshness>);

impl std::fmt::Debug for WatchAges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WatchAges")
    }
}

impl Collector for WatchAges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let ages = self.0.ages();
        let gauge = ConstGauge::new(0.0f64);
        let mut family = encoder.encode_descriptor(
            "watch_age_seconds",
            "Since the last event or bookmark",
            None,
            gauge.metric_type(),
        )?;
        for (resource, age) in &ages {
            ConstGauge::new(age.as_secs_f64())
                .encode(family.encode_family(&LabelSet([("resource", resource.plural().to_owned())]))?)?;
        }
        let mut family = encoder.encode_descriptor(
            "watch_stale",
            "1 where a watch has been silent for too long",
            None,
            gauge.metric_type(),
        )?;
        for (resource, age) in &ages {
            let stale = ConstGauge::new(f64::from(u8::from(*age > STALE_AFTER)));
            stale.encode(family.encode_family(&LabelSet([("resource", resource.plural().to_owned())]))?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use noderotation_shared::kind::Kind;
    use tokio::time::advance;

    use super::*;

    /// The lines of a page that are no comments.
    fn values(registry: &Registry) -> Vec<String> {
        page(registry).lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[test]
    fn the_build_tells_both_versions() {
        let mut registry = Registry::with_prefix("noderotation");
        register_build(&mut registry, "1.2.3");
        let lines = values(&registry);
        let [line] = lines.as_slice() else { panic!("{lines:?}") };
        let tzdata = line
            .strip_prefix(r#"noderotation_build_info{version="1.2.3",tzdata=""#)
            .and_then(|rest| rest.strip_suffix(r#""} 1"#))
            .unwrap_or_else(|| panic!("{line}"));
        // such as 2026c
        let (year, letter) = tzdata.split_at(4);
        assert!(year.parse::<u16>().unwrap() >= 2026 && letter.len() == 1, "{tzdata}");
    }

    #[test]
    fn lists_are_counted_by_kind_and_reason() {
        let (mut registry, metrics) = (Registry::default(), ClientMetrics::default());
        metrics.register(&mut registry);
        metrics.watch_list("nodes", "start");
        metrics.watch_list("pods", "start");
        metrics.watch_list("pods", "start");
        let mut lines = values(&registry);
        lines.sort();
        assert_eq!(
            lines,
            [
                r#"watch_lists_total{resource="nodes",reason="start"} 1"#,
                r#"watch_lists_total{resource="pods",reason="start"} 2"#
            ]
        );
    }

    /// §11: `watch_stale` is 1 after more than five minutes of silence.
    #[tokio::test(start_paused = true)]
    async fn a_watch_tells_its_age_and_whether_that_is_too_much() {
        let (mut registry, fresh) = (Registry::default(), Arc::new(Freshness::default()));
        registry.register_collector(Box::new(WatchAges(fresh.clone())));
        fresh.touch(Kind::Node);
        advance(Duration::from_millis(500)).await;
        fresh.touch(Kind::Pod);
        advance(Duration::from_millis(299_500)).await;
        let at_the_limit = [
            r#"watch_age_seconds{resource="nodes"} 300.0"#,
            r#"watch_age_seconds{resource="pods"} 299.5"#,
            r#"watch_stale{resource="nodes"} 0.0"#,
            r#"watch_stale{resource="pods"} 0.0"#,
        ];
        assert_eq!(values(&registry), at_the_limit);
        advance(Duration::from_millis(250)).await;
        let beyond_it = [
            r#"watch_age_seconds{resource="nodes"} 300.25"#,
            r#"watch_age_seconds{resource="pods"} 299.75"#,
            r#"watch_stale{resource="nodes"} 1.0"#,
            r#"watch_stale{resource="pods"} 0.0"#,
        ];
        assert_eq!(values(&registry), beyond_it);
    }
}
