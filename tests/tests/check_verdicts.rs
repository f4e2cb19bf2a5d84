//! `check` refuses what the API server refuses, and nothing else, wherever one object decides (§14): a corpus of policies and
//! NodePools, each with a slip that people make, or none, is given to both. The API server has Karpenter's definitions, the
//! chart's, and its webhooks.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use noderotation_tests::Product;
use noderotation_tests::ask::Asker;
use noderotation_tests::product::binary;
use serde_json::{Value, json};

/// What is changed, and the manifest.
type Corpus = Vec<(String, Value)>;

fn policy() -> Value {
    json!({
        "apiVersion": "noderotation.io/v1alpha1", "kind": "RotationPolicy", "metadata": {"name": "api"},
        "spec": {
            "nodePoolSelector": {"matchLabels": {"workload": "api"}},
            "maintenanceWindows": [{"timezone": "Asia/Tokyo", "days": ["Wed", "Sat"], "start": "02:00", "end": "06:00"}],
            "exclusions": [{"timezone": "Asia/Tokyo", "from": "2026-12-26", "until": "2027-01-04"}],
            "surge": {"readyTimeout": "15m", "cooldownAfter": "10m"},
        },
    })
}

fn pool() -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "api", "labels": {"workload": "api"}},
        "spec": {
            "template": {
                "metadata": {"labels": {"team": "a"}},
                "spec": {
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                    "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}],
                    "expireAfter": "336h",
                    "terminationGracePeriod": "1h",
                },
            },
            "limits": {"cpu": "100"},
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "1m"},
        },
    })
}

/// A manifest with the value at a JSON pointer set, or, for null, removed.
fn with(mut manifest: Value, pointer: &str, value: Value) -> Value {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let at = manifest.pointer_mut(parent).unwrap_or_else(|| panic!("{pointer}"));
    match (at, value) {
        (Value::Array(items), value) => items[field.parse::<usize>().unwrap()] = value,
        (at, Value::Null) => {
            at.as_object_mut().unwrap().remove(field);
        }
        (at, value) => at[field] = value,
    }
    manifest
}

fn variants(base: &Value, pointer: &str, values: impl IntoIterator<Item = Value>, corpus: &mut Corpus) {
    for value in values {
        corpus.push((format!("{pointer} = {value}"), with(base.clone(), pointer, value)));
    }
}

fn texts<const N: usize>(texts: [&str; N]) -> Vec<Value> {
    texts.into_iter().map(Value::from).collect()
}

const DURATIONS: [&str; 16] =
    ["90s", "15m", "2h", "1h30m", "1.5h", "1500ms", "0", "0s", "-1m", "+1h", "2d", "1 h", "", "soon", "1H", "Never"];

fn policies() -> Corpus {
    let base = policy();
    let mut corpus = vec![("nothing".into(), base.clone())];
    let mut add = |pointer: &str, values: Vec<Value>| variants(&base, pointer, values, &mut corpus);
    add("/apiVersion", texts(["noderotation.io/v1", "noderotation.io/v1beta1"]));
    add("/metadata/name", texts(["Web_Pool", "web.pool", "-web", "web-", "a..b", "é"]));
    for field in
        ["readyTimeout", "retryBackoff", "failurePause", "cooldownAfter", "drainEstimate", "provisioningEstimate"]
    {
        add(&format!("/spec/surge/{field}"), texts(DURATIONS));
    }
    add("/spec/ageThreshold", texts(DURATIONS));
    add("/spec/ageThreshold", texts(["auto", "Auto"]));
    add(
        "/spec/minRotationChances",
        vec![json!(1), json!(0), json!(-1), json!("2"), json!(1.5), json!(52), json!(100_000)],
    );
    add("/spec/suspend", vec![json!(true), json!("true"), json!(0)]);
    let days =
        [json!([]), json!(["Mon"]), json!(["Monday"]), json!(["mon"]), json!(["Mon", "Mon"]), json!("Mon"), json!([1])];
    add("/spec/maintenanceWindows/0/days", days.to_vec());
    add("/spec/maintenanceWindows/0/start", texts(["00:00", "2:00", "02:60", "24:00", "6pm", "06:00", "02:00:00"]));
    add("/spec/maintenanceWindows/0/end", texts(["24:00", "24:01", "02:00", "01:00", "6:00", "noon"]));
    add(
        "/spec/maintenanceWindows/0/timezone",
        texts(["UTC", "JST", "EST", "Asia/tokyo", "+09:00", "Local", "", "Mars/Olympus"]),
    );
    add("/spec/maintenanceWindows/0/timezone", vec![json!(9)]);
    add("/spec/maintenanceWindows", vec![json!([]), Value::Null, json!({}), json!("daily")]);
    add(
        "/spec/nodePoolSelector",
        vec![
            Value::Null,
            json!({}),
            json!("api"),
            json!({"matchLabels": {"a b": "c"}}),
            json!({"matchLabels": {"a": 1}}),
        ],
    );
    add(
        "/spec/exclusions/0/from",
        texts(["2026-12-26T22:00", "2026-12-26T18:00:00Z", "2026-02-30", "26.12.2026", "2027-02-01", ""]),
    );
    add("/spec/exclusions/0/until", texts(["2026-12-26", "2026-12-25", "tomorrow"]));
    add("/spec/exclusions/0/timezone", texts(["JST", "Europe/Berlin"]));
    add("/spec/exclusions", vec![json!([]), Value::Null, json!({})]);
    add(
        "/spec/surge",
        vec![json!({}), Value::Null, json!([]), json!({"readyTimeOut": "5m"}), json!({"maxUnavailable": 2})],
    );
    add("/spec/schedule", texts(["0 2 * * 6"]));
    add("/spec", vec![Value::Null, json!({}), json!([])]);
    corpus
}

fn pools() -> Corpus {
    let base = pool();
    let mut corpus = vec![("nothing".into(), base.clone())];
    let mut add = |pointer: &str, values: Vec<Value>| variants(&base, pointer, values, &mut corpus);
    add("/apiVersion", texts(["karpenter.sh/v1beta1", "karpenter.sh/v1alpha5"]));
    add("/metadata/name", texts(["Web_Pool", "web.pool", "-web", "a..b"]));
    for field in ["expireAfter", "terminationGracePeriod"] {
        add(&format!("/spec/template/spec/{field}"), texts(DURATIONS));
        add(&format!("/spec/template/spec/{field}"), vec![Value::Null, json!(720)]);
    }
    add("/spec/disruption/expireAfter", texts(["720h"]));
    add("/spec/replicas", vec![json!(0), json!(-1), json!("2")]);
    add(
        "/spec/limits",
        vec![
            Value::Null,
            json!({"cpu": "many"}),
            json!({"cpu": 100}),
            json!({"memory": "100Gi"}),
            json!({"memory": "100GiB"}),
            json!([]),
        ],
    );
    add(
        "/metadata/annotations",
        vec![
            json!({"noderotation.io/freeze": "2099-01-01T00:00:00Z"}),
            json!({"noderotation.io/freeze": "72h"}),
            json!({"noderotation.io/freeze": "next week"}),
            json!({"noderotation.io/active-rotation": "x"}),
        ],
    );
    add("/spec/template/metadata/labels", vec![json!({"noderotation.io/team": "a"}), json!({})]);
    add("/metadata/labels", vec![json!({"a b": "c"}), json!({"a": "c d"}), json!({})]);
    corpus
}

/// The collection to which a manifest is sent, as kubectl reads it off its version and kind.
fn collection(manifest: &Value) -> String {
    let plural = if manifest["kind"] == "NodePool" { "nodepools" } else { "rotationpolicies" };
    format!("/apis/{}/{plural}?dryRun=All&fieldValidation=Strict", manifest["apiVersion"].as_str().unwrap())
}

/// Whether `check` refuses a manifest, and what it says.
fn check(program: &Path, manifest: &Value) -> (bool, String) {
    let mut child = Command::new(program)
        .args(["check", "--fail-on", "refuse", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(manifest.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (!output.status.success(), String::from_utf8(said).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn check_and_the_api_server_say_the_same_of_a_corpus() {
    let product = Product::install_bare_with_webhook(false, &[]).await.unwrap();
    let admin = Asker::admin(&product.rig);
    let program = binary("kubectl-noderotation").unwrap();
    let corpus = [policies(), pools()].concat();
    assert!(corpus.len() >= 200, "{}", corpus.len());
    let (mut wrong, mut refused) = (Vec::new(), 0);
    for (what, manifest) in &corpus {
        let reply = admin.create(&collection(manifest), manifest).await;
        let server = !matches!(reply.code, 200 | 201);
        refused += usize::from(server);
        let (ours, said) = check(&program, manifest);
        if ours != server {
            let kind = manifest["kind"].as_str().unwrap();
            wrong.push(format!("{kind}: {what}: the server: {} {}; check: {said}", reply.code, reply.message()));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), corpus.len(), wrong.join("\n"));
    assert!(refused > corpus.len() / 3 && refused < corpus.len(), "{refused} of {} are refused", corpus.len());
    println!("{} manifests, {refused} of them refused by both", corpus.len());
}
