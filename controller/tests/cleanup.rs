//! The cleanup of an uninstallation: when it refuses to begin, what it removes, and what it tells of the rest (§9.5).
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use clap::Parser;
use noderotation_cluster::metrics::ClientMetrics;
use noderotation_controller::args::Args;
use noderotation_controller::cleanup::{self, refuse_while_deployed};
use serde_json::{Value, json};

use support::{body_of, response, serve, status};

/// Rendered output that somebody applies runs the Job beside a release that works; only a Deployment that is gone, or going,
/// shows an uninstallation. A server that does not say so shows nothing.
#[tokio::test]
async fn only_a_deployment_that_is_gone_lets_the_cleanup_begin() {
    let deployed = json!({"metadata": {"name": "c", "namespace": "ns"}});
    let going = json!({"metadata": {"name": "c", "namespace": "ns", "deletionTimestamp": "2026-11-30T00:00:00Z"}});
    for (code, body, refusal) in [
        (404, status(404, "NotFound"), None),
        (200, going, None),
        (200, deployed, Some("Deployment ns/c exists, so its release is not uninstalled; nothing was removed")),
        (403, status(403, "Forbidden"), Some("whether Deployment ns/c exists cannot be told")),
        (500, status(500, "InternalError"), Some("whether Deployment ns/c exists cannot be told")),
        (200, json!("no object"), Some("whether Deployment ns/c exists cannot be told")),
    ] {
        let text = body.to_string();
        let routes = Router::new().fallback(move || async move { response(code, text) });
        let api = serve(routes, Arc::new(ClientMetrics::default())).await;
        let refused = refuse_while_deployed(&api, "ns", "c").await.err().map(|error| error.to_string());
        match refusal {
            None => assert_eq!(refused, None, "{body}"),
            Some(part) => assert!(refused.as_deref().is_some_and(|text| text.contains(part)), "{body}: {refused:?}"),
        }
    }
}

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/noderotation-controller";
const POD: &str = "/api/v1/namespaces/ns/pods/surge-old";
const NODE: &str = "/api/v1/nodes/node-old";
const CLAIM: &str = "/apis/karpenter.sh/v1/nodeclaims/old";
const POOL: &str = "/apis/karpenter.sh/v1/nodepools/api";

/// An API server that holds these objects, by path, and answers the next requests of a method and path with these codes instead.
#[derive(Default)]
struct Server {
    objects: BTreeMap<String, Value>,
    version: u64,
    faults: Vec<(&'static str, String, u16)>,
}

impl Server {
    fn put(&mut self, path: &str, mut object: Value) -> (u16, Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.objects.insert(path.to_owned(), object.clone());
        (200, object)
    }

    fn answer(&mut self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        if let Some(at) = self.faults.iter().position(|(verb, at, _)| *verb == method && at == path) {
            let (_, _, code) = self.faults.remove(at);
            return (code, status(code, "Scripted"));
        }
        let Some(object) = self.objects.get(path).cloned() else {
            return match method {
                "GET" if is_collection(path) => (200, self.list(path)),
                "POST" => self.put(&format!("{path}/{}", body["metadata"]["name"].as_str().unwrap()), body.clone()),
                _ => (404, status(404, "NotFound")),
            };
        };
        match method {
            "GET" => (200, object),
            "PUT" => self.put(path, body.clone()),
            "DELETE" => {
                assert_eq!(body["preconditions"]["uid"], object["metadata"]["uid"]);
                self.objects.remove(path);
                (200, object)
            }
            _ if body["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] => {
                (409, status(409, "Conflict"))
            }
            _ => {
                let mut object = object;
                for (key, value) in body["metadata"]["annotations"].as_object().unwrap() {
                    let annotations = object["metadata"]["annotations"].as_object_mut().unwrap();
                    match value {
                        Value::Null => drop(annotations.remove(key)),
                        value => drop(annotations.insert(key.clone(), value.clone())),
                    }
                }
                if let Some(unschedulable) = body["spec"].get("unschedulable") {
                    object["spec"]["unschedulable"] = unschedulable.clone();
                }
                self.put(path, object)
            }
        }
    }

    fn list(&self, path: &str) -> Value {
        let prefix = format!("{path}/");
        let items: Vec<_> = self.objects.iter().filter(|(at, _)| at.starts_with(&prefix)).map(|(_, o)| o).collect();
        json!({"metadata": {"resourceVersion": self.version.to_string()}, "items": items})
    }

    fn annotations(&self, path: &str) -> Value {
        self.objects[path]["metadata"]["annotations"].clone()
    }
}

fn is_collection(path: &str) -> bool {
    ["/pods", "/nodes", "/nodeclaims", "/nodepools"].iter().any(|end| path.ends_with(end))
}

async fn answer(State(server): State<Arc<Mutex<Server>>>, request: Request) -> Response {
    let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
    let body = body_of(request).await;
    let (code, answer) = server.lock().unwrap().answer(&method, &path, &body);
    response(code, answer.to_string())
}

/// What a controller in the middle of a rotation leaves behind, beside what operators have written.
fn left_behind() -> Server {
    let mut server = Server::default();
    let meta = |name: &str, annotations: Value| json!({"name": name, "uid": format!("uid-{name}"), "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": annotations});
    let mut pod =
        json!({"metadata": meta("surge-old", json!({"noderotation.io/surge-for": "old"})), "spec": {}, "status": {}});
    pod["metadata"]["labels"] = json!({"noderotation.io/surge-for": "surge-old"});
    server.put(POD, pod);
    server.put(
        NODE,
        json!({
            "metadata": meta("node-old", json!({
                "noderotation.io/surge-for": "old", "noderotation.io/cordoned": "true",
                "noderotation.io/do-not-disrupt-owned": "true", "karpenter.sh/do-not-disrupt": "true", "team": "a",
            })),
            "spec": {"unschedulable": true}, "status": {},
        }),
    );
    server.put("/api/v1/nodes/operators", json!({
        "metadata": meta("operators", json!({"karpenter.sh/do-not-disrupt": "true"})), "spec": {"unschedulable": true}, "status": {},
    }));
    server.put(CLAIM, json!({
        "metadata": meta("old", json!({"noderotation.io/state": "pending", "noderotation.io/started-at": "x", "noderotation.io/rotate": "now"})),
        "spec": {}, "status": {},
    }));
    server.put(POOL, json!({
        "metadata": meta("api", json!({"noderotation.io/active-rotation": "old", "noderotation.io/freeze": "2099-01-01T00:00:00Z"})),
        "spec": {},
    }));
    server
}

/// Runs the cleanup against this server; its error, and what is left.
async fn run(name: &str, server: Server, flags: &[&str]) -> (Option<String>, Server) {
    let server = Arc::new(Mutex::new(server));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let routes = Router::new().fallback(answer).with_state(server.clone());
    let serving = tokio::spawn(async move { axum::serve(listener, routes).await });
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("cleanup-{name}.yaml"));
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": url}}], "users": [{"name": "x", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
    });
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    let file = file.display().to_string();
    let args = Args::parse_from([&["x", "--cleanup", "--namespace", "ns", "--kubeconfig", &file], flags].concat());
    let result = cleanup::run(&args).await;
    serving.abort();
    let left = std::mem::take(&mut *server.lock().unwrap());
    (result.err().map(|error| error.to_string()), left)
}

#[tokio::test]
async fn everything_of_ours_goes_and_what_operators_wrote_stays() {
    let mut server = left_behind();
    // each kind of answer after which it is tried again
    for code in [409, 429, 500] {
        server.faults.push(("PATCH", NODE.into(), code));
    }
    let (error, left) = run("all", server, &[]).await;
    assert_eq!(error, None);
    assert!(!left.objects.contains_key(POD));
    assert_eq!(
        (left.annotations(NODE), &left.objects[NODE]["spec"]),
        (json!({"team": "a"}), &json!({"unschedulable": false}))
    );
    assert_eq!(left.annotations("/api/v1/nodes/operators"), json!({"karpenter.sh/do-not-disrupt": "true"}));
    assert_eq!(left.objects["/api/v1/nodes/operators"]["spec"]["unschedulable"], true);
    assert_eq!(left.annotations(CLAIM), json!({"noderotation.io/rotate": "now"}));
    assert_eq!(left.annotations(POOL), json!({"noderotation.io/freeze": "2099-01-01T00:00:00Z"}));
    assert_eq!(left.objects[LEASE]["spec"]["holderIdentity"], "", "the lease was taken and is given up");
}

#[tokio::test]
async fn what_cannot_be_removed_holds_up_nothing_and_is_told() {
    let mut server = left_behind();
    for (method, path, code) in [
        ("PATCH", NODE, 403),
        ("DELETE", POD, 403),
        ("PATCH", CLAIM, 404),
        ("GET", "/apis/karpenter.sh/v1/nodepools", 403),
    ] {
        server.faults.push((method, path.into(), code));
    }
    let (error, left) = run("refused", server, &[]).await;
    let error = error.unwrap();
    // the claim is gone meanwhile, which is as good
    assert!(error.starts_with("0 objects were cleaned up, 3 could not be: "), "{error}");
    for part in ["ns/surge-old: ", "node-old: ", "nodepools.karpenter.sh cannot be listed: ", "run this again"] {
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
    assert_eq!(left.objects[LEASE]["spec"]["holderIdentity"], "");

    let mut server = left_behind();
    server.faults.push(("PATCH", NODE.into(), 409));
    server.faults.push(("GET", NODE.into(), 404));
    server.faults.push(("PATCH", CLAIM.into(), 409));
    server.faults.push(("GET", CLAIM.into(), 403));
    server.faults.push(("GET", "/apis/karpenter.sh/v1/nodepools".into(), 404));
    let (error, left) = run("gone", server, &[]).await;
    let error = error.unwrap();
    assert!(error.starts_with("1 objects were cleaned up, 1 could not be: ") && error.contains("old: "), "{error}");
    assert!(!left.objects.contains_key(POD) && left.annotations(POOL)["noderotation.io/active-rotation"] == "old");

    let (error, left) = run(
        "changing",
        {
            let mut server = left_behind();
            server.faults.extend((0..10).map(|_| ("PATCH", NODE.to_owned(), 409)));
            server
        },
        &[],
    )
    .await;
    assert!(error.unwrap().contains("it is changed all the time"));
    assert_eq!(left.annotations(CLAIM), json!({"noderotation.io/rotate": "now"}));
}

#[tokio::test]
async fn a_release_that_works_is_left_alone() {
    let mut server = left_behind();
    server.put("/apis/apps/v1/namespaces/ns/deployments/c", json!({"metadata": {"name": "c", "uid": "u"}}));
    let before = server.objects.clone();
    let (error, left) = run("deployed", server, &["--cleanup-unless-deployed", "c"]).await;
    assert!(error.unwrap().contains("Deployment ns/c exists"));
    assert_eq!(left.objects, before);
}
