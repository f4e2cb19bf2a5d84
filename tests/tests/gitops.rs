//! What Argo CD and Flux do, request by request, against a real API server: refusals come early and are readable, and what is
//! in sync stays silent.
//!
//! Both apply server-side with force: a dry run, a comparison with what is there, an apply where they differ. Neither knows an
//! order between applications, so anything may come first; what fails is tried again.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use noderotation_rig::{Options, Rig};
use noderotation_tests::Product;
use noderotation_tests::ask::{Asker, POLICIES, policy, pool};
use noderotation_tests::product::{NAMESPACE, ServiceAddress, chart, documents};
use noderotation_tests::world::PATIENCE;
use serde_json::{Value, json};

const ARGO: &str = "argocd-controller";
const FLUX: &str = "kustomize-controller";

fn collection(object: &Value) -> String {
    let (version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
    let base = if version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{version}") };
    let plural = match kind {
        _ if kind.ends_with("Policy") => format!("{}ies", kind.to_lowercase().trim_end_matches('y')),
        "PriorityClass" => "priorityclasses".into(),
        _ => format!("{}s", kind.to_lowercase()),
    };
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{base}/namespaces/{namespace}/{plural}"),
        None => format!("{base}/{plural}"),
    }
}

fn path(object: &Value) -> String {
    format!("{}/{}", collection(object), object["metadata"]["name"].as_str().unwrap())
}

/// An object without the fields that every write changes, to be compared.
fn compared(object: &Value) -> Value {
    let mut object = object.clone();
    for field in ["managedFields", "resourceVersion", "generation", "creationTimestamp", "uid"] {
        object["metadata"].as_object_mut().unwrap().remove(field);
    }
    object
}

/// The outcome of one synchronization.
#[derive(Debug, Default)]
struct Sync {
    errors: Vec<String>,
    applied: Vec<String>,
}

/// Synchronizes an application once, by the same requests as the tool.
async fn synchronize(admin: &Asker, manager: &str, manifests: &[Value]) -> Sync {
    let mut sync = Sync::default();
    for manifest in manifests {
        let path = path(manifest);
        let wanted = admin.apply(&path, manager, true, manifest).await;
        if !matches!(wanted.code, 200 | 201) {
            sync.errors.push(format!("{path}: {} {}", wanted.code, wanted.message()));
            continue;
        }
        let live = admin.get(&path).await;
        if live.code == 200 && compared(&live.body) == compared(&wanted.body) {
            continue;
        }
        let applied = admin.apply(&path, manager, false, manifest).await;
        if !matches!(applied.code, 200 | 201) {
            sync.errors.push(format!("{path}: {} {}", applied.code, applied.message()));
            continue;
        }
        sync.applied.push(path);
    }
    sync
}

/// The manifests of the chart, as both tools render it.
fn rendered(rig: &Rig, values: &[String]) -> Vec<Value> {
    let values: Vec<&str> = values.iter().flat_map(|value| ["--set", value.as_str()]).collect();
    let chart = chart();
    let arguments =
        [&["template", "noderotation", &chart, "--namespace", NAMESPACE, "--include-crds", "--no-hooks"], &*values]
            .concat();
    let text = rig.helm(&arguments).unwrap();
    documents(&text).unwrap()
}

fn policies() -> Vec<Value> {
    let mut api = policy("api", &json!({"w": "api"}));
    api["spec"]["surge"] = json!({"cooldownAfter": "24h", "readyTimeout": "900s"});
    api["spec"]["maintenanceWindows"][0].as_object_mut().unwrap().remove("timezone");
    let mut all = policy("all", &json!({}));
    all["spec"]["nodePoolSelector"] = json!({});
    vec![api, all]
}

fn pools() -> Vec<Value> {
    vec![pool("api", &json!({"w": "api"})), pool("web", &json!({"w": "web"}))]
}

/// Synchronizes the three applications in this order until all are in sync, then proves that they stay so.
async fn in_this_order(manager: &str, order: [&str; 3]) {
    let rig = Rig::start(Options { bare: true, ..Options::default() }).await.unwrap();
    rig.install_karpenter_kinds().unwrap();
    rig.kubectl(&["create", "namespace", NAMESPACE]).unwrap();
    let address = ServiceAddress::free().unwrap();
    let mut values = address.values().to_vec();
    values.push("webhook.defaultTimezone=Asia/Tokyo".into());
    let release = rendered(&rig, &values);
    let product = Product::adopt(rig, address).unwrap();
    let admin = Asker::admin(&product.rig);
    let applications: Vec<Vec<Value>> = order
        .iter()
        .map(|name| match *name {
            "chart" => release.clone(),
            "policies" => policies(),
            _ => pools(),
        })
        .collect();

    let (mut webhook, began, mut rounds) = (None, Instant::now(), 0);
    loop {
        let mut errors = BTreeSet::new();
        for application in &applications {
            errors.extend(synchronize(&admin, manager, application).await.errors);
        }
        rounds += 1;
        // the Deployment's Pods would start by now; the program that they stand for does
        let is_deployed =
            admin.get("/apis/apps/v1/namespaces/noderotation/deployments/noderotation-webhook").await.code == 200;
        if webhook.is_none() && is_deployed {
            webhook = Some(product.start_webhook().await.unwrap());
        }
        if errors.is_empty() {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(120), "{order:?} by {manager}: {errors:#?}");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    println!("{order:?} by {manager}: in sync after {rounds} rounds");

    // a controller writes status, the webhook has written caBundle, defaults and a zone were filled in: no difference
    let _controller = product.start_leader().await.unwrap();
    product
        .rig
        .wait("a status", PATIENCE, async || {
            let all = product.rig.list(POLICIES).await?;
            Ok(all.iter().all(|policy| policy["status"]["conditions"].is_array()).then_some(()))
        })
        .await
        .unwrap();
    let versions = async || {
        let mut versions = Vec::new();
        for manifest in applications.iter().flatten() {
            let live = admin.get(&path(manifest)).await.body;
            versions.push((
                path(manifest),
                live["metadata"]["resourceVersion"].clone(),
                live["metadata"]["generation"].clone(),
            ));
        }
        versions
    };
    let before = versions().await;
    for application in &applications {
        let again = synchronize(&admin, manager, application).await;
        assert!(again.errors.is_empty() && again.applied.is_empty(), "{order:?} by {manager}: {again:#?}");
        for manifest in application {
            let forced = admin.apply(&path(manifest), manager, false, manifest).await;
            assert_eq!(forced.code, 200, "{}", forced.message());
        }
    }
    assert_eq!(versions().await, before, "a second synchronization wrote something");
    let api = admin.get(&format!("{POLICIES}/api")).await.body;
    assert_eq!(api["spec"]["surge"]["cooldownAfter"], "24h");
    assert_eq!(api["spec"]["surge"]["readyTimeout"], "900s");
    assert_eq!(api["spec"]["maintenanceWindows"][0]["timezone"], "Asia/Tokyo");

    // a mistake in the repository is refused by the dry run already, with everything that is wrong
    let mut wrong = policies();
    wrong[0]["spec"]["surge"]["cooldownAfter"] = json!("1d");
    wrong.push(policy("tied", &json!({"w": "api"})));
    let refused = synchronize(&admin, manager, &wrong).await;
    assert!(refused.applied.is_empty(), "{refused:#?}");
    let [duration, tie] = refused.errors.as_slice() else { panic!("{refused:#?}") };
    assert!(
        duration.contains("422")
            && duration.contains("spec.surge.cooldownAfter: found \"1d\"")
            && duration.contains("write 24h"),
        "{duration}"
    );
    assert!(
        tie.contains("422") && tie.contains("RotationPolicies api and tied") && tie.contains("NodePool api"),
        "{tie}"
    );
    assert_eq!(versions().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn argo_cd_with_the_chart_last() {
    in_this_order(ARGO, ["policies", "pools", "chart"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn argo_cd_with_the_chart_first() {
    in_this_order(ARGO, ["chart", "policies", "pools"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn flux_with_the_chart_in_the_middle() {
    in_this_order(FLUX, ["pools", "chart", "policies"]).await;
}

/// `kubectl apply` without `--server-side`, as Argo CD does by default: what others have filled in is no difference either.
#[tokio::test(flavor = "multi_thread")]
async fn client_side_apply_finds_no_difference() {
    let rig = Rig::start(Options { bare: true, ..Options::default() }).await.unwrap();
    rig.install_karpenter_kinds().unwrap();
    rig.kubectl(&["create", "namespace", NAMESPACE]).unwrap();
    let address = ServiceAddress::free().unwrap();
    let everything = [&address.values()[..], &["guardPolicy.enabled=true".to_owned()]].concat();
    let release = rendered(&rig, &everything);
    let crds: Vec<Value> = release.iter().filter(|o| o["kind"] == "CustomResourceDefinition").cloned().collect();
    let file = rig.folder().join("release.json");
    let list = |items: &[&Value]| json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    for crd in &crds {
        rig.apply(crd).unwrap(); // too large for the annotation of a client-side apply
    }
    let rest: Vec<&Value> = release.iter().filter(|o| o["kind"] != "CustomResourceDefinition").collect();
    std::fs::write(&file, list(&rest)).unwrap();
    let file = file.display().to_string();
    rig.kubectl(&["apply", "-f", &file]).unwrap();
    let product = Product::adopt(rig, address).unwrap();
    let _webhook = product.start_webhook().await.unwrap();
    let again = product.rig.kubectl(&["apply", "-f", &file]).unwrap();
    // kubectl sends a budget's selector each time, for it is one to be replaced as a whole; that changes nothing
    let is_budget = |line: &&str| line.starts_with("poddisruptionbudget");
    let changed: Vec<&str> = again.lines().filter(|line| !line.ends_with("unchanged") && !is_budget(line)).collect();
    assert_eq!(changed, Vec::<&str>::new());
    product.rig.kubectl(&["diff", "-f", &file]).unwrap();
    let api = product.rig.folder().join("policy.json");
    std::fs::write(&api, policy("api", &json!({"w": "api"})).to_string()).unwrap();
    let api = api.display().to_string();
    product
        .rig
        .wait("admission", PATIENCE, async || Ok(product.rig.kubectl(&["apply", "-f", &api]).is_ok().then_some(())))
        .await
        .unwrap();
    assert!(product.rig.kubectl(&["apply", "-f", &api]).unwrap().contains("unchanged"));
    product.rig.kubectl(&["diff", "-f", &api]).unwrap();
}

/// The examples ignore exactly the fields that the webhook writes.
#[test]
fn the_examples_ignore_what_the_webhook_writes() {
    let read = |name: &str| -> Vec<Value> {
        let text = std::fs::read_to_string(noderotation_rig::repository().join("examples/gitops").join(name)).unwrap();
        documents(&text).unwrap()
    };
    let argo = read("argocd.yaml");
    let ignored = argo[0]["spec"]["ignoreDifferences"].as_array().unwrap();
    let kinds = BTreeSet::from(["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]);
    assert_eq!(ignored.iter().map(|i| i["kind"].as_str().unwrap()).collect::<BTreeSet<_>>(), kinds);
    assert!(
        ignored
            .iter()
            .all(|i| i["name"] == "noderotation"
                && i["jqPathExpressions"] == json!([".webhooks[].clientConfig.caBundle"]))
    );
    assert!(argo.iter().all(|a| a["kind"] == "Application"
        && a["spec"]["syncPolicy"]["syncOptions"].to_string().contains("ServerSideApply=true")));
    let flux = read("flux.yaml");
    assert_eq!(
        flux.iter().map(|o| o["kind"].as_str().unwrap()).collect::<Vec<_>>(),
        ["GitRepository", "HelmRelease", "Kustomization"]
    );
    let ignored = flux[1]["spec"]["driftDetection"]["ignore"].as_array().unwrap();
    assert_eq!(ignored.iter().map(|i| i["target"]["kind"].as_str().unwrap()).collect::<BTreeSet<_>>(), kinds);
}
