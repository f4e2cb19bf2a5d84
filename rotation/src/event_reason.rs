//! The reasons of Events (§11).

use noderotation_shared::blocked::BlockedReason;
use noderotation_shared::feasibility::Code;
use strum::{Display, IntoStaticStr, VariantNames};

/// The reason of an Event: its word is the variant's name, that of a finding its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, IntoStaticStr, VariantNames)]
pub enum EventReason {
    /// On a NodePool: a finding (§6).
    #[strum(transparent)]
    Finding(Code),
    /// On a NodePool: something keeps it from being rotated (§6.1). A fatal finding is told as that finding.
    #[strum(transparent)]
    Blocked(BlockedReason),
    /// On a NodePool: a rotation without a surge was anchored (§9.6).
    ForcefulFallback,
    /// On a NodePool: its limits leave no room for a replacement, or little (§9.4).
    InsufficientHeadroom,
    /// On a NodePool: a window closed with work undone (§8, step 0).
    WindowMissed,
    /// On a NodePool: nothing governs it any more, and its rotation was rolled back (§8).
    GovernanceLost,
    /// On a NodePool: a rotation was anchored.
    RotationStarted,
    /// On a NodePool: the old claim is gone and the anchor released.
    RotationCompleted,
    /// On a NodePool: a drain takes longer than its bound (§8).
    DrainStuck,
    /// On a NodePool, a NodeClaim and a Node: a Pod holds the drain (§13).
    DrainBlocked,
    /// On a NodePool: the API server rejected a write (§8).
    WriteRefused,
    /// On a NodePool: somebody else deleted the claim in rotation.
    RotationExpired,
    /// On a NodeClaim: it was born with less than its lead time (§6).
    ShortLead,
    /// On a NodeClaim: the operator's request cannot be met now (§7).
    RequestNotMet,
    /// On a Node: it was cordoned for its rotation.
    Cordoned,
    /// On a Node: somebody has uncordoned it while its rotation is pending, and it was cordoned again.
    CordonRestored,
    /// On a NodeClaim: an attempt was rolled back.
    RotationFailed,
    /// On a NodeClaim: its placeholder is still unschedulable though a Node should have come.
    SurgeUnschedulable,
    /// On a NodeClaim: the placeholder was made smaller than its Pods, within the band (§9.2).
    SurgeClamped,
    /// On a NodeClaim: the same, by more than the band.
    SurgeClampBandExceeded,
    /// On a NodeClaim: the placeholder would have been cut to nothing, and was not cut.
    SurgeClampRefused,
    /// On a NodeClaim: its volumes contradict each other or its zone (§9.1).
    SurgeZoneConflict,
    /// On a NodeClaim: its drain would never end (§9.7).
    Undrainable,
    /// On a NodeClaim: whether its drain would end cannot be judged (§9.7).
    BudgetsUnreadable,
}

impl EventReason {
    /// The word in `Event.reason`.
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// Whether its Events are of type `Normal`; all others are Warnings.
    pub fn is_normal(self) -> bool {
        match self {
            Self::RotationStarted | Self::RotationCompleted | Self::SurgeClamped | Self::Cordoned => true,
            Self::Blocked(reason) => reason.is_wanted(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of §11.
    const ALL: [(EventReason, &str); 22] = [
        (EventReason::ForcefulFallback, "ForcefulFallback"),
        (EventReason::InsufficientHeadroom, "InsufficientHeadroom"),
        (EventReason::WindowMissed, "WindowMissed"),
        (EventReason::GovernanceLost, "GovernanceLost"),
        (EventReason::RotationStarted, "RotationStarted"),
        (EventReason::RotationCompleted, "RotationCompleted"),
        (EventReason::DrainStuck, "DrainStuck"),
        (EventReason::DrainBlocked, "DrainBlocked"),
        (EventReason::WriteRefused, "WriteRefused"),
        (EventReason::RotationExpired, "RotationExpired"),
        (EventReason::ShortLead, "ShortLead"),
        (EventReason::RequestNotMet, "RequestNotMet"),
        (EventReason::Cordoned, "Cordoned"),
        (EventReason::CordonRestored, "CordonRestored"),
        (EventReason::RotationFailed, "RotationFailed"),
        (EventReason::SurgeUnschedulable, "SurgeUnschedulable"),
        (EventReason::SurgeClamped, "SurgeClamped"),
        (EventReason::SurgeClampBandExceeded, "SurgeClampBandExceeded"),
        (EventReason::SurgeClampRefused, "SurgeClampRefused"),
        (EventReason::SurgeZoneConflict, "SurgeZoneConflict"),
        (EventReason::Undrainable, "Undrainable"),
        (EventReason::BudgetsUnreadable, "BudgetsUnreadable"),
    ];

    /// The codes of §6, each of which is the reason of an Event.
    const CODES: [&str; 19] = [
        "NoWindows",
        "KBelowOne",
        "KBelowTwo",
        "ANonPositive",
        "AVeryAggressive",
        "OverrideNonPositive",
        "OverrideGBelowOne",
        "OverrideGBelowK",
        "TGPUnset",
        "HardCapExceeded",
        "RetryBackoffShort",
        "DrainMayOutlastWindow",
        "DrainEstimateAboveTGP",
        "ProvisioningEstimateAboveReadyTimeout",
        "ZoneNotRequired",
        "ThroughputBelowArrival",
        "ThroughputBurstShortfall",
        "RotationSpansNextWindow",
        "ExclusionStarvesClaims",
    ];

    #[test]
    fn the_words_are_those_of_the_specification() {
        for (reason, word) in ALL {
            assert_eq!((reason.word(), reason.to_string().as_str()), (word, word));
        }
        assert_eq!(EventReason::VARIANTS.len(), ALL.len() + 2, "all but the findings and what blocks");
        assert_eq!(Code::VARIANTS, CODES);
        assert_eq!(EventReason::Finding(Code::TGPUnset).word(), "TGPUnset");
    }

    /// The words of §6.1, of which an operator has wanted two.
    #[test]
    fn what_blocks_a_pool_has_a_word_of_its_own() {
        let words = [
            ("InvalidPolicy", false),
            ("PolicyConflict", false),
            ("Unselected", false),
            ("OldSchema", false),
            ("StaticNodePool", false),
            ("FatalFinding", false),
            ("NeverDue", false),
            ("NoWindowAhead", false),
            ("Suspended", true),
            ("Frozen", true),
            ("FreezeUnreadable", false),
            ("LimitsExhausted", false),
        ];
        let reasons = BlockedReason::all().iter().map(|reason| EventReason::Blocked(*reason));
        assert_eq!(reasons.map(|reason| (reason.word(), reason.is_normal())).collect::<Vec<_>>(), words);
    }

    #[test]
    fn four_other_reasons_are_normal() {
        let normal: Vec<_> = ALL.iter().filter(|(reason, _)| reason.is_normal()).map(|(_, word)| *word).collect();
        assert_eq!(normal, ["RotationStarted", "RotationCompleted", "Cordoned", "SurgeClamped"]);
        assert!(!EventReason::Finding(Code::KBelowTwo).is_normal());
    }
}
