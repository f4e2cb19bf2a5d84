//! What has to be done with the Secret: a chain of questions, the first that says yes wins. Pure.

use jiff::{SignedDuration, Timestamp};

use crate::issue::{self, BACKDATED};
use crate::secret_data::{Certificate, SecretData};

/// How long things last.
#[derive(Clone, Debug)]
pub struct CertificateSettings {
    /// Names of the Service, for which the certificate is.
    pub names: Vec<String>,
    /// Of a serving certificate; renewed after two thirds.
    pub leaf: SignedDuration,
    /// Of an authority; replaced after two thirds.
    pub authority: SignedDuration,
    /// How long it may take until every API server has seen a changed `caBundle`.
    pub propagation: SignedDuration,
}

/// What has to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing is there that can be used: a new authority and certificate.
    Begin,
    /// The Secret is gone or was spoilt: what was served until now goes back, perhaps with a next authority.
    Restore {
        /// Somebody deleted it, as one does to force a renewal.
        was_deleted: bool,
    },
    /// Nothing that the previous authority signed can be valid any more.
    Retire,
    /// Everybody trusts the next authority: it signs from now on.
    Promote,
    /// The authority has lived two thirds of its life: a next one, to be trusted before it signs.
    Introduce,
    /// The certificate has lived two thirds of its life, or is for other names.
    Renew,
    /// Nothing before this instant.
    Keep(Timestamp),
}

/// What is observed when a plan is made.
#[derive(Clone, Copy, Debug)]
pub struct ObservedState<'a> {
    /// What the Secret holds, if it can be used.
    pub data: Option<&'a SecretData>,
    /// There is a Secret.
    pub has_secret: bool,
    /// What was served last.
    pub last_good: Option<&'a SecretData>,
    /// Every `caBundle` has held exactly what is to be trusted for long enough to be seen by every API server.
    pub is_trusted: bool,
}

/// Decides.
pub fn plan(observed: ObservedState<'_>, settings: &CertificateSettings, now: Timestamp) -> Action {
    let usable = |m: &&SecretData| m.leaf.certificate.not_after > now;
    let Some(data) = observed.data.filter(usable) else {
        return match observed.last_good.filter(usable) {
            Some(_) => Action::Restore { was_deleted: !observed.has_secret },
            None => Action::Begin,
        };
    };
    let mut later = vec![due(&data.leaf.certificate), data.leaf.certificate.not_after];
    if let Some((_, until)) = &data.previous {
        if *until < now {
            return Action::Retire;
        }
        later.push(*until);
    }
    if let Some((_, since)) = &data.next {
        let promotion = since.saturating_add(settings.propagation).unwrap_or(Timestamp::MAX);
        if promotion <= now && observed.is_trusted {
            return Action::Promote;
        }
        later.push(promotion.max(now));
    } else {
        if due(&data.signer.certificate) <= now {
            return Action::Introduce;
        }
        later.push(due(&data.signer.certificate));
    }
    if due(&data.leaf.certificate) <= now || !is_for(&data.leaf.certificate, &settings.names) {
        return Action::Renew;
    }
    Action::Keep(later.into_iter().filter(|at| *at > now).min().unwrap_or(now))
}

/// After two thirds of a certificate's life.
fn due(certificate: &Certificate) -> Timestamp {
    let life = certificate.not_after.duration_since(certificate.not_before).saturating_sub(BACKDATED);
    certificate.not_after.checked_sub(life / 3).unwrap_or(certificate.not_after)
}

fn is_for(certificate: &Certificate, names: &[String]) -> bool {
    names.iter().all(|name| certificate.names.contains(name))
}

/// Carries an action out: what the Secret is to hold. `None`: nothing is to be written.
pub fn apply_action(
    action: Action,
    observed: ObservedState<'_>,
    settings: &CertificateSettings,
    now: Timestamp,
) -> Result<Option<SecretData>, String> {
    let leaf = |signer| issue::leaf(signer, &settings.names, now, settings.leaf);
    let next = || Ok::<_, String>(Some((issue::authority(now, settings.authority)?, now)));
    let current = || observed.data.cloned().ok_or_else(|| "there is no data to go on from".to_owned());
    Ok(Some(match action {
        Action::Keep(_) => return Ok(None),
        Action::Begin => {
            let signer = issue::authority(now, settings.authority)?;
            SecretData { leaf: leaf(&signer)?, signer, next: None, previous: None }
        }
        Action::Restore { was_deleted } => {
            let mut data = observed.last_good.cloned().ok_or("nothing was served before")?;
            if was_deleted && data.next.is_none() {
                data.next = next()?;
            }
            data
        }
        Action::Retire => SecretData { previous: None, ..current()? },
        Action::Introduce => SecretData { next: next()?, ..current()? },
        Action::Renew => {
            let data = current()?;
            SecretData { leaf: leaf(&data.signer)?, ..data }
        }
        Action::Promote => {
            let data = current()?;
            let (signer, _) = data.next.ok_or("there is no next authority")?;
            let until = data.leaf.certificate.not_after;
            let previous = Some((data.signer.certificate, until));
            SecretData { leaf: leaf(&signer)?, signer, next: None, previous }
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn settings() -> CertificateSettings {
        CertificateSettings {
            names: vec!["webhook.noderotation.svc".into()],
            leaf: SignedDuration::from_hours(90 * 24),
            authority: SignedDuration::from_hours(730 * 24),
            propagation: SignedDuration::from_mins(1),
        }
    }

    fn start() -> Timestamp {
        "2026-11-29T00:00:00Z".parse().unwrap()
    }

    fn observed(data: Option<&SecretData>, is_trusted: bool) -> ObservedState<'_> {
        ObservedState { data, has_secret: data.is_some(), last_good: None, is_trusted }
    }

    /// One step; the instant of the next one where there is none.
    fn step(data: &mut Option<SecretData>, is_trusted: bool, now: Timestamp) -> Action {
        let action = plan(observed(data.as_ref(), is_trusted), &settings(), now);
        if let Some(new) = apply_action(action, observed(data.as_ref(), is_trusted), &settings(), now).unwrap() {
            // what is written can be read again
            assert_eq!(SecretData::read(&new.data()).unwrap(), new);
            *data = Some(new);
        }
        action
    }

    #[test]
    fn a_decade_of_renewals_and_rollovers() {
        let (mut data, mut now, mut actions) = (None, start(), Vec::new());
        let end = now + SignedDuration::from_hours(10 * 365 * 24);
        while now < end {
            match step(&mut data, true, now) {
                Action::Keep(at) => {
                    assert!(at > now, "it would spin");
                    now = at;
                }
                action => actions.push(action),
            }
            assert!(data.as_ref().unwrap().leaf.certificate.not_after > now, "expired on {now}");
        }
        let count = |action| actions.iter().filter(|a| **a == action).count();
        assert_eq!(actions[0], Action::Begin);
        // 3,650 days: an authority each 486 and two thirds, a certificate each 60
        assert_eq!((count(Action::Introduce), count(Action::Promote)), (7, 7));
        // eight renewals between two rollovers, four after the last
        assert_eq!(count(Action::Renew), 60);
        assert_eq!(count(Action::Retire), 7);
    }

    #[test]
    fn nothing_is_promoted_before_everybody_trusts_it() {
        let (mut data, mut now) = (None, start());
        step(&mut data, true, now);
        now += settings().authority / 3 * 2;
        // the certificate is overdue by now, but one that is still valid is what matters here
        data.as_mut().unwrap().leaf =
            issue::leaf(&data.as_ref().unwrap().signer, &settings().names, now, settings().leaf).unwrap();
        assert_eq!(step(&mut data, false, now), Action::Introduce);
        let before = data.clone().unwrap().trusted();
        now += SignedDuration::from_hours(24);
        assert!(matches!(step(&mut data, false, now), Action::Keep(_)));
        assert_eq!(step(&mut data, true, now), Action::Promote);
        let promoted = data.clone().unwrap();
        assert_eq!(promoted.trusted(), before, "a change of roles is no change of trust");
        assert!(promoted.signer.certificate.signed(&promoted.leaf.certificate));
        let (_, until) = promoted.previous.clone().unwrap();
        assert_eq!(step(&mut data, true, until), Action::Renew);
        assert!(matches!(step(&mut data, true, until), Action::Keep(_)), "the old certificate may still be served");
        now = until + SignedDuration::from_secs(1);
        assert_eq!(step(&mut data, true, now), Action::Retire);
        assert_eq!(data.unwrap().trusted(), promoted.signer.certificate.pem);
    }

    #[test]
    fn a_secret_spoilt_by_hand_is_put_back() {
        let (mut data, now) = (None, start());
        step(&mut data, true, now);
        let good = data.unwrap();
        let mut data = good.data();
        for (key, value) in [("tls.crt", "x"), ("tls.key", ""), ("signer.crt", "-----BEGIN CERTIFICATE-----")] {
            data.insert(key.into(), value.into());
            assert!(SecretData::read(&data).is_err(), "{key}");
            data = good.data();
        }
        let other = issue::authority(now, settings().authority).unwrap();
        let stranger = issue::leaf(&other, &settings().names, now, settings().leaf).unwrap();
        data.insert("tls.crt".into(), stranger.certificate.pem.clone().into());
        assert!(SecretData::read(&data).unwrap_err().contains("do not fit together"));
        data.insert("tls.key".into(), stranger.key.into());
        assert!(SecretData::read(&data).unwrap_err().contains("signed by none"));

        let spoilt = ObservedState { data: None, has_secret: true, last_good: Some(&good), is_trusted: true };
        assert_eq!(plan(spoilt, &settings(), now), Action::Restore { was_deleted: false });
        let restored = apply_action(Action::Restore { was_deleted: false }, spoilt, &settings(), now).unwrap();
        assert_eq!(restored.as_ref(), Some(&good));
        let gone = ObservedState { has_secret: false, ..spoilt };
        assert_eq!(plan(gone, &settings(), now), Action::Restore { was_deleted: true });
        let restored = apply_action(Action::Restore { was_deleted: true }, gone, &settings(), now).unwrap().unwrap();
        assert!(restored.leaf == good.leaf && restored.next.is_some(), "deleting it asks for another authority");
        let late = good.leaf.certificate.not_after;
        assert_eq!(plan(gone, &settings(), late), Action::Begin);
    }

    /// Clocks that are days apart: the replica that is ahead renews, and nobody undoes it.
    #[test]
    fn clocks_that_differ_cost_no_write() {
        let year = SignedDuration::from_hours(365 * 24);
        let writes = |ahead: i64| {
            let (mut data, mut now, mut writes) = (None, start(), 0);
            while now < start() + year {
                for clock in [now, now + SignedDuration::from_hours(ahead)] {
                    while !matches!(step(&mut data, true, clock), Action::Keep(_)) {
                        writes += 1;
                    }
                }
                now += SignedDuration::from_hours(12);
            }
            writes
        };
        // one at the start and one each sixty days
        assert_eq!(writes(0), 7);
        for days in [1, 10, 20] {
            assert!((7..=8).contains(&writes(days * 24)), "{days} days ahead: {}", writes(days * 24));
        }
    }

    #[test]
    fn other_names_are_a_reason_to_renew() {
        let (mut data, now) = (None, start());
        step(&mut data, true, now);
        let renamed = CertificateSettings { names: vec!["other.noderotation.svc".into()], ..settings() };
        assert_eq!(plan(observed(data.as_ref(), true), &renamed, now), Action::Renew);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]
        /// Whatever the pauses and however slow the trust: what is served can always be verified by what is trusted.
        #[test]
        fn what_is_served_is_trusted(pauses in prop::collection::vec((0i64..90, any::<bool>()), 1..60)) {
            let (mut data, mut now) = (None, start());
            step(&mut data, true, now);
            // what API servers trust lags behind the Secret until it is put right
            let mut trusted = data.clone().unwrap().trusted();
            for (days, put_right) in pauses {
                now += SignedDuration::from_hours(24 * days);
                for _ in 0..4 {
                    let secret = data.clone().unwrap();
                    if put_right {
                        trusted = secret.trusted();
                    }
                    let action = step(&mut data, trusted == secret.trusted(), now);
                    if action == Action::Begin {
                        trusted = data.clone().unwrap().trusted(); // after a pause longer than a life all is new
                    }
                    let leaf = data.clone().unwrap().leaf;
                    let chain = trusted.split_inclusive("-----END CERTIFICATE-----\n");
                    let verified = chain.filter_map(|pem| Certificate::read(pem).ok()).any(|a| a.signed(&leaf.certificate));
                    prop_assert!(verified, "{action:?} on {now}");
                }
            }
        }
    }
}
