//! Compares windows, derived values, findings and due times with test vectors of another implementation (`tests/vectors/`).
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use std::collections::BTreeSet;
use std::path::PathBuf;

use jiff::Timestamp;
use noderotation_shared::api::RotationPolicySpec;
use noderotation_shared::feasibility::{self, Cadence, Code, Finding, PoolFacts};
use noderotation_shared::policy::Policy;
use noderotation_shared::selection::{self, Candidate, RotationState};
use noderotation_shared::{duration, instant};
use serde_json::{Value, json};

fn vectors(file: &str) -> Vec<Value> {
    let folder = std::env::var_os("NODEROTATION_VECTORS")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vectors")), PathBuf::from);
    let path = folder.join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() >= 50, "{} holds only {} lines", path.display(), lines.len());
    lines
}

fn at(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

fn policy(spec: &Value) -> Policy {
    let typed: RotationPolicySpec = serde_json::from_value(spec.clone()).unwrap();
    Policy::try_from(&typed).unwrap_or_else(|e| panic!("{spec}: {e}"))
}

/// The other implementation refused to simulate lines whose provisioning exceeds `readyTimeout`; they have derived values
/// only.
fn was_simulated(line: &Value) -> bool {
    !line["diagnostics"].as_array().unwrap().contains(&json!("EnvProvisioningAboveReadyTimeout"))
}

#[test]
fn windows_open_when_they_should() {
    for line in vectors("windows.jsonl") {
        let policy = policy(&json!({"nodePoolSelector": {}, "maintenanceWindows": line["windows"]}));
        let (start, end) = (at(&line["start"]), at(&line["end"]));
        let expected: Vec<(Timestamp, Timestamp)> =
            line["opensIn"].as_array().unwrap().iter().map(|o| (at(&o[0]), at(&o[1]))).collect();
        let got: Vec<_> = policy
            .schedule
            .occurrences(start)
            .take_while(|o| o.open < end)
            .filter(|o| o.open >= start)
            .map(|o| (o.open, o.close))
            .collect();
        assert_eq!(got, expected, "{}", line["id"]);
    }
}

#[test]
fn derived_values_findings_and_due_times_agree() {
    for line in vectors("forecast.jsonl") {
        let id = line["id"].as_str().unwrap();
        let policy = policy(&line["policy"]);
        let fleet = &line["pool"]["fleet"];
        let optional = |v: &Value| v.as_str().map(|t| duration::parse(t).unwrap());
        let expire_after = optional(&fleet["expireAfter"]);
        let tgp = optional(&fleet["terminationGracePeriod"]);
        let nodes = fleet["nodes"].as_array().unwrap();
        let start = at(&line["pool"]["options"]["start"]);
        let pool = PoolFacts {
            expire_after,
            termination_grace_period: tgp,
            claims: i64::try_from(nodes.len()).unwrap(),
            is_auto_mode: true,
        };
        let cadence = Cadence::of(&policy, start);
        let derived = feasibility::derive(&policy, &cadence, &pool);
        let want = &line["derived"];
        let text = |d: jiff::SignedDuration| Value::from(duration::format(d));
        assert_eq!(text(derived.age_threshold.unwrap()), want["ageThreshold"], "{id} A");
        assert_eq!(text(derived.rotation_bound), want["tRot"], "{id} t_rot");
        assert_eq!(text(derived.rotation_estimate), want["tRotEstimate"], "{id} t_rot_est");
        assert_eq!(text(derived.drain_estimate), want["drainEstimate"], "{id} drain");
        assert_eq!(text(derived.provisioning_estimate), want["provisioningEstimate"], "{id} provisioning");
        assert_eq!(json!(derived.guaranteed_chances), want["g"], "{id} G");
        assert_eq!(json!(derived.starts_per_window), want["c"], "{id} C");
        assert_eq!(text(derived.window_period), want["p"], "{id} P");
        if let Some(d) = derived.window_length {
            assert_eq!(text(d), want["windowLen"], "{id} D");
        }

        // the vectors come from a program that does not have every one of our findings
        let is_theirs = |finding: &Finding| finding.code != Code::DrainMayOutlastWindow;
        let found = feasibility::findings(&policy, &cadence, &pool, []).into_iter().filter(is_theirs);
        let found: BTreeSet<String> = found.map(|f| f.code.to_string()).collect();
        let expected: BTreeSet<String> =
            line["findings"].as_array().unwrap().iter().map(|f| f.as_str().unwrap().to_owned()).collect();
        assert_eq!(found, expected, "{id} findings");

        for node in nodes.iter().filter(|_| was_simulated(&line)) {
            let name = node["name"].as_str().unwrap();
            let candidate = Candidate {
                name,
                created: at(&node["createdAt"]),
                expire_after: optional(&node["expireAfter"]).or(expire_after),
                termination_grace_period: tgp,
                ready: true,
                disrupting: false,
                deleting: false,
                state: RotationState::Empty,
                failed_at: None,
                retry_count: 1,
                request: None,
                node: None,
            };
            let expected = at(&line["eligibleAfter"][name]);
            let eligibilities = selection::assess(&policy, &cadence, &candidate, expected);
            assert_eq!(eligibilities.due_at.map(instant::whole_seconds), Some(expected), "{id} {name}");
            assert!(!eligibilities.due, "{id} {name}: due only after the instant");
        }
    }
}

#[test]
fn window_lists_of_the_forecasts_agree() {
    for line in vectors("forecast.jsonl").iter().filter(|line| was_simulated(line)) {
        let policy = policy(&line["policy"]);
        let (start, end) = (at(&line["pool"]["options"]["start"]), at(&line["pool"]["options"]["end"]));
        let got: Vec<_> = policy
            .schedule
            .occurrences(start)
            .take_while(|o| o.open < end)
            // the vectors contain only occurrences that lie fully in the simulated time
            .filter(|o| o.open >= start && o.close <= end)
            .map(|o| json!([o.open.to_string(), o.close.to_string()]))
            .collect();
        let expected: Vec<Value> = line["windows"].as_array().unwrap().clone();
        assert_eq!(got, expected, "{}", line["id"]);
    }
}
