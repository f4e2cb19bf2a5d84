//! Every target with generated inputs, and with the inputs of the corpus, changed or not.
//!
//! Each target runs for `NODEROTATION_FUZZ_SECONDS` (1 by default; `make fuzz` divides `FUZZ_SECONDS` among them). A failure prints
//! its seed, with which `NODEROTATION_FUZZ_SEED` begins, and the file that holds its input: keep it in `fuzz/corpus/<target>`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use fastrand::Rng;
use noderotation_fuzz::generator::{input, scramble};
use noderotation_fuzz::targets::Target;
use strum::VariantArray;

fn run(target: Target) {
    let number =
        |name: &str, default: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let corpus = corpus(target);
    for (path, bytes) in &corpus {
        feed(target, bytes, &path.display().to_string());
    }
    let until = Instant::now() + Duration::from_secs(number("NODEROTATION_FUZZ_SECONDS", 1));
    let mut seed = number("NODEROTATION_FUZZ_SEED", 1);
    let (first, mut read) = (seed, 0u64);
    while Instant::now() < until {
        let random = &mut Rng::with_seed(seed);
        let bytes = if random.usize(..4) == 0 {
            let mut kept = random.choice(&corpus).unwrap().1.clone();
            scramble(random, &mut kept);
            kept
        } else {
            input(random, target)
        };
        read += u64::from(feed(target, &bytes, &format!("seed {seed}")));
        seed += 1;
    }
    let fed = seed - first;
    println!("{}: {fed} inputs, {read} got past the parser", target.name());
    assert!(read > fed / 20, "the targets are hardly reached");
}

/// Feeds the target, and keeps an input that breaks it.
fn feed(target: Target, bytes: &[u8], whence: &str) -> bool {
    std::panic::catch_unwind(|| target.feed(bytes)).unwrap_or_else(|_| {
        let file = std::env::temp_dir().join(format!("noderotation-{}-{}", target.name(), bytes.len()));
        let kept = std::fs::write(&file, bytes).map_or_else(|error| error.to_string(), |()| file.display().to_string());
        panic!("{}: {whence}: {}\nkept in {kept}", target.name(), String::from_utf8_lossy(bytes))
    })
}

fn corpus(target: Target) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name());
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut all: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    all.sort();
    assert!(!all.is_empty(), "{} is empty", folder.display());
    all.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

/// Each target has a binary for libFuzzer, of the same name.
#[test]
fn libfuzzer_has_every_target() {
    let manifest = include_str!("../libfuzzer/Cargo.toml");
    for target in Target::VARIANTS {
        let (name, folder) = (target.name(), PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("libfuzzer/targets"));
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
        let text = std::fs::read_to_string(folder.join(format!("{name}.rs"))).unwrap();
        assert!(text.contains(&format!("Target::{target:?}.feed(")), "{name}");
    }
    assert_eq!(manifest.matches("[[bin]]").count(), Target::VARIANTS.len());
}

#[test]
fn review() {
    run(Target::Review);
}

#[test]
fn mutate_policy() {
    run(Target::MutatePolicy);
}

#[test]
fn validate_policy() {
    run(Target::ValidatePolicy);
}

#[test]
fn validate_pool() {
    run(Target::ValidatePool);
}

#[test]
fn validate_claim() {
    run(Target::ValidateClaim);
}

#[test]
fn guard() {
    run(Target::Guard);
}

#[test]
fn policy() {
    run(Target::Policy);
}

#[test]
fn annotations() {
    run(Target::Annotations);
}

#[test]
fn quantity() {
    run(Target::Quantity);
}

#[test]
fn duration() {
    run(Target::Duration);
}

#[test]
fn window() {
    run(Target::Window);
}
