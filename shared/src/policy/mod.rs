//! Parses and validates a policy's `spec` into a [`Policy`], with every default filled in (§3).
//!
//! [`Policy::try_from`] collects *every* problem with its field path. It accepts and refuses the same values as the CRD's
//! schema and CEL rules; `tests/tests/policies.rs` compares the two.

mod selector;

pub use selector::{LABEL_KEY, PoolSelector, is_label_key, is_label_value};

use jiff::SignedDuration;
use serde_json::Value;

use crate::api::{
    DayName, ExclusionSpec, MaintenanceWindow, RotationPolicySpec, SurgeSpec, structural_problems, suggestion,
    valid_parts,
};
use crate::field_error::{FieldError, FieldErrors, quoted};
use crate::schedule::{Clock, Day, Entry, Exclusion, Moment, Schedule};
use crate::{duration, keys, zone};
use selector::selector_problems;

/// The spec of a valid RotationPolicy, parsed; with its name and selector it is a
/// [`ParsedPolicy`](crate::governance::ParsedPolicy).
#[derive(Clone, Debug)]
pub struct Policy {
    /// `ageThreshold`: when a node is due.
    pub threshold: Threshold,
    /// `K` (`minRotationChances`), at least 1.
    pub chances: i64,
    /// When rotations may start: the maintenance windows minus the exclusions.
    pub schedule: Schedule,
    /// The exclusions with their names, for display; the schedule already takes them into account.
    pub exclusions: Vec<Exclusion>,
    /// Whether all rotations in the governed NodePools are suspended (§5.4).
    pub suspend: bool,
    /// How a rotation is carried out.
    pub surge: Surge,
    /// Valid values that are probably not what the author means, such as the zone `Etc/GMT+9`.
    pub warnings: Vec<FieldError>,
}

/// When a node is due (§7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// `auto`: early enough for `K` chances before the node expires.
    Auto,
    /// As soon as the node is older than this; above zero.
    Override(SignedDuration),
}

/// `spec.surge` with the defaults of §3 filled in, except for defaults that depend on the NodePool.
#[derive(Clone, Debug)]
pub struct Surge {
    /// How long the replacement may take to become Ready, from `started-at` on; above zero.
    pub ready_timeout: SignedDuration,
    /// The pool's pause after a success (gate A); zero or more.
    pub cooldown_after: SignedDuration,
    /// The pool's pause after a failure (gate B); above zero. Defaults to `max(10m, cooldownAfter)`.
    pub failure_pause: SignedDuration,
    /// A claim's backoff after its first failure; above zero.
    pub retry_backoff: SignedDuration,
    /// How long a drain is expected to take; `None` stands for `min(tGP, 10m)`.
    pub drain_estimate: Option<SignedDuration>,
    /// How long provisioning is expected to take; `None` stands for `min(readyTimeout, 5m)`.
    pub provisioning_estimate: Option<SignedDuration>,
    /// Label keys whose values the replacement must share with the old node.
    pub required: Vec<String>,
    /// Label keys whose values the replacement should share with the old node; without the required ones.
    pub preferred: Vec<String>,
    /// Whether a node is rotated without a surge if too little time is left for one (§9.6).
    pub forceful_fallback: bool,
    /// Whether the whole old node's cpu and memory are reserved (§9.3).
    pub whole_node_reservation: bool,
    /// Whether the reserved node is nominated to the scheduler (§12).
    pub nomination: bool,
}

impl Policy {
    /// Parses a policy's `spec` from any JSON. The error lists every problem: first those of the structure (missing and
    /// unknown fields, wrong types), then those of the values.
    pub fn from_json(spec: &Value) -> Result<Self, FieldErrors> {
        let mut problems = structural_problems(spec);
        let typed = if problems.is_empty() { without_nulls(spec) } else { valid_parts(spec) };
        let parsed = match serde_json::from_value::<RotationPolicySpec>(typed) {
            Ok(spec) => Self::try_from(&spec),
            Err(error) => {
                Err(FieldErrors(vec![FieldError::new("spec", "", error.to_string(), "a RotationPolicy's spec")]))
            }
        };
        match parsed {
            Ok(policy) if problems.is_empty() => return Ok(policy),
            Ok(_) => {}
            Err(more) => {
                let reported: Vec<String> = problems.iter().map(|p| p.path.clone()).collect();
                let is_reported = |path: &str| {
                    reported.iter().any(|parent| {
                        path.strip_prefix(parent.as_str())
                            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
                    })
                };
                problems.extend(more.0.into_iter().filter(|problem| !is_reported(&problem.path)));
            }
        }
        Err(FieldErrors(problems))
    }
}

/// The value without fields that are `null`: the API server treats them as absent.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), without_nulls(v))).collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}

impl TryFrom<&RotationPolicySpec> for Policy {
    type Error = FieldErrors;

    fn try_from(spec: &RotationPolicySpec) -> Result<Self, FieldErrors> {
        let mut reader = Reader::default();
        selector_problems(&spec.node_pool_selector, &mut reader.problems);
        let threshold = reader.threshold(&spec.age_threshold);
        let chances = reader.at_least_one("spec.minRotationChances", spec.min_rotation_chances);
        let entries = reader.windows(&spec.maintenance_windows);
        let exclusions = reader.exclusions(&spec.exclusions);
        let surge = reader.surge(&spec.surge);
        if spec.pre_pull.enabled {
            reader.problem("spec.prePull.enabled", "true", "is reserved in v1alpha1", "false");
        }
        if !reader.problems.is_empty() {
            return Err(FieldErrors(reader.problems));
        }
        Ok(Self {
            threshold,
            chances,
            schedule: Schedule::new(entries, &exclusions),
            exclusions,
            suspend: spec.suspend,
            surge,
            warnings: reader.warnings,
        })
    }
}

/// Parses fields and collects their problems. For an invalid field it returns a stand-in, which never leaves this module
/// because a problem has been recorded.
#[derive(Default)]
struct Reader {
    problems: Vec<FieldError>,
    warnings: Vec<FieldError>,
}

impl Reader {
    fn problem(&mut self, path: impl Into<String>, found: impl std::fmt::Display, why: &str, instead: &str) {
        self.problems.push(FieldError::new(path, found, why, instead));
    }

    fn threshold(&mut self, text: &str) -> Threshold {
        if text == "auto" {
            return Threshold::Auto;
        }
        match policy_duration(text).filter(SignedDuration::is_positive) {
            Some(age) => Threshold::Override(age),
            None => {
                let why = "must be auto or a Go duration above zero, which has no unit for days";
                self.problem(
                    "spec.ageThreshold",
                    quoted(text),
                    why,
                    &in_hours(text).unwrap_or_else(|| "auto, or hours such as 240h".into()),
                );
                Threshold::Auto
            }
        }
    }

    fn at_least_one(&mut self, path: &str, number: i32) -> i64 {
        if number < 1 {
            self.problem(path, number, "must be at least 1", "1 or more (the default is 2)");
        }
        i64::from(number.max(1))
    }

    fn windows(&mut self, windows: &[MaintenanceWindow]) -> Vec<Entry> {
        let path = "spec.maintenanceWindows";
        if windows.is_empty() {
            self.problem(path, "[]", "must not be empty, because nothing would ever rotate", "at least one window");
        }
        if windows.len() > 64 {
            self.problem(
                path,
                format!("{} windows", windows.len()),
                "at most 64 are allowed",
                "fewer, or a second policy",
            );
        }
        windows.iter().enumerate().filter_map(|(i, window)| self.window(&format!("{path}[{i}]"), window)).collect()
    }

    fn window(&mut self, path: &str, window: &MaintenanceWindow) -> Option<Entry> {
        let zone = self.zone(&format!("{path}.timezone"), &window.timezone);
        let days = self.days(&format!("{path}.days"), &window.days);
        let start = self.clock(&format!("{path}.start"), &window.start, false);
        let end = self.clock(&format!("{path}.end"), &window.end, true);
        let (start, end) = (start?, end?);
        if start == end {
            let why = "must differ from start";
            self.problem(
                format!("{path}.end"),
                quoted(&window.end),
                why,
                "start \"00:00\" and end \"24:00\" for the whole day",
            );
            return None;
        }
        if (window.start.as_str(), window.end.as_str()) == ("00:00", "23:59") {
            self.warnings.push(FieldError::new(
                format!("{path}.end"),
                quoted(&window.end),
                "closes the window for one minute before midnight",
                "\"24:00\" for the whole day",
            ));
        }
        Some(Entry::new(zone?, &days, start, end))
    }

    fn zone(&mut self, path: &str, name: &str) -> Option<jiff::tz::TimeZone> {
        match zone::find(name) {
            Ok(found) => {
                if let Some(why) = zone::inverted_sign(name)
                    && !self.warnings.iter().any(|w| w.path == path)
                {
                    self.warnings.push(FieldError::new(
                        path,
                        quoted(name),
                        why,
                        "the time zone of a city, such as Asia/Tokyo",
                    ));
                }
                Some(found)
            }
            Err(unknown) => {
                self.problem(path, quoted(name), &unknown.why, &unknown.instead);
                None
            }
        }
    }

    fn days(&mut self, path: &str, names: &[DayName]) -> Vec<Day> {
        if names.is_empty() {
            self.problem(
                path,
                "[]",
                "must not be empty, because the window would never open",
                "one or more of Mon, Tue, Wed, Thu, Fri, Sat, Sun",
            );
        }
        for (i, name) in names.iter().enumerate() {
            if names.iter().take(i).any(|earlier| earlier == name) {
                self.problem(
                    format!("{path}[{i}]"),
                    format!("\"{name:?}\""),
                    "is listed more than once",
                    "each day once",
                );
            }
        }
        names.iter().map(|name| day(*name)).collect()
    }

    fn clock(&mut self, path: &str, text: &str, is_end: bool) -> Option<Clock> {
        let clock = Clock::parse(text).filter(|c| is_end || c.minutes() < 24 * 60);
        if clock.is_none() {
            let instead = match suggestion::clock(text).filter(|meant| meant != text) {
                Some(meant) => quoted(&meant),
                None if is_end => "\"00:00\" to \"23:59\", or \"24:00\"".into(),
                None => "\"00:00\" to \"23:59\"".into(),
            };
            self.problem(path, quoted(text), "must be HH:MM on the 24-hour clock", &instead);
        }
        clock
    }

    fn exclusions(&mut self, given: &[ExclusionSpec]) -> Vec<Exclusion> {
        let path = "spec.exclusions";
        if given.len() > 64 {
            self.problem(
                path,
                format!("{} exclusions", given.len()),
                "at most 64 are allowed",
                "fewer, for example without the past ones",
            );
        }
        given.iter().enumerate().filter_map(|(i, one)| self.exclusion(&format!("{path}[{i}]"), one)).collect()
    }

    fn exclusion(&mut self, path: &str, given: &ExclusionSpec) -> Option<Exclusion> {
        let name = given.name.clone().unwrap_or_default();
        if name.chars().count() > 253 {
            self.problem(
                format!("{path}.name"),
                format!("{} characters", name.chars().count()),
                "at most 253 are allowed",
                "a shorter name",
            );
        }
        let zone = self.zone(&format!("{path}.timezone"), &given.timezone);
        let from = self.moment(&format!("{path}.from"), &given.from);
        let until = self.moment(&format!("{path}.until"), &given.until);
        let (from, until) = (from?, until?);
        if from.beginning() >= until.ending() {
            let why = "must be later than \"from\" (a date includes the whole day)";
            self.problem(format!("{path}.until"), quoted(&given.until), why, "a later date or date-time");
            return None;
        }
        Exclusion::new(name, &zone?, from, until)
    }

    fn moment(&mut self, path: &str, text: &str) -> Option<Moment> {
        let moment = Moment::parse(text);
        if moment.is_none() {
            let why = "must be a date or a local date-time from 2000 to 2099, without an offset (timezone gives the time zone)";
            let meant = suggestion::moment(text).map(|meant| quoted(&meant));
            self.problem(path, quoted(text), why, meant.as_deref().unwrap_or("\"2026-12-26\" or \"2026-12-26T22:00\""));
        }
        moment
    }

    fn surge(&mut self, given: &SurgeSpec) -> Surge {
        let at = |field: &str| format!("spec.surge.{field}");
        if given.max_unavailable != 1 {
            self.problem(
                at("maxUnavailable"),
                given.max_unavailable,
                "must be 1: v1alpha1 rotates one node of a NodePool at a time",
                "1",
            );
        }
        let cooldown_after = self.duration(&at("cooldownAfter"), &given.cooldown_after, true);
        let required = self.label_keys(&at("matchNodeRequirements.required"), &given.match_node_requirements.required);
        let preferred =
            self.label_keys(&at("matchNodeRequirements.preferred"), &given.match_node_requirements.preferred);
        let optional = |reader: &mut Self, field: &str, text: &Option<String>| {
            text.as_ref().map(|text| reader.duration(&at(field), text, false))
        };
        Surge {
            ready_timeout: self.duration(&at("readyTimeout"), &given.ready_timeout, false),
            cooldown_after,
            failure_pause: optional(self, "failurePause", &given.failure_pause)
                .unwrap_or_else(|| cooldown_after.max(SignedDuration::from_mins(10))),
            retry_backoff: self.duration(&at("retryBackoff"), &given.retry_backoff, false),
            drain_estimate: optional(self, "drainEstimate", &given.drain_estimate),
            provisioning_estimate: optional(self, "provisioningEstimate", &given.provisioning_estimate),
            preferred: preferred.into_iter().filter(|key| !required.contains(key)).collect(),
            required,
            forceful_fallback: given.forceful_fallback.enabled,
            whole_node_reservation: given.whole_node_reservation.enabled,
            nomination: given.nomination.enabled,
        }
    }

    fn duration(&mut self, path: &str, text: &str, may_be_zero: bool) -> SignedDuration {
        match policy_duration(text) {
            Some(d) if d.is_positive() || (may_be_zero && d.is_zero()) => d,
            _ => {
                let why = if may_be_zero { "must be a Go duration, or 0s" } else { "must be a Go duration above zero" };
                let instead =
                    in_hours(text).unwrap_or_else(|| "a value such as 15m or 1h30m (there is no unit for days)".into());
                self.problem(path, quoted(text), why, &instead);
                SignedDuration::ZERO
            }
        }
    }

    fn label_keys(&mut self, path: &str, given: &[String]) -> Vec<String> {
        if given.len() > 16 {
            self.problem(path, format!("{} keys", given.len()), "at most 16 are allowed", "fewer");
        }
        for (i, key) in given.iter().enumerate() {
            if !is_label_key(key) {
                self.problem(format!("{path}[{i}]"), quoted(key), "must be a label key", keys::ZONE);
            } else if given.iter().take(i).any(|earlier| earlier == key) {
                self.problem(format!("{path}[{i}]"), quoted(key), "is listed more than once", "each key once");
            }
        }
        given.to_vec()
    }
}

fn day(name: DayName) -> Day {
    match name {
        DayName::Mon => Day::Mon,
        DayName::Tue => Day::Tue,
        DayName::Wed => Day::Wed,
        DayName::Thu => Day::Thu,
        DayName::Fri => Day::Fri,
        DayName::Sat => Day::Sat,
        DayName::Sun => Day::Sun,
    }
}

/// Parses a duration as the CRD's rule allows it: a Go duration without a sign, with so few digits that the API server's
/// own parser cannot overflow.
fn policy_duration(text: &str) -> Option<SignedDuration> {
    if text.len() > 32 {
        return None;
    }
    let mut digits = (0, 0, false); // before the point, after it, whether a point was seen
    let mut unit = String::new();
    let mut components = Vec::new();
    for c in text.chars() {
        match c {
            '0'..='9' | '.' if !unit.is_empty() => {
                components.push((digits, std::mem::take(&mut unit)));
                digits = if c == '.' { return None } else { (1, 0, false) };
            }
            '0'..='9' if digits.2 => digits.1 += 1,
            '0'..='9' => digits.0 += 1,
            '.' if digits.0 > 0 && !digits.2 => digits.2 = true,
            'a'..='z' => unit.push(c),
            _ => return None,
        }
    }
    if text != "0" {
        components.push((digits, unit));
    }
    let fits = |((whole, fraction, point), unit): &((usize, usize, bool), String)| {
        let most = match unit.as_str() {
            "h" => 5,
            "m" => 7,
            "s" | "ms" | "us" | "ns" => 9,
            _ => return false,
        };
        (1..=most).contains(whole) && (*point == (1..=9).contains(fraction))
    };
    if components.iter().all(fits) { duration::parse(text) } else { None }
}

/// What to write instead of `10d` or `1d12h`, because Go durations have no unit for days.
fn in_hours(text: &str) -> Option<String> {
    let (days, rest) = text.split_once('d')?;
    let days: i64 = days.parse().ok().filter(|d| (0..=4000).contains(d))?;
    let rest = if rest.is_empty() { SignedDuration::ZERO } else { duration::parse(rest)? };
    let hours = days * 24 + rest.as_hours();
    let minutes = rest.as_mins() % 60;
    Some(if minutes == 0 { format!("{hours}h") } else { format!("{hours}h{minutes}m") })
}
