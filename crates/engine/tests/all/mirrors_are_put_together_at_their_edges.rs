//! gmirror's rules where one sector, one number or one mark more decides otherwise, and what is said then.

use plexum_format::gmirror::{Balance, MirrorLabel, NewMirrorLabel};
use plexum_freebsd::gmirror::{
    Assembled, Command, ComponentState, Effect, Event, Key, Mirror, NewComponent, Provider,
    Refusal, Settings, assemble,
};

const SIZE_BYTES: u64 = 262_144;

fn label(id: u32, count: u8) -> MirrorLabel {
    MirrorLabel::create(&NewMirrorLabel {
        name: "g",
        mirror_id: 7,
        component_id: id,
        component_count: count,
        priority: 0,
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

fn put_together(labels: Vec<MirrorLabel>) -> Assembled {
    let each = labels.into_iter().enumerate();
    assemble(each.map(|(key, label)| provider(key, label)).collect())
}

/// A mirror of this many, that runs.
fn mirror(count: u8) -> Mirror {
    let labels = (0..count).map(|id| label(u32::from(id) + 1, count));
    let assembled = put_together(labels.collect());
    assert_eq!(assembled.refused, []);
    assembled.mirror.unwrap()
}

fn states(mirror: &Mirror) -> Vec<ComponentState> {
    let mut states: Vec<_> = mirror
        .components
        .iter()
        .map(|one| (one.key, one.state))
        .collect();
    states.sort_by_key(|(key, _)| *key);
    states.into_iter().map(|(_, state)| state).collect()
}

fn taste(mirror: &mut Mirror, provider: Provider) -> Option<Refusal> {
    mirror.apply(Event::Taste(Box::new(provider))).err()
}

/// The keys whose labels are written.
fn labelled(effects: &[Effect]) -> Vec<usize> {
    let mut keys: Vec<usize> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::WriteLabel { key, .. } => Some(key.0),
            _ => None,
        })
        .collect();
    keys.sort_unstable();
    keys
}

use ComponentState::{Active, Synchronizing};

#[test]
fn after_a_crash_the_dirty_are_filled_from_the_clean_and_without_clean_ones_from_the_first() {
    // Which of three are dirty, and who is filled then.
    for (dirty, filled) in [
        ([false, false, false], [false, false, false]),
        ([true, false, false], [true, false, false]),
        ([false, true, true], [false, true, true]),
        ([true, true, true], [true, true, false]), // of equals the last one is the first of the list
    ] {
        let mut labels: Vec<MirrorLabel> = (0..3).map(|id| label(id + 1, 3)).collect();
        for (label, is_dirty) in labels.iter_mut().zip(dirty) {
            (label.is_dirty, label.sync_id) = (is_dirty, 4);
        }
        let mirror = put_together(labels).mirror.unwrap();
        let found = states(&mirror);
        let expected = filled.map(|is_filled| if is_filled { Synchronizing } else { Active });
        assert_eq!(found, expected, "{dirty:?}");
    }
}

#[test]
fn who_is_being_filled_or_is_behind_is_no_source_after_a_crash() {
    let mut labels: Vec<MirrorLabel> = (0..3).map(|id| label(id + 1, 3)).collect();
    for label in &mut labels {
        (label.is_dirty, label.sync_id) = (true, 4);
    }
    labels[0].is_rebuilding = true;
    labels[0].sync_offset_bytes = 65_536;
    labels[1].sync_id = 3;
    labels[1].is_dirty = false; // clean, and behind
    let mirror = put_together(labels).mirror.unwrap();
    assert_eq!(states(&mirror), [Synchronizing, Synchronizing, Active]);
    let offset = |key: usize| mirror.component(Key(key)).unwrap().label.sync_offset_bytes;
    assert_eq!(
        (offset(0), offset(1)),
        (0, 0),
        "writes were under way: what was filled counts no more"
    );
}

#[test]
fn a_component_that_was_broken_or_has_other_settings_is_dropped_and_says_which() {
    let changes: [fn(&mut MirrorLabel); 3] = [
        |label| label.balance = Balance::RoundRobin,
        |label| label.slice_bytes = 8192,
        |label| label.volume_bytes -= 512,
    ];
    for change in changes {
        let mut labels = vec![label(1, 2), label(2, 2)];
        (labels[0].sync_id, labels[1].sync_id) = (5, 4);
        change(&mut labels[1]);
        let mut assembled = put_together(labels);
        assembled.start_degraded();
        let reasons: Vec<&Refusal> = assembled.refused.iter().map(|(_, reason)| reason).collect();
        assert_eq!(reasons, [&Refusal::OtherSettings]);
    }
    let mut labels = vec![label(1, 2), label(2, 2)];
    (labels[0].generation_id, labels[1].generation_id) = (3, 2);
    let mut assembled = put_together(labels);
    assembled.start_degraded();
    let text = assembled.refused[0].1.to_string();
    assert_eq!(
        text,
        "it was dropped for an error: generation 2, newest is 3"
    );
    // With the same generation nobody was broken.
    let mut labels = vec![label(1, 2), label(2, 2)];
    (labels[0].generation_id, labels[1].generation_id) = (3, 3);
    assert_eq!(
        states(&put_together(labels).mirror.unwrap()),
        [Active, Active]
    );
}

#[test]
fn a_provider_fits_with_its_last_sector_and_the_mirrors_sectors_and_identity() {
    let lone = || {
        let (mut mirror, _) = Mirror::start(provider(0, label(1, 2))).unwrap();
        mirror.apply(Event::StartTimeout).unwrap();
        mirror
    };
    let second = || provider(1, label(2, 2));
    assert_eq!(taste(&mut lone(), second()), None);
    let mut small = second();
    small.size_bytes -= 512;
    small.label.provider_bytes = small.size_bytes;
    assert_eq!(taste(&mut lone(), small), Some(Refusal::TooSmall));
    let mut other = second();
    other.label.mirror_id = 8;
    assert_eq!(
        taste(&mut lone(), other),
        Some(Refusal::OtherMirror { known: 7 })
    );
    let mut other = second();
    other.label.name = "h".to_owned();
    assert_eq!(
        taste(&mut lone(), other),
        Some(Refusal::OtherMirror { known: 7 })
    );
    let odd = Refusal::OtherSector {
        mirror_sector_bytes: 512,
    };
    for (sector_bytes, in_label) in [(0, 512), (512, 4096), (1024, 512)] {
        let mut other = second();
        (other.sector_bytes, other.label.sector_bytes) = (sector_bytes, in_label);
        other.size_bytes += 4096;
        other.label.provider_bytes = other.size_bytes;
        let found = taste(&mut lone(), other);
        assert_eq!(found, Some(odd.clone()), "{sector_bytes}, {in_label}");
    }
    let mut copy = second();
    copy.label.component_id = 1;
    let found = taste(&mut lone(), copy);
    assert_eq!(
        found,
        Some(Refusal::Duplicate {
            other: "da0".into()
        })
    );
    // A running mirror that has everybody, or expects fewer, has given this one up.
    assert_eq!(
        taste(&mut mirror(2), provider(2, label(3, 2))),
        Some(Refusal::Forgotten)
    );
    let more = provider(1, label(2, 3));
    assert_eq!(taste(&mut lone(), more), Some(Refusal::Forgotten));
}

fn new(key: usize, size_bytes: u64, sector_bytes: u32) -> Command {
    Command::Insert(NewComponent {
        key: Key(key),
        provider: format!("da{key}"),
        size_bytes,
        sector_bytes,
        component_id: key as u32 + 1,
        priority: 0,
        is_inactive: false,
        is_bound: false,
    })
}

#[test]
fn a_new_component_has_room_for_the_volume_and_its_label_and_fitting_sectors() {
    let insert = |command: Command| mirror(2).apply(Event::Command(command)).err();
    assert_eq!(insert(new(2, SIZE_BYTES, 512)), None);
    assert_eq!(insert(new(2, SIZE_BYTES + 512, 512)), None);
    assert_eq!(
        insert(new(2, SIZE_BYTES - 512, 512)),
        Some(Refusal::TooSmall)
    );
    for sector_bytes in [0, 1024, 300] {
        let found = insert(new(2, SIZE_BYTES * 2, sector_bytes));
        assert!(
            matches!(found, Some(Refusal::OtherSector { .. })),
            "{sector_bytes}: {found:?}"
        );
    }
}

#[test]
fn a_label_is_never_bound_to_a_name_that_it_cannot_keep() {
    let bind = |name: &str| {
        let mut mirror = mirror(2);
        mirror.components[1].provider = name.to_owned();
        let before = mirror.clone();
        let settings = Settings {
            is_bound: Some(true),
            ..Settings::default()
        };
        let result = mirror.apply(Event::Command(Command::Configure(settings)));
        assert!(
            result.is_ok() || mirror == before,
            "nothing is half changed"
        );
        result.map(|effects| labelled(&effects))
    };
    assert_eq!(bind("fifteen-letters"), Ok(vec![0, 1]));
    assert_eq!(bind("/dev/fifteen-letters"), Ok(vec![0, 1]));
    assert_eq!(bind("sixteen--letters"), Err(Refusal::LongName));
    let Command::Insert(mut new) = new(2, SIZE_BYTES, 512) else {
        panic!("it is an insert");
    };
    new.is_bound = true;
    new.provider = "sixteen--letters".to_owned();
    let result = mirror(2).apply(Event::Command(Command::Insert(new)));
    assert_eq!(result, Err(Refusal::LongName));
}

#[test]
fn a_size_is_whole_sectors_and_leaves_the_last_one_to_the_label() {
    let resize = |bytes: u64| {
        let mut mirror = mirror(2);
        let result = mirror.apply(Event::Command(Command::Resize(bytes)));
        result.map(|effects| (labelled(&effects), mirror.volume_bytes))
    };
    assert_eq!(resize(131_072 + 100), Ok((vec![0, 1], 131_072)));
    assert_eq!(resize(SIZE_BYTES - 512), Err(Refusal::NothingChanged));
    assert_eq!(resize(SIZE_BYTES), Err(Refusal::TooSmall));
    assert_eq!(resize(511), Err(Refusal::TooSmall));
    let mut mirror = mirror(2);
    mirror.apply(Event::Command(Command::Resize(4096))).unwrap();
    mirror
        .apply(Event::Command(Command::Resize(SIZE_BYTES - 512)))
        .unwrap();
    assert_eq!(
        mirror.volume_bytes,
        SIZE_BYTES - 512,
        "all of the room again"
    );
}

#[test]
fn a_stop_takes_the_marks_off_and_writes_no_other_label() {
    let mut mirror = mirror(2);
    assert_eq!(
        labelled(&mirror.apply(Event::Command(Command::Stop)).unwrap()),
        [0; 0]
    );
    assert_eq!(labelled(&mirror.apply(Event::Write).unwrap()), [0, 1]);
    assert!(
        mirror
            .components
            .iter()
            .all(|component| component.label.is_dirty)
    );
    assert_eq!(
        labelled(&mirror.apply(Event::Command(Command::Stop)).unwrap()),
        [0, 1]
    );
    assert!(
        mirror
            .components
            .iter()
            .all(|component| !component.label.is_dirty)
    );
    assert!(mirror.is_idle);
}

#[test]
fn a_quiet_time_takes_the_marks_off_the_active_alone() {
    let mut labels = vec![label(1, 2), label(2, 2)];
    (labels[0].sync_id, labels[1].sync_id) = (5, 4);
    let mut mirror = put_together(labels).mirror.unwrap();
    assert_eq!(states(&mirror), [Active, Synchronizing]);
    mirror.apply(Event::Write).unwrap();
    let is_marked =
        |mirror: &Mirror, key: usize| mirror.component(Key(key)).unwrap().label.is_dirty;
    assert!(is_marked(&mirror, 0) && is_marked(&mirror, 1));
    assert_eq!(labelled(&mirror.apply(Event::Quiet).unwrap()), [0]);
    assert!(
        !is_marked(&mirror, 0) && is_marked(&mirror, 1),
        "who is filled stays so"
    );
}

#[test]
fn without_failsync_nothing_is_marked_any_more() {
    let mut mirror = mirror(2);
    mirror.apply(Event::Write).unwrap();
    let off = Settings {
        has_failsync: Some(false),
        ..Settings::default()
    };
    let effects = mirror
        .apply(Event::Command(Command::Configure(off)))
        .unwrap();
    assert_eq!(labelled(&effects), [0, 1]);
    assert!(
        mirror
            .components
            .iter()
            .all(|component| !component.label.is_dirty)
    );
    let on = Settings {
        has_failsync: Some(true),
        ..Settings::default()
    };
    mirror
        .apply(Event::Command(Command::Configure(on)))
        .unwrap();
    assert!(!mirror.has_no_failsync);
    let bound = Settings {
        is_bound: Some(true),
        ..Settings::default()
    };
    mirror
        .apply(Event::Command(Command::Configure(bound)))
        .unwrap();
    assert_eq!(mirror.component(Key(1)).unwrap().label.provider, "da1");
    let again = mirror.apply(Event::Command(Command::Configure(bound)));
    assert_eq!(again, Err(Refusal::NothingChanged));
}

#[test]
fn who_went_and_was_forgotten_stays_away_and_who_is_here_does_not() {
    let mut mirror = mirror(3);
    assert_eq!(
        mirror.apply(Event::Command(Command::Forget)),
        Err(Refusal::NothingChanged)
    );
    mirror.apply(Event::Unplugged(Key(2))).unwrap();
    let effects = mirror.apply(Event::Command(Command::Forget)).unwrap();
    assert_eq!(labelled(&effects), [0, 1]);
    assert_eq!(
        (mirror.component_count, mirror.forgotten.clone()),
        (2, vec![3])
    );
    mirror.apply(Event::Unplugged(Key(1))).unwrap();
    assert_eq!(
        taste(&mut mirror, provider(2, label(3, 2))),
        Some(Refusal::Forgotten)
    );
    let back = mirror.component(Key(0)).unwrap().label.sync_id;
    let mut second = label(2, 2);
    second.sync_id = back;
    assert_eq!(taste(&mut mirror, provider(1, second)), None);
}

#[test]
fn every_reason_is_a_sentence_of_its_own() {
    let mut texts: Vec<String> = [
        Refusal::OtherProvider {
            bound_to: "da9".into(),
        },
        Refusal::OtherSize { recorded_bytes: 9 },
        Refusal::Inactive,
        Refusal::OtherMirror { known: 9 },
        Refusal::TooSmall,
        Refusal::Newer,
        Refusal::Forgotten,
        Refusal::OtherSettings,
        Refusal::NotThere,
        Refusal::LastActive,
        Refusal::Gone,
    ]
    .iter()
    .map(Refusal::to_string)
    .collect();
    let count = texts.len();
    texts.sort();
    texts.dedup();
    assert!(
        texts.len() == count && texts.iter().all(|text| !text.is_empty()),
        "{texts:?}"
    );
}

#[test]
fn a_priority_is_changed_on_one_label_alone() {
    let mut mirror = mirror(3);
    let effects = mirror
        .apply(Event::Command(Command::Priority(Key(1), 9)))
        .unwrap();
    assert_eq!(labelled(&effects), [1]);
    let priority = |key: usize| mirror.component(Key(key)).unwrap().label.priority;
    assert_eq!([0, 1, 2].map(priority), [0, 9, 0]);
}

#[test]
fn a_component_is_filled_anew_from_its_start_when_that_is_asked_for() {
    let mut mirror = mirror(3);
    let effects = mirror
        .apply(Event::Command(Command::Rebuild(Key(1))))
        .unwrap();
    assert_eq!(states(&mirror), [Active, Synchronizing, Active]);
    let begun = Effect::StartRebuild {
        key: Key(1),
        from_bytes: 0,
    };
    assert!(effects.contains(&begun), "{effects:?}");
    for key in [0, 2] {
        mirror.apply(Event::Unplugged(Key(key))).unwrap();
    }
}

#[test]
fn who_is_behind_begins_anew_however_far_it_was_and_who_is_current_goes_on() {
    for (sync_id, from_bytes) in [(4, 65_536), (3, 0)] {
        let mut labels = vec![label(1, 2), label(2, 2)];
        (labels[0].sync_id, labels[1].sync_id) = (4, sync_id);
        labels[1].is_rebuilding = true;
        labels[1].sync_offset_bytes = 65_536;
        let mirror = put_together(labels).mirror.unwrap();
        assert_eq!(states(&mirror), [Active, Synchronizing]);
        let offset = mirror.component(Key(1)).unwrap().label.sync_offset_bytes;
        assert_eq!(offset, from_bytes, "syncid {sync_id}");
    }
}

#[test]
fn a_component_that_joins_while_it_is_written_to_is_marked_unless_marks_are_off() {
    for (has_failsync, is_marked) in [(true, true), (false, false)] {
        let mut labels = vec![label(1, 2), label(2, 2)];
        for label in &mut labels {
            label.has_no_failsync = !has_failsync;
        }
        let second = provider(1, labels.pop().unwrap());
        let (mut mirror, _) = Mirror::start(provider(0, labels.pop().unwrap())).unwrap();
        mirror.apply(Event::StartTimeout).unwrap();
        mirror.raises_sync_id = false; // nobody was missed yet
        mirror.apply(Event::Write).unwrap();
        let mut second = second;
        second.label.sync_id = mirror.sync_id;
        second.label.generation_id = mirror.generation_id;
        mirror.apply(Event::Taste(Box::new(second))).unwrap();
        assert_eq!(states(&mirror), [Active, Active]);
        let marked = mirror.component(Key(1)).unwrap().label.is_dirty;
        assert_eq!(marked, is_marked, "failsync {has_failsync}");
    }
}

#[test]
fn whoever_is_not_filled_by_itself_gets_further_behind_with_the_next_write() {
    let mut labels = vec![label(1, 2), label(2, 2)];
    for label in &mut labels {
        label.has_no_autosync = true;
    }
    (labels[0].sync_id, labels[1].sync_id) = (5, 4);
    let mut mirror = put_together(labels).mirror.unwrap();
    assert_eq!(states(&mirror), [Active, ComponentState::Stale]);
    assert!(mirror.raises_sync_id);
    mirror.apply(Event::Write).unwrap();
    assert_eq!(mirror.component(Key(0)).unwrap().label.sync_id, 6);
}

#[test]
#[should_panic(expected = "a provider is attached once")]
fn a_mirror_with_one_provider_twice_is_never_gone_on_with() {
    let mut mirror = mirror(2);
    mirror.components[1].key = mirror.components[0].key;
    let _ = mirror.apply(Event::Quiet);
}

/// It was being written when it went, and nobody has counted up since: what it has of the last writes is not known.
#[test]
fn who_comes_back_to_a_running_mirror_with_its_mark_is_filled() {
    for (is_dirty, expected) in [(true, Synchronizing), (false, Active)] {
        let mut mirror = mirror(2);
        mirror.apply(Event::Unplugged(Key(1))).unwrap();
        let mut back = label(2, 2);
        (back.sync_id, back.generation_id) = (mirror.sync_id, mirror.generation_id);
        back.is_dirty = is_dirty;
        assert_eq!(taste(&mut mirror, provider(1, back)), None);
        assert_eq!(states(&mirror), [Active, expected]);
    }
}
