//! What the API server answers to a live read (§10 *What was just admitted*).
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use noderotation_cluster::api::Api;
use noderotation_shared::kind::Kind;
use noderotation_webhook::live::LiveReader;
use serde_json::json;

fn status(code: u16) -> impl IntoResponse {
    let text = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": "Scripted", "message": ""});
    (StatusCode::from_u16(code).unwrap(), text.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_an_answer_and_a_failure_is_none() {
    let root = "/apis/karpenter.sh/v1/nodepools";
    let routes = Router::new()
        .route(&format!("{root}/there"), get(async || json!({"metadata": {"name": "there"}}).to_string()))
        .route(&format!("{root}/gone"), get(async || status(404)))
        .route(&format!("{root}/refused"), get(async || status(403)));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let client = kube::Client::try_from(kube::Config::new(address.parse().unwrap())).unwrap();
    let api = Api::new(client, 100, 100, Arc::default());
    let read = async |name: &'static str| LiveReader::read(&api, Kind::NodePool, name).await;
    assert_eq!(read("there").await.unwrap().unwrap(), r#"{"metadata":{"name":"there"}}"#);
    assert_eq!(read("gone").await.unwrap(), None);
    assert!(read("refused").await.unwrap_err().to_string().contains("403"));
}
