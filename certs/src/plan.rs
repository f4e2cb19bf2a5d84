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
    /// Issue a new leaf certificate: two thirds of its lifetime are over, it is not valid yet, or it is for other names.
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
    let Some(data) = observed.data.filter(|data| data.is_usable_at(now)) else { return replacement(observed, now) };
    let mut later = vec![due(&data.leaf.certificate), data.leaf.certificate.not_after];
    if let Some((_, until)) = &data.previous {
        if *until < now {
            return Action::Retire;
        }
        later.push(*until);
    }
    if let Some((next, since)) = &data.next {
        let propagated = since.saturating_add(settings.propagation).unwrap_or(Timestamp::MAX);
        // a replica whose clock is ahead may have issued a CA that is not valid yet
        let promotion = propagated.max(next.certificate.not_before);
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

/// What to do about a Secret that is missing, or whose certificates cannot be used at `now`.
fn replacement(observed: ObservedState<'_>, now: Timestamp) -> Action {
    // The signer is trusted already, so nobody has to wait for caBundle. And unlike an older certificate, a new one is not
    // due at once in the eyes of a replica whose clock is ahead, so the two do not overwrite each other for ever.
    let may_sign = |data: &SecretData| {
        let is_trusted = observed.last_good.is_none_or(|good| good.trusts(&data.signer));
        is_trusted && data.signer.certificate.is_valid_at(now)
    };
    if observed.data.is_some_and(may_sign) {
        return Action::Renew;
    }
    match observed.last_good.filter(|good| good.is_usable_at(now)) {
        Some(_) => Action::Restore { was_deleted: !observed.has_secret },
        None => Action::Begin,
    }
}

/// The instant at which two thirds of a certificate's lifetime are over.
fn due(certificate: &Certificate) -> Timestamp {
    let life = certificate.not_after.duration_since(certificate.not_before).saturating_sub(BACKDATED);
    // one that was issued with another backdating may seem to have no lifetime at all
    let life = life.max(SignedDuration::ZERO);
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
            assert!(actions.len() < 200, "no end of writes: {:?} on {now}", actions.last());
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

    /// With clocks that are hours apart, the replica that is ahead renews, and the other does not undo it; even with clocks that
    /// are weeks apart they do not overwrite each other for ever.
    #[test]
    fn clocks_that_differ_cost_few_writes() {
        let year = SignedDuration::from_hours(365 * 24);
        let writes = |ahead: i64| {
            let (mut data, mut now, mut writes) = (None, start(), 0);
            while now < start() + year {
                for clock in [now, now + SignedDuration::from_hours(ahead)] {
                    while !matches!(step(&mut data, true, clock), Action::Keep(_)) {
                        writes += 1;
                        assert!(writes < 200, "no end of writes on {now}, with a clock {ahead} hours ahead");
                    }
                }
                now += SignedDuration::from_hours(12);
            }
            writes
        };
        // one at the start and one every sixty days
        assert_eq!(writes(0), 7);
        for hours in [-23, 1, 23] {
            assert!((7..=8).contains(&writes(hours)), "{hours} hours ahead: {}", writes(hours));
        }
        // what is issued further ahead is not valid yet, so the other replica replaces each, once; for the one that is ahead
        // sixty days are over that much sooner
        for (days, renewals) in [(2, 365 / 58), (10, 365 / 50), (20, 365 / 40)] {
            let (least, most) = (1 + 2 * renewals, 2 + 2 * renewals);
            assert!((least..=most).contains(&writes(days * 24)), "{days} days ahead: {}", writes(days * 24));
        }
    }

    /// What a replica writes whose clock is `ahead` (or, if negative, behind), when it finds no Secret.
    fn begun_by_a_clock(ahead: SignedDuration) -> SecretData {
        let mut data = None;
        assert_eq!(step(&mut data, true, start() + ahead), Action::Begin);
        data.unwrap()
    }

    #[test]
    fn what_a_clock_an_hour_off_issues_is_valid_for_everybody() {
        for minutes in [-90, -60, -1, 0, 1, 60, 90] {
            let data = begun_by_a_clock(SignedDuration::from_mins(minutes));
            // as an API server sees it, whose clock is right, and replicas whose clocks are off in either direction
            for reader in [-60, 0, 60] {
                let now = start() + SignedDuration::from_mins(reader);
                assert!(data.is_usable_at(now), "issued {minutes} min ahead, read {reader} min ahead");
                assert!(matches!(plan(observed(Some(&data), true), &settings(), now), Action::Keep(_)));
            }
        }
    }

    #[test]
    fn a_certificate_of_the_future_is_replaced_and_not_brought_back() {
        let ahead = SignedDuration::from_hours(49);
        let (now, future) = (start(), begun_by_a_clock(ahead));
        assert!(!future.is_usable_at(now) && future.is_usable_at(now + ahead));

        // the whole content is of the future: nothing in it can sign
        let mut data = Some(future.clone());
        assert_eq!(step(&mut data, true, now), Action::Begin);
        assert!(data.as_ref().unwrap().is_usable_at(now));
        // the replica that is ahead accepts what replaced its own
        assert!(matches!(step(&mut data, true, now + ahead), Action::Keep(_)));
        // deleting the Secret does not bring the old content back, where it was read before
        let gone = ObservedState { data: None, has_secret: false, last_good: Some(&future), is_trusted: true };
        assert_eq!(plan(gone, &settings(), now), Action::Begin);

        // the leaf certificate alone is of the future: the CA that everybody trusts signs another
        let good = data.unwrap();
        let leaf = issue::leaf(&good.signer, &settings().names, now + ahead, settings().leaf).unwrap();
        let renewed_ahead = SecretData { leaf, ..good.clone() };
        let seen = ObservedState { last_good: Some(&good), ..observed(Some(&renewed_ahead), true) };
        assert_eq!(plan(seen, &settings(), now), Action::Renew);
        let renewed = apply_action(Action::Renew, seen, &settings(), now).unwrap().unwrap();
        assert!(renewed.is_usable_at(now) && renewed.trusted() == good.trusted());
        let at_theirs = plan(observed(Some(&renewed), true), &settings(), now + ahead);
        assert!(matches!(at_theirs, Action::Keep(_)), "the two would overwrite each other: {at_theirs:?}");
    }

    /// A Secret from a backup: its CA is valid, but no API server trusts it any more.
    #[test]
    fn a_signer_that_nobody_trusts_signs_nothing_while_there_is_a_better_one() {
        let (now, old, good) =
            (start(), begun_by_a_clock(SignedDuration::ZERO), begun_by_a_clock(SignedDuration::ZERO));
        let leaf = issue::leaf(&old.signer, &settings().names, now - settings().leaf * 2, settings().leaf).unwrap();
        let old = SecretData { leaf, ..old };
        let seen = ObservedState { last_good: Some(&good), ..observed(Some(&old), true) };
        assert_eq!(plan(seen, &settings(), now), Action::Restore { was_deleted: false });
        assert_eq!(plan(observed(Some(&old), true), &settings(), now), Action::Renew);
    }

    #[test]
    fn a_next_authority_of_the_future_does_not_sign_yet() {
        let now = start() + settings().authority / 3 * 2;
        let ahead = SignedDuration::from_hours(49);
        let mut data = begun_by_a_clock(SignedDuration::ZERO);
        data.leaf = issue::leaf(&data.signer, &settings().names, now, settings().leaf).unwrap();
        data.next = Some((issue::authority(now + ahead, settings().authority).unwrap(), now));
        let valid_from = data.next.as_ref().unwrap().0.certificate.not_before;
        let later = now + settings().propagation * 2;
        assert!(later < valid_from);
        assert!(matches!(plan(observed(Some(&data), true), &settings(), later), Action::Keep(at) if at <= valid_from));
        assert_eq!(plan(observed(Some(&data), true), &settings(), valid_from), Action::Promote);
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
