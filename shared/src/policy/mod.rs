//! Policy text becomes a [`Policy`] once; afterwards nothing is optional or unparsed (§3).
//!
//! [`Policy::try_from`] collects *every* problem with its field path. It says the same as the CRD's schema and CEL
//! rules; `tests/` holds the table that both must agree on.

mod selector;

pub use selector::{PoolSelector, is_label_key, is_label_value};

use jiff::SignedDuration;
use serde_json::Value;

use crate::api::{
    DayName, ExclusionSpec, MaintenanceWindow, RotationPolicySpec, SurgeSpec, sound_parts, structural_problems,
};
use crate::field_error::{FieldError, FieldErrors, quoted};
use crate::schedule::{Clock, Day, Entry, Exclusion, Moment, Schedule};
use crate::{duration, keys, zone};
use selector::selector_problems;

/// A RotationPolicy whose every field has been read and found right.
#[derive(Clone, Debug)]
pub struct Policy {
    /// When a node is due.
    pub threshold: Threshold,
    /// `K`, at least 1.
    pub chances: i64,
    /// When rotations may start.
    pub schedule: Schedule,
    /// The exclusions with their names, for display; the schedule has them already.
    pub exclusions: Vec<Exclusion>,
    /// Holds every governed pool.
    pub suspend: bool,
    /// Surge settings.
    pub surge: Surge,
    /// What is right but likely not meant.
    pub warnings: Vec<FieldError>,
}

/// When a node is due (§7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// Early enough for `K` chances.
    Auto,
    /// At this age.
    Override(SignedDuration),
}

/// Surge settings, defaults of §3 filled in; what depends on the pool stays optional.
#[derive(Clone, Debug)]
pub struct Surge {
    /// From `started-at` to rollback.
    pub ready_timeout: SignedDuration,
    /// Gate A.
    pub cooldown_after: SignedDuration,
    /// Gate B: as given, or `max(10m, cooldownAfter)`.
    pub failure_pause: SignedDuration,
    /// The first backoff of a claim.
    pub retry_backoff: SignedDuration,
    /// As given; otherwise `min(tGP, 10m)`.
    pub drain_estimate: Option<SignedDuration>,
    /// As given; otherwise `min(readyTimeout, 5m)`.
    pub provisioning_estimate: Option<SignedDuration>,
    /// Label keys that must agree.
    pub required: Vec<String>,
    /// Label keys that should agree; none that is also required.
    pub preferred: Vec<String>,
    /// §9.6.
    pub forceful_fallback: bool,
    /// §9.3.
    pub whole_node_reservation: bool,
    /// §12.
    pub nomination: bool,
}

impl Policy {
    /// Reads the `spec` of an object of whatever shape: structure first, then meaning.
    pub fn from_json(spec: &Value) -> Result<Self, FieldErrors> {
        let mut problems = structural_problems(spec);
        let read = if problems.is_empty() { without_nulls(spec) } else { sound_parts(spec) };
        let meaning = match serde_json::from_value::<RotationPolicySpec>(read) {
            Ok(typed) => Self::try_from(&typed),
            Err(error) => {
                Err(FieldErrors(vec![FieldError::new("spec", "", error.to_string(), "a RotationPolicy's spec")]))
            }
        };
        match meaning {
            Ok(policy) if problems.is_empty() => return Ok(policy),
            Ok(_) => {}
            Err(more) => {
                let structure: Vec<String> = problems.iter().map(|p| p.path.clone()).collect();
                let is_told = |path: &str| {
                    structure.iter().any(|told| {
                        path.strip_prefix(told.as_str())
                            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
                    })
                };
                problems.extend(more.0.into_iter().filter(|problem| !is_told(&problem.path)));
            }
        }
        Err(FieldErrors(problems))
    }
}

/// A `null` stands for an absent field, as the API server sees it.
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

/// Reads fields and remembers what is wrong with them; a field that cannot be read yields a stand-in, which never
/// leaves this module because a problem was recorded.
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
                let why = "must be auto or a Go duration above zero; there is no unit for days";
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
            self.problem(path, number, "a node needs at least one chance", "1 or more; 2 is the default");
        }
        i64::from(number.max(1))
    }

    fn windows(&mut self, windows: &[MaintenanceWindow]) -> Vec<Entry> {
        let path = "spec.maintenanceWindows";
        if windows.is_empty() {
            self.problem(path, "[]", "without a window nothing ever rotates", "at least one window");
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
            let why = "start and end are equal, which is no time at all";
            self.problem(format!("{path}.end"), quoted(&window.end), why, "\"00:00\" and \"24:00\" for the whole day");
            return None;
        }
        Some(Entry::new(zone?, &days, start, end))
    }

    fn zone(&mut self, path: &str, name: &str) -> Option<jiff::tz::TimeZone> {
        match zone::find(name) {
            Ok(found) => {
                if let Some(why) = zone::inverted_sign(name)
                    && !self.warnings.iter().any(|w| w.path == path)
                {
                    self.warnings.push(FieldError::new(path, quoted(name), why, "the name of a city's zone"));
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
                "a window that opens on no day never opens",
                "one or more of Mon, Tue, Wed, Thu, Fri, Sat, Sun",
            );
        }
        for (i, name) in names.iter().enumerate() {
            if names.iter().take(i).any(|earlier| earlier == name) {
                self.problem(format!("{path}[{i}]"), format!("\"{name:?}\""), "stands there twice", "each day once");
            }
        }
        names.iter().map(|name| day(*name)).collect()
    }

    fn clock(&mut self, path: &str, text: &str, is_end: bool) -> Option<Clock> {
        let clock = Clock::parse(text).filter(|c| is_end || c.minutes() < 24 * 60);
        if clock.is_none() {
            let instead = match text.split_once(':') {
                Some((hours, minutes)) if hours.len() == 1 && Clock::parse(&format!("0{text}")).is_some() => {
                    format!("\"0{hours}:{minutes}\"")
                }
                _ if is_end => "\"00:00\" to \"23:59\", or \"24:00\"".into(),
                _ => "\"00:00\" to \"23:59\"".into(),
            };
            self.problem(path, quoted(text), "must be HH:MM by the 24-hour clock", &instead);
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
                "fewer; remove the past ones",
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
            let why = "must be later than from (a date counts in full)";
            self.problem(format!("{path}.until"), quoted(&given.until), why, "a date or date-time after from");
            return None;
        }
        Exclusion::new(name, &zone?, from, until)
    }

    fn moment(&mut self, path: &str, text: &str) -> Option<Moment> {
        let moment = Moment::parse(text);
        if moment.is_none() {
            let why = "must be a date or a local date-time of the years 2000 to 2099; the time zone stands in timezone";
            self.problem(path, quoted(text), why, "\"2026-12-26\" or \"2026-12-26T22:00\"");
        }
        moment
    }

    fn surge(&mut self, given: &SurgeSpec) -> Surge {
        let at = |field: &str| format!("spec.surge.{field}");
        if given.max_unavailable != 1 {
            self.problem(
                at("maxUnavailable"),
                given.max_unavailable,
                "v1alpha1 rotates one node of a pool at a time",
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

    fn duration(&mut self, path: &str, text: &str, zero_too: bool) -> SignedDuration {
        match policy_duration(text) {
            Some(d) if d.is_positive() || (zero_too && d.is_zero()) => d,
            _ => {
                let why = if zero_too { "must be a Go duration, or 0s" } else { "must be a Go duration above zero" };
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
                self.problem(format!("{path}[{i}]"), quoted(key), "stands there twice", "each key once");
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

/// A duration as the CRD's rule allows it: a Go duration without a sign, each number with at most so many digits
/// that the API server's own reading cannot overflow.
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

/// `10d` or `1d12h` → what to write instead, since Go durations have no days.
fn in_hours(text: &str) -> Option<String> {
    let (days, rest) = text.split_once('d')?;
    let days: i64 = days.parse().ok().filter(|d| (0..=4000).contains(d))?;
    let rest = if rest.is_empty() { SignedDuration::ZERO } else { duration::parse(rest)? };
    let hours = days * 24 + rest.as_hours();
    let minutes = rest.as_mins() % 60;
    Some(if minutes == 0 { format!("{hours}h") } else { format!("{hours}h{minutes}m") })
}
