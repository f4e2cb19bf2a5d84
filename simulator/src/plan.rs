//! What a history is made of.

use fastrand::Rng;
use jiff::SignedDuration;

/// What a history is made of. The same plan is the same history, on every machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a question of its own")]
pub struct Plan {
    /// From which everything is drawn.
    pub seed: u64,
    /// Whether anything goes wrong and people interfere.
    pub faults: bool,
    /// Which interventions take place, by their numbers ([`crate::chance`]); `None`: whatever the seed draws.
    pub only: Option<Vec<u32>>,
    /// NodePools, 1 to 3.
    pub pools: usize,
    /// Nodes of each NodePool at the beginning.
    pub nodes: usize,
    /// Controller processes, 1 or 2.
    pub replicas: usize,
    /// How long it lasts before everything is let go.
    pub length: SignedDuration,
    /// The NodePools' `expireAfter`.
    pub expire_after: SignedDuration,
    /// The NodePools' `terminationGracePeriod`.
    pub grace_period: Option<SignedDuration>,
    /// Whether the policy wants the forceful fallback.
    pub fallback: bool,
    /// When the window is open.
    pub windows: Windows,
    /// Whether the API server can stream initial states.
    pub streams: bool,
    /// Whether the NodePools' limits leave room for one node more.
    pub has_room: bool,
    /// A NodePool whose objects the API server lets nobody write; one that does not exist: none.
    pub refused_pool: Option<String>,
    /// Whether the last of several NodePools is static, so that nothing rotates there.
    pub has_static_pool: bool,
}

/// When a policy's window is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Windows {
    /// Always.
    Always,
    /// Four times a day for two hours, with a clock change in some histories.
    Often,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            seed: 0,
            faults: true,
            only: None,
            pools: 1,
            nodes: 4,
            replicas: 1,
            length: SignedDuration::from_hours(48),
            expire_after: SignedDuration::from_hours(12),
            grace_period: Some(SignedDuration::from_hours(1)),
            fallback: false,
            windows: Windows::Always,
            streams: true,
            has_room: true,
            refused_pool: None,
            has_static_pool: false,
        }
    }
}

impl Plan {
    /// A plan whose shape is drawn by the seed as well.
    pub fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x9e37_79b9_7f4a_7c15);
        let windows = if rng.u8(0..4) == 0 { Windows::Often } else { Windows::Always };
        // two chances of six hours each, and one rotation, before a node expires
        let shortest = if windows == Windows::Often { 20 } else { 6 };
        Self {
            seed,
            pools: rng.usize(1..=3),
            nodes: rng.usize(2..=4),
            replicas: rng.usize(1..=2),
            length: SignedDuration::from_hours(rng.i64(24..=60)),
            expire_after: SignedDuration::from_hours(shortest + rng.i64(0..=6)),
            grace_period: if rng.u8(0..5) == 0 { None } else { Some(SignedDuration::from_mins(rng.i64(5..=90))) },
            fallback: rng.u8(0..3) == 0,
            windows,
            streams: rng.u8(0..4) > 0,
            has_room: rng.u8(0..8) > 0,
            has_static_pool: rng.u8(0..5) == 0,
            ..Self::default()
        }
    }

    /// The names of the NodePools.
    pub fn pool_names(&self) -> impl Iterator<Item = &'static str> + use<> {
        ["api", "web", "batch"].into_iter().take(self.pools.clamp(1, 3))
    }

    /// Whether this NodePool is static.
    pub fn is_static(&self, pool: &str) -> bool {
        self.has_static_pool && self.pools > 1 && self.pool_names().last() == Some(pool)
    }

    /// The plan as Rust, for a unit test.
    pub fn as_code(&self) -> String {
        let seconds = |d: SignedDuration| format!("SignedDuration::from_secs({})", d.as_secs());
        let only = self.only.as_ref().map_or_else(|| "None".to_owned(), |only| format!("Some(vec!{only:?})"));
        let grace = self.grace_period.map_or_else(|| "None".to_owned(), |d| format!("Some({})", seconds(d)));
        let refused = self.refused_pool.as_ref().map_or_else(|| "None".to_owned(), |p| format!("Some({p:?}.into())"));
        format!(
            "Plan {{\n        seed: {}, faults: {}, only: {only},\n        pools: {}, nodes: {}, replicas: {}, length: {}, \
             expire_after: {},\n        grace_period: {grace}, fallback: {}, windows: Windows::{:?}, streams: {}, \
             has_room: {},\n        refused_pool: {refused}, has_static_pool: {},\n    }}",
            self.seed,
            self.faults,
            self.pools,
            self.nodes,
            self.replicas,
            seconds(self.length),
            seconds(self.expire_after),
            self.fallback,
            self.windows,
            self.streams,
            self.has_room,
            self.has_static_pool,
        )
    }
}
