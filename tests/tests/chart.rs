//! The chart (§10, §13): its values, and the state of a cluster after upgrade, rollback and uninstallation.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::too_many_lines, missing_docs)]

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use noderotation_rig::objects::{deployment, node_pool};
use noderotation_rig::pki::Authority;
use noderotation_rig::{Options, Rig};
use noderotation_tests::Product;
use noderotation_tests::ask::{Asker, POLICIES, POOLS, policy, pool};
use noderotation_tests::product::{NAMESPACE, binary, chart};
use noderotation_tests::world;
use serde_json::{Value, json};

/// Plausible sets of values.
const SETS: [(&str, &[&str]); 10] = [
    ("defaults", &[]),
    ("without the webhook", &["webhook.enabled=false"]),
    ("the guard as a policy, too", &["guardPolicy.enabled=true"]),
    ("the guard as a policy alone", &["webhook.enabled=false", "guardPolicy.enabled=true"]),
    ("cert-manager with its own issuer", &["webhook.certificate.mode=cert-manager"]),
    (
        "cert-manager with an issuer of the cluster's",
        &[
            "webhook.certificate.mode=cert-manager",
            "webhook.certificate.issuerRef.kind=ClusterIssuer",
            "webhook.certificate.issuerRef.name=internal",
        ],
    ),
    (
        "a Secret of the user's",
        &["webhook.certificate.mode=secret", "webhook.certificate.secretName=tls", "webhook.certificate.caBundle=PEM"],
    ),
    (
        "everything that watches",
        &[
            "serviceMonitor.enabled=true",
            "prometheusRule.enabled=true",
            "networkPolicy.enabled=true",
            "networkPolicy.apiServers={10.0.0.10/32,fd00::/64}",
            "serviceMonitor.labels.release=p",
        ],
    ),
    (
        "other names, images and places",
        &[
            "fullnameOverride=rotator",
            "controller.image.repository=example.com/c",
            "webhook.image.tag=v9",
            "controller.nodeSelector.a=b",
            "webhook.podLabels.x=y",
            "webhook.podAnnotations.x=y",
            "controller.imagePullSecrets[0].name=pull",
            "serviceAccount.annotations.a=b",
        ],
    ),
    (
        "small",
        &[
            "controller.replicas=1",
            "webhook.replicas=1",
            "podDisruptionBudget.enabled=false",
            "cleanup.enabled=false",
            "webhook.hostNetwork=true",
            "webhook.defaultTimezone=Asia/Tokyo",
        ],
    ),
];

/// Values that must be refused, and a part of the message.
const WRONG: [(&str, &str); 8] = [
    ("webhook.staticPools=maybe", "/webhook/staticPools"),
    ("webhok.enabled=false", "webhok"),
    ("controller.replicas=0", "/controller/replicas"),
    ("webhook.certificate.mode=secret", "webhook.certificate.secretName is required"),
    ("webhook.certificate.lifetime=90d", "/webhook/certificate/lifetime"),
    ("placeholder.priority=100", "/placeholder/priority"),
    ("controller.logLevel=loud", "/controller/logLevel"),
    ("networkPolicy.apiServers[0]=api.example.com", "/networkPolicy/apiServers/0"),
];

fn set_flags(values: &[&str]) -> Vec<String> {
    values.iter().flat_map(|value| ["--set".to_owned(), (*value).to_owned()]).collect()
}

/// The CRDs of cert-manager and the Prometheus operator that the chart can use, without their schemas.
fn kinds_of_others() -> String {
    let kind = |group: &str, version: &str, plural: &str, kind: &str| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced", "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
                "versions": [{"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
            },
        })
        .to_string()
    };
    [
        kind("cert-manager.io", "v1", "issuers", "Issuer"),
        kind("cert-manager.io", "v1", "certificates", "Certificate"),
        kind("monitoring.coreos.com", "v1", "servicemonitors", "ServiceMonitor"),
        kind("monitoring.coreos.com", "v1", "prometheusrules", "PrometheusRule"),
    ]
    .join("\n---\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_sets_of_values_are_what_the_api_server_accepts() {
    let rig = Rig::start(Options { bare: true, ..Options::default() }).await.unwrap();
    rig.install_karpenter_kinds().unwrap();
    rig.apply_text(&kinds_of_others()).unwrap();
    rig.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"]).unwrap();
    rig.kubectl(&["create", "namespace", NAMESPACE]).unwrap();
    for (what, values) in SETS {
        let flags = set_flags(values);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        rig.helm(&[&["lint", "--strict", &chart()], &*flags].concat()).unwrap_or_else(|e| panic!("{what}: {e}"));
        let text = rig
            .helm(
                &[&["template", "noderotation", &chart(), "--namespace", NAMESPACE, "--include-crds"], &*flags]
                    .concat(),
            )
            .unwrap();
        let mut kubectl =
            rig.kubectl_command(&["apply", "--server-side", "--dry-run=server", "--field-manager=test", "-f", "-"]);
        let mut child = kubectl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{what}: {said}");
        // no warning of the API server either
        assert_eq!(said, "", "{what}");
    }
    for (value, said) in WRONG {
        let error = rig.helm(&["template", "noderotation", &chart(), "--set", value]).unwrap_err().to_string();
        assert!(error.contains(said), "{value}: {error}");
    }
}

/// Whoever may send reviews to the webhook: the API servers, where they are named, or else everybody.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_api_servers_that_are_named_reach_the_webhook() {
    let rig = Rig::start(Options { bare: true, ..Options::default() }).await.unwrap();
    rig.kubectl(&["create", "namespace", NAMESPACE]).unwrap();
    let admin = Asker::admin(&rig);
    for (values, expected) in [
        (vec![], Value::Null),
        (
            vec!["networkPolicy.apiServers={10.0.0.10/32,fd00::/64}"],
            json!([{"ipBlock": {"cidr": "10.0.0.10/32"}}, {"ipBlock": {"cidr": "fd00::/64"}}]),
        ),
    ] {
        let flags = set_flags(&[&["networkPolicy.enabled=true"], &*values].concat());
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let only = ["--show-only", "templates/networkpolicy.yaml"];
        let template = ["template", "noderotation", &chart(), "--namespace", NAMESPACE];
        rig.apply_text(&rig.helm(&[&template, &only[..], &*flags].concat()).unwrap()).unwrap();
        let path = format!("/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies/noderotation-webhook");
        let ingress = admin.get(&path).await.body["spec"]["ingress"].clone();
        let https = ingress.as_array().unwrap().iter().find(|rule| rule["ports"][0]["port"] == "https").unwrap();
        assert_eq!(https["from"], expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn upgrade_rollback_and_uninstallation_leave_the_cluster_usable() {
    let mut product = Product::install().await.unwrap();
    let admin = Asker::admin(&product.rig);
    node_pool("api").apply(&product.rig).unwrap();
    deployment("app", "api", 2).cpu("1200m").apply(&product.rig).unwrap();
    world::settled(&product.rig, "app", 2).await.unwrap();
    product.rig.apply(&world::policy("api")).unwrap();
    let bundle = async || admin.get(CONFIGURATION).await.body["webhooks"][0]["clientConfig"]["caBundle"].clone();
    let before = bundle().await;
    assert!(before.is_string());

    // upgrade and rollback keep what the webhook wrote, and admission answers all the while
    let works = async || {
        let reply = admin
            .ask("POST", &format!("{POLICIES}?dryRun=All"), "application/json", &policy("probe", &json!({"w": "x"})))
            .await;
        assert_eq!(reply.code, 201, "{}", reply.message());
    };
    for command in [
        vec![
            "upgrade",
            "noderotation",
            "CHART",
            "--reuse-values",
            "--set",
            "webhook.replicas=3",
            "--set",
            "webhook.timeoutSeconds=3",
            "--wait",
        ],
        vec!["upgrade", "noderotation", "CHART", "--reuse-values"],
        vec!["rollback", "noderotation", "1", "--wait"],
        vec!["test", "noderotation"],
    ] {
        let chart = chart();
        let mut command: Vec<&str> =
            command.into_iter().map(|word| if word == "CHART" { chart.as_str() } else { word }).collect();
        command.extend(["--namespace", NAMESPACE]);
        product.rig.helm(&command).unwrap();
        works().await;
        assert_eq!(bundle().await, before, "{command:?}");
    }

    // uninstalled in the middle of a rotation
    let mut controller = product.start_leader().await.unwrap();
    let claim = world::name(&world::claims(&product.rig, "api").await.unwrap()[0]);
    world::request(&product.rig, &claim, "next-window").await.unwrap();
    world::in_state(&product.rig, "api", &claim, "pending").await.unwrap();
    assert_eq!(controller.stop().unwrap(), Some(0));
    assert!(traces(&product.rig).await > 0, "nothing to clean up");
    let mut cleanup = Command::new(binary("noderotation-controller").unwrap());
    cleanup.args([
        "--cleanup",
        "--cleanup-deployment",
        "noderotation-controller",
        "--namespace",
        NAMESPACE,
        "--log-format",
        "text",
    ]);
    cleanup.env(
        "NODEROTATION_KUBECONFIG",
        product.rig.kubeconfig_for(NAMESPACE, "noderotation-controller").await.unwrap(),
    );
    let output = cleanup.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(traces(&product.rig).await, 0);
    let deployment_path = "/apis/apps/v1/namespaces/noderotation/deployments/noderotation-controller";
    assert_eq!(admin.get(deployment_path).await.body["spec"]["replicas"], 0);
    // the webhook is gone before its configurations are: what remains must not block
    product.webhook = None;
    product.rig.helm(&["uninstall", "noderotation", "--namespace", NAMESPACE, "--wait"]).unwrap();
    for kind in ["mutating", "validating"] {
        assert_eq!(admin.get(&CONFIGURATION.replace("validating", kind)).await.code, 404);
    }
    let suspend = json!({"spec": {"suspend": true}});
    assert_eq!(admin.merge(&format!("{POLICIES}/api"), &suspend).await.code, 200, "policies stay, and can be written");
    assert_eq!(admin.delete(&format!("{POLICIES}/api")).await.code, 200);
    let mark = json!({"metadata": {"annotations": {"noderotation.io/last-rotation-at": "2026-11-29T00:00:00Z"}}});
    assert_eq!(admin.merge(&format!("{POOLS}/api"), &mark).await.code, 200);
    world::settled(&product.rig, "app", 2).await.unwrap();
}

const CONFIGURATION: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/noderotation";

/// The number of the controller's keys and cordons on Nodes, NodeClaims and NodePools, and of placeholders.
async fn traces(rig: &Rig) -> usize {
    let mut count =
        world::placeholders(rig).await.unwrap().iter().filter(|p| p["metadata"]["deletionTimestamp"].is_null()).count();
    for path in ["/api/v1/nodes", POOLS, "/apis/karpenter.sh/v1/nodeclaims"] {
        for object in rig.list(path).await.unwrap() {
            let annotations = object["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
            let operators = ["noderotation.io/freeze", "noderotation.io/rotate"];
            count += annotations
                .keys()
                .filter(|key| key.starts_with("noderotation.io/") && !operators.contains(&key.as_str()))
                .count();
            count += usize::from(
                object["spec"]["unschedulable"] == true && annotations.contains_key("noderotation.io/cordoned"),
            );
        }
    }
    count
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_the_users_is_served_and_swapped() {
    let rig = Rig::start(Options { bare: true, ..Options::default() }).await.unwrap();
    rig.install_karpenter_kinds().unwrap();
    let folder = rig.folder().join("certificate");
    std::fs::create_dir_all(&folder).unwrap();
    let authority = Authority::make(&folder).unwrap();
    let names = ["noderotation-webhook.noderotation.svc"];
    authority.server("tls", &names, &[]).unwrap();
    let bundle = format!("webhook.certificate.caBundle={}", folder.join("ca.crt").display());
    let values = [
        "--set",
        "webhook.certificate.mode=secret",
        "--set",
        "webhook.certificate.secretName=tls",
        "--set-file",
        &bundle,
    ];
    let product = Product::install_bare_with(rig, &values).unwrap();
    let flags = ["--certificate", "files", "--certificate-folder", folder.to_str().unwrap()];
    let webhook = product.start_webhook_with(&flags).await.unwrap();
    let admin = Asker::admin(&product.rig);
    assert_eq!(admin.create(POOLS, &pool("api", &json!({"w": "api"}))).await.code, 201);
    let works = async || {
        let mark = json!({"metadata": {"annotations": {"noderotation.io/active-rotation": "x"}}});
        admin.merge(&format!("{POOLS}/api"), &mark).await.code == 403
    };
    product.rig.wait("admission", Duration::from_secs(30), async || Ok(works().await.then_some(()))).await.unwrap();
    let expiry = async || webhook.gauge("noderotation_certificate_expiry_timestamp").await;
    let before = expiry().await;

    // what does not fit together is not served
    let key = std::fs::read_to_string(folder.join("tls.key")).unwrap();
    std::fs::write(folder.join("tls.key"), "garbage").unwrap();
    let log = || std::fs::read_to_string(webhook.process.log()).unwrap();
    product
        .rig
        .wait("the webhook to notice", Duration::from_secs(30), async || {
            Ok(log().contains("still serving the last good one").then_some(()))
        })
        .await
        .unwrap();
    assert!(works().await && (expiry().await - before).abs() < 0.5);
    std::fs::write(folder.join("tls.key"), key).unwrap();
    // a new one is
    let served = || log().matches("serving a new certificate").count();
    assert_eq!(served(), 1);
    authority.server("tls", &names, &[]).unwrap();
    product
        .rig
        .wait("the new certificate", Duration::from_secs(30), async || Ok((served() == 2).then_some(())))
        .await
        .unwrap();
    assert!(works().await);
    let secrets: Vec<Value> = product.rig.list("/api/v1/namespaces/noderotation/secrets").await.unwrap();
    assert!(secrets.iter().all(|secret| secret["metadata"]["name"] != "noderotation-webhook"), "no Secret of its own");
}
