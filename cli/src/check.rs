//! `check`: checks RotationPolicies and NodePools from files together, as admission would (§10, §14).

use jiff::Timestamp;
use noderotation_shared::admission::{PolicyChange, PolicyIndex, StaticPools, judge_policy, judge_pool};
use noderotation_shared::blocked::BlockedReason;
use noderotation_shared::duration::human;
use noderotation_shared::feasibility::{Derived, Finding};
use noderotation_shared::field_error::FieldError;
use noderotation_shared::instant;
use noderotation_shared::policy::Policy;
use serde::Serialize;

use crate::input::{Input, PolicyInput, PoolInput, parse_instant, read};
use crate::output::{OutputFormat, print, table};

/// The flags of `check`.
#[derive(clap::Args)]
pub struct CheckArgs {
    /// Files or folders with RotationPolicies and NodePools; - is standard input.
    #[arg(short, long = "filename", required = true, num_args = 1.., value_name = "FILE")]
    filename: Vec<String>,
    /// Read the folders below the given ones as well.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    output: OutputFormat,
    /// Number of nodes to assume in each NodePool, or in one of them, for the findings about throughput; may be repeated
    /// [default: 0].
    #[arg(long, value_name = "N|NODEPOOL=N", value_parser = parse_nodes)]
    nodes: Vec<Nodes>,
    /// What makes the exit code 1: refusals alone, or findings and what blocks a NodePool as well.
    #[arg(long, value_enum, default_value_t = FailOn::Warn, value_name = "LEVEL")]
    fail_on: FailOn,
    /// Check as of this instant (RFC 3339) or the begin of this day in UTC [default: now].
    #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
    at: Option<Timestamp>,
}

/// What makes the exit code 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum FailOn {
    /// A refusal, a finding, or something that blocks a NodePool.
    Warn,
    /// A refusal.
    Refuse,
}

/// A number of nodes, of one NodePool or of all.
#[derive(Clone, Debug)]
struct Nodes {
    pool: Option<String>,
    count: u32,
}

fn parse_nodes(text: &str) -> Result<Nodes, String> {
    let (pool, number) = text.split_once('=').map_or((None, text), |(pool, number)| (Some(pool.to_owned()), number));
    match number.parse() {
        Ok(count @ 0..=100_000) => Ok(Nodes { pool, count }),
        _ => Err("write a number from 0 to 100000, as in --nodes 30 or --nodes api=30".into()),
    }
}

/// How many nodes a NodePool has: by its own name, else by the number for all.
fn nodes_of(nodes: &[Nodes], pool: &str) -> u32 {
    let named = |name: Option<&str>| nodes.iter().rev().find(|nodes| nodes.pool.as_deref() == name);
    named(Some(pool)).or_else(|| named(None)).map_or(0, |nodes| nodes.count)
}

/// The result. Its JSON form is stable: fields may be added but do not change.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CheckReport {
    policies: Vec<PolicyReport>,
    node_pools: Vec<NodePoolReport>,
    /// The number of objects of other kinds.
    ignored: usize,
    /// Files that hold no Kubernetes object and lie beside such, as values.yaml.
    passed_over: Vec<String>,
    refusals: usize,
    findings: usize,
    /// The number of NodePools that something keeps from being rotated, and of policies that select none.
    blocked: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PolicyReport {
    name: String,
    file: String,
    document: usize,
    /// The line at which the document begins.
    line: usize,
    /// Why admission would refuse the policy; the problems of its own fields among them.
    refusals: Vec<String>,
    /// The problems of its own fields, each in its parts.
    problems: Vec<ProblemReport>,
    warnings: Vec<String>,
    /// It selects none of the NodePools of the files.
    blocked: Vec<BlockedReport>,
    next_windows: Vec<Window>,
}

/// What keeps a NodePool from being rotated (§6.1).
#[derive(Serialize)]
struct BlockedReport {
    reason: &'static str,
    message: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ProblemReport {
    path: String,
    found: String,
    why: String,
    instead: String,
    message: String,
}

#[derive(Serialize)]
struct Window {
    /// `None` if the window is always open.
    opens: Option<String>,
    closes: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NodePoolReport {
    name: String,
    file: String,
    document: usize,
    /// The line at which the document begins.
    line: usize,
    governed_by: Option<String>,
    refusals: Vec<String>,
    derived: Option<DerivedReport>,
    findings: Vec<FindingReport>,
    blocked: Vec<BlockedReport>,
}

/// The derived values of §2, and a description of them for people in `text`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DerivedReport {
    age_threshold_seconds: Option<i64>,
    window_period_seconds: i64,
    window_length_seconds: Option<i64>,
    window_gap_seconds: Option<i64>,
    rotation_bound_seconds: i64,
    rotation_estimate_seconds: i64,
    guaranteed_chances: i64,
    starts_per_window: i64,
    text: String,
}

#[derive(Serialize)]
struct FindingReport {
    code: String,
    severity: &'static str,
    message: String,
}

/// Runs the command; returns whether there are no refusals and no findings, and nothing is blocked.
pub fn run(args: &CheckArgs) -> anyhow::Result<bool> {
    let now = args.at.unwrap_or_else(Timestamp::now);
    let input = read(&args.filename, args.recursive, now)?;
    require_pools(&input, &args.nodes)?;
    anyhow::ensure!(
        !(input.policies.is_empty() && input.pools.is_empty()),
        "{}: neither a RotationPolicy nor a NodePool found",
        args.filename.join(", ")
    );
    let report = check(&input, now, &args.nodes);
    print(args.output, &report, || as_table(&report))?;
    let is_fine = match args.fail_on {
        FailOn::Warn => report.refusals == 0 && report.findings == 0 && report.blocked == 0,
        FailOn::Refuse => report.refusals == 0,
    };
    Ok(is_fine)
}

/// A name after `--nodes` that none of the NodePools has is a slip.
fn require_pools(input: &Input, nodes: &[Nodes]) -> anyhow::Result<()> {
    for name in nodes.iter().filter_map(|nodes| nodes.pool.as_deref()) {
        let names: Vec<&str> = input.pools.iter().map(|pool| pool.proposed.name.as_str()).collect();
        anyhow::ensure!(names.contains(&name), "--nodes {name}=…: no such NodePool; there are {}", names.join(", "));
    }
    Ok(())
}

fn check(input: &Input, now: Timestamp, nodes: &[Nodes]) -> CheckReport {
    let index = index(input);
    let policies: Vec<PolicyReport> = input.policies.iter().map(|p| policy_report(p, &index, now)).collect();
    let node_pools: Vec<NodePoolReport> = input.pools.iter().map(|p| pool_report(p, input, now, nodes)).collect();
    CheckReport {
        refusals: policies.iter().filter(|p| !p.refusals.is_empty()).count()
            + node_pools.iter().filter(|p| !p.refusals.is_empty()).count(),
        findings: node_pools.iter().map(|p| p.findings.len()).sum(),
        blocked: policies.iter().filter(|p| !p.blocked.is_empty()).count()
            + node_pools.iter().filter(|p| !p.blocked.is_empty()).count(),
        ignored: input.others,
        passed_over: input.passed_over.clone(),
        policies,
        node_pools,
    }
}

/// The objects of the files, as if they were those of a cluster.
fn index(input: &Input) -> PolicyIndex {
    let mut index = PolicyIndex::default();
    for policy in &input.policies {
        index.apply_policy(policy.parsed.clone());
    }
    for pool in &input.pools {
        index.apply_pool(pool.proposed.clone());
    }
    index
}

/// The policy as if it were created last. The findings of the NodePools that it governs are in their own reports.
fn policy_report(policy: &PolicyInput, index: &PolicyIndex, now: Timestamp) -> PolicyReport {
    let spec = policy.parsed.verdict.as_ref();
    let creation = PolicyChange { old: None, new: &policy.parsed };
    let verdict = judge_policy(index, creation, StaticPools::Deny, now);
    PolicyReport {
        name: policy.parsed.name.to_string(),
        file: policy.place.file.clone(),
        document: policy.place.document,
        line: policy.place.line,
        refusals: policy.problems.iter().map(ToString::to_string).chain(verdict.refusals).collect(),
        problems: policy.problems.iter().chain(spec.err().into_iter().flat_map(|p| &p.0)).map(problem_report).collect(),
        warnings: verdict.warnings,
        blocked: selects_nothing(policy, index).into_iter().collect(),
        next_windows: spec.map(|p| next_windows(p, now)).unwrap_or_default(),
    }
}

/// Without NodePools in the files nothing can be said.
fn selects_nothing(policy: &PolicyInput, index: &PolicyIndex) -> Option<BlockedReport> {
    let selector = policy.parsed.selector.as_ref()?;
    let is_alone = index.has_pools() && index.selected_by(selector).next().is_none();
    is_alone.then(|| BlockedReport {
        reason: BlockedReason::Unselected.word(),
        message:
            "nodePoolSelector selects none of these NodePools by their metadata.labels, so nothing is rotated by it"
                .into(),
    })
}

fn problem_report(problem: &FieldError) -> ProblemReport {
    ProblemReport {
        path: problem.path.clone(),
        found: problem.found.clone(),
        why: problem.why.clone(),
        instead: problem.instead.clone(),
        message: problem.to_string(),
    }
}

fn next_windows(policy: &Policy, now: Timestamp) -> Vec<Window> {
    let next = policy.schedule.occurrences(now).take(3);
    next.map(|o| Window { opens: o.opening().map(instant::format), closes: o.closing().map(instant::format) }).collect()
}

fn pool_report(pool: &PoolInput, input: &Input, now: Timestamp, nodes: &[Nodes]) -> NodePoolReport {
    let policies = input.policies.iter().map(|p| &*p.parsed);
    let verdict = judge_pool(&pool.proposed, policies, i64::from(nodes_of(nodes, &pool.proposed.name)), now);
    let finding =
        |f: Finding| FindingReport { severity: f.severity().into(), code: f.code.to_string(), message: f.message };
    NodePoolReport {
        name: pool.proposed.name.clone(),
        file: pool.place.file.clone(),
        document: pool.place.document,
        line: pool.place.line,
        governed_by: verdict.governed_by,
        refusals: pool.problems.iter().map(ToString::to_string).chain(verdict.refusals).collect(),
        derived: verdict.derived.as_ref().map(derived_report),
        findings: verdict.findings.into_iter().map(finding).collect(),
        blocked: verdict.blocked.iter().map(|b| BlockedReport { reason: b.word(), message: b.to_string() }).collect(),
    }
}

fn derived_report(d: &Derived) -> DerivedReport {
    let seconds = |d: jiff::SignedDuration| d.as_secs();
    DerivedReport {
        age_threshold_seconds: d.age_threshold.map(seconds),
        window_period_seconds: d.window_period.as_secs(),
        window_length_seconds: d.window_length.map(seconds),
        window_gap_seconds: d.window_gap.map(seconds),
        rotation_bound_seconds: d.rotation_bound.as_secs(),
        rotation_estimate_seconds: d.rotation_estimate.as_secs(),
        guaranteed_chances: d.guaranteed_chances,
        starts_per_window: d.starts_per_window,
        text: derived_text(d),
    }
}

fn derived_text(d: &Derived) -> String {
    let due = match d.age_threshold {
        Some(age) if age.is_positive() => format!("a node is due at the age of {}", human(age)),
        Some(_) => "a node is due from the start".into(),
        None => "a node is never due".into(),
    };
    let plural = |n: i64, singular: &str, plural: &str| format!("{n} {}", if n == 1 { singular } else { plural });
    let windows = match (d.window_length, d.window_gap) {
        (Some(length), Some(gap)) => format!(
            "windows open at least every {}, for at least {}, and at least {} apart",
            human(d.window_period),
            human(length),
            human(gap)
        ),
        _ if d.window_period.is_zero() => "the window never opens".into(),
        _ => "the window is always open".into(),
    };
    let rotation =
        format!("a rotation takes about {}, {} at most", human(d.rotation_estimate), human(d.rotation_bound));
    let mut parts = vec![due, windows, rotation];
    // nodes that would be due before they exist are guaranteed nothing: the finding says so
    if d.expire_after.is_some() && d.age_threshold.is_some_and(|age| age.is_positive()) {
        let chances = d.guaranteed_chances.max(0);
        parts.push(format!("{} guaranteed before a node expires", plural(chances, "window is", "windows are")));
    }
    if d.window_length.is_some() {
        parts.push(format!("{} into one window", plural(d.starts_per_window, "rotation fits", "rotations fit")));
    }
    parts.join("; ")
}

fn as_table(report: &CheckReport) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    for policy in &report.policies {
        let _ = writeln!(
            text,
            "RotationPolicy {} in {} (document {}, line {})",
            policy.name, policy.file, policy.document, policy.line
        );
        for refusal in &policy.refusals {
            let _ = writeln!(text, "  refused  {refusal}");
        }
        for warning in &policy.warnings {
            let _ = writeln!(text, "  warning  {warning}");
        }
        for blocked in &policy.blocked {
            let _ = writeln!(text, "  blocked  {}: {}", blocked.reason, blocked.message);
        }
        for window in &policy.next_windows {
            let or_always = |at: &Option<String>| at.clone().unwrap_or_else(|| "always".into());
            let _ = writeln!(text, "  window   {} – {}", or_always(&window.opens), or_always(&window.closes));
        }
    }
    for pool in &report.node_pools {
        let by = pool.governed_by.as_ref().map_or_else(
            || "not governed by a RotationPolicy, so not rotated".to_owned(),
            |p| format!("RotationPolicy {p}"),
        );
        let _ = writeln!(
            text,
            "NodePool {} in {} (document {}, line {}): {by}",
            pool.name, pool.file, pool.document, pool.line
        );
        for refusal in &pool.refusals {
            let _ = writeln!(text, "  refused  {refusal}");
        }
        if let Some(derived) = &pool.derived {
            for sentence in derived.text.split("; ") {
                let _ = writeln!(text, "  derived  {sentence}");
            }
        }
        // a fatal finding has a line of its own
        for blocked in pool.blocked.iter().filter(|b| b.reason != BlockedReason::FatalFinding.word()) {
            let _ = writeln!(text, "  blocked  {}: {}", blocked.reason, blocked.message);
        }
        for finding in &pool.findings {
            let _ = writeln!(text, "  {:<8} {}: {}", finding.severity, finding.code, finding.message);
        }
    }
    for file in &report.passed_over {
        let _ = writeln!(text, "passed over: {file} holds no Kubernetes object");
    }
    let mut totals = table(&["POLICIES", "NODEPOOLS", "REFUSALS", "FINDINGS", "BLOCKED"]);
    let counts = [report.policies.len(), report.node_pools.len(), report.refusals, report.findings, report.blocked];
    totals.add_row(counts.map(|n| n.to_string()));
    let _ = write!(text, "\n{totals}");
    text
}
