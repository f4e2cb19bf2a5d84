//! Inputs for the targets: valid ones in which a few values or bytes are replaced, so that most get past the parser.

use fastrand::Rng;
use noderotation_shared::keys;
use noderotation_webhook::handlers::Endpoint;
use serde_json::{Map, Value, json};

use crate::support::{policy, pool, resource_of, review};
use crate::targets::Target;

/// Texts that some parser takes for something.
const TEXTS: [&str; 48] = [
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
    "1h2m3.5s",
    "+1.5h",
    "1ns",
    "2562047h47m16.854775807s",
    "2026-11-30T12:00:00Z",
    "2026-11-30T12:00:00.5+09:00",
    "2026-12-26T22:00",
    "2099-12-31T23:59:59",
    "23:59",
    "1Gi",
    "100m",
    "0.5",
    "1e3",
    "-1",
    "9223372036854775807Ei",
    "1n",
    "pending",
    "draining",
    "now",
    "forceful-fallback",
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

/// An input for this target.
pub fn input(random: &mut Rng, target: Target) -> Vec<u8> {
    let mut bytes = match target {
        Target::Quantity | Target::Duration | Target::Window => text(random).into_bytes(),
        Target::Annotations if random.bool() => text(random).into_bytes(),
        Target::Annotations => changed(random, watched).to_string().into_bytes(),
        Target::Policy => {
            changed(random, |_| policy("p", &json!({"w": "api"}))["spec"].clone()).to_string().into_bytes()
        }
        _ => {
            let endpoint = target.endpoint().unwrap_or(Endpoint::ValidatePolicy);
            changed(random, |random| any_review(random, endpoint)).to_string().into_bytes()
        }
    };
    if random.usize(..4) == 0 {
        scramble(random, &mut bytes);
    }
    bytes
}

/// Replaces, inserts and cuts off up to five bytes.
pub fn scramble(random: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..=random.usize(..4) {
        let at = random.usize(..bytes.len().max(1));
        match random.usize(..3) {
            0 if !bytes.is_empty() => bytes[at] = random.u8(..),
            1 => bytes.truncate(at),
            _ => bytes.insert(at, random.u8(..)),
        }
    }
}

/// One or two of the texts, perhaps cut.
fn text(random: &mut Rng) -> String {
    let mut text = random.choice(TEXTS).unwrap().to_owned();
    if random.usize(..3) == 0 {
        text.push_str(random.choice(TEXTS).unwrap());
        let end = random.usize(..=text.chars().count());
        text = text.chars().take(end).collect();
    }
    text
}

/// What `make` makes, with up to five values replaced, added or repeated.
fn changed(random: &mut Rng, make: impl Fn(&mut Rng) -> Value) -> Value {
    let mut made = make(random);
    for _ in 0..random.usize(..6) {
        let mut all = Vec::new();
        places(&made, "", &mut all);
        let pointer = random.choice(&all).unwrap().clone();
        let new = value(random, 3);
        let target = made.pointer_mut(&pointer).unwrap();
        match (random.usize(..3), &mut *target) {
            (0, Value::Object(fields)) => drop(fields.insert(random.choice(TEXTS).unwrap().to_owned(), new)),
            (1, Value::Array(items)) => items.extend(std::iter::repeat_n(new, random.usize(..100))),
            _ => *target = new,
        }
    }
    made
}

fn any_review(random: &mut Rng, endpoint: Endpoint) -> Value {
    let operation = random.choice(["CREATE", "UPDATE", "DELETE"]).unwrap();
    review(resource_of(endpoint), operation, &object(random, endpoint), &object(random, endpoint))
}

/// A NodePool, NodeClaim or Node with annotations of ours.
fn watched(random: &mut Rng) -> Value {
    let mut object = pool("n", &json!({"karpenter.sh/nodepool": "n"}));
    let annotations: Map<String, Value> = (0..random.usize(..6))
        .map(|_| (random.choice(keys::ALL).unwrap().name.to_owned(), json!(text(random))))
        .collect();
    object["metadata"]["annotations"] = annotations.into();
    object["metadata"]["creationTimestamp"] = json!("2026-11-01T00:00:00Z");
    object["spec"]["expireAfter"] = json!(text(random));
    object["status"]["allocatable"] = json!({"cpu": text(random), "memory": text(random)});
    object
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
