//! What the values of the chart make of its alerts and its webhooks.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use noderotation_rig::{Options, Rig};
use noderotation_tests::product::{chart, documents};
use serde_json::{Value, json};

/// The objects of this template that the chart makes with these values.
fn rendered(rig: &Rig, template: &str, values: &str) -> Vec<Value> {
    let chart = chart();
    let flags = ["template", "noderotation", &chart, "--set", "prometheusRule.enabled=true", "--set", values];
    let text = rig.helm(&[&flags[..], &["--show-only", &format!("templates/{template}.yaml")]].concat()).unwrap();
    documents(&text).unwrap()
}

/// The alerts that the chart makes with these values.
fn alerts(rig: &Rig, values: &str) -> Vec<Value> {
    rendered(rig, "prometheusrule", values)[0]["spec"]["groups"][0]["rules"].as_array().unwrap().clone()
}

fn alert<'a>(alerts: &'a [Value], name: &str) -> &'a Value {
    alerts.iter().find(|alert| alert["alert"] == name).unwrap_or_else(|| panic!("no alert {name} in {alerts:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_alert_is_as_the_values_say() {
    let rig = Rig::start(Options { bare: true, ..Options::default() }).await.unwrap();
    let all = alerts(&rig, "webhook.enabled=true");
    let names: Vec<_> = all.iter().map(|alert| alert["alert"].as_str().unwrap()).collect();
    let expected = [
        "NodeRotationNoLeader",
        "NodeRotationPolicyConflict",
        "NodeRotationPoolBlocked",
        "NodeRotationWindowMissed",
        "NodeRotationFailed",
        "NodeRotationDrainStuck",
        "NodeRotationStaleWatch",
        "NodeRotationCertificateExpires",
    ];
    assert_eq!(names, expected);
    for alert in &all {
        assert_eq!(alert["labels"], json!({"severity": "warning"}), "{alert}");
        let part = alert["alert"].as_str().unwrap().to_lowercase();
        assert_eq!(alert["annotations"]["runbook_url"], format!("docs/troubleshooting.md#{part}"));
        assert!(alert["annotations"]["description"].as_str().is_some_and(|text| text.len() > 40), "{alert}");
    }
    assert_eq!(alert(&all, "NodeRotationNoLeader")["for"], "5m");
    assert_eq!(alert(&all, "NodeRotationFailed").get("for"), None);
    assert!(!alerts(&rig, "webhook.enabled=false").iter().any(|alert| alert["alert"] == expected[7]));

    let values = "prometheusRule.alertLabels.team=a,prometheusRule.severity=info,prometheusRule.runbookUrl=https://wiki.example/x";
    let changes = [
        "drainStuck.enabled=false",
        "noLeader.for=1m",
        "noLeader.severity=critical",
        "windowMissed.within=7d",
        "failed.above=2",
        "failed.for=10m",
        "certificateExpires.days=14",
    ];
    let changes = changes.map(|change| format!(",prometheusRule.alerts.{change}")).concat();
    let changed = alerts(&rig, &format!("{values}{changes}"));
    assert!(!changed.iter().any(|alert| alert["alert"] == "NodeRotationDrainStuck"));
    assert_eq!(changed.len(), 7);
    let leader = alert(&changed, "NodeRotationNoLeader");
    assert_eq!((&leader["for"], &leader["labels"]), (&json!("1m"), &json!({"severity": "critical", "team": "a"})));
    assert_eq!(leader["annotations"]["runbook_url"], "https://wiki.example/x#noderotationnoleader");
    assert_eq!(
        alert(&changed, "NodeRotationWindowMissed")["expr"],
        "increase(noderotation_window_missed_total[7d]) > 0"
    );
    let failed = alert(&changed, "NodeRotationFailed");
    assert_eq!(failed["expr"], r#"increase(noderotation_completed_total{outcome!="success"}[1h]) > 2"#);
    assert_eq!((&failed["for"], &failed["labels"]), (&json!("10m"), &json!({"severity": "info", "team": "a"})));
    let expires = alert(&changed, "NodeRotationCertificateExpires");
    assert_eq!(expires["expr"], "noderotation_certificate_expiry_timestamp - time() < 14 * 86400");
    assert!(expires["annotations"]["summary"].as_str().unwrap().contains("ends within 14 days"), "{expires}");

    let rule = &rendered(&rig, "prometheusrule", "prometheusRule.labels.release=p")[0];
    assert_eq!(rule["metadata"]["labels"]["release"], "p", "Prometheus selects it by this");
}

/// What a dead webhook holds up is the user's choice, for each of its two tasks.
#[tokio::test(flavor = "multi_thread")]
async fn each_webhook_fails_as_the_values_say() {
    let rig = Rig::start(Options { bare: true, ..Options::default() }).await.unwrap();
    // those that fail closed; every other webhook is ignored while it is down
    let closed = |values: &str| -> Vec<String> {
        let configurations = rendered(&rig, "webhook-configurations", values);
        let webhooks = configurations.iter().flat_map(|found| found["webhooks"].as_array().unwrap());
        let closed = webhooks.filter(|webhook| webhook["failurePolicy"] == "Fail");
        closed.map(|webhook| webhook["name"].as_str().unwrap().to_owned()).collect()
    };
    let policies = ["rotationpolicies.noderotation.io"];
    let guard = ["guard-karpenter", "guard-nodes", "guard-placeholders"].map(|name| format!("{name}.noderotation.io"));
    assert_eq!(closed("webhook.enabled=true"), [&policies.map(str::to_owned)[..], &guard[..]].concat());
    assert_eq!(closed("webhook.failurePolicy.policies=Ignore"), guard);
    assert_eq!(closed("webhook.failurePolicy.guard=Ignore"), policies);
    assert_eq!(closed("webhook.failurePolicy.policies=Ignore,webhook.failurePolicy.guard=Ignore"), [""; 0]);
}
