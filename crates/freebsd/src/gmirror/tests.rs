//! Rules that no recorded case covers, and the defects of upstream that are not copied.

use plexum_format::gmirror::{Balance, MirrorLabel, NewMirrorLabel};

use super::*;
use crate::testing::{state_of, view_of};
use plexum_block::device::DeviceInfo;
use plexum_block::ranges::RangeSet;
use plexum_engine::metadata::Metadata;
use plexum_engine::state::{ArrayState, FailCause, MemberId, Standing};

const SIZE_BYTES: u64 = 262_144;

const INFO: DeviceInfo = DeviceInfo::plain(SIZE_BYTES);

fn label(id: u32, count: u8, priority: u8) -> MirrorLabel {
    MirrorLabel::create(&NewMirrorLabel {
        name: "g",
        mirror_id: 7,
        component_id: id,
        component_count: count,
        priority,
        slice_bytes: 4096,
        balance: Balance::Load,
        volume_bytes: SIZE_BYTES - 512,
        sector_bytes: 512,
        provider_bytes: SIZE_BYTES,
    })
    .unwrap()
}

fn provider(key: usize, label: MirrorLabel) -> Provider {
    Provider {
        key: Key(key),
        name: format!("da{key}"),
        size_bytes: SIZE_BYTES,
        sector_bytes: 512,
        label,
    }
}

fn mirror_of(count: u8) -> Mirror {
    let labels = (0..count).map(|id| label(u32::from(id) + 1, count, id));
    let providers = labels.enumerate().map(|(key, label)| provider(key, label));
    let assembled = assemble(providers.collect());
    assert_eq!(assembled.refused, []);
    assembled.mirror.unwrap()
}

fn states(mirror: &Mirror) -> Vec<(usize, ComponentState)> {
    let mut states: Vec<(usize, ComponentState)> = mirror
        .components
        .iter()
        .map(|component| (component.key.0, component.state))
        .collect();
    states.sort_by_key(|(key, _)| *key);
    states
}

/// What the mirror makes of its components' labels when it is put together again, in every order of arrival.
fn every_order<T: PartialEq + fmt::Debug>(
    providers: &[Provider],
    look: impl Fn(&Assembled) -> T,
) -> T {
    let mut seen: Option<T> = None;
    let mut order: Vec<usize> = (0..providers.len()).collect();
    permute(&mut order, 0, &mut |order| {
        let arranged = order
            .iter()
            .map(|index| providers[*index].clone())
            .collect();
        let mut assembled = assemble(arranged);
        assembled.start_degraded();
        let result = look(&assembled);
        if let Some(first) = &seen {
            assert_eq!(*first, result, "order {order:?}");
        }
        seen = Some(result);
    });
    seen.unwrap()
}

fn permute(order: &mut Vec<usize>, from: usize, visit: &mut impl FnMut(&[usize])) {
    if from == order.len() {
        return visit(order);
    }
    for index in from..order.len() {
        order.swap(from, index);
        permute(order, from + 1, visit);
        order.swap(from, index);
    }
}

/// Defect 3: after a degraded start on a stale component the fresher one was ignored.
#[test]
fn the_newest_components_decide_in_every_order_of_arrival() {
    let mut labels = [label(1, 3, 0), label(2, 3, 1), label(3, 3, 2)];
    labels[0].sync_id = 5;
    labels[1].sync_id = 4;
    labels[2].sync_id = 3;
    let providers: Vec<Provider> = labels
        .into_iter()
        .enumerate()
        .map(|(key, label)| provider(key, label))
        .collect();
    let found = every_order(&providers, |assembled| {
        states(assembled.mirror.as_ref().unwrap())
    });
    use ComponentState::{Active, Synchronizing};
    assert_eq!(found, [(0, Active), (1, Synchronizing), (2, Synchronizing)]);
}

#[test]
fn a_newer_component_of_a_running_mirror_is_refused_loudly() {
    let mut old = label(1, 2, 0);
    old.sync_id = 1;
    let (mut mirror, _) = Mirror::start(provider(0, old)).unwrap();
    mirror.apply(Event::StartTimeout).unwrap();
    let mut new = label(2, 2, 1);
    new.sync_id = 2;
    let refused = mirror.apply(Event::Taste(Box::new(provider(1, new))));
    assert_eq!(refused, Err(Refusal::Newer));
}

/// Defect 5: a forgotten component that still carries its label re-attached, as a third of two.
#[test]
fn a_forgotten_component_does_not_come_back_by_itself() {
    let mut mirror = mirror_of(3);
    let lost = mirror.component(Key(2)).unwrap().label.clone();
    mirror.apply(Event::Unplugged(Key(2))).unwrap();
    mirror.apply(Event::Command(Command::Forget)).unwrap();
    assert_eq!(
        (mirror.component_count, mirror.state()),
        (2, MirrorState::Complete)
    );
    let back = mirror.apply(Event::Taste(Box::new(provider(2, lost.clone()))));
    assert_eq!(back, Err(Refusal::Forgotten));
    // Nor after a restart, in any order, whether something was written meanwhile or not.
    for writes in [0, 1] {
        for _ in 0..writes {
            mirror.apply(Event::Write).unwrap();
            mirror.apply(Event::Quiet).unwrap();
        }
        let labels = [0, 1].map(|key| mirror.component(Key(key)).unwrap().label.clone());
        let mut providers: Vec<Provider> = labels
            .into_iter()
            .enumerate()
            .map(|(key, label)| provider(key, label))
            .collect();
        providers.push(provider(2, lost.clone()));
        let (found, refused) = every_order(&providers, |assembled| {
            (
                states(assembled.mirror.as_ref().unwrap()),
                assembled.refused.clone(),
            )
        });
        assert_eq!(
            found,
            [(0, ComponentState::Active), (1, ComponentState::Active)]
        );
        assert_eq!(refused, [(Key(2), Refusal::Forgotten)]);
    }
}

/// Defect 6: a refused first component made the taste wait for itself.
#[test]
fn a_first_component_that_is_refused_leaves_nothing_behind() {
    let mut aside = label(1, 1, 0);
    aside.is_inactive = true;
    assert_eq!(
        Mirror::start(provider(0, aside)).err(),
        Some(Refusal::Inactive)
    );
    let mut other = provider(1, label(2, 1, 0));
    other.size_bytes += 512;
    let found = assemble(vec![other, provider(0, label(1, 1, 0))]);
    assert_eq!(found.mirror.unwrap().active_count(), 1);
    assert_eq!(
        found.refused,
        [(
            Key(1),
            Refusal::OtherSize {
                recorded_bytes: SIZE_BYTES
            }
        )]
    );
}

#[test]
fn the_last_active_component_is_never_dropped() {
    let mut mirror = mirror_of(2);
    let failed = |key, is_gone| Event::ReadFailed {
        key: Key(key),
        is_gone,
    };
    mirror.apply(failed(1, false)).unwrap();
    assert_eq!((mirror.generation_id, mirror.active_count()), (1, 1));
    for is_gone in [false, true] {
        assert_eq!(mirror.apply(failed(0, is_gone)), Err(Refusal::LastActive));
    }
    for command in [Command::Deactivate(Key(0)), Command::Rebuild(Key(0))] {
        assert_eq!(
            mirror.apply(Event::Command(command)),
            Err(Refusal::LastActive)
        );
    }
    let refused = mirror.apply(Event::Command(Command::Remove(Key(0))));
    assert_eq!(refused, Err(Refusal::NotComplete));
}

#[test]
fn errors_raise_the_right_number_at_the_right_time() {
    // (is_gone, is_write) -> genid and syncid at once, syncid after the next write
    for (is_gone, is_write, at_once, later) in [
        (true, false, (0, 1), 2),
        (true, true, (0, 2), 2),
        (false, false, (1, 1), 1),
        (false, true, (1, 1), 1),
    ] {
        let mut mirror = mirror_of(3);
        let key = Key(1);
        mirror
            .apply(if is_write {
                Event::WriteFailed { key, is_gone }
            } else {
                Event::ReadFailed { key, is_gone }
            })
            .unwrap();
        assert_eq!((mirror.generation_id, mirror.sync_id), at_once);
        let effects = mirror.apply(Event::Write).unwrap();
        assert_eq!(mirror.sync_id, later);
        assert_eq!(
            effects.len(),
            2,
            "both survivors are marked by one write each"
        );
        for component in &mirror.components {
            assert_eq!(component.label.sync_id, later);
            assert!(component.label.is_dirty);
        }
    }
}

#[test]
fn numbers_at_their_end_begin_a_new_generation() {
    let mut mirror = mirror_of(2);
    mirror.sync_id = u32::MAX;
    mirror.apply(Event::Unplugged(Key(0))).unwrap();
    mirror.apply(Event::Write).unwrap();
    assert_eq!((mirror.generation_id, mirror.sync_id), (1, 1));
}

#[test]
fn a_copy_of_a_component_is_refused() {
    let mut mirror = mirror_of(2);
    mirror.component_count = 3;
    let copy = mirror.component(Key(0)).unwrap().label.clone();
    let refused = mirror.apply(Event::Taste(Box::new(provider(9, copy))));
    assert_eq!(
        refused,
        Err(Refusal::Duplicate {
            other: "da0".into()
        })
    );
}

#[test]
fn a_half_made_copy_alone_is_no_mirror() {
    let mut half = label(1, 2, 0);
    half.is_rebuilding = true;
    half.sync_offset_bytes = 4096;
    let mut assembled = assemble(vec![provider(0, half)]);
    assert!(!assembled.mirror.as_ref().unwrap().is_running);
    assembled.start_degraded();
    assert_eq!(assembled.mirror, None);
}

#[test]
fn settings_are_changed_on_all_components_or_not_at_all() {
    let mut mirror = mirror_of(2);
    let set = |settings| Event::Command(Command::Configure(settings));
    let balance = Settings {
        balance: Some(Balance::Prefer),
        ..Settings::default()
    };
    let effects = mirror.apply(set(balance)).unwrap();
    assert_eq!(effects.len(), 2);
    for effect in effects {
        let Effect::WriteLabel { label, .. } = effect else {
            panic!("only labels are written")
        };
        assert_eq!(label.balance, Balance::Prefer);
    }
    assert_eq!(mirror.apply(set(balance)), Err(Refusal::NothingChanged));
    mirror.apply(Event::Unplugged(Key(0))).unwrap();
    assert_eq!(
        mirror.apply(set(Settings::default())),
        Err(Refusal::NotComplete)
    );
}

#[test]
fn autosync_that_is_switched_on_rebuilds_the_stale() {
    let mut labels = [label(1, 2, 0), label(2, 2, 1)];
    for label in &mut labels {
        label.has_no_autosync = true;
    }
    labels[0].sync_id = 2;
    let [first, second] = labels;
    let mut mirror = assemble(vec![provider(0, first), provider(1, second)])
        .mirror
        .unwrap();
    use ComponentState::{Active, Stale, Synchronizing};
    assert_eq!(states(&mirror), [(0, Active), (1, Stale)]);
    let on = Settings {
        has_autosync: Some(true),
        ..Settings::default()
    };
    let effects = mirror
        .apply(Event::Command(Command::Configure(on)))
        .unwrap();
    assert!(effects.contains(&Effect::StartRebuild {
        key: Key(1),
        from_bytes: 0
    }));
    assert_eq!(states(&mirror), [(0, Active), (1, Synchronizing)]);
}

#[test]
fn a_smaller_or_larger_volume_fits_every_component() {
    let mut mirror = mirror_of(2);
    let resize = |bytes| Event::Command(Command::Resize(bytes));
    assert_eq!(mirror.apply(resize(SIZE_BYTES)), Err(Refusal::TooSmall));
    assert_eq!(mirror.apply(resize(0)), Err(Refusal::TooSmall));
    mirror.apply(resize(100_000)).unwrap();
    assert_eq!(mirror.volume_bytes, 99_840, "whole sectors");
    assert_eq!(mirror.apply(resize(100_000)), Err(Refusal::NothingChanged));
}

#[test]
fn a_new_number_is_on_complete_components_before_incomplete_ones() {
    let mut labels = [label(1, 3, 0), label(2, 3, 1), label(3, 3, 2)];
    labels[2].is_rebuilding = true;
    let providers = labels.into_iter().enumerate();
    let providers = providers.map(|(key, label)| provider(key, label));
    let mirror = assemble(providers.collect()).mirror.unwrap();
    let filling = Standing::Rebuilding {
        valid_below_bytes: 0,
        by_bitmap: false,
    };
    let standings = [Standing::Active, Standing::Active, filling];
    let members: Vec<(Key, Standing)> = (0..3).map(Key).zip(standings).collect();
    let mut metadata = GmirrorMetadata::new(mirror, Vec::new(), &members);
    let mut state = state_of(&standings);
    state.members[1].standing = Standing::Faulty;
    metadata.note_failure(MemberId(1), FailCause::Gone);
    let mut commit = |event_count| {
        let view = view_of(&state, event_count);
        [0, 2].map(|member| {
            let writes = metadata.superblock(MemberId(member), &view, &RangeSet::new(), &INFO);
            writes.len()
        })
    };
    assert_eq!(
        commit(1),
        [1, 0],
        "cut off here, the complete one can be started"
    );
    assert_eq!(commit(2), [0, 1]);
}

#[test]
fn a_member_that_is_taken_out_before_a_label_named_it_keeps_its_place() {
    let mirror = assemble(vec![provider(0, label(1, 1, 0))]).mirror.unwrap();
    let mut metadata = GmirrorMetadata::new(mirror, Vec::new(), &[(Key(0), Standing::Active)]);
    metadata.add_member(MemberId(1), [1; 16], &INFO).unwrap();
    metadata.forget_member(MemberId(1));
    metadata.add_member(MemberId(2), [2; 16], &INFO).unwrap();
    metadata.withdraw_member(MemberId(2));
    metadata.add_member(MemberId(2), [3; 16], &INFO).unwrap();
}

/// A mirror of `count` with two components there, the second of which is being replaced; the state of the engine beside
/// it.
fn being_replaced(count: u8) -> (GmirrorMetadata, ArrayState) {
    let providers = (0..2).map(|key| provider(key, label(key as u32 + 1, count, key as u8)));
    let mut mirror = assemble(providers.collect()).mirror.unwrap();
    if count > 2 {
        mirror.apply(Event::StartTimeout).unwrap();
    }
    let present = [Standing::Active; 2];
    let members: Vec<(Key, Standing)> = (0..2).map(Key).zip(present).collect();
    let mut metadata = GmirrorMetadata::new(mirror, Vec::new(), &members);
    metadata.add_member(MemberId(2), [1; 16], &INFO).unwrap();
    let filling = Standing::Rebuilding {
        valid_below_bytes: 0,
        by_bitmap: false,
    };
    let mut state = state_of(&[Standing::Active, Standing::Active, filling]);
    (state.slot_count, state.members[2].slot) = (2, Some(1));
    state.members[2].is_replacement = true;
    (metadata, state)
}

fn count_after(metadata: &mut GmirrorMetadata, state: &ArrayState, event_count: u64) -> u8 {
    let view = view_of(state, event_count);
    metadata.superblock(MemberId(0), &view, &RangeSet::new(), &INFO);
    metadata.mirror().component_count
}

#[test]
fn a_mirror_is_as_wide_after_a_replacement_as_before() {
    for count in [2, 3] {
        let (mut metadata, mut state) = being_replaced(count);
        assert_eq!(count_after(&mut metadata, &state, 1), 3);
        state.members[1].standing = Standing::Faulty;
        state.members[2].standing = Standing::Active;
        assert_eq!(count_after(&mut metadata, &state, 2), count);
        assert_eq!(metadata.mirror().components.len(), 2);
    }
}

#[test]
fn a_mirror_is_as_wide_after_a_replacement_that_failed_as_before() {
    for count in [2, 3] {
        let (mut metadata, mut state) = being_replaced(count);
        assert_eq!(count_after(&mut metadata, &state, 1), 3);
        state.members[2].standing = Standing::Faulty;
        metadata.note_failure(MemberId(2), FailCause::WriteError);
        assert_eq!(count_after(&mut metadata, &state, 2), count);
        assert_eq!(metadata.mirror().components.len(), 2);
    }
}
