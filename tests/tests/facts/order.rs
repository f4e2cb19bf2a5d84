//! Whether two lists of facts are the same up to the order of facts that are concurrent: neither waits for the other.

/// Two groups of facts, by their beginnings, that do not wait for each other.
pub type Concurrent = (&'static [&'static str], &'static [&'static str]);

/// Where the order is chance, on both sides, and why. What follows from a fact of a group keeps its order.
pub const CONCURRENT: &[Concurrent] = &[
    // the scheduler and the kubelet begin with the placeholder as soon as its Node is there; Karpenter goes on with the Node
    (
        &["placeholder is bound", "placeholder is Running"],
        &["surge claim has a Node", "surge Node is initialized", "surge claim is Ready"],
    ),
    // the kubelet reports the Node, Karpenter registers it
    (&["surge Node is Ready"], &["surge claim has a Node"]),
    // the controller notes the surge claim when the placeholder is bound; the others do not wait for that
    (&["old claim: +surge-claim"], &["placeholder is Running", "surge Node is initialized", "surge claim is Ready"]),
    // a rotation looks at the Node's own state, not at the claim's condition that Karpenter derives from it
    (
        &["surge claim is Ready"],
        &[
            "surge Node: ",
            "NodePool: active-rotation-state",
            "old claim: state=draining",
            "placeholder is being deleted",
            "placeholder is gone",
            "old claim is being deleted",
            "old Node is being deleted",
            "old Node is tainted",
        ],
    ),
    // what the controller takes back goes while it goes on
    (&["surge claim is gone"], &["old Node: -do-not-disrupt", "old claim: +failed-at", "NodePool: -active-rotation"]),
    // somebody has deleted the old claim: Karpenter begins to drain its Node, the controller withdraws
    (
        &["old Node is being deleted", "old Node is tainted"],
        &[
            "placeholder is being deleted",
            "placeholder is gone",
            "NodePool: active-rotation-state=expired",
            "old claim: -started-at state=expired",
            "old Node: -do-not-disrupt",
            "NodePool: -active-rotation -active-rotation-state",
        ],
    ),
    // without a surge one Node comes while the other goes
    (
        &[
            "surge Node exists",
            "surge Node bears",
            "surge Node is Ready",
            "surge Node is initialized",
            "surge claim has a Node",
            "surge claim is Ready",
        ],
        &["old Node is gone", "old claim is gone", "NodePool: -active-rotation"],
    ),
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

/// What differs between two lists without repetitions, in sentences.
pub fn differences(real: &[String], simulated: &[String], concurrent: &[Concurrent]) -> Vec<String> {
    let missing = real.iter().filter(|fact| !simulated.contains(fact)).map(|fact| format!("only real: {fact}"));
    let invented = simulated.iter().filter(|fact| !real.contains(fact)).map(|fact| format!("only simulated: {fact}"));
    let mut wrong: Vec<String> = missing.chain(invented).collect();
    let place = |fact: &String| simulated.iter().position(|f| f == fact);
    for (n, first) in real.iter().enumerate() {
        for second in &real[n + 1..] {
            let is_swapped = place(first).zip(place(second)).is_some_and(|(first, second)| first > second);
            if is_swapped && !are_concurrent(first, second, concurrent) {
                wrong.push(format!("in the simulator before and not after the other: {second} | {first}"));
            }
        }
    }
    wrong
}

fn are_concurrent(a: &str, b: &str, concurrent: &[Concurrent]) -> bool {
    let is_in = |fact: &str, group: &[&str]| group.iter().any(|beginning| fact.starts_with(beginning));
    concurrent.iter().any(|(some, others)| (is_in(a, some) && is_in(b, others)) || (is_in(b, some) && is_in(a, others)))
}

#[test]
fn an_order_that_matters_is_a_difference() {
    let facts = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let may_swap: &[Concurrent] = &[(&["b"], &["c"])];
    assert_eq!(differences(&facts("a b c"), &facts("a c b"), may_swap), [""; 0]);
    assert_eq!(differences(&facts("a b c"), &facts("b a c"), may_swap).len(), 1);
    assert_eq!(differences(&facts("a b c"), &facts("a b d"), may_swap), ["only real: c", "only simulated: d"]);
    let taken = |order: [&str; 3]| without_chance(&order.map(str::to_owned)).len();
    assert_eq!(taken(["old Node is tainted", "placeholder is gone", "surge claim 2 is launched"]), 2);
    assert_eq!(taken(["placeholder is gone", "old Node is tainted", "surge claim 2 is launched"]), 3);
    assert_eq!(until(&facts("a b a c"), &["a", "b"]), ["a", "b"]);
    assert_eq!(until(&facts("a b a c"), &["c"]), ["a", "b", "a, again", "c"]);
}
