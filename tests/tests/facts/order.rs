//! Whether two lists of facts are the same up to the order of facts that are concurrent: those of different actors, of which
//! neither waits for the other.

/// Who makes a fact, by its beginning, other than our controller. What one actor does has one order.
const ACTORS: &[(&str, &[&str])] = &[
    ("the scheduler", &["placeholder is unschedulable", "placeholder is bound"]),
    ("the kubelet, on its Node", &["surge Node exists", "surge Node is Ready"]),
    ("the kubelet, on the placeholder", &["placeholder is Running", "placeholder is gone"]),
    ("Karpenter, on a new Node", &["surge Node bears", "surge Node is initialized"]),
    ("Karpenter, on a new claim", &["surge claim is launched", "surge claim has a Node", "surge claim is Ready"]),
    ("Karpenter, on a second claim", &["surge claim 2 "]),
    ("Karpenter, on what the controller takes back", &["surge claim is gone"]),
    ("whoever deletes the old claim", &["old claim is being deleted"]),
    ("Karpenter, on the old claim", &["old Node is ", "old claim is gone"]),
];
const CONTROLLER: &str = "the controller";

/// What comes first, and what waits for it, by their beginnings: wherever both happen.
const CAUSES: &[(&str, &str)] = &[
    // a node comes
    ("placeholder is created", "placeholder is unschedulable"),
    ("placeholder is unschedulable", "surge claim is launched"),
    ("surge claim is launched", "surge Node exists"),
    ("surge Node exists", "surge Node bears"),
    ("surge Node bears", "surge claim has a Node"),
    ("surge Node is Ready", "surge Node is initialized"),
    ("surge Node is initialized", "surge claim is Ready"),
    ("surge Node is Ready", "placeholder is bound"),
    ("placeholder is bound", "placeholder is Running"),
    // the controller goes on when it sees this
    ("placeholder is bound", "old claim: +surge-claim"),
    ("placeholder is Running", "NodePool: active-rotation-state=draining"),
    ("surge Node is initialized", "NodePool: active-rotation-state=draining"),
    ("old claim is gone", "NodePool: -active-rotation -active-rotation-state -draining-at"),
    ("old claim is being deleted", "NodePool: active-rotation-state=expired"),
    // the old node goes
    ("old claim: state=draining", "old claim is being deleted"),
    ("old claim is being deleted", "old Node is being deleted"),
    ("old Node is gone", "old claim is gone"),
    // what the controller deletes goes
    ("placeholder is being deleted", "placeholder is gone"),
    ("surge claim is being deleted", "surge claim is gone"),
];

/// A fact that is there only where one of two concurrent facts came first: the fact, the first, the second.
const CONSEQUENCES: &[(&str, &str, &str)] = &[
    // Karpenter looks where the Pods of the expired Node can go while the placeholder still counts on the surge claim
    ("surge claim 2 is launched", "old Node is tainted", "placeholder is gone"),
];

/// The facts without those that follow from a chance which this list has taken.
pub fn without_chance(facts: &[String]) -> Vec<String> {
    let place = |fact: &str| facts.iter().position(|f| f == fact);
    let follows = |fact: &String| {
        CONSEQUENCES
            .iter()
            .any(|(what, first, second)| what == fact && place(first).zip(place(second)).is_some_and(|(a, b)| a < b))
    };
    facts.iter().filter(|fact| !follows(fact)).cloned().collect()
}

/// The facts up to the last of these, each in the order of its first appearance. A fact that comes again is another one.
pub fn until(facts: &[String], last: &[&str]) -> Vec<String> {
    let end = last.iter().map(|fact| facts.iter().position(|f| f == fact).map_or(facts.len(), |place| place + 1)).max();
    let mut unique: Vec<String> = Vec::new();
    for fact in facts.iter().take(end.unwrap_or(facts.len())) {
        let again = unique.iter().filter(|other| other.trim_end_matches(", again") == fact).count();
        unique.push(format!("{fact}{}", ", again".repeat(again)));
    }
    unique
}

/// What differs between two lists without repetitions, in sentences: facts that one of them lacks, and orders.
pub fn differences(real: &[String], simulated: &[String], is_concurrent: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let missing = real.iter().filter(|fact| !simulated.contains(fact)).map(|fact| format!("only real: {fact}"));
    let invented = simulated.iter().filter(|fact| !real.contains(fact)).map(|fact| format!("only simulated: {fact}"));
    let mut wrong: Vec<String> = missing.chain(invented).collect();
    let place = |fact: &String| simulated.iter().position(|f| f == fact);
    for (n, first) in real.iter().enumerate() {
        for second in &real[n + 1..] {
            let is_swapped = place(first).zip(place(second)).is_some_and(|(first, second)| first > second);
            if is_swapped && !is_concurrent(first, second) {
                wrong.push(format!("in the simulator before and not after the other: {second} | {first}"));
            }
        }
    }
    wrong
}

/// No two facts are concurrent.
pub fn never(_: &str, _: &str) -> bool {
    false
}

/// Different actors make these facts.
pub fn by_different_actors(a: &str, b: &str) -> bool {
    actor(a) != actor(b)
}

fn actor(fact: &str) -> &'static str {
    let is_theirs = |(_, facts): &&(&str, &[&str])| facts.iter().any(|beginning| fact.starts_with(beginning));
    ACTORS.iter().find(is_theirs).map_or(CONTROLLER, |(actor, _)| actor)
}

/// Facts that came before what causes them, in sentences.
pub fn before_their_causes(facts: &[String]) -> Vec<String> {
    let place = |beginning: &str| facts.iter().position(|fact| fact.starts_with(beginning));
    let is_early = |(cause, fact): &&(&str, &str)| place(cause).zip(place(fact)).is_some_and(|(a, b)| a > b);
    CAUSES.iter().filter(is_early).map(|(cause, fact)| format!("{fact} | before its cause: {cause}")).collect()
}

#[test]
fn an_order_that_matters_is_a_difference() {
    let facts = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let may_swap = |a: &str, b: &str| a != "a" && b != "a";
    assert_eq!(differences(&facts("a b c"), &facts("a c b"), may_swap), [""; 0]);
    assert_eq!(differences(&facts("a b c"), &facts("b a c"), may_swap).len(), 1);
    assert_eq!(differences(&facts("a b c"), &facts("a c b"), never).len(), 1);
    assert_eq!(differences(&facts("a b c"), &facts("a b d"), never), ["only real: c", "only simulated: d"]);
    assert_eq!(until(&facts("a b a c"), &["a", "b"]), ["a", "b"]);
    assert_eq!(until(&facts("a b a c"), &["c"]), ["a", "b", "a, again", "c"]);
}

#[test]
fn a_second_claim_follows_from_a_placeholder_that_was_there_too_long() {
    let taken = |order: [&str; 3]| without_chance(&order.map(str::to_owned)).len();
    assert_eq!(taken(["old Node is tainted", "placeholder is gone", "surge claim 2 is launched"]), 2);
    assert_eq!(taken(["placeholder is gone", "old Node is tainted", "surge claim 2 is launched"]), 3);
}

#[test]
fn actors_and_causes_order_the_facts() {
    assert!(by_different_actors("surge Node is initialized", "surge claim has a Node"));
    assert!(!by_different_actors("surge Node bears the label of its NodePool", "surge Node is initialized"));
    assert!(!by_different_actors("NodePool: +window-opened-at", "old Node: +do-not-disrupt cordoned"));
    let facts = |order: [&str; 3]| order.map(str::to_owned);
    let early = ["surge Node is Ready", "surge claim is Ready", "surge Node is initialized"];
    assert_eq!(
        before_their_causes(&facts(early)),
        ["surge claim is Ready | before its cause: surge Node is initialized"]
    );
    let right = ["surge Node is Ready", "surge Node is initialized", "surge claim is Ready"];
    assert_eq!(before_their_causes(&facts(right)), [""; 0]);
}
