//! Rotation over days and years: what is due, what overlaps, what goes.

use super::*;

fn turn(records: Vec<CaRecord>, demand: Demand, at: Timestamp) -> Rotation {
    rotate(&trust_domain(), records, demand, at, &ring(), &random()).unwrap()
}

fn active(records: &[CaRecord], domain: Domain, name: CaName) -> &CaRecord {
    let fits = |one: &&CaRecord| one.domain == domain && one.name == name && one.state == CaState::Active;
    records.iter().find(fits).unwrap()
}

#[test]
fn nothing_is_due_before_two_thirds_and_all_issuing_cas_are_then() {
    let records = records();
    let life = ISSUER_SECONDS + BACKDATE_SECONDS;
    let due = records[2].not_before.plus_seconds(life / 3 * 2 + 1);
    let before = turn(records.clone(), Demand::Due, due.plus_seconds(-10));
    assert_eq!(before, Rotation { records: records.clone(), changes: vec![] });

    let after = turn(records.clone(), Demand::Due, due);
    assert_eq!(after.changes.len(), 4);
    assert!(after.changes.iter().all(|change| matches!(change, Change::Issued { .. })));
    let overlapping: Vec<_> =
        after.records.iter().filter(|one| one.state == CaState::Overlap).map(|one| &one.id).collect();
    let issuing: Vec<_> = records[2..].iter().map(|one| &one.id).collect();
    assert_eq!(overlapping, issuing);
    // And again right away: nothing to do.
    assert_eq!(turn(after.records.clone(), Demand::Due, due).changes, vec![]);
}

#[test]
fn what_the_old_ca_issued_is_accepted_until_its_overlap_ends() {
    let first = records();
    let old = open(first.clone()).unwrap();
    let issued = issue(&old, Profile::Node);
    let (leaf, chain) = (der(&issued.certificate_pem), [der(&issued.chain_pem)]);
    let rotated = turn(first.clone(), Demand::Issuer(CaName::Node), now()).records;
    let new = open(rotated.clone()).unwrap();
    assert_eq!(new.trust().judge(&leaf, &chain, now()).unwrap().issuer, issued.issuer);
    assert_eq!(new.issuers().count(), 5);
    let settled = now().plus_seconds(SETTLE_SECONDS);
    let fresh = new.issue_node(Profile::Node, &key(), &pool(), &node(), settled, 86_400).unwrap();
    assert_ne!(fresh.issuer, issued.issuer);
    new.trust().judge(&der(&fresh.certificate_pem), &[der(&fresh.chain_pem)], settled).unwrap();
    // Each has a CRL of its own; the name stands for the active one.
    assert!(new.crl(&issued.issuer, &[], now(), 7).is_ok());
    assert!(new.crl("node", &[], now(), 7).is_ok());
    // The new chain does not verify the old leaf.
    assert!(new.trust().judge(&leaf, &[der(&fresh.chain_pem)], now()).is_err());

    let ended = first[3].not_after.plus_seconds(OVERLAP_SECONDS);
    let kept = turn(rotated.clone(), Demand::Due, ended);
    assert!(kept.records.iter().any(|one| one.id == issued.issuer));
    let dropped = turn(rotated, Demand::Due, ended.plus_seconds(1));
    assert!(dropped.changes.contains(&Change::Dropped { id: issued.issuer.clone() }));
    let without = open(dropped.records).unwrap();
    assert_eq!(without.trust().judge(&leaf, &chain, now()), Err(PeerRefused::Issuer));
}

#[test]
fn a_new_issuing_ca_signs_once_every_relay_can_know_it() {
    let first = records();
    let other_relay = open(first.clone()).unwrap().trust();
    let issued_at = |records: &[CaRecord], at: Timestamp| {
        open(records.to_vec())
            .unwrap()
            .issue_node(Profile::Node, &key(), &pool(), &node(), at, 86_400)
            .unwrap()
    };
    // A first CA has none before it: it signs at once.
    assert_eq!(issued_at(&first, now()).issuer, first[3].id);
    let made = now().plus_seconds(DAY);
    let rotated = turn(first.clone(), Demand::Issuer(CaName::Node), made).records;
    let early = issued_at(&rotated, made.plus_seconds(SETTLE_SECONDS - 1));
    other_relay.judge(&der(&early.certificate_pem), &[der(&early.chain_pem)], made).unwrap();
    let late = issued_at(&rotated, made.plus_seconds(SETTLE_SECONDS));
    assert_eq!(late.issuer, active(&rotated, Domain::Platform, CaName::Node).id);
    // Twice in a row: the one that every relay knows still signs.
    let twice = turn(rotated, Demand::Issuer(CaName::Node), made.plus_seconds(1)).records;
    let between = issued_at(&twice, made.plus_seconds(2));
    other_relay.judge(&der(&between.certificate_pem), &[der(&between.chain_pem)], made).unwrap();
    // One that has ended can't help out.
    let ended = first[3].not_after.plus_seconds(60);
    let late = turn(first, Demand::Due, ended).records;
    assert_eq!(issued_at(&late, ended).issuer, active(&late, Domain::Platform, CaName::Node).id);
}

#[test]
fn a_root_is_announced_then_takes_over_then_the_old_one_goes() {
    let first = records();
    let old_root = first[0].id.clone();
    let announced = turn(first.clone(), Demand::Root(Domain::Platform), now());
    let [Change::Announced { id: new_root }] = announced.changes.as_slice() else {
        panic!("{:?}", announced.changes)
    };
    let authority = open(announced.records.clone()).unwrap();
    // Trusted and pinned beside the old one, which still signs.
    assert_eq!(authority.bundle(Domain::Platform).matches("BEGIN").count(), 2);
    assert_eq!(authority.bundle(Domain::Tenant).matches("BEGIN").count(), 1);
    assert!(authority.bundle(Domain::Platform).starts_with(&first[0].certificate_pem));
    assert_eq!(authority.pins().len(), 2);
    assert_eq!(authority.pin().unwrap(), authority.pins()[0]);
    assert_eq!(authority.pin().unwrap(), open(first).unwrap().pin().unwrap());

    let early = now().plus_seconds(ANNOUNCE_SECONDS - 2);
    assert_eq!(turn(announced.records.clone(), Demand::Root(Domain::Platform), early).changes, vec![]);
    let promoted = turn(announced.records, Demand::Due, now().plus_seconds(ANNOUNCE_SECONDS));
    assert_eq!(promoted.changes[0], Change::Promoted { id: new_root.clone() });
    assert_eq!(promoted.changes.len(), 4, "and the three platform CAs are issued under it");
    let authority = open(promoted.records.clone()).unwrap();
    assert_eq!(active(&promoted.records, Domain::Platform, CaName::Root).id, *new_root);
    let at = now().plus_seconds(ANNOUNCE_SECONDS);
    let chain = authority.issue_relay(&[], at).unwrap().chain;
    let root = der(&active(&promoted.records, Domain::Platform, CaName::Root).certificate_pem);
    assert_eq!(chain[2], root);
    assert_eq!(authority.pins().len(), 2);

    let old_end = now().plus_seconds(ISSUER_SECONDS + OVERLAP_SECONDS + 1);
    let last = turn(promoted.records, Demand::Due, old_end);
    assert!(last.changes.contains(&Change::Dropped { id: old_root.clone() }), "{:?}", last.changes);
    assert!(last.records.iter().all(|one| one.id != old_root));
    assert_eq!(open(last.records).unwrap().pins().len(), 1);
}

#[test]
fn an_offline_root_is_left_alone_and_what_waits_for_it_is_said() {
    let mut records = records();
    records[1].sealed_key = None;
    let waiting = |name| Change::Waiting { name, domain: Domain::Tenant };
    let turned = turn(records.clone(), Demand::Issuer(CaName::NodeTenant), now());
    assert_eq!(turned, Rotation { records: records.clone(), changes: vec![waiting(CaName::NodeTenant)] });
    let turned = turn(records.clone(), Demand::Root(Domain::Tenant), now());
    assert_eq!(turned, Rotation { records, changes: vec![waiting(CaName::Root)] });
}

#[test]
fn fifteen_years_of_daily_rotation_never_leave_a_relay_without_a_ca() {
    let mut all = records();
    let mut roots = std::collections::BTreeSet::new();
    for day in (0..15 * 365).step_by(10) {
        let at = now().plus_seconds(day * DAY);
        all = turn(all, Demand::Due, at).records;
        let authority = open(all.clone()).unwrap();
        let issued = authority.issue_node(Profile::Node, &key(), &pool(), &node(), at, 2_592_000).unwrap();
        assert_eq!(issued.not_after.seconds(), at.seconds() + 2_592_000, "day {day}");
        let chain = [der(&issued.chain_pem)];
        authority.trust().judge(&der(&issued.certificate_pem), &chain, at).unwrap();
        assert!(all.len() <= 6 + 4 * 2 + 2, "{} CAs on day {day}", all.len());
        roots.extend(all.iter().filter(|one| one.name == CaName::Root).map(|one| one.id.clone()));
    }
    assert_eq!(roots.len(), 2 * 3);
}

#[test]
fn a_ca_that_begins_in_the_future_is_left_alone_but_for_who_vouches_for_the_clock() {
    let first = records();
    let ahead = now().plus_seconds(400 * DAY);
    let rotated = turn(first.clone(), Demand::Due, ahead).records;
    // What it replaced is not dropped in the same turn, though it is long past its overlap by that clock.
    assert_eq!(rotated.len(), first.len() + 4);
    let authority = open(rotated.clone()).unwrap();
    // The clock is right again: the CAs from before sign, and are believed.
    let issued = issue(&authority, Profile::Node);
    assert_eq!(issued.issuer, first[3].id);
    authority.trust().judge(&der(&issued.certificate_pem), &[der(&issued.chain_pem)], now()).unwrap();
    authority.issue_relay(&[], now()).unwrap();
    assert_eq!(turn(rotated.clone(), Demand::Due, now()).changes, vec![]);
    // They are replaced in their time, so that the future leaves no gap.
    let due = now().plus_seconds(300 * DAY);
    assert_eq!(turn(rotated.clone(), Demand::Due, due).changes.len(), 4);
    // Or at once, where somebody says so; the CAs of the future never sign in the place of active ones.
    let needed = turn(rotated, Demand::Needed, now());
    assert_eq!(needed.changes.len(), 4);
    assert_eq!(turn(needed.records.clone(), Demand::Needed, now()).changes, vec![]);
    let later = now().plus_seconds(200 * DAY);
    let authority = open(needed.records.clone()).unwrap();
    let issued = authority.issue_node(Profile::Node, &key(), &pool(), &node(), later, 86_400).unwrap();
    assert_eq!(issued.issuer, active(&needed.records, Domain::Platform, CaName::Node).id);
}

#[test]
fn a_first_start_by_a_clock_that_stood_ahead_is_put_right_and_keeps_its_pin() {
    let ahead = now().plus_seconds(4000 * DAY);
    let first = create(&trust_domain(), Roots::drawn(), ahead, &ring(), &random()).unwrap();
    let refused = open(first.clone()).unwrap().issue_relay(&[], now());
    let text = refused.err().unwrap().to_string();
    assert!(text.contains("if the clock is behind") && text.contains("relay ca rotate"), "{text}");
    assert_eq!(turn(first.clone(), Demand::Due, now()).changes, vec![]);
    let needed = turn(first.clone(), Demand::Needed, now());
    let reissued = needed.changes.iter().filter(|change| matches!(change, Change::Reissued { .. })).count();
    assert_eq!((reissued, needed.changes.len()), (2, 6));
    let (before, after) = (open(first).unwrap(), open(needed.records.clone()).unwrap());
    assert_eq!(after.pin().unwrap(), before.pin().unwrap());
    after.issue_relay(&[], now()).unwrap();
    let issued = after.issue_node(Profile::NodeTenant, &key(), &pool(), &node(), now(), 86_400).unwrap();
    after.trust().judge(&der(&issued.certificate_pem), &[der(&issued.chain_pem)], now()).unwrap();
    assert_eq!(turn(needed.records, Demand::Needed, now()).changes, vec![]);
}

#[test]
fn a_root_of_your_own_that_begins_in_the_future_is_not_renamed() {
    let mut records =
        create(&trust_domain(), Roots::drawn(), now().plus_seconds(DAY), &ring(), &random()).unwrap();
    for record in &mut records {
        record.sealed_key = record.sealed_key.take().filter(|_| record.name != CaName::Root);
    }
    let refused = turn(records.clone(), Demand::Needed, now());
    assert_eq!(refused.records, records);
    assert!(
        refused.changes.iter().all(|change| matches!(change, Change::Waiting { .. })),
        "{:?}",
        refused.changes
    );
}
