//! The targets, by name.

use std::cell::LazyCell;

use jiff::{SignedDuration, Timestamp};
use noderotation_cluster::objects::Cached;
use noderotation_shared::feasibility::Cadence;
use noderotation_shared::governance::ParsedPolicy;
use noderotation_shared::keys::{self, Format};
use noderotation_shared::objects::{Annotations, Node, NodeClaim, NodePool};
use noderotation_shared::quantity::Quantity;
use noderotation_shared::schedule::{Clock, Moment};
use noderotation_shared::{duration, instant, zone};
use noderotation_webhook::handlers::{Endpoint, Handlers, VerdictOptions};
use noderotation_webhook::request::{AdmissionRequest, Malformed};
use noderotation_webhook::response::AdmissionResponse;
use serde_json::{Value, json};

use crate::support::{handlers, options, policy, pool};

/// What is fed with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::VariantArray, strum::IntoStaticStr, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum Target {
    /// The parser of reviews.
    Review,
    /// The handler that fills in defaults.
    MutatePolicy,
    /// The handler of RotationPolicies.
    ValidatePolicy,
    /// The handler of NodePools.
    ValidatePool,
    /// The handler of NodeClaims.
    ValidateClaim,
    /// The handler of guarded keys.
    Guard,
    /// The reader of a policy's spec, and the calendar of what it reads.
    Policy,
    /// The readers of watched objects and of their annotations.
    Annotations,
    /// The parser of quantities.
    Quantity,
    /// The parsers of durations and instants.
    Duration,
    /// The parsers of windows and exclusions: times of day, dates, time zones.
    Window,
}

impl Target {
    /// Its name, which is that of its folder in the corpus.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The endpoint whose handler it feeds.
    pub fn endpoint(self) -> Option<Endpoint> {
        match self {
            Self::MutatePolicy => Some(Endpoint::MutatePolicy),
            Self::ValidatePolicy => Some(Endpoint::ValidatePolicy),
            Self::ValidatePool => Some(Endpoint::ValidatePool),
            Self::ValidateClaim => Some(Endpoint::ValidateClaim),
            Self::Guard => Some(Endpoint::Guard),
            _ => None,
        }
    }

    /// Feeds it. Whether the bytes got past the parser.
    pub fn feed(self, bytes: &[u8]) -> bool {
        match (self.endpoint(), self) {
            (Some(endpoint), _) => handler(endpoint, bytes),
            (None, Self::Review) => review(bytes),
            (None, Self::Policy) => policy_spec(bytes),
            (None, Self::Annotations) => annotations(bytes),
            (None, other) => std::str::from_utf8(bytes).is_ok_and(|text| match other {
                Self::Quantity => quantity(text),
                Self::Duration => durations(text),
                _ => window(text),
            }),
        }
    }
}

/// A review gets a bounded answer, or an error of bounded length.
fn review(bytes: &[u8]) -> bool {
    match AdmissionRequest::read(bytes) {
        Ok(request) => {
            let _ = (request.object(), request.old_object(), request.metadata(), request.is_dry_run());
            true
        }
        Err(Malformed::Answerable { uid, error }) => {
            check(AdmissionResponse::bad(&error), &uid);
            false
        }
        Err(Malformed::Unreadable(error)) => {
            let told = error.told();
            assert!((1..=800).contains(&told.chars().count()), "{told}");
            false
        }
    }
}

thread_local! {
    static HANDLERS: LazyCell<Handlers> = const { LazyCell::new(small_cluster) };
}

fn handler(endpoint: Endpoint, bytes: &[u8]) -> bool {
    let Ok(request) = AdmissionRequest::read(bytes) else { return false };
    let now = Timestamp::UNIX_EPOCH;
    HANDLERS.with(|handlers| {
        let _ = handlers.unsettled(endpoint, &request, now);
        check(handlers.handle(endpoint, &request, now), &request.uid);
    });
    true
}

/// Two policies, a NodePool that one of them governs, and a static NodePool.
fn small_cluster() -> Handlers {
    let mut fixed = pool("fixed", &json!({"w": "fixed"}));
    fixed["spec"]["replicas"] = json!(1);
    let options = VerdictOptions { default_zone: Some("UTC".into()), ..options() };
    handlers(
        &[policy("w-api", &json!({"w": "api"})), policy("w-web", &json!({"w": "web"}))],
        &[pool("api", &json!({"w": "api"})), fixed],
        options,
    )
}

/// What the API server asks of a response, and what bounds it.
fn check(response: AdmissionResponse, uid: &str) {
    let body = response.body(uid);
    assert!(body.len() < 64 * 1024 + 8 * uid.len(), "{} bytes", body.len());
    let response: Value = serde_json::from_slice(&body).unwrap();
    let response = &response["response"];
    assert_eq!(response["uid"], uid);
    let allowed = response["allowed"].as_bool().unwrap();
    assert_eq!(allowed, response["status"].is_null());
    assert_eq!(response["patch"].is_null(), response["patchType"].is_null());
    assert!(allowed || !response["status"]["message"].as_str().unwrap().is_empty());
    let warnings = response["warnings"].as_array().cloned().unwrap_or_default();
    let total: usize = warnings.iter().map(|warning| warning.as_str().unwrap().chars().count()).sum();
    assert!(total <= 4_096, "{total} characters of warnings");
    assert!(warnings.iter().all(|warning| !warning.as_str().unwrap().chars().any(char::is_control)));
}

/// A spec is valid, or every problem says where it is and what to write instead. A valid one has a calendar.
fn policy_spec(bytes: &[u8]) -> bool {
    let Ok(spec) = serde_json::from_slice::<Value>(bytes) else { return false };
    let parsed = ParsedPolicy::read("p", &spec);
    match &parsed.verdict {
        Err(problems) => {
            assert!(!problems.0.is_empty());
            for problem in &problems.0 {
                assert!(problem.path.starts_with("spec"), "{problem}");
                assert!(!problem.why.is_empty() && !problem.instead.is_empty(), "{problem:?}");
            }
        }
        Ok(policy) => {
            let now: Timestamp = Timestamp::from_second(1_764_500_000).unwrap();
            let _ = Cadence::of(policy, now);
            let next: Vec<_> = policy.schedule.occurrences(now).take(3).collect();
            assert!(next.iter().all(|occurrence| occurrence.open < occurrence.close && occurrence.close > now));
            assert!(next.windows(2).all(|pair| pair[0].close <= pair[1].open), "{next:?}");
            assert!(parsed.selector.is_some());
        }
    }
    true
}

/// Whatever stands in annotations, each reader gives a value or none.
fn annotations(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let (now, mut is_any_read) = (Timestamp::UNIX_EPOCH, false);
    for key in keys::ALL {
        let reads = key.format.reads(text);
        let annotations = Annotations::of([(key.name, text)]);
        let is_read = match key.format {
            Format::Instant => instant::parse(text).is_some(),
            Format::ClaimName => annotations.name(key.name).is_some(),
            _ => reads,
        };
        assert_eq!(reads, is_read, "{} = {text:?}", key.name);
        is_any_read |= reads && key.format != Format::Text;
        assert!(annotations.instant(key.name, now).is_none_or(|at| at <= now));
    }
    let pool = NodePool::read(text).map(|pool| {
        let _ = (
            pool.anchor().map(str::len),
            pool.is_draining(),
            pool.is_expired(),
            pool.mode(),
            pool.surge_path(),
            pool.freeze(),
        );
    });
    let claim = NodeClaim::read(text).map(|claim| {
        let _ = (claim.state(true), claim.state(false), claim.started_at(now), claim.request(), claim.deadline());
        assert!(claim.retry_count() >= 0);
        let _ = claim.candidate(None, now);
    });
    let node = Node::read(text).map(|node| node.is_opted_out());
    is_any_read || pool.is_ok() || claim.is_ok() || node.is_ok()
}

/// Arithmetic on what is read saturates, and is never below what is added.
fn quantity(text: &str) -> bool {
    let Some(quantity) = Quantity::parse(text) else { return false };
    let sum = quantity.plus(quantity);
    assert!(!quantity.is_positive() || (sum.is_positive() && sum >= quantity), "{quantity:?} {sum:?}");
    let _ = (quantity.minus(sum), quantity.percent(i64::MAX), quantity.percent(0));
    true
}

/// What is read is written in a form that reads as the same.
fn durations(text: &str) -> bool {
    if let Some(at) = instant::parse(text) {
        let whole = instant::whole_seconds(at);
        assert_eq!(instant::parse(&instant::format(at)), Some(whole), "{text:?}");
    }
    let Some(parsed) = duration::parse(text) else { return instant::parse(text).is_some() };
    let written = duration::format(parsed);
    assert_eq!(duration::parse(&written), Some(parsed), "{text:?} as {written:?}");
    assert!(!duration::human(parsed).is_empty());
    let _ = (duration::times(parsed, i64::MAX), duration::floor_div(parsed, SignedDuration::ZERO));
    true
}

/// A time of day, a date and a time zone are read exactly as they are written, or not at all.
fn window(text: &str) -> bool {
    if let Some(clock) = Clock::parse(text) {
        let minutes = clock.minutes();
        assert!(minutes <= 24 * 60);
        assert_eq!(format!("{:02}:{:02}", minutes / 60, minutes % 60), text);
        return true;
    }
    if let Some(moment) = Moment::parse(text) {
        assert!(moment.beginning() <= moment.ending());
        assert!(moment.beginning().to_string().starts_with(text), "{text:?}");
        return true;
    }
    match zone::find(text) {
        Ok(found) => {
            assert_eq!(found.iana_name(), Some(text));
            true
        }
        Err(unknown) => {
            assert!(!unknown.why.is_empty() && !unknown.instead.is_empty() && unknown.instead.len() < 100);
            false
        }
    }
}
