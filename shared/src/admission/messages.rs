//! How lists of names read, and what the API server lets through of warnings and messages.

use std::collections::BTreeSet;

/// The API server passes this many characters of all warnings of a request; beyond, it cuts each to 256 and drops more.
const ALL_WARNINGS: usize = 4_096;

/// One warning may be so long that a few more fit.
const ONE_WARNING: usize = 1_024;

/// A refusal with everything that is wrong may be longer than anybody reads; it must not be longer than a response may be.
const MESSAGE: usize = 16_384;

/// Names in a message before a count stands for the rest.
const NAMES: usize = 10;

/// `a`, `a and b`, `a, b and c`; after ten a count.
pub fn list<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> String {
    let names: Vec<S> = names.into_iter().collect();
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match names.as_slice() {
        [] => String::new(),
        [one] => (*one).to_owned(),
        many if many.len() > NAMES => {
            format!("{} and {} more", many.get(..NAMES).unwrap_or_default().join(", "), many.len() - NAMES)
        }
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

/// `NodePool a`, `NodePools a and b`.
pub fn pools<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> String {
    counted("NodePool", names)
}

/// `RotationPolicy a`, `RotationPolicies a and b`.
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

/// Warnings as the API server passes them on: on one line each, none twice, none empty, all of them short enough
/// together; what does not fit is counted.
pub fn fit_warnings(warnings: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let lines: Vec<String> = warnings
        .into_iter()
        .map(|text| cut(&one_line(&text), ONE_WARNING))
        .filter(|text| !text.is_empty() && seen.insert(text.clone()))
        .collect();
    let last_word = |left: usize| format!("{left} more warnings: kubectl noderotation check -f FILE shows them all");
    let room = ALL_WARNINGS - last_word(lines.len()).len();
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
    kept.push(last_word(count - kept.len()));
    kept
}

/// A refusal's text: its parts on lines of their own, cut where no response may be longer.
pub fn message(refusals: &[String]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut room = MESSAGE;
    for refusal in refusals {
        // the first one is always there, however long
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

/// At most `most` characters, with a sign that something is missing.
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
