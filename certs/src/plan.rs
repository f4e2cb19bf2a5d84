//! What to do with the Secret next. [`plan`] asks a chain of questions, of which the first that applies decides. It has no
//! clock and no client, so that decades can be tested.

use jiff::{SignedDuration, Timestamp};

use crate::Error;
use crate::issue::{self, BACKDATED};
use crate::secret_data::{Certificate, SecretData};

/// Names and lifetimes of the certificates, from the webhook's flags.
#[derive(Clone, Debug)]
pub struct CertificateSettings {
    /// DNS names of the Service, for which the leaf certificate is issued.
    pub names: Vec<String>,
    /// The lifetime of a leaf certificate. It is renewed after two thirds of it.
    pub leaf: SignedDuration,
    /// The lifetime of a CA. The next one is introduced after two thirds of it.
    pub authority: SignedDuration,
    /// How long it may take until every API server uses a changed `caBundle`.
    pub propagation: SignedDuration,
}

/// What to do with the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Issue a new CA and leaf certificate: there is nothing that can be used.
    Begin,
    /// Write back what was served last: the Secret was deleted, or holds something unusable.
    Restore {
        /// The Secret was deleted, which is how people force a new CA: a next CA is introduced as well.
        was_deleted: bool,
    },
    /// Remove the previous CA: nothing that it signed can still be valid.
    Retire,
    /// Sign with the next CA from now on: every API server trusts it.
    Promote,
    /// Issue the next CA, to be trusted before it signs: the current one has lived two thirds of its lifetime.
    Introduce,
    /// Issue a new leaf certificate: two thirds of its lifetime are over, or it is for other names.
    Renew,
    /// Do nothing before this instant.
    Keep(Timestamp),
}

/// What is observed of the cluster when a plan is made.
#[derive(Clone, Copy, Debug)]
pub struct ObservedState<'a> {
    /// The content of the Secret; `None` where there is no Secret, or its content is unusable.
    pub data: Option<&'a SecretData>,
    /// Whether the Secret exists.
    pub has_secret: bool,
    /// What this process served last; `None` where it has not served anything yet.
    pub last_good: Option<&'a SecretData>,
    /// Whether every `caBundle` has held exactly the CAs of the Secret for at least [`CertificateSettings::propagation`].
    pub is_trusted: bool,
}

/// What to do at `now`.
pub fn plan(observed: ObservedState<'_>, settings: &CertificateSettings, now: Timestamp) -> Action {
    let usable = |data: &&SecretData| data.leaf.certificate.not_after > now;
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

/// The instant at which two thirds of a certificate's lifetime are over.
fn due(certificate: &Certificate) -> Timestamp {
    let life = certificate.not_after.duration_since(certificate.not_before).saturating_sub(BACKDATED);
    certificate.not_after.checked_sub(life / 3).unwrap_or(certificate.not_after)
}

fn is_for(certificate: &Certificate, names: &[String]) -> bool {
    names.iter().all(|name| certificate.names.contains(name))
}

/// The content that the Secret should have after an action; `None` where nothing has to be written. An error where a
/// certificate cannot be issued, or where the action does not follow from what is observed.
pub fn apply_action(
    action: Action,
    observed: ObservedState<'_>,
    settings: &CertificateSettings,
    now: Timestamp,
) -> Result<Option<SecretData>, Error> {
    let leaf = |signer| issue::leaf(signer, &settings.names, now, settings.leaf);
    let next = || Ok::<_, Error>(Some((issue::authority(now, settings.authority)?, now)));
    let current = || observed.data.cloned().ok_or(Error::Impossible(action));
    Ok(Some(match action {
        Action::Keep(_) => return Ok(None),
        Action::Begin => {
            let signer = issue::authority(now, settings.authority)?;
            SecretData { leaf: leaf(&signer)?, signer, next: None, previous: None }
        }
        Action::Restore { was_deleted } => {
            let mut data = observed.last_good.cloned().ok_or(Error::Impossible(action))?;
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
            let (signer, _) = data.next.ok_or(Error::Impossible(action))?;
            let until = data.leaf.certificate.not_after;
            let previous = Some((data.signer.certificate, until));
            SecretData { leaf: leaf(&signer)?, signer, next: None, previous }
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use noderotation_cluster::error::with_causes;
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

    /// Plans once and carries the action out.
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
                    assert!(at > now, "a plan for the past would be made again and again");
                    now = at;
                }
                action => actions.push(action),
            }
            assert!(data.as_ref().unwrap().leaf.certificate.not_after > now, "expired on {now}");
        }
        let count = |action| actions.iter().filter(|a| **a == action).count();
        assert_eq!(actions[0], Action::Begin);
        // 3,650 days: a CA every 486 and two thirds, a leaf certificate every 60
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
        // the leaf certificate has expired by now; this test is about one that is still valid
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
        assert!(with_causes(&SecretData::read(&data).unwrap_err()).contains("do not match"));
        data.insert("tls.key".into(), stranger.key.into());
        assert!(SecretData::read(&data).unwrap_err().to_string().contains("signed by none"));

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

    /// With clocks that are days apart, the replica that is ahead renews, and the other does not undo it.
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
        // one at the start and one every sixty days
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
        /// However long the pauses, and however late `caBundle` follows: API servers can always verify the leaf certificate.
        #[test]
        fn what_is_served_is_trusted(pauses in prop::collection::vec((0i64..90, any::<bool>()), 1..60)) {
            let (mut data, mut now) = (None, start());
            step(&mut data, true, now);
            // what API servers trust lags behind the Secret until caBundle is corrected
            let mut trusted = data.clone().unwrap().trusted();
            for (days, corrected) in pauses {
                now += SignedDuration::from_hours(24 * days);
                for _ in 0..4 {
                    let secret = data.clone().unwrap();
                    if corrected {
                        trusted = secret.trusted();
                    }
                    let action = step(&mut data, trusted == secret.trusted(), now);
                    if action == Action::Begin {
                        trusted = data.clone().unwrap().trusted(); // after a pause longer than a lifetime everything is new
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
