//! The chart (§10, §13): its values, and the state of a cluster after upgrade, rollback and uninstallation.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::too_many_lines, missing_docs)]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use noderotation_rig::objects::{deployment, node_pool};
use noderotation_rig::pki::Authority;
use noderotation_rig::validator::{self, KUBERNETES_MINORS};
use noderotation_rig::{Options, Rig, programs};
use noderotation_tests::Product;
use noderotation_tests::ask::{Asker, CLAIMS, POLICIES, POOLS, claim, policy, pool};
use noderotation_tests::product::{NAMESPACE, binary, chart, documents};
use noderotation_tests::world::{self, PATIENCE};
use serde_json::{Value, json};

/// Plausible sets of values.
const SETS: &[(&str, &[&str])] = &[
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
        &[
            "webhook.certificate.mode=secret",
            "webhook.certificate.secretName=tls",
            "webhook.certificate.caBundle=-----BEGIN CERTIFICATE-----",
        ],
    ),
    (
        "everything that watches",
        &[
            "serviceMonitor.enabled=true",
            "prometheusRule.enabled=true",
            "prometheusRule.alerts.windowMissed.within=2d",
            "prometheusRule.alerts.failed.enabled=false",
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
        "accounts and rights of the user's, images by digest",
        &[
            "serviceAccount.create=false",
            "rbac.create=false",
            "rbac.aggregateClusterRoles=false",
            "controller.serviceAccountName=rotator",
            "webhook.serviceAccountName=judge",
            DIGEST,
            "global.imageRegistry=registry.example",
            "global.imagePullSecrets[0]=pull",
            "controller.strategy.type=Recreate",
            "webhook.strategy.rollingUpdate.maxSurge=0",
            "webhook.livenessProbe.timeoutSeconds=5",
            "controller.podSecurityContext.fsGroup=2000",
            "webhook.hostNetwork=true",
            "webhook.ports.https=9444",
            "webhook.ports.http=9081",
            "controller.ports.http=9080",
        ],
    ),
    ("as other charts have it", COMMON),
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

/// What people are used to set in other charts.
const COMMON: &[&str] = &[
    "commonLabels.team=a",
    "controller.podLabels.team=b",
    "placeholder.labels.cost=c",
    r"placeholder.annotations.example\.com/mesh=off",
    "placeholder.imagePullSecrets={pull}",
    "placeholder.priority=-100",
    "global.imageRegistry=registry.example",
    "global.imagePullSecrets[0]=pull",
    "global.imagePullSecrets[1].name=pull",
    "controller.imagePullSecrets={pull}",
    "controller.priorityClassName=system-cluster-critical",
    "controller.revisionHistoryLimit=3",
    "webhook.failurePolicy.guard=Ignore",
    "webhook.topologySpreadConstraints[0].maxSkew=1",
    "webhook.topologySpreadConstraints[0].topologyKey=topology.kubernetes.io/zone",
    "webhook.topologySpreadConstraints[0].whenUnsatisfiable=DoNotSchedule",
    "controller.extraEnv[0].name=NODEROTATION_WORKERS",
    "controller.extraEnv[0].value=a",
    "controller.livenessProbe=null",
    "webhook.hostNetwork=true",
    "serviceMonitor.enabled=true",
    "serviceMonitor.namespace=default",
    "serviceMonitor.scrapeTimeout=5s",
];

const DIGEST: &str = "controller.image.digest=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Values that must be refused, and a part of the message.
const WRONG: &[(&str, &str)] = &[
    ("webhook.staticPools=maybe", "/webhook/staticPools"),
    ("webhook.failurePolicy.guard=fail", "/webhook/failurePolicy/guard"),
    ("webhook.failurePolicy.nodes=Fail", "/webhook/failurePolicy"),
    ("controller.revisionHistoryLimit=-1", "/controller/revisionHistoryLimit"),
    ("prometheusRule.alerts.NoLeader.for=1h", "/prometheusRule/alerts"),
    ("prometheusRule.alerts.noLeader.for=1 hour", "/prometheusRule/alerts/noLeader/for"),
    ("prometheusRule.alerts.failed.within=", "/prometheusRule/alerts/failed/within"),
    ("prometheusRule.alerts.failed.above=-1", "/prometheusRule/alerts/failed/above"),
    ("webhok.enabled=false", "webhok"),
    ("controller.replicas=0", "/controller/replicas"),
    ("webhook.certificate.mode=secret", "webhook.certificate.secretName is required"),
    ("webhook.certificate.lifetime=90d", "/webhook/certificate/lifetime"),
    ("placeholder.priority=100", "/placeholder/priority"),
    ("controller.logLevel=loud", "/controller/logLevel"),
    ("controller.image.digest=latest", "/controller/image/digest"),
    ("controller.readinessProbe.exec.command[0]=true", "/controller/readinessProbe"),
    ("networkPolicy.apiServers[0]=api.example.com", "/networkPolicy/apiServers/0"),
    ("networkPolicy.apiServers[0]=:/1", "/networkPolicy/apiServers/0"),
    ("nameOverride=nodeRotation", "/nameOverride"),
    ("fullnameOverride=a.b", "/fullnameOverride"),
    ("webhook.podAnnotations.seconds=86400", "/webhook/podAnnotations/seconds"),
    (r"controller.podLabels.app\.kubernetes\.io/name=x", "/controller/podLabels"),
    ("controller.livenessProbe.httpGet.port=1", "/controller/livenessProbe/httpGet"),
    (
        "webhook.certificate.mode=secret,webhook.certificate.secretName=s,webhook.certificate.caBundle=LS0tLS1CRUdJTg==",
        "in PEM",
    ),
    ("webhook.service.port=8080", "webhook.service.port and webhook.service.httpPort are both 8080"),
    ("webhook.ports.https=8080", "webhook.ports.https and webhook.ports.http are both 8080"),
    ("controller.serviceAccountName=x,webhook.serviceAccountName=x", "are both \"x\""),
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
async fn plausible_values_are_what_the_api_server_accepts() {
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

/// What helm renders without a cluster, or what it says instead.
fn rendered(flags: &[&str]) -> Result<String, String> {
    let mut helm = Command::new(programs::build().unwrap().path("helm"));
    helm.args(["template", "noderotation", &chart(), "--namespace", NAMESPACE, "--include-crds"]).args(flags);
    let output = helm.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn every_supported_kubernetes_accepts_what_the_chart_renders_for_it() {
    let policies = [
        "cleanup-karpenter",
        "cleanup-nodes",
        "cleanup-pods",
        "controller-karpenter",
        "controller-nodes",
        "controller-pods",
        "guard-karpenter",
        "guard-nodes",
        "guard-placeholders",
        "webhook-configurations",
        "webhook-secrets",
    ];
    let named = |kind: &str| policies.map(|name| (kind.to_owned(), format!("noderotation-{name}")));
    let mut expected: Vec<(String, String)> =
        ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"].into_iter().flat_map(named).collect();
    expected.push(("CustomResourceDefinition".into(), "rotationpolicies.noderotation.io".into()));
    expected.push(("MutatingWebhookConfiguration".into(), "noderotation".into()));
    expected.push(("ValidatingWebhookConfiguration".into(), "noderotation".into()));
    expected.sort();
    for minor in KUBERNETES_MINORS {
        let version = format!("v1.{minor}.0");
        let flags =
            [&["--set", "guardPolicy.enabled=true", "--kube-version", &version], &WITH_THE_CLUSTERS_APIS[..]].concat();
        let answer = validator::ask(minor, &rendered(&flags).unwrap(), &[]).unwrap();
        let mut found: Vec<_> = answer.manifest.iter().map(|v| (v.kind.clone(), v.name.clone())).collect();
        found.sort_unstable();
        assert_eq!(found, expected, "1.{minor}");
        for verdict in &answer.manifest {
            assert!(verdict.errors.is_empty(), "1.{minor}: {} {}: {:?}", verdict.kind, verdict.name, verdict.errors);
        }
    }
    let last_refused = format!("v1.{}.99", KUBERNETES_MINORS.start() - 1);
    let said = rendered(&["--kube-version", &last_refused]).unwrap_err();
    assert!(said.contains(">=1.30.0-0 which is incompatible with Kubernetes v1.29.99"), "{said}");
    // managed services add to the version
    rendered(&["--kube-version", "v1.30.2-eks-1552ad0"]).unwrap();
}

/// The one object of this kind whose name ends so.
fn one<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let is_it = |o: &&Value| o["kind"] == kind && o["metadata"]["name"].as_str().unwrap().ends_with(name);
    let found: Vec<&Value> = objects.iter().filter(is_it).collect();
    assert_eq!(found.len(), 1, "{kind} {name}");
    found[0]
}

/// The flag by which helm renders as if it saw a cluster's APIs, as Argo CD has it render.
const WITH_THE_CLUSTERS_APIS: [&str; 2] = ["--api-versions", "apiregistration.k8s.io/v1"];

#[test]
fn only_where_a_cluster_is_seen_is_the_cleanup_rendered() {
    let of_cleanup = |flags: &[&str]| -> Vec<Value> {
        let objects = documents(&rendered(flags).unwrap()).unwrap().into_iter();
        objects.filter(|o| o["metadata"]["name"].as_str().unwrap().starts_with("noderotation-cleanup")).collect()
    };
    assert_eq!(of_cleanup(&[]), Vec::<Value>::new());
    let of_cleanup = of_cleanup(&WITH_THE_CLUSTERS_APIS);
    assert_eq!(of_cleanup.len(), 12, "account, two roles, two bindings, three policies with theirs, Job");
    for object in of_cleanup {
        let annotations = &object["metadata"]["annotations"];
        assert_eq!(annotations["helm.sh/hook"], "post-delete", "{object}");
        assert_eq!(annotations["helm.sh/hook-delete-policy"], "before-hook-creation,hook-succeeded,hook-failed");
    }
}

#[test]
fn what_people_are_used_to_set_reaches_its_objects() {
    let flags = set_flags(COMMON);
    let flags: Vec<&str> = flags.iter().map(String::as_str).chain(WITH_THE_CLUSTERS_APIS).collect();
    let objects = documents(&rendered(&flags).unwrap()).unwrap();
    for object in objects.iter().filter(|o| o["kind"] != "CustomResourceDefinition") {
        assert_eq!(object["metadata"]["labels"]["team"], "a", "{} {}", object["kind"], object["metadata"]["name"]);
        assert_eq!(object["metadata"]["labels"]["app.kubernetes.io/part-of"], "noderotation");
    }
    let template = |kind: &str, name: &str| one(&objects, kind, name)["spec"]["template"].clone();
    let (controller, webhook) = (template("Deployment", "-controller"), template("Deployment", "-webhook"));
    let (cleanup, test) = (template("Job", "-cleanup"), template("Job", "-test"));
    for pod in [&controller, &cleanup, &test] {
        assert_eq!(pod["metadata"]["labels"]["team"], "b", "{pod}");
        assert_eq!(pod["spec"]["imagePullSecrets"], json!([{"name": "pull"}]), "{pod}");
    }
    // else a new version of the chart could not be applied
    assert!(
        test["metadata"]["labels"]["helm.sh/chart"].is_null()
            && cleanup["metadata"]["labels"]["helm.sh/chart"].is_null()
    );
    assert_eq!(webhook["metadata"]["labels"]["team"], "a");
    assert_eq!(controller["spec"]["priorityClassName"], "system-cluster-critical");
    assert_eq!(webhook["spec"]["topologySpreadConstraints"][0]["topologyKey"], "topology.kubernetes.io/zone");
    assert_eq!(
        webhook["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"]["app.kubernetes.io/component"],
        "webhook"
    );
    assert_eq!(test["spec"]["containers"][0]["image"], "registry.example/busybox:1.37");
    let container = &controller["spec"]["containers"][0];
    assert_eq!(container["livenessProbe"], json!({"httpGet": {"path": "/healthz", "port": "http"}}));
    assert!(container["env"].as_array().unwrap().contains(&json!({"name": "NODEROTATION_WORKERS", "value": "a"})));
    let args = container["args"].as_array().unwrap();
    for arg in [
        "--priority-class=noderotation-placeholder-100",
        "--placeholder-image=registry.example/pause:3.10",
        "--placeholder-pull-secrets=pull",
        r#"--placeholder-labels={"cost":"c","team":"a"}"#,
        r#"--placeholder-annotations={"example.com/mesh":"off"}"#,
    ] {
        assert!(args.contains(&json!(arg)), "{arg} {args:?}");
    }
    let class = objects.iter().find(|o| o["kind"] == "PriorityClass").unwrap();
    assert_eq!((&class["metadata"]["name"], &class["value"]), (&json!("noderotation-placeholder-100"), &json!(-100)));
    // with two Pods on two nodes, nothing else could be rolled out
    let strategy = &one(&objects, "Deployment", "-webhook")["spec"]["strategy"];
    assert_eq!(strategy, &json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}));
    for (name, component) in [("-controller", "controller"), ("-webhook", "webhook")] {
        let spec = &one(&objects, "PodDisruptionBudget", name)["spec"];
        // a minimum would hold every drain of a release with one replica
        assert_eq!((&spec["maxUnavailable"], &spec["minAvailable"]), (&json!(1), &Value::Null));
        assert_eq!(spec["unhealthyPodEvictionPolicy"], "AlwaysAllow");
        assert_eq!(spec["selector"]["matchLabels"]["app.kubernetes.io/component"], component);
    }
    assert_eq!(one(&objects, "Deployment", "-controller")["spec"]["revisionHistoryLimit"], 3);
    let hooks = one(&objects, "ValidatingWebhookConfiguration", "noderotation")["webhooks"].as_array().unwrap().clone();
    let failing: Vec<&Value> =
        hooks.iter().filter(|hook| hook["failurePolicy"] == "Fail").map(|hook| &hook["name"]).collect();
    assert_eq!(failing, ["rotationpolicies.noderotation.io"], "the guard's are Ignore by its value");
    let monitor = one(&objects, "ServiceMonitor", "noderotation");
    assert_eq!(monitor["metadata"]["namespace"], "default");
    assert_eq!(monitor["spec"]["namespaceSelector"], json!({"matchNames": [NAMESPACE]}));
    assert_eq!(monitor["spec"]["endpoints"][0]["scrapeTimeout"], "5s");
}

/// An umbrella chart may call it anything.
#[test]
fn an_alias_makes_names_of_objects() {
    for (alias, name) in
        [("noderotation", "noderotation"), ("nodeRotation", "node-rotation"), ("node_rotation", "node-rotation")]
    {
        let folder = std::env::temp_dir().join(format!("noderotation-{alias}-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("charts")).unwrap();
        changed_chart(&folder.join("charts"), &[]);
        let dependency = format!("{{name: noderotation, version: '>=0.1.0-0', alias: {alias}}}");
        let chart = format!("{{apiVersion: v2, name: umbrella, version: 1.0.0, dependencies: [{dependency}]}}");
        std::fs::write(folder.join("Chart.yaml"), chart).unwrap();
        let mut helm = Command::new(programs::build().unwrap().path("helm"));
        let output = helm.args(["template", "umbrella", "--namespace", NAMESPACE]).arg(&folder).output().unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        assert!(output.status.success(), "{alias}: {}", String::from_utf8_lossy(&output.stderr));
        let objects = documents(&String::from_utf8_lossy(&output.stdout)).unwrap();
        let names: Vec<_> =
            objects.iter().filter(|o| o["kind"] == "Deployment").map(|o| &o["metadata"]["name"]).collect();
        assert_eq!(names, [&json!(format!("{name}-controller")), &json!(format!("{name}-webhook"))]);
    }
}

#[test]
fn accounts_images_ports_and_probes_are_what_the_values_say() {
    let (_, values) = SETS.iter().find(|(what, _)| what.starts_with("accounts")).unwrap();
    let flags = set_flags(values);
    let flags: Vec<&str> = flags.iter().map(String::as_str).chain(WITH_THE_CLUSTERS_APIS).collect();
    let objects = documents(&rendered(&flags).unwrap()).unwrap();
    let none_of = |kind: &str| !objects.iter().any(|o| o["kind"].as_str().unwrap().starts_with(kind));
    assert!(none_of("ServiceAccount") && none_of("ClusterRole") && none_of("Role"));
    let pod = |name: &str| one(&objects, "Deployment", name)["spec"]["template"]["spec"].clone();
    let (controller, webhook) = (pod("-controller"), pod("-webhook"));
    assert_eq!(
        (&controller["serviceAccountName"], &webhook["serviceAccountName"]),
        (&json!("rotator"), &json!("judge"))
    );
    assert_eq!(controller["imagePullSecrets"], json!([{"name": "pull"}]));
    let digest = DIGEST.split_once('=').unwrap().1;
    let image = format!("registry.example/noderotation-controller@{digest}");
    assert_eq!(controller["containers"][0]["image"], image);
    assert_eq!(webhook["containers"][0]["image"], "registry.example/noderotation-webhook:0.1.0");
    assert_eq!(one(&objects, "Job", "-cleanup")["spec"]["template"]["spec"]["containers"][0]["image"], image);
    assert_eq!(controller["securityContext"]["fsGroup"], 2000);
    assert_eq!(controller["securityContext"]["runAsNonRoot"], true);
    let arguments = |pod: &Value| pod["containers"][0]["args"].to_string();
    assert!(arguments(&controller).contains("--listen=[::]:9080"), "{controller}");
    for argument in ["--listen=[::]:9444", "--health-listen=[::]:9081", "--controller-account=rotator"] {
        assert!(arguments(&webhook).contains(argument), "{argument}: {webhook}");
    }
    assert_eq!(
        webhook["containers"][0]["livenessProbe"],
        json!({"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 20, "timeoutSeconds": 5})
    );
    assert_eq!(one(&objects, "Deployment", "-controller")["spec"]["strategy"], json!({"type": "Recreate"}));
    let guard = one(&objects, "ValidatingWebhookConfiguration", "noderotation").to_string();
    assert!(guard.contains("system:serviceaccount:noderotation:rotator") && !guard.contains("noderotation-controller"));
}

#[test]
fn everybody_who_may_view_or_edit_may_do_so_with_policies() {
    let objects = documents(&rendered(&[]).unwrap()).unwrap();
    let role = |name: &str| one(&objects, "ClusterRole", name).clone();
    let is_part_of = |role: &Value, of: &str| {
        role["metadata"]["labels"][format!("rbac.authorization.k8s.io/aggregate-to-{of}")] == "true"
    };
    let (view, edit) = (role("-view"), role("-edit"));
    assert_eq!(["view", "edit", "admin"].map(|of| is_part_of(&view, of)), [true; 3]);
    assert_eq!(["view", "edit", "admin"].map(|of| is_part_of(&edit, of)), [false, true, true]);
    assert_eq!(view["rules"][0]["verbs"], json!(["get", "list", "watch"]));
    assert_eq!(edit["rules"][0]["verbs"], json!(["create", "update", "patch", "delete", "deletecollection"]));
}

/// A copy of the chart in which these files are changed.
fn changed_chart(folder: &Path, changes: &[(&str, &str, &str)]) -> String {
    let copied = Command::new("cp").arg("-r").arg(chart()).arg(folder).status().unwrap();
    assert!(copied.success());
    let copy = folder.join("noderotation");
    for (file, from, to) in changes {
        let text = std::fs::read_to_string(copy.join(file)).unwrap();
        assert!(text.contains(from), "{file}: {from}");
        std::fs::write(copy.join(file), text.replace(from, to)).unwrap();
    }
    copy.display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_another_chart_and_a_version_with_build_metadata_are_installed() {
    let rig = Rig::start(Options { bare: true, ..Options::default() }).await.unwrap();
    rig.install_karpenter_kinds().unwrap();
    let umbrella = rig.folder().join("umbrella");
    std::fs::create_dir_all(umbrella.join("charts")).unwrap();
    changed_chart(
        &umbrella.join("charts"),
        &[(
            "Chart.yaml",
            "ersion: 0.1.0",
            "ersion: 0.1.0+build.7.of-a-branch-whose-name-is-long-enough-to-exceed-a-label-value",
        )],
    );
    std::fs::write(
        umbrella.join("Chart.yaml"),
        "{apiVersion: v2, name: platform, version: 1.0.0, dependencies: [{name: noderotation, version: '>=0.1.0-0', condition: noderotation.enabled}]}",
    )
    .unwrap();
    std::fs::write(
        umbrella.join("values.yaml"),
        "{noderotation: {enabled: true}, global: {imageRegistry: registry.example, storageClass: x, labels: {team: a}}}",
    )
    .unwrap();
    let path = umbrella.display().to_string();
    rig.helm(&["install", "platform", &path, "--namespace", NAMESPACE, "--create-namespace"]).unwrap();
    let deployment =
        rig.get("/apis/apps/v1/namespaces/noderotation/deployments/noderotation-controller").await.unwrap();
    assert!(
        deployment["metadata"]["labels"]["helm.sh/chart"].as_str().unwrap().starts_with("noderotation-0.1.0_build.7")
    );
    assert!(
        deployment["spec"]["template"]["spec"]["containers"][0]["image"]
            .as_str()
            .unwrap()
            .starts_with("registry.example/noderotation-controller:0.1.0_build.7")
    );
    let off = rig.helm(&["template", "platform", &path, "--set", "noderotation.enabled=false"]).unwrap();
    assert!(!off.contains("kind:"), "{off}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_crd_follows_the_release_and_outlives_it() {
    let rig = Rig::start(Options { bare: true, ..Options::default() }).await.unwrap();
    let admin = Asker::admin(&rig);
    let older = changed_chart(rig.folder(), &[("files/rotationpolicies.noderotation.io.yaml", "- rotpol", "- oldpol")]);
    let present = chart();
    let helm = |verb: &[&str]| {
        let common = ["--namespace", NAMESPACE, "--set", "webhook.enabled=false", "--set", "cleanup.enabled=false"];
        let flags = if matches!(verb[0], "install" | "upgrade") { &common[..] } else { &common[..2] };
        rig.helm(&[verb, flags].concat())
    };
    let short_name = async || admin.get(CRD).await.body["spec"]["names"]["shortNames"][0].clone();

    helm(&["install", "noderotation", &older, "--create-namespace"]).unwrap();
    assert_eq!(short_name().await, "oldpol");
    rig.wait("policies to be served", PATIENCE, async || {
        Ok((admin.create(POLICIES, &policy("api", &json!({"w": "api"}))).await.code == 201).then_some(()))
    })
    .await
    .unwrap();
    helm(&["upgrade", "noderotation", &present]).unwrap();
    assert_eq!(short_name().await, "rotpol");
    helm(&["rollback", "noderotation", "1"]).unwrap();
    assert_eq!(short_name().await, "oldpol");
    helm(&["upgrade", "noderotation", &present]).unwrap();
    // not even a release without it takes it away
    helm(&["upgrade", "noderotation", &present, "--set", "crds.enabled=false"]).unwrap();
    assert_eq!(short_name().await, "rotpol");
    helm(&["upgrade", "noderotation", &older]).unwrap();
    helm(&["uninstall", "noderotation"]).unwrap();
    assert_eq!(short_name().await, "oldpol");
    helm(&["install", "noderotation", &present]).unwrap();
    assert_eq!(short_name().await, "rotpol");
    assert_eq!(admin.get(&format!("{POLICIES}/api")).await.code, 200, "policies outlive every step");

    // one that was applied by hand is taken over when the user says so
    helm(&["uninstall", "noderotation"]).unwrap();
    let by_nobody = json!({"metadata": {"annotations": null, "labels": null}});
    assert_eq!(admin.merge(CRD, &by_nobody).await.code, 200);
    let refusal = helm(&["install", "noderotation", &present]).unwrap_err().to_string();
    assert!(refusal.contains("invalid ownership metadata"), "{refusal}");
    helm(&["install", "noderotation", &present, "--take-ownership"]).unwrap();
    // and whoever wants everything gone says that
    helm(&["upgrade", "noderotation", &present, "--set", "crds.keep=false"]).unwrap();
    helm(&["uninstall", "noderotation", "--wait"]).unwrap();
    assert_eq!(admin.get(CRD).await.code, 404);
}

const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rotationpolicies.noderotation.io";

#[tokio::test(flavor = "multi_thread")]
async fn an_uninstallation_whose_job_cannot_run_leaves_nothing_that_blocks() {
    // nothing runs Jobs on a bare rig
    let rig = Rig::start(Options { bare: true, ..Options::default() }).await.unwrap();
    rig.install_karpenter_kinds().unwrap();
    let product = Product::install_bare_with(rig, &["--set", "guardPolicy.enabled=true"]).unwrap();
    let (rig, admin) = (&product.rig, Asker::admin(&product.rig));
    let said = rig.helm(&["uninstall", "noderotation", "--namespace", NAMESPACE, "--timeout", "2s"]).unwrap_err();
    assert!(said.to_string().contains("uninstallation completed with 1 error(s)"), "{said}");
    assert_eq!(rig.helm(&["list", "--all", "--all-namespaces", "--short"]).unwrap().trim(), "");
    let kinds = "deployments,jobs,services,serviceaccounts,roles,rolebindings,poddisruptionbudgets,clusterroles,clusterrolebindings,priorityclasses,mutatingwebhookconfigurations,validatingwebhookconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings";
    let left = rig
        .kubectl(&[
            "get",
            kinds,
            "--all-namespaces",
            "--selector",
            "app.kubernetes.io/instance=noderotation",
            "--output",
            "name",
        ])
        .unwrap();
    assert_eq!(left.trim(), "");
    // policies stay, and nothing hinders writing them or guarded keys
    let policy = policy("api", &json!({"w": "api"}));
    assert_eq!(admin.create(POLICIES, &policy).await.code, 201);
    let mut marked = pool("api", &json!({"w": "api"}));
    marked["metadata"]["annotations"] = json!({"noderotation.io/active-rotation": "x"});
    assert_eq!(admin.create(POOLS, &marked).await.code, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cleanup_goes_on_after_a_refusal() {
    let rig = Rig::start(Options { bare: true, ..Options::default() }).await.unwrap();
    let product = Product::install_bare(rig).unwrap();
    let (rig, admin) = (&product.rig, Asker::admin(&product.rig));
    // the rights that helm gives the Job
    for object in documents(&rendered(&WITH_THE_CLUSTERS_APIS).unwrap()).unwrap() {
        let name = object["metadata"]["name"].as_str().unwrap();
        if name.starts_with("noderotation-cleanup") && object["kind"] != "Job" {
            rig.apply(&object).unwrap();
        }
    }
    let kubeconfig = rig.kubeconfig_for(NAMESPACE, "noderotation-cleanup").await.unwrap();
    let cleanup = || {
        let mut program = Command::new(binary("noderotation-controller").unwrap());
        program.args(["--cleanup", "--cleanup-unless-deployed", "noderotation-controller", "--namespace", NAMESPACE]);
        let output = program.env("NODEROTATION_KUBECONFIG", &kubeconfig).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    };
    let marked = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "annotations": {"noderotation.io/cordoned": "true", "noderotation.io/surge-for": "x"}},
            "spec": {"unschedulable": true},
        })
    };
    for name in ["first", "second"] {
        rig.apply(&marked(name)).unwrap();
    }

    let (ok, said) = cleanup();
    assert!(!ok && said.contains("its release is not uninstalled; nothing was removed"), "{said}");
    assert_eq!(traces_on_nodes(rig).await, 6);
    rig.delete("/apis/apps/v1/namespaces/noderotation/deployments/noderotation-controller").await.unwrap();

    // one Node refuses every write, and Karpenter's kinds do not exist
    rig.apply_text(NOBODY_WRITES_TO_FIRST).unwrap();
    rig.wait("the refusal to hold", PATIENCE, async || {
        let patch = json!({"metadata": {"labels": {"probe": "x"}}});
        Ok((admin.merge("/api/v1/nodes/first?dryRun=All", &patch).await.code == 422).then_some(()))
    })
    .await
    .unwrap();
    let (ok, said) = cleanup();
    assert!(!ok && said.contains("1 objects were cleaned up, 1 could not be") && said.contains("first"), "{said}");
    assert!(said.contains("not this one"), "the reason is told: {said}");
    assert_eq!(traces_on_nodes(rig).await, 3, "the other Node is clean");

    rig.kubectl(&["delete", "validatingadmissionpolicybinding", "nobody-writes-to-first"]).unwrap();
    rig.wait("the rest to be removed", PATIENCE, async || Ok(cleanup().0.then_some(()))).await.unwrap();
    assert_eq!(traces_on_nodes(rig).await, 0);
}

const NOBODY_WRITES_TO_FIRST: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: nobody-writes-to-first}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [nodes]}]
  validations: [{expression: 'object.metadata.name != "first"', message: not this one}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: nobody-writes-to-first}
spec: {policyName: nobody-writes-to-first, validationActions: [Deny]}
"#;

/// The number of our annotations and cordons on Nodes.
async fn traces_on_nodes(rig: &Rig) -> usize {
    let count = |node: &Value| {
        let annotations = node["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
        annotations.keys().filter(|key| key.starts_with("noderotation.io/")).count()
            + usize::from(node["spec"]["unschedulable"] == true)
    };
    rig.list("/api/v1/nodes").await.unwrap().iter().map(count).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_webhook_keeps_nobody_from_stopping_rotations() {
    let rig = Rig::start(Options { bare: true, ..Options::default() }).await.unwrap();
    rig.install_karpenter_kinds().unwrap();
    let product = Product::install_bare(rig).unwrap();
    let (rig, admin) = (&product.rig, Asker::admin(&product.rig));
    let policy_path = format!("{POLICIES}/api");
    let claim_path = format!("{CLAIMS}/api-1");
    assert_eq!(admin.create(POLICIES, &policy("api", &json!({"w": "api"}))).await.code, 201);
    assert_eq!(admin.create(POOLS, &pool("api", &json!({"w": "api"}))).await.code, 201);
    let mut rotating = claim("api-1", "api");
    rotating["metadata"]["annotations"] = json!({"noderotation.io/state": "pending"});
    assert_eq!(admin.create(CLAIMS, &rotating).await.code, 201);
    rig.apply(&json!({
        "apiVersion": "v1", "kind": "Node", "spec": {"unschedulable": true},
        "metadata": {"name": "api-1", "annotations": {"noderotation.io/cordoned": "true"}},
    }))
    .unwrap();
    // from here on the API server has to call a webhook that never answers
    rig.helm(&[
        "upgrade",
        "noderotation",
        &chart(),
        "--namespace",
        NAMESPACE,
        "--reuse-values",
        "--set",
        "webhook.enabled=true",
    ])
    .unwrap();
    let annotate = |key: &str, value: &str| json!({"metadata": {"annotations": {key: value}}});
    let state = annotate("noderotation.io/state", "failed");
    rig.wait("the guard to hold", PATIENCE, async || {
        let reply = admin.merge(&format!("{claim_path}?dryRun=All"), &state).await;
        Ok(reply.message().contains("failed calling webhook").then_some(()))
    })
    .await
    .unwrap();

    let chances = json!({"spec": {"minRotationChances": 3}});
    assert!(admin.merge(&policy_path, &chances).await.message().contains("failed calling webhook"));
    for suspend in [true, false, true] {
        assert_eq!(admin.merge(&policy_path, &json!({"spec": {"suspend": suspend}})).await.code, 200);
    }
    let both = json!({"spec": {"suspend": false, "minRotationChances": 3}});
    assert!(admin.merge(&policy_path, &both).await.message().contains("failed calling webhook"));
    rig.kubectl(&["annotate", "nodepool", "api", "noderotation.io/freeze=2999-01-01T00:00:00Z"]).unwrap();
    rig.kubectl(&["annotate", "nodepool", "api", "noderotation.io/freeze-"]).unwrap();
    rig.kubectl(&["uncordon", "api-1"]).unwrap();
    rig.kubectl(&["annotate", "nodeclaim", "api-1", "noderotation.io/rotate=next-window"]).unwrap();
    rig.kubectl(&[
        "annotate",
        "nodeclaim",
        "api-1",
        "noderotation.io/break-glass=incident 7",
        "noderotation.io/state=failed",
        "--overwrite",
    ])
    .unwrap();
    let again = annotate("noderotation.io/state", "pending");
    assert!(admin.merge(&claim_path, &again).await.message().contains("failed calling webhook"), "an old reason");
    let mut restored = pool("restored", &json!({"w": "restored"}));
    restored["metadata"]["annotations"] = json!({"noderotation.io/last-rotation-at": "2026-11-01T00:00:00Z"});
    assert_eq!(admin.create(POOLS, &restored).await.code, 201);

    // the command of the chart's README opens the rest, and an upgrade closes it again
    let readme = std::fs::read_to_string(format!("{}/README.md", chart())).unwrap();
    let command =
        readme.lines().find(|line| line.starts_with("kubectl delete validatingwebhookconfiguration")).unwrap();
    rig.kubectl(&command.split(' ').skip(1).collect::<Vec<_>>()).unwrap();
    rig.wait("policies to be free", PATIENCE, async || {
        Ok((admin.merge(&policy_path, &chances).await.code == 200).then_some(()))
    })
    .await
    .unwrap();
    assert_eq!(admin.merge(&claim_path, &again).await.code, 200);
    rig.helm(&["upgrade", "noderotation", &chart(), "--namespace", NAMESPACE, "--reuse-values"]).unwrap();
    assert_eq!(admin.get(CONFIGURATION).await.code, 200);
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
    let deployment_path = "/apis/apps/v1/namespaces/noderotation/deployments/noderotation-controller";
    assert_eq!(admin.merge(deployment_path, &json!({"spec": {"replicas": 0}})).await.code, 200);
    let mut cleanup = Command::new(binary("noderotation-controller").unwrap());
    cleanup.args(["--cleanup", "--namespace", NAMESPACE, "--log-format", "text"]);
    cleanup.env(
        "NODEROTATION_KUBECONFIG",
        product.rig.kubeconfig_for(NAMESPACE, "noderotation-controller").await.unwrap(),
    );
    let output = cleanup.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(traces(&product.rig).await, 0);
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
    product.rig.wait("admission", PATIENCE, async || Ok(works().await.then_some(()))).await.unwrap();
    let expiry = async || webhook.gauge("noderotation_certificate_expiry_timestamp").await;
    let before = expiry().await;

    // what does not fit together is not served
    let key = std::fs::read_to_string(folder.join("tls.key")).unwrap();
    std::fs::write(folder.join("tls.key"), "garbage").unwrap();
    let log = || std::fs::read_to_string(webhook.process.log()).unwrap();
    product
        .rig
        .wait("the webhook to notice", PATIENCE, async || {
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
    product.rig.wait("the new certificate", PATIENCE, async || Ok((served() == 2).then_some(()))).await.unwrap();
    assert!(works().await);
    let secrets: Vec<Value> = product.rig.list("/api/v1/namespaces/noderotation/secrets").await.unwrap();
    assert!(secrets.iter().all(|secret| secret["metadata"]["name"] != "noderotation-webhook"), "no Secret of its own");
}

/// What `docs/troubleshooting.md` says to do when the namespace was deleted: the cluster-scoped objects are left, and helm takes
/// them over.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_namespace_has_a_way_out() {
    let mut product = Product::install().await.unwrap();
    product.webhook = None;
    let (rig, admin) = (&product.rig, Asker::admin(&product.rig));
    rig.kubectl(&["delete", "namespace", NAMESPACE, "--timeout", "120s"]).unwrap();
    let reply = admin.create(POLICIES, &policy("api", &json!({"w": "api"}))).await;
    assert!(reply.code == 500 && reply.message().contains("failed calling webhook"), "{}", reply.message());

    let hooks = "validatingwebhookconfigurations,mutatingwebhookconfigurations";
    rig.kubectl(&["delete", hooks, "-l", "app.kubernetes.io/part-of=noderotation"]).unwrap();
    rig.wait("policies to be writable", PATIENCE, async || {
        Ok((admin.create(POLICIES, &policy("api", &json!({"w": "api"}))).await.code == 201).then_some(()))
    })
    .await
    .unwrap();

    // nothing runs the Job here; what it does is tried above
    let chart = chart();
    let again = ["install", "noderotation", &chart, "--namespace", NAMESPACE, "--create-namespace"];
    rig.helm(&[&again[..], &["--set", "cleanup.enabled=false"]].concat()).unwrap();
    rig.helm(&["uninstall", "noderotation", "--namespace", NAMESPACE]).unwrap();
    let kinds = "clusterroles,clusterrolebindings,priorityclasses,mutatingwebhookconfigurations,validatingwebhookconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings";
    let left = rig.kubectl(&["get", kinds, "-l", "app.kubernetes.io/part-of=noderotation", "-o", "name"]).unwrap();
    assert_eq!(left.trim(), "");
    assert_eq!(admin.get(&format!("{POLICIES}/api")).await.code, 200, "policies stay");
}
