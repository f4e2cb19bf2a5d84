//! Random bodies for the parser of reviews and for each endpoint: no panic, and always a proper response of bounded size.
//!
//! Each target runs for `NODEROTATION_FUZZ_SECONDS` (1 by default; `make fuzz` sets 15). A failure prints its seed;
//! `NODEROTATION_FUZZ_SEED` starts with that one.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use fastrand::Rng;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use noderotation_cluster::error::with_causes;
use noderotation_webhook::handlers::{Endpoint, Handlers, VerdictOptions};
use noderotation_webhook::request::{AdmissionRequest, Malformed};
use noderotation_webhook::response::AdmissionResponse;
use serde_json::{Map, Value, json};
use support::{handlers, options, policy, pool, resource_of, review};

const TEXTS: [&str; 28] = [
    "",
    " ",
    "a",
    "UTC",
    "JST",
    "Etc/GMT+9",
    "Asia/Tokyo",
    "24h",
    "0s",
    "-1h",
    "1e9h",
    "99999999999999999999h",
    "24:00",
    "25:61",
    "Mon",
    "2026-12-26",
    "2026-02-30T25:00",
    "9999-12-31",
    "auto",
    "Never",
    "\u{0}",
    "\u{202e}",
    "💥",
    "noderotation.io/state",
    "noderotation.io/break-glass",
    "karpenter.sh/nodepool",
    "In",
    "DoesNotExist",
];

fn value(random: &mut Rng, depth: usize) -> Value {
    match random.usize(..if depth == 0 { 8 } else { 10 }) {
        0 => Value::Null,
        1 => json!(random.bool()),
        2 => json!(random.i64(..)),
        3 => json!(random.usize(..70)),
        4 => json!(f64::from_bits(random.u64(..))),
        5 => json!(random.choice(TEXTS).unwrap().repeat(1 + random.usize(..3))),
        6 | 7 => json!(random.choice(TEXTS).unwrap()),
        8 => (0..random.usize(..5)).map(|_| value(random, depth - 1)).collect(),
        _ => Value::Object(
            (0..random.usize(..5))
                .map(|_| (random.choice(TEXTS).unwrap().to_owned(), value(random, depth - 1)))
                .collect::<Map<_, _>>(),
        ),
    }
}

/// The JSON pointer of every value inside a value.
fn places(of: &Value, here: &str, all: &mut Vec<String>) {
    all.push(here.to_owned());
    match of {
        Value::Object(fields) => {
            for (key, inner) in fields {
                places(inner, &format!("{here}/{}", key.replace('~', "~0").replace('/', "~1")), all);
            }
        }
        Value::Array(items) => {
            for (i, inner) in items.iter().enumerate() {
                places(inner, &format!("{here}/{i}"), all);
            }
        }
        _ => {}
    }
}

/// A valid review in which up to five values, and perhaps a few bytes, are replaced.
fn body(random: &mut Rng, endpoint: Endpoint) -> Vec<u8> {
    let operation = random.choice(["CREATE", "UPDATE", "DELETE"]).unwrap();
    let mut review = review(resource_of(endpoint), operation, &object(random, endpoint), &object(random, endpoint));
    for _ in 0..random.usize(..6) {
        let mut all = Vec::new();
        places(&review, "", &mut all);
        let pointer = random.choice(&all).unwrap().clone();
        let new = value(random, 3);
        let target = review.pointer_mut(&pointer).unwrap();
        match (random.usize(..3), &mut *target) {
            (0, Value::Object(fields)) => drop(fields.insert(random.choice(TEXTS).unwrap().to_owned(), new)),
            (1, Value::Array(items)) => items.extend(std::iter::repeat_n(new, random.usize(..100))),
            _ => *target = new,
        }
    }
    let mut bytes = review.to_string().into_bytes();
    if random.usize(..4) == 0 {
        for _ in 0..=random.usize(..4) {
            let at = random.usize(..bytes.len().max(1));
            match random.usize(..3) {
                0 if !bytes.is_empty() => bytes[at] = random.u8(..),
                1 => bytes.truncate(at),
                _ => bytes.insert(at, random.u8(..)),
            }
        }
    }
    bytes
}

fn object(random: &mut Rng, endpoint: Endpoint) -> Value {
    let labels = json!({"w": random.choice(["api", "web", "fixed"]).unwrap()});
    let mut object = match endpoint {
        Endpoint::MutatePolicy | Endpoint::ValidatePolicy => policy("p", &labels),
        _ => pool("n", &labels),
    };
    if random.usize(..2) == 0 {
        let annotations: Map<String, Value> = (0..random.usize(..4))
            .map(|_| (random.choice(TEXTS).unwrap().to_owned(), json!(random.choice(TEXTS).unwrap())))
            .collect();
        object["metadata"]["annotations"] = annotations.into();
    }
    object
}

fn test_handlers() -> Handlers {
    let fixed = {
        let mut fixed = pool("fixed", &json!({"w": "fixed"}));
        fixed["spec"]["replicas"] = json!(1);
        fixed
    };
    let options = VerdictOptions { default_zone: Some("UTC".into()), ..options() };
    handlers(
        &[policy("w-api", &json!({"w": "api"})), policy("w-web", &json!({"w": "web"}))],
        &[pool("api", &json!({"w": "api"})), fixed],
        options,
    )
}

fn check(response: AdmissionResponse, uid: &str) {
    let body = response.body(uid);
    assert!(body.len() < 64 * 1024, "{} bytes", body.len());
    let response: Value = serde_json::from_slice(&body).unwrap();
    let response = &response["response"];
    assert_eq!(response["uid"], uid);
    let allowed = response["allowed"].as_bool().unwrap();
    assert_eq!(allowed, response["status"].is_null());
    assert_eq!(response["patch"].is_null(), response["patchType"].is_null());
    assert!(allowed || !response["status"]["message"].as_str().unwrap().is_empty());
    let warnings = response["warnings"].as_array().cloned().unwrap_or_default();
    let total: usize = warnings.iter().map(|w| w.as_str().unwrap().chars().count()).sum();
    assert!(total <= 4_096, "{total} characters of warnings");
    assert!(warnings.iter().all(|w| !w.as_str().unwrap().chars().any(char::is_control)));
}

fn fuzz(endpoint: Endpoint) {
    let number =
        |name: &str, default: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let until = Instant::now() + Duration::from_secs(number("NODEROTATION_FUZZ_SECONDS", 1));
    let mut seed = number("NODEROTATION_FUZZ_SEED", 1);
    let (handlers, mut judged) = (test_handlers(), 0u64);
    while Instant::now() < until {
        let bytes = body(&mut Rng::with_seed(seed), endpoint);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match AdmissionRequest::read(&bytes) {
            Ok(request) => {
                check(handlers.handle(endpoint, &request, Timestamp::UNIX_EPOCH), &request.uid);
                true
            }
            Err(Malformed::Answerable { uid, error }) => {
                check(AdmissionResponse::bad(&error), &uid);
                false
            }
            Err(Malformed::Unreadable(error)) => {
                assert!(with_causes(&error).len() < 1_000);
                false
            }
        }));
        judged += u64::from(
            outcome.unwrap_or_else(|_| panic!("{endpoint:?}: seed {seed}: {}", String::from_utf8_lossy(&bytes))),
        );
        seed += 1;
    }
    println!("{endpoint:?}: {seed} bodies, {judged} judged");
    assert!(judged > seed / 4, "most bodies should get past the parser");
}

#[test]
fn mutate_policy() {
    fuzz(Endpoint::MutatePolicy);
}

#[test]
fn validate_policy() {
    fuzz(Endpoint::ValidatePolicy);
}

#[test]
fn validate_pool() {
    fuzz(Endpoint::ValidatePool);
}

#[test]
fn validate_claim() {
    fuzz(Endpoint::ValidateClaim);
}

#[test]
fn guard() {
    fuzz(Endpoint::Guard);
}

/// Random bytes, and a review that is cut off at every position.
#[test]
fn parser() {
    let mut random = Rng::with_seed(7);
    for length in 0..2_000 {
        let bytes: Vec<u8> = (0..length % 200).map(|_| random.u8(..)).collect();
        assert!(matches!(AdmissionRequest::read(&bytes), Err(Malformed::Unreadable(_))));
    }
    let whole = review("nodepools", "CREATE", &pool("n", &json!({})), &Value::Null).to_string();
    for end in 0..whole.len() {
        assert!(AdmissionRequest::read(&whole.as_bytes()[..end]).is_err(), "{end}");
    }
    assert!(AdmissionRequest::read(whole.as_bytes()).is_ok());
}
