//! How messages list names, and how warnings and refusals are kept within the API server's limits.

use std::collections::BTreeSet;

/// The characters that all warnings of a request may have together. If there are more, the API server cuts each warning
/// to 256 characters and drops what still does not fit.
const ALL_WARNINGS: usize = 4_096;

/// The characters that one warning may have, so that a few others still fit.
const ONE_WARNING: usize = 1_024;

/// The bytes that a refusal's message may have, well below the size that the API server accepts.
const MESSAGE: usize = 16_384;

/// The names that a list shows; of the rest it gives the number.
const NAMES: usize = 10;

/// Lists names: `a`, `a and b`, `a, b and c`. Shows ten names at most, followed by `and N more`; empty for no names.
pub fn list<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> String {
    let names: Vec<S> = names.into_iter().collect();
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match names.as_slice() {
        many if many.len() > NAMES => {
            format!("{} and {} more", many.get(..NAMES).unwrap_or_default().join(", "), many.len() - NAMES)
        }
        few => joined(few, "and"),
    }
}

/// Lists what may be written: `a`, `a or b`, `a, b or c`.
pub fn alternatives(words: &[&str]) -> String {
    joined(words, "or")
}

fn joined(words: &[&str], conjunction: &str) -> String {
    match words {
        [most @ .., last] if !most.is_empty() => format!("{} {conjunction} {last}", most.join(", ")),
        words => words.concat(),
    }
}

/// Lists NodePools: `NodePool a`, `NodePools a and b`.
pub fn pools<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> String {
    counted("NodePool", names)
}

/// Lists RotationPolicies: `RotationPolicy a`, `RotationPolicies a and b`.
pub fn policies<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> String {
    counted("RotationPolicy", names)
}

fn counted<S: AsRef<str>>(kind: &str, names: impl IntoIterator<Item = S>) -> String {
    let names: Vec<S> = names.into_iter().collect();
    let kind = match (kind, names.len()) {
        (one, 1) => one,
        ("RotationPolicy", _) => "RotationPolicies",
        _ => "NodePools",
    };
    format!("{kind} {}", list(names))
}

/// Fits warnings into the API server's limits: each on one line, without duplicates and empty ones, at most 4,096
/// characters together. If some do not fit, the last warning says how many.
pub fn fit_warnings(warnings: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let lines: Vec<String> = warnings
        .into_iter()
        .map(|text| cut(&one_line(&text), ONE_WARNING))
        .filter(|text| !text.is_empty() && seen.insert(text.clone()))
        .collect();
    let omitted = |count: usize| format!("{count} more warnings: kubectl noderotation check -f FILE shows them all");
    let room = ALL_WARNINGS - omitted(lines.len()).len();
    let total: usize = lines.iter().map(|line| line.chars().count()).sum();
    if total <= ALL_WARNINGS {
        return lines;
    }
    let (mut kept, mut used) = (Vec::new(), 0);
    let count = lines.len();
    for line in lines {
        used += line.chars().count();
        if used > room {
            break;
        }
        kept.push(line);
    }
    kept.push(omitted(count - kept.len()));
    kept
}

/// The message of a refusal: one line or more per problem, about 16 KiB at most. If some problems do not fit, the last
/// line says how many.
pub fn message(refusals: &[String]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut room = MESSAGE;
    for refusal in refusals {
        // the first problem is always shown, however long it is
        let part = if parts.is_empty() { cut(refusal, MESSAGE / 4) } else { refusal.clone() };
        let Some(left) = room.checked_sub(part.len()) else { break };
        room = left;
        parts.push(part);
    }
    if parts.len() < refusals.len() {
        let left = refusals.len() - parts.len();
        parts.push(format!("{left} more: kubectl noderotation check -f FILE shows them all"));
    }
    parts.join("\n")
}

/// Cuts `text` to `most` characters; the last one is then `…`.
pub fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Line breaks become `; `, other control characters a space.
fn one_line(text: &str) -> String {
    let joined = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
    joined.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_read_as_people_write_them() {
        assert_eq!(list([""; 0]), "");
        assert_eq!(pools(["a"]), "NodePool a");
        assert_eq!(policies(["a", "b", "c"]), "RotationPolicies a, b and c");
        let many: Vec<String> = (0..13).map(|i| format!("p{i}")).collect();
        assert_eq!(pools(&many), "NodePools p0, p1, p2, p3, p4, p5, p6, p7, p8, p9 and 3 more");
    }

    #[test]
    fn a_long_message_says_how_much_is_missing() {
        let parts: Vec<String> = (0..100).map(|i| format!("{i}{}", "x".repeat(400))).collect();
        let text = message(&parts);
        assert!(text.len() <= MESSAGE + 100 && text.contains("0xxx"));
        assert!(
            text.ends_with("60 more: kubectl noderotation check -f FILE shows them all"),
            "{}",
            &text[text.len() - 80..]
        );
        assert!(message(&["y".repeat(100_000)]).len() < MESSAGE);
        assert_eq!(message(&["a".into(), "b".into()]), "a\nb");
    }

    proptest! {
        #[test]
        fn warnings_are_as_the_api_server_passes_them_on(warnings in prop::collection::vec(any::<String>(), 0..40), long in 0usize..6000) {
            let fitted = fit_warnings(warnings.into_iter().chain(["w".repeat(long), "end".into()]));
            prop_assert!(fitted.iter().map(|w| w.chars().count()).sum::<usize>() <= ALL_WARNINGS);
            for (i, warning) in fitted.iter().enumerate() {
                prop_assert!(!warning.is_empty() && !warning.chars().any(char::is_control));
                prop_assert!(!fitted[..i].contains(warning));
            }
        }
    }
}
