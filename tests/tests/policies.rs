//! The API server, that of every Kubernetes which the chart supports, and `Policy::from_json` must give the same verdict on
//! every policy (§3), and what was stored before a rule existed can still be labelled, told its status and deleted.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::too_many_lines,
    clippy::unreadable_literal,
    missing_docs
)]

use noderotation_rig::validator::{self, KUBERNETES_MINORS};
use noderotation_rig::{Options, Rig, repository};
use noderotation_shared::policy::Policy;
use noderotation_tests::stored::store_before_the_rules;
use noderotation_tests::world::PATIENCE;
use serde_json::{Value, json};

const POLICIES: &str = "/apis/noderotation.io/v1alpha1/rotationpolicies";
const CRD_FILE: &str = "charts/noderotation/files/rotationpolicies.noderotation.io.yaml";

fn base() -> Value {
    json!({
        "nodePoolSelector": {"matchLabels": {"workload": "api"}},
        "maintenanceWindows": [{"timezone": "Asia/Tokyo", "days": ["Wed", "Sat"], "start": "02:00", "end": "06:00"}],
    })
}

/// `base()` with the value at a JSON pointer replaced (or, for null with `-`, removed).
fn with(pointer: &str, value: Value) -> Value {
    let mut spec = base();
    let mut at = &mut spec;
    let mut parts: Vec<&str> = pointer.trim_start_matches('/').split('/').collect();
    let last = parts.pop().unwrap();
    for part in parts {
        at = match at {
            Value::Array(items) => &mut items[part.parse::<usize>().unwrap()],
            other => &mut other[part],
        };
    }
    match at {
        Value::Array(items) => items[last.parse::<usize>().unwrap()] = value,
        other => other[last] = value,
    }
    spec
}

fn without(field: &str) -> Value {
    let mut spec = base();
    spec.as_object_mut().unwrap().remove(field);
    spec
}

fn window_without(field: &str) -> Value {
    let mut spec = base();
    spec["maintenanceWindows"][0].as_object_mut().unwrap().remove(field);
    spec
}

fn exclusion(from: &str, until: &str) -> Value {
    with("/exclusions", json!([{"timezone": "Europe/Berlin", "from": from, "until": until}]))
}

/// Every case: a name, whether the spec is valid, the spec.
fn table() -> Vec<(String, bool, Value)> {
    let mut t: Vec<(String, bool, Value)> = Vec::new();
    let mut add = |name: &str, good: bool, spec: Value| t.push((name.to_owned(), good, spec));
    add("base", true, base());
    add("catch-all", true, with("/nodePoolSelector", json!({})));
    add("no selector", false, without("nodePoolSelector"));
    add("selector is text", false, with("/nodePoolSelector", json!("api")));
    add(
        "expressions",
        true,
        with(
            "/nodePoolSelector",
            json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["x"]}, {"key": "b.example/c", "operator": "Exists"}]}),
        ),
    );
    add(
        "operator In without values",
        false,
        with("/nodePoolSelector", json!({"matchExpressions": [{"key": "a", "operator": "In"}]})),
    );
    add(
        "operator Exists with values",
        false,
        with("/nodePoolSelector", json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]})),
    );
    add(
        "unknown operator",
        false,
        with("/nodePoolSelector", json!({"matchExpressions": [{"key": "a", "operator": "Has"}]})),
    );
    add(
        "expression without an operator",
        false,
        with("/nodePoolSelector", json!({"matchExpressions": [{"key": "a", "values": ["x"]}]})),
    );
    add(
        "operator is a number",
        false,
        with("/nodePoolSelector", json!({"matchExpressions": [{"key": "a", "operator": 1}]})),
    );
    // the longest prefix has 253 characters, the longest name 63
    let prefix = ["a".repeat(63).as_str(); 4].join(".")[..253].to_owned();
    for (what, key, good) in [
        ("with the longest prefix", format!("{prefix}/k"), true),
        ("with too long a prefix", format!("{prefix}a/k"), false),
        ("with the longest name", format!("example.com/{}", "k".repeat(63)), true),
        ("with too long a name", format!("example.com/{}", "k".repeat(64)), false),
        ("of three parts", "example.com/k/k".to_owned(), false),
        ("without a name", "example.com/".to_owned(), false),
        ("without a prefix before the slash", "/k".to_owned(), false),
        ("ending with a dot", "k.".to_owned(), false),
    ] {
        add(&format!("label key {what}"), good, with("/nodePoolSelector", json!({"matchLabels": {key.as_str(): "x"}})));
        let expression = json!({"matchExpressions": [{"key": key, "operator": "Exists"}]});
        add(&format!("expression's key {what}"), good, with("/nodePoolSelector", expression));
        add(
            &format!("required key {what}"),
            good,
            with("/surge", json!({"matchNodeRequirements": {"required": [key]}})),
        );
    }
    add("bad label key", false, with("/nodePoolSelector", json!({"matchLabels": {"-a": "x"}})));
    add("bad label prefix", false, with("/nodePoolSelector", json!({"matchLabels": {"Ex.Com/a": "x"}})));
    add("bad label value", false, with("/nodePoolSelector", json!({"matchLabels": {"a": "x y"}})));
    add("empty label value", true, with("/nodePoolSelector", json!({"matchLabels": {"a": ""}})));
    add("long label value", false, with("/nodePoolSelector", json!({"matchLabels": {"a": "x".repeat(64)}})));
    for (value, good) in [
        ("auto", true),
        ("240h", true),
        ("1h30m", true),
        ("0s", false),
        ("10d", false),
        ("-5h", false),
        ("Auto", false),
        ("", false),
        ("1.5h", true),
        ("5", false),
        ("999999h", false),
        ("1h 30m", false),
    ] {
        add(&format!("ageThreshold {value}"), good, with("/ageThreshold", json!(value)));
    }
    add("ageThreshold is a number", false, with("/ageThreshold", json!(240)));
    for (value, good) in [
        (json!(1), true),
        (json!(2), true),
        (json!(0), false),
        (json!(-1), false),
        (json!("2"), false),
        (json!(2_147_483_648i64), false),
        (json!(1.5), false),
    ] {
        add(&format!("minRotationChances {value}"), good, with("/minRotationChances", value));
    }
    add("no windows", false, without("maintenanceWindows"));
    add("empty windows", false, with("/maintenanceWindows", json!([])));
    add("windows is text", false, with("/maintenanceWindows", json!("Sat 02:00")));
    let window = base()["maintenanceWindows"][0].clone();
    add("64 windows", true, with("/maintenanceWindows", json!(vec![window.clone(); 64])));
    add("65 windows", false, with("/maintenanceWindows", json!(vec![window; 65])));
    for field in ["timezone", "days", "start", "end"] {
        add(&format!("window without {field}"), false, window_without(field));
    }
    for (zone, good) in [
        ("UTC", true),
        ("Europe/Berlin", true),
        ("America/Argentina/Buenos_Aires", true),
        ("Etc/GMT+9", true),
        ("EST5EDT", true),
        ("UTC+9", false),
        ("JST", false),
        ("Local", false),
        ("Factory", false),
        ("", false),
        ("+09:00", false),
        ("asia/tokyo", false),
        ("Asia/Tokio", false),
        ("posixrules", false),
        ("Asia/Tokyo ", false),
        ("../Asia/Tokyo", false),
    ] {
        add(&format!("timezone {zone:?}"), good, with("/maintenanceWindows/0/timezone", json!(zone)));
    }
    for (days, good) in [
        (json!(["Mon"]), true),
        (json!(["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]), true),
        (json!([]), false),
        (json!(["Mon", "Mon"]), false),
        (json!(["Monday"]), false),
        (json!(["mon"]), false),
        (json!("Mon"), false),
        (json!([1]), false),
    ] {
        add(&format!("days {days}"), good, with("/maintenanceWindows/0/days", days));
    }
    for (start, good) in [
        ("00:00", true),
        ("23:59", true),
        ("24:00", false),
        ("2:00", false),
        ("02:60", false),
        ("0200", false),
        ("02:00:00", false),
        ("06:00", false),
        ("", false),
    ] {
        add(&format!("start {start:?}"), good, with("/maintenanceWindows/0/start", json!(start)));
    }
    for (end, good) in
        [("24:00", true), ("01:00", true), ("02:00", false), ("24:01", false), ("6:00", false), ("00:00", true)]
    {
        add(&format!("end {end:?}"), good, with("/maintenanceWindows/0/end", json!(end)));
    }
    add("timezone is a number", false, with("/maintenanceWindows/0/timezone", json!(9)));
    add(
        "exclusion from a number",
        false,
        with("/exclusions", json!([{"timezone": "UTC", "from": 20261226, "until": "2026-12-28"}])),
    );
    add("required key is a number", false, with("/surge", json!({"matchNodeRequirements": {"required": [1]}})));
    add("label value is a number", false, with("/nodePoolSelector", json!({"matchLabels": {"a": 1}})));
    add("start is a number", false, with("/maintenanceWindows/0/start", json!(200)));
    for (from, until, good) in [
        ("2026-12-26", "2027-01-04", true),
        ("2026-12-26", "2026-12-26", true),
        ("2026-12-27", "2026-12-26", false),
        ("2026-12-26T22:00", "2026-12-27T06:00", true),
        ("2026-12-26T22:00", "2026-12-26T22:00", false),
        ("2026-12-26T22:00:30", "2026-12-26T22:00:31", true),
        ("2026-12-26T22:00", "2026-12-26", true),
        ("2026-12-26", "2026-12-26T00:00", false),
        ("2026-02-29", "2026-03-01", false),
        ("2028-02-29", "2028-03-01", true),
        ("2000-02-29", "2000-03-01", true),
        ("2030-02-29", "2030-03-01", false),
        ("2026-02-30", "2026-03-01", false),
        ("2026-06-31", "2026-07-01", false),
        ("2026-01-31T23:59:59", "2026-01-31", true),
        ("2026-12-26T23:59", "2026-12-26T23:59:30", true),
        ("2026-00-10", "2026-12-26", false),
        ("2026-10-00", "2026-12-26", false),
        ("2026-13-01", "2026-12-26", false),
        ("2026-04-31", "2026-05-01", false),
        ("26-12-2026", "2026-12-27", false),
        ("2026-12-26T24:00", "2026-12-28", false),
        ("2026-12-26T22:00Z", "2026-12-28", false),
        ("1999-12-31", "2026-01-01", false),
        ("2026-12-26 22:00", "2026-12-28", false),
        ("", "2026-12-28", false),
        ("2026-12-26T22:00:60", "2026-12-28", false),
    ] {
        add(&format!("exclusion {from} – {until}"), good, exclusion(from, until));
    }
    add("exclusion without a zone", false, with("/exclusions", json!([{"from": "2026-12-26", "until": "2026-12-27"}])));
    add(
        "exclusion in JST",
        false,
        with("/exclusions", json!([{"timezone": "JST", "from": "2026-12-26", "until": "2026-12-27"}])),
    );
    add(
        "exclusion with a name",
        true,
        with(
            "/exclusions",
            json!([{"name": "year-end", "timezone": "UTC", "from": "2026-12-26", "until": "2026-12-27"}]),
        ),
    );
    add("suspend", true, with("/suspend", json!(true)));
    add("suspend is text", false, with("/suspend", json!("true")));
    let surge = |field: &str, value: Value| with("/surge", json!({field: value}));
    for (value, good) in [(1, true), (2, false), (0, false)] {
        add(&format!("maxUnavailable {value}"), good, surge("maxUnavailable", json!(value)));
    }
    for field in ["readyTimeout", "retryBackoff", "failurePause", "drainEstimate", "provisioningEstimate"] {
        for (value, good) in [("90s", true), ("0s", false), ("-1m", false), ("soon", false)] {
            add(&format!("{field} {value}"), good, surge(field, json!(value)));
        }
    }
    for (value, good) in [("0", true), ("0s", true), ("10m", true), ("-1s", false), ("10", false), ("1d", false)] {
        add(&format!("cooldownAfter {value}"), good, surge("cooldownAfter", json!(value)));
    }
    let keys = |list: &str, keys: Value| surge("matchNodeRequirements", json!({list: keys}));
    for list in ["required", "preferred"] {
        add(&format!("{list} empty"), true, keys(list, json!([])));
        add(&format!("{list} twice"), false, keys(list, json!(["a", "a"])));
        add(&format!("{list} bad key"), false, keys(list, json!(["a b"])));
        add(&format!("{list} 17 keys"), false, keys(list, json!((0..17).map(|n| format!("k{n}")).collect::<Vec<_>>())));
    }
    for switch in ["forcefulFallback", "wholeNodeReservation", "nomination"] {
        add(&format!("{switch} on"), true, surge(switch, json!({"enabled": true})));
        add(&format!("{switch} is text"), false, surge(switch, json!({"enabled": "yes"})));
    }
    add("prePull off", true, with("/prePull", json!({"enabled": false})));
    add("prePull on", false, with("/prePull", json!({"enabled": true})));
    add("null optional fields", true, with("/surge", json!({"readyTimeout": null, "failurePause": null})));
    t
}

fn object(n: usize, spec: &Value) -> Value {
    json!({
        "apiVersion": "noderotation.io/v1alpha1", "kind": "RotationPolicy",
        "metadata": {"name": format!("p{n}"), "finalizers": ["example.com/stay"]}, "spec": spec,
    })
}

fn object_without_spec(n: usize) -> Value {
    let mut object = object(n, &json!({}));
    object.as_object_mut().unwrap().remove("spec");
    object
}

/// The bad objects of the table, and one without `spec`, with their names.
fn bad_objects() -> Vec<(String, Value)> {
    let bad = table().into_iter().filter(|(_, good, _)| !good);
    let mut objects: Vec<_> = bad.enumerate().map(|(n, (name, _, spec))| (name, object(n, &spec))).collect();
    objects.push(("no spec".to_owned(), object_without_spec(objects.len())));
    objects
}

/// The chart's CustomResourceDefinition, as YAML.
fn definition() -> String {
    std::fs::read_to_string(repository().join(CRD_FILE)).unwrap()
}

async fn rig() -> Rig {
    let rig = Rig::start(Options { bare: true, ..Options::default() }).await.unwrap();
    install_crd(&rig).await;
    rig
}

async fn install_crd(rig: &Rig) {
    let file = repository().join(CRD_FILE).display().to_string();
    rig.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", &file]).unwrap();
    rig.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"]).unwrap();
    // established is not yet served: wait for the rule that the last line of the schema makes
    rig.wait("the CRD's rules to hold", PATIENCE, async || {
        let bad = object(0, &with("/prePull", json!({"enabled": true})));
        let (code, _) = rig.send("POST", &format!("{POLICIES}?dryRun=All"), "application/json", &bad).await?;
        Ok((code == 422).then_some(()))
    })
    .await
    .unwrap();
}

/// Whether the API server accepts a spec, and its message. Unknown fields are an error, as for `kubectl`.
async fn server_says(rig: &Rig, spec: &Value) -> (bool, String) {
    let path = format!("{POLICIES}?dryRun=All&fieldValidation=Strict");
    let (code, answer) = rig.send("POST", &path, "application/json", &object(0, spec)).await.unwrap();
    (code == 200, answer["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn server_and_policy_give_the_same_verdict() {
    let rig = rig().await;
    let table = table();
    assert!(table.len() >= 80, "{}", table.len());
    let mut wrong = Vec::new();
    for (name, good, spec) in &table {
        let (server, message) = server_says(&rig, spec).await;
        let own = Policy::from_json(spec);
        if server != *good || own.is_ok() != *good {
            wrong.push(format!(
                "{name}: should be {good}; server {server} ({message}); ours {:?}",
                own.map(|_| ()).map_err(|e| e.to_string())
            ));
        }
    }
    for field in ["suspended", "windows"] {
        let spec = with(&format!("/{field}"), json!(true));
        let (server, _) = server_says(&rig, &spec).await;
        if server || Policy::from_json(&spec).is_ok() {
            wrong.push(format!("unknown field {field}"));
        }
    }
    let (code, answer) = rig.send("POST", POLICIES, "application/json", &object_without_spec(0)).await.unwrap();
    assert_eq!(code, 422, "{answer}");
    assert!(answer["message"].as_str().unwrap().contains("spec: Required value"), "{answer}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("{} policies, one verdict", table.len());
}

#[test]
fn every_kubernetes_gives_the_same_verdict() {
    let table = table();
    let mut writes: Vec<Value> = table.iter().map(|(_, _, spec)| validator::creation(&object(0, spec))).collect();
    writes.push(validator::creation(&object_without_spec(0)));
    for minor in KUBERNETES_MINORS {
        let answer = validator::ask(minor, &definition(), &writes).unwrap();
        let accepted: Vec<_> =
            answer.manifest.iter().map(|found| (found.kind.as_str(), found.errors.clone())).collect();
        assert_eq!(accepted, [("CustomResourceDefinition", vec![])], "1.{minor}");
        assert_eq!(answer.policies.len(), writes.len(), "1.{minor}");
        let without_spec = answer.policies.last().unwrap().join("; ");
        assert!(without_spec.contains("spec: Required value"), "1.{minor}: {without_spec}");
        for ((name, good, _), said) in table.iter().zip(&answer.policies) {
            assert_eq!(said.is_empty(), *good, "1.{minor}: {name}: {said:?}");
        }
    }
}

/// A validator must be able to refuse: the library `format` came with Kubernetes 1.32.
#[test]
fn an_old_kubernetes_refuses_a_rule_of_a_newer_one() {
    let rule = "oldSelf.hasValue() || has(self.spec)";
    let newer =
        definition().replace(rule, "oldSelf.hasValue() || !format.dns1123Label().validate(self.kind).hasValue()");
    assert_ne!(newer, definition());
    for (minor, refuses) in [(30, true), (31, true), (32, false), (36, false)] {
        let said = validator::ask(minor, &newer, &[]).unwrap().manifest[0].errors.join("; ");
        assert_eq!(said.contains("undeclared reference"), refuses, "1.{minor}: {said}");
    }
}

#[test]
fn no_kubernetes_locks_what_was_stored_before_the_rules() {
    let bad = bad_objects();
    let stored = |object: &Value, finalizers: Value| {
        let mut stored = object.clone();
        stored["metadata"]["resourceVersion"] = json!("1");
        stored["metadata"]["finalizers"] = finalizers;
        stored
    };
    let writes: Vec<Value> = bad
        .iter()
        .map(|(_, object)| validator::update(&stored(object, json!(["example.com/stay"])), &stored(object, json!([]))))
        .collect();
    for minor in KUBERNETES_MINORS {
        let answer = validator::ask(minor, &definition(), &writes).unwrap();
        assert_eq!(answer.policies.len(), bad.len(), "1.{minor}");
        for ((name, _), said) in bad.iter().zip(&answer.policies) {
            assert!(said.is_empty(), "1.{minor}: {name}: {said:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_stored_before_the_rules_is_not_locked() {
    let rig = rig().await;
    let bad = bad_objects();
    let objects: Vec<Value> = bad.iter().map(|(_, object)| object.clone()).collect();
    store_before_the_rules(&rig, &objects).await.unwrap();
    install_crd(&rig).await;

    let mut locked = Vec::new();
    for (n, (name, _)) in bad.iter().enumerate() {
        let path = format!("{POLICIES}/p{n}");
        let status = json!({"status": {"conditions": [{
            "type": "Ready", "status": "False", "reason": "Invalid", "message": "m", "lastTransitionTime": "2026-11-29T00:00:00Z",
        }]}});
        for (what, path, patch) in [
            ("labels", path.clone(), json!({"metadata": {"labels": {"a": "b"}}})),
            ("status", format!("{path}/status"), status),
            ("finalizer", path.clone(), json!({"metadata": {"finalizers": null}})),
        ] {
            let (code, answer) = rig.send("PATCH", &path, "application/merge-patch+json", &patch).await.unwrap();
            if code != 200 {
                locked.push(format!("{name}: {what}: {}", answer["message"]));
            }
        }
    }
    assert!(locked.is_empty(), "{} of {} are locked:\n{}", locked.len(), bad.len(), locked.join("\n"));
    println!("{} bad policies stored earlier, none locked", bad.len());
}
