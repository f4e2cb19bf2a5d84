//! Random bodies for the review parser and for each hook: no panic, always a proper and bounded answer.
//!
//! Each target runs for `NODEROTATION_FUZZ_SECONDS` (1 by default; `make fuzz` gives ten to each). A failure prints its
//! seed; `NODEROTATION_FUZZ_SEED` begins there.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use std::time::{Duration, Instant};

use jiff::Timestamp;
use noderotation_webhook::answer::Answer;
use noderotation_webhook::hooks::{Hook, Hooks, Rules};
use noderotation_webhook::review::{Malformed, Request};
use serde_json::{Map, Value, json};
use support::{hooks, policy, pool, resource_of, review, rules};

/// splitmix64: a stream of numbers from one seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    fn below(&mut self, most: usize) -> usize {
        usize::try_from(self.next() % most.max(1) as u64).unwrap()
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

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

fn value(random: &mut Random, depth: usize) -> Value {
    match random.below(if depth == 0 { 8 } else { 10 }) {
        0 => Value::Null,
        1 => json!(random.next().is_multiple_of(2)),
        2 => json!(random.next().cast_signed()),
        3 => json!(random.below(70)),
        4 => json!(f64::from_bits(random.next())),
        5 => json!(random.pick(&TEXTS).repeat(1 + random.below(3))),
        6 | 7 => json!(random.pick(&TEXTS)),
        8 => (0..random.below(5)).map(|_| value(random, depth - 1)).collect(),
        _ => Value::Object(
            (0..random.below(5))
                .map(|_| ((*random.pick(&TEXTS)).to_owned(), value(random, depth - 1)))
                .collect::<Map<_, _>>(),
        ),
    }
}

/// Every place in a value, as pointers.
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

/// Changes a few places of a good review, then perhaps a few bytes.
fn body(random: &mut Random, hook: Hook) -> Vec<u8> {
    let operation = *random.pick(&["CREATE", "UPDATE", "DELETE"]);
    let mut review = review(resource_of(hook), operation, &object(random, hook), &object(random, hook));
    for _ in 0..random.below(6) {
        let mut all = Vec::new();
        places(&review, "", &mut all);
        let place = random.pick(&all).clone();
        let new = value(random, 3);
        let target = review.pointer_mut(&place).unwrap();
        match (random.below(3), &mut *target) {
            (0, Value::Object(fields)) => drop(fields.insert((*random.pick(&TEXTS)).to_owned(), new)),
            (1, Value::Array(items)) => items.extend(std::iter::repeat_n(new, random.below(100))),
            _ => *target = new,
        }
    }
    let mut bytes = review.to_string().into_bytes();
    if random.below(4) == 0 {
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len());
            match random.below(3) {
                0 if !bytes.is_empty() => bytes[at] = random.byte(),
                1 => bytes.truncate(at),
                _ => bytes.insert(at, random.byte()),
            }
        }
    }
    bytes
}

fn object(random: &mut Random, hook: Hook) -> Value {
    let labels = json!({"w": random.pick(&["api", "web", "fixed"])});
    let mut object = match hook {
        Hook::MutatePolicy | Hook::ValidatePolicy => policy("p", &labels),
        _ => pool("n", &labels),
    };
    if random.below(2) == 0 {
        let marks: Map<String, Value> =
            (0..random.below(4)).map(|_| ((*random.pick(&TEXTS)).to_owned(), json!(random.pick(&TEXTS)))).collect();
        object["metadata"]["annotations"] = marks.into();
    }
    object
}

fn known() -> Hooks {
    let fixed = {
        let mut fixed = pool("fixed", &json!({"w": "fixed"}));
        fixed["spec"]["replicas"] = json!(1);
        fixed
    };
    let rules = Rules { default_zone: Some("UTC".into()), ..rules() };
    hooks(
        &[policy("w-api", &json!({"w": "api"})), policy("w-web", &json!({"w": "web"}))],
        &[pool("api", &json!({"w": "api"})), fixed],
        rules,
    )
}

fn check(answer: Answer, uid: &str) {
    let body = answer.body(uid);
    assert!(body.len() < 64 * 1024, "{} bytes", body.len());
    let answer: Value = serde_json::from_slice(&body).unwrap();
    let response = &answer["response"];
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

fn fuzz(hook: Hook) {
    let number =
        |name: &str, default: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let until = Instant::now() + Duration::from_secs(number("NODEROTATION_FUZZ_SECONDS", 1));
    let mut seed = number("NODEROTATION_FUZZ_SEED", 1);
    let (hooks, mut judged) = (known(), 0u64);
    while Instant::now() < until {
        let bytes = body(&mut Random(seed), hook);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match Request::read(&bytes) {
            Ok(request) => {
                check(hooks.answer(hook, &request, Timestamp::UNIX_EPOCH), &request.uid);
                true
            }
            Err(Malformed::Answerable { uid, why }) => {
                check(Answer::bad(why), &uid);
                false
            }
            Err(Malformed::Unreadable(why)) => {
                assert!(why.len() < 1_000);
                false
            }
        }));
        judged +=
            u64::from(outcome.unwrap_or_else(|_| panic!("{hook:?}: seed {seed}: {}", String::from_utf8_lossy(&bytes))));
        seed += 1;
    }
    println!("{hook:?}: {seed} bodies, {judged} judged");
    assert!(judged > seed / 4, "most bodies should get past the parser");
}

#[test]
fn mutate_policy() {
    fuzz(Hook::MutatePolicy);
}

#[test]
fn validate_policy() {
    fuzz(Hook::ValidatePolicy);
}

#[test]
fn validate_pool() {
    fuzz(Hook::ValidatePool);
}

#[test]
fn validate_claim() {
    fuzz(Hook::ValidateClaim);
}

#[test]
fn guard() {
    fuzz(Hook::Guard);
}

/// Bytes that have nothing of a review, and reviews cut off at every place.
#[test]
fn parser() {
    let mut random = Random(7);
    for length in 0..2_000 {
        let bytes: Vec<u8> = (0..length % 200).map(|_| random.byte()).collect();
        assert!(matches!(Request::read(&bytes), Err(Malformed::Unreadable(_))));
    }
    let whole = review("nodepools", "CREATE", &pool("n", &json!({})), &Value::Null).to_string();
    for end in 0..whole.len() {
        assert!(Request::read(&whole.as_bytes()[..end]).is_err(), "{end}");
    }
    assert!(Request::read(whole.as_bytes()).is_ok());
}
