//! One rotation without chance: nothing goes wrong and nobody interferes, except as the scenario says. Its facts can be
//! compared with those of the same rotation on a real cluster.
//!
//! ```
//! use noderotation_simulator::Scenario;
//! use noderotation_simulator::scenario::OLD_CLAIM;
//!
//! let played = Scenario { is_requested: true, ..Scenario::default() }.play();
//! assert!(played.cluster.claims.get(OLD_CLAIM).is_none(), "it was rotated");
//! assert!(played.writes.iter().any(|landed| landed.step == "delete-claim"));
//! ```

use jiff::SignedDuration;
use noderotation_shared::instant::plus;
use noderotation_shared::keys;
use noderotation_shared::objects::NodeClaim;
use serde_json::{Map, Value};

use crate::cluster::{Cluster, with};
use crate::event::Event;
use crate::facts::{Facts, Landed};
use crate::invariants::Violation;
use crate::karpenter;
use crate::plan::Plan;
use crate::process::Process;
use crate::run;
use crate::story::Story;

/// The name of the NodePool.
pub const POOL: &str = "api";

/// The name of the NodeClaim that the NodePool has at the beginning.
pub const OLD_CLAIM: &str = "old-api-0";

/// A NodePool with one node, which bears a workload, under a policy whose window is always open.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// `expireAfter` of the NodePool and its claims.
    pub expire_after: SignedDuration,
    /// Their `terminationGracePeriod`.
    pub grace_period: SignedDuration,
    /// How old the claim is at the beginning.
    pub age: SignedDuration,
    /// Fields of the policy's `spec`, which replace those of histories.
    pub policy: Map<String, Value>,
    /// Whether the rotation of the claim is requested, `next-window`.
    pub is_requested: bool,
    /// Whether nodes that are launched from now on never register.
    pub never_registers: bool,
    /// How long it lasts.
    pub length: SignedDuration,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            expire_after: SignedDuration::from_hours(720),
            grace_period: SignedDuration::from_hours(1),
            age: SignedDuration::from_mins(1),
            policy: Map::new(),
            is_requested: false,
            never_registers: false,
            length: SignedDuration::from_mins(20),
        }
    }
}

/// What has become of a scenario.
pub struct Played {
    /// The cluster in the end, with everything that has changed in it.
    pub cluster: Cluster,
    /// The writes of the controller that have landed, oldest first.
    pub writes: Vec<Landed>,
    /// The invariant that was violated, and how.
    pub violation: Option<Violation>,
    /// What happened, for people.
    pub story: Story,
}

/// What a scenario has otherwise than a history.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    pub(crate) policy: Map<String, Value>,
    pub(crate) never_registers: bool,
}

impl Scenario {
    /// Plays it. The same scenario is the same on every machine.
    pub fn play(&self) -> Played {
        let mut sim = run::new(&self.plan(), Story::told());
        sim.facts = Facts::kept();
        sim.script = Script { policy: self.policy.clone(), never_registers: self.never_registers };
        sim.apply_policy(false);
        sim.found_pool(POOL);
        karpenter::existing(&mut sim, POOL, OLD_CLAIM, self.age, 3);
        if self.is_requested {
            let request = |claim: &mut NodeClaim| {
                claim.meta.annotations = with(&claim.meta.annotations, keys::ROTATE, Some("next-window"));
            };
            sim.cluster.claims.change(OLD_CLAIM, request);
        }
        sim.processes.push(Process::new(0, sim.now, SignedDuration::ZERO));
        sim.after(sim.now, Event::Start(0));
        sim.run_until(plus(sim.began, self.length));
        Played { cluster: sim.cluster, writes: sim.facts.writes(), violation: sim.violation, story: sim.story }
    }

    /// Faults may happen, so that no invariant takes an expiry for the controller's own fault; none is drawn.
    fn plan(&self) -> Plan {
        Plan {
            only: Some(Vec::new()),
            expire_after: self.expire_after,
            grace_period: Some(self.grace_period),
            nodes: 1,
            ..Plan::default()
        }
    }
}
