//! `make demo`: a tour of the product on a real control plane, in the terminal.
//!
//! ```text
//!   boot ─▶ install ─▶ refuse a bad policy ─▶ nodes ─▶ policies ─▶ refuse what would break them ─▶ window opens
//!        ─▶ two rotations ─▶ what happened
//! ```

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use jiff::{SignedDuration, Timestamp};
use noderotation_rig::objects::{budget, deployment, node_pool};
use noderotation_rig::{Rig, repository};
use noderotation_shared::duration::human;
use serde_json::{Value, json};

use crate::world::{self, annotation, condition, name};
use crate::{Controller, Product};

/// The NodePool that `examples/api.yaml` selects.
const POOL: &str = "api";

/// The number of nodes that are rotated.
const ROTATIONS: usize = 2;

/// Runs the tour. With `keep`, everything runs on until Ctrl-C.
pub async fn run(keep: bool) -> anyhow::Result<()> {
    let began = Instant::now();
    say(
        "Building missing programs, then booting etcd, the API server, the scheduler, the controllers, kwok and Karpenter",
    );
    let product = Product::install().await?;
    say(&format!("Ready after {:.0?}; helm has installed the chart", began.elapsed()));
    let leader = product.start_leader().await?;
    let standby = product.start_controller().await?;
    say("Two controllers run with the chart's service account: one leads, the other stands by");
    say("The webhook serves behind the chart's Service, with a certificate that it issued itself");
    refuse_a_bad_policy(&product.rig)?;
    make_nodes(&product.rig).await?;
    let opens = apply_examples(&product.rig)?;
    refuse_what_would_break(&product.rig)?;
    let old = ask_for_rotation(&product.rig).await?;
    watch(&product, &leader, &old, opens).await?;
    tell_what_happened(&leader)?;
    if keep {
        look_around(&product, &leader).await?;
    }
    say("Cleaning up: stopping every process that was started");
    drop((leader, standby, product));
    Ok(())
}

fn say(text: &str) {
    println!("▸ {text}");
}

/// A policy with two mistakes: the refusal names both.
fn refuse_a_bad_policy(rig: &Rig) -> anyhow::Result<()> {
    let mut bad = world::policy("mistake");
    bad["spec"]["maintenanceWindows"][0]["timezone"] = "JST".into();
    bad["spec"]["surge"]["readyTimeout"] = "1d".into();
    say("Applying a policy with timezone: JST and readyTimeout: 1d; it is refused:");
    refused(rig.apply(&bad).map(|()| String::new()), "a bad policy")
}

/// A tie, a governed static NodePool, and an edit of a rotation's state: each is refused.
fn refuse_what_would_break(rig: &Rig) -> anyhow::Result<()> {
    let mut tied = world::policy("second");
    tied["spec"]["nodePoolSelector"] = json!({"matchLabels": {"workload": POOL}});
    say("Applying a second policy with the same selector; it is refused:");
    refused(rig.apply(&tied).map(|()| String::new()), "a tie")?;

    say("Applying a static NodePool that the policy would govern; it is refused:");
    let fixed = node_pool("fixed").label("workload", POOL).replicas(2).apply(rig);
    refused(fixed.map(|()| String::new()), "a governed static NodePool")?;

    let edit = ["annotate", "nodepool", POOL, "noderotation.io/active-rotation=somebody"];
    say(&format!("kubectl {} is refused, even for a cluster administrator:", edit.join(" ")));
    refused(rig.kubectl(&edit), "an edited annotation")
}

fn refused(outcome: anyhow::Result<String>, what: &str) -> anyhow::Result<()> {
    match outcome {
        Ok(_) => bail!("{what} was accepted"),
        Err(error) => println!("{}", indented(&error.to_string())),
    }
    Ok(())
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}

async fn make_nodes(rig: &Rig) -> anyhow::Result<()> {
    say(
        "Creating a NodePool, a Deployment of three Pods (one fits on a node) and a PodDisruptionBudget (maxUnavailable: 1)",
    );
    node_pool(POOL).label("workload", "api").apply(rig)?;
    deployment("shop", POOL, 3).cpu("1200m").apply(rig)?;
    budget(rig, "shop", &json!({"maxUnavailable": 1}))?;
    world::settled(rig, "shop", 3).await?;
    Ok(())
}

/// Applies the policies of `examples/`. The window of the first is moved to the next minute, instead of Saturday night; the
/// instant at which it opens.
fn apply_examples(rig: &Rig) -> anyhow::Result<Timestamp> {
    for file in ["api.yaml", "catch-all.yaml"] {
        let text = std::fs::read_to_string(repository().join("examples").join(file))?;
        rig.apply_text(&text)?;
    }
    let now = Timestamp::now();
    let opens = Timestamp::from_second((now.as_second() + 10).div_euclid(60) * 60 + 60)?;
    let patch =
        json!({"spec": {"maintenanceWindows": world::window(opens, 60), "surge": {"cooldownAfter": "5s"}}}).to_string();
    rig.kubectl(&["patch", "rotationpolicy", "api", "--type=merge", "-p", &patch])?;
    say(&format!(
        "Applied the policies of examples/, with the window of RotationPolicy api moved so that it opens at {opens}"
    ));
    Ok(opens)
}

/// Requests the rotation of the two oldest NodeClaims, since no new node is due; their names.
async fn ask_for_rotation(rig: &Rig) -> anyhow::Result<Vec<String>> {
    let old: Vec<String> = world::claims(rig, POOL).await?.iter().take(ROTATIONS).map(name).collect();
    for claim in &old {
        rig.kubectl(&["annotate", "nodeclaim", claim, "noderotation.io/rotate=next-window"])?;
    }
    say(&format!("kubectl annotate nodeclaim {} noderotation.io/rotate=next-window", old.join(" ")));
    Ok(old)
}

/// Shows the table until the old NodeClaims are gone and the last rotation has completed. An error after ten minutes.
async fn watch(product: &Product, leader: &Controller, old: &[String], opens: Timestamp) -> anyhow::Result<()> {
    let mut screen = Screen::new();
    let patience = Instant::now() + Duration::from_secs(600);
    loop {
        let rig = &product.rig;
        let claims = world::claims(rig, POOL).await?;
        let pool = world::pool(rig, POOL).await?;
        screen.show(&table(rig, &pool, &claims, opens).await?)?;
        let finished = !claims.iter().any(|c| old.contains(&name(c)))
            && annotation(&pool, "noderotation.io/active-rotation").is_none();
        if finished {
            return Ok(());
        }
        if Instant::now() > patience {
            bail!(
                "the rotations did not complete within ten minutes; the last lines of the controller's log:\n{}",
                leader.process.tail(20)
            );
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(500)) => {}
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        }
    }
}

async fn table(rig: &Rig, pool: &Value, claims: &[Value], opens: Timestamp) -> anyhow::Result<Vec<String>> {
    let now = Timestamp::now();
    let window = if now < opens {
        format!("closed, opens in {}", human(SignedDuration::from_secs(opens.duration_since(now).as_secs())))
    } else {
        "open".to_owned()
    };
    let anchor = annotation(pool, "noderotation.io/active-rotation").unwrap_or("none");
    let phase = annotation(pool, "noderotation.io/active-rotation-state").map_or("", |_| " (draining)");
    let mut lines = vec![format!("NodePool {POOL}   window: {window}   in rotation: {anchor}{phase}")];
    lines.push(format!(
        "  {:<14} {:<28} {:<9} {:<18} {:<10} PODS",
        "NODECLAIM", "NODE", "NODE IS", "SCHEDULING", "STATE"
    ));
    let nodes: BTreeMap<String, Value> = world::nodes(rig, POOL).await?.into_iter().map(|n| (name(&n), n)).collect();
    let pods = world::pods(rig, "shop").await?;
    let placeholders = world::placeholders(rig).await?;
    for claim in claims {
        let node = claim["status"]["nodeName"].as_str().unwrap_or_default();
        let found = nodes.get(node);
        let ready = found.map_or("-", |n| if condition(n, "Ready") == Some("True") { "Ready" } else { "NotReady" });
        let cordoned = found.is_some_and(|n| n["spec"]["unschedulable"] == true);
        let on_node = |p: &&Value| p["spec"]["nodeName"] == node && !node.is_empty();
        let apps = pods.iter().filter(on_node).filter(|p| p["status"]["phase"] == "Running").count();
        let reserved = if placeholders.iter().any(|p| on_node(&p)) { " + placeholder" } else { "" };
        let state = match annotation(claim, "noderotation.io/state") {
            Some(state) => state,
            None if !claim["metadata"]["deletionTimestamp"].is_null() => "deleting",
            None => "",
        };
        let scheduling = if cordoned { "cordoned" } else { "" };
        let short: String = node.chars().take(28).collect();
        lines.push(format!(
            "  {:<14} {short:<28} {ready:<9} {scheduling:<18} {state:<10} {apps}{reserved}",
            name(claim)
        ));
    }
    let pending = pods.iter().filter(|p| p["status"]["phase"] == "Pending").count();
    if pending > 0 {
        lines.push(format!("  {pending} Pod pending"));
    }
    Ok(lines)
}

/// A table that is redrawn in place, or where nobody looks, a line for each change.
struct Screen {
    is_terminal: bool,
    drawn: usize,
    last: Vec<String>,
}

impl Screen {
    fn new() -> Self {
        Self { is_terminal: std::io::stdout().is_terminal(), drawn: 0, last: Vec::new() }
    }

    fn show(&mut self, lines: &[String]) -> std::io::Result<()> {
        let mut out = std::io::stdout();
        if self.is_terminal {
            if self.drawn > 0 {
                write!(out, "\x1b[{}A\x1b[J", self.drawn)?;
            }
            for line in lines {
                writeln!(out, "{line}")?;
            }
            self.drawn = lines.len();
        } else {
            // the countdown changes every time and says nothing new
            let changed = |line: &&String| {
                !self.last.contains(line) && !line.contains("opens in") && !line.starts_with("  NODECLAIM")
            };
            for line in lines.iter().filter(changed) {
                writeln!(out, "{} {}", Timestamp::now().strftime("%H:%M:%S"), line.trim_end())?;
            }
            self.last = lines.to_vec();
        }
        out.flush()
    }
}

/// Prints the transitions of each rotation from the controller's log, with the seconds since the rotation started.
fn tell_what_happened(leader: &Controller) -> anyhow::Result<()> {
    let log = std::fs::read_to_string(leader.process.log())?;
    println!();
    say("What happened:");
    let mut began: Option<Timestamp> = None;
    for line in log.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok()).filter(|l| l["nodepool"] == POOL) {
        let at: Timestamp = line["timestamp"].as_str().context("a log line has no timestamp")?.parse()?;
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        let message = text("message");
        let detail = match message.as_str() {
            "rotation candidate selected" => {
                began = Some(at);
                println!("  NodeClaim {} on {}", text("nodeclaim"), text("node"));
                format!("by RotationPolicy {}", text("policy"))
            }
            "surge placeholder created" => format!("reserves {}", text("size")),
            "surge node ready" => format!("{}, {}", text("host"), text("surge_path")),
            "drain started" => format!("PodDisruptionBudgets hold for up to {}", text("bound")),
            "rotation complete" => format!("surge {}, drain {}", text("surge_wait"), text("drain")),
            "unfroze" => text("node"),
            _ => continue,
        };
        let since = began.map_or(0.0, |began| at.duration_since(began).as_secs_f64());
        println!("    {since:>7.2} s  {message:<28} {detail}");
    }
    Ok(())
}

async fn look_around(product: &Product, leader: &Controller) -> anyhow::Result<()> {
    println!();
    say("KEEP=1: everything keeps running. In another terminal:");
    let rig = &product.rig;
    println!("    export KUBECONFIG={} PATH={}:$PATH", rig.admin().display(), rig.programs.bin.display());
    println!("    kubectl get rotationpolicies,nodepools,nodeclaims,nodes");
    println!("    kubectl get events --field-selector reportingComponent=noderotation.io/controller");
    println!("    curl -s http://127.0.0.1:{}/metrics | grep nodepool", leader.port);
    println!("    tail -f {}", leader.process.log().display());
    println!("    kubectl annotate nodeclaim NAME noderotation.io/rotate=now    # another rotation");
    say("Press Ctrl-C to stop everything");
    tokio::signal::ctrl_c().await?;
    Ok(())
}
