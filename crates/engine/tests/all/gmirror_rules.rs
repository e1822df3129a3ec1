//! gmirror's recorded transitions are followed step by step, and every golden mirror is put together as recorded, in
//! every order of arrival.

use std::collections::BTreeMap;

use plexum_format::gmirror::{Balance, MirrorLabel, NewMirrorLabel};
use plexum_freebsd::gmirror::{
    Command, Effect, Event, IDLE_SECONDS, Key, Mirror, NewComponent, Provider, Refusal,
    START_TIMEOUT_SECONDS, Settings,
};
use plexum_testkit::{freebsd_cases, freebsd_json, unpack_freebsd_case};
use serde_json::{Value, json};

const SECTOR_BYTES: u64 = 512;

/// Disks with nothing but their last sectors, a mirror over them, and a clock.
#[derive(Default)]
struct World {
    names: Vec<String>,
    sizes: Vec<u64>,
    sector_sizes: Vec<u64>,
    sectors: Vec<Option<[u8; 512]>>,
    broken: Vec<Option<bool>>,
    mirror: Option<Mirror>,
    now_s: u64,
    born_s: u64,
    written_s: u64,
    next_id: u32,
    /// Rebuilds end at once; otherwise when `finish` is called.
    is_instant: bool,
    rebuilds: Vec<(Key, u64)>,
}

impl World {
    fn add(&mut self, name: &str, size_bytes: u64, sector_bytes: u64, sector: Option<[u8; 512]>) {
        self.names.push(name.to_owned());
        self.sizes.push(size_bytes);
        self.sector_sizes.push(sector_bytes);
        self.sectors.push(sector);
        self.broken.push(None);
    }

    fn label(&self, index: usize) -> Option<MirrorLabel> {
        let at = self.sizes[index] - self.sector_sizes[index];
        MirrorLabel::parse(&self.sectors[index]?, at, self.sizes[index]).ok()
    }

    fn provider(&self, index: usize) -> Option<Provider> {
        Some(Provider {
            key: Key(index),
            name: self.names[index].clone(),
            size_bytes: self.sizes[index],
            sector_bytes: u32::try_from(self.sector_sizes[index]).unwrap(),
            label: self.label(index)?,
        })
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::WriteLabel { key, label } => self.sectors[key.0] = Some(label.encode()),
                Effect::ClearLabel(key) => self.sectors[key.0] = None,
                Effect::StartRebuild { key, from_bytes } => self.rebuilds.push((key, from_bytes)),
                Effect::Destroyed => self.mirror = None,
                Effect::Dropped { .. } | Effect::OldDataServed(_) => {}
            }
        }
        if self.is_instant {
            self.finish();
        }
    }

    fn finish(&mut self) {
        for (key, _) in std::mem::take(&mut self.rebuilds) {
            self.apply(Event::RebuildDone(key)).unwrap();
        }
    }

    fn apply(&mut self, event: Event) -> Result<(), Refusal> {
        let effects = self.mirror.as_mut().expect("a mirror").apply(event)?;
        self.carry_out(effects);
        Ok(())
    }

    fn taste(&mut self, index: usize) -> Result<(), Refusal> {
        let Some(provider) = self.provider(index) else {
            return Ok(());
        };
        if self.mirror.is_some() {
            return self.apply(Event::Taste(Box::new(provider)));
        }
        let (mirror, effects) = Mirror::start(provider)?;
        self.mirror = Some(mirror);
        self.born_s = self.now_s;
        self.carry_out(effects);
        Ok(())
    }

    fn wait(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now_s += 1;
            let Some(mirror) = &self.mirror else { continue };
            if !mirror.is_running && self.now_s >= self.born_s + START_TIMEOUT_SECONDS {
                self.apply(Event::StartTimeout).unwrap();
            } else if self.now_s >= self.written_s + IDLE_SECONDS {
                self.apply(Event::Quiet).unwrap();
            }
        }
    }

    fn id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id
    }

    fn make_labels(&mut self, indices: &[usize], balance: Balance) {
        for (priority, index) in indices.iter().enumerate() {
            let label = MirrorLabel::create(&NewMirrorLabel {
                name: "g",
                mirror_id: 99,
                component_id: self.id(),
                component_count: u8::try_from(indices.len()).unwrap(),
                priority: u8::try_from(priority).unwrap(),
                slice_bytes: 4096,
                balance,
                volume_bytes: self.sizes[*index] - SECTOR_BYTES,
                sector_bytes: 512,
                provider_bytes: self.sizes[*index],
            });
            self.sectors[*index] = Some(label.unwrap().encode());
        }
    }

    fn command(&mut self, text: &str) {
        let words: Vec<&str> = text.split(' ').collect();
        let disk = words.last().and_then(|word| word.strip_prefix('@'));
        let index: usize = disk.map_or(0, |number| number.parse().unwrap());
        let key = Key(index);
        let command = match words[0] {
            "clear" => {
                self.sectors[index] = None;
                return;
            }
            "forget" => Command::Forget,
            "destroy" => Command::Destroy,
            "remove" => Command::Remove(key),
            "deactivate" => Command::Deactivate(key),
            "activate" => Command::Activate(Box::new(self.provider(index).unwrap())),
            "insert" => {
                let priority = words.iter().position(|word| *word == "-p");
                Command::Insert(NewComponent {
                    key,
                    provider: self.names[index].clone(),
                    size_bytes: self.sizes[index],
                    sector_bytes: 512,
                    component_id: self.id(),
                    priority: priority.map_or(0, |at| words[at + 1].parse().unwrap()),
                    is_inactive: false,
                    is_bound: false,
                })
            }
            other => panic!("unknown command {other}"),
        };
        self.apply(Event::Command(command)).unwrap();
    }

    fn step(&mut self, step: &Value) {
        let number = |at: usize| usize::try_from(step[at].as_u64().unwrap()).unwrap();
        let numbers = |at: usize| -> Vec<usize> {
            let list = step[at].as_array().unwrap().iter();
            list.map(|value| usize::try_from(value.as_u64().unwrap()).unwrap())
                .collect()
        };
        match step[0].as_str().unwrap() {
            "label" => {
                let balance = match step[1].as_str().unwrap() {
                    "-b load" => Balance::Load,
                    "-b prefer" => Balance::Prefer,
                    "-b round-robin" => Balance::RoundRobin,
                    other => panic!("unknown options {other}"),
                };
                self.make_labels(&numbers(2), balance);
            }
            // A refusal is part of the recorded outcome.
            "taste" => numbers(1)
                .into_iter()
                .for_each(|index| drop(self.taste(index))),
            "plug" => self.taste(number(1)).unwrap(),
            "unplug" => self.apply(Event::Unplugged(Key(number(1)))).unwrap(),
            "wait" => self.wait(step[1].as_u64().unwrap()),
            "close" => self.apply(Event::Quiet).unwrap(),
            "power_cycle" => self.mirror = None,
            "read_error" => self.broken[number(1)] = Some(step[2] == 6),
            "write" => {
                self.written_s = self.now_s;
                self.apply(Event::Write).unwrap();
            }
            "read" => self.read(),
            "cmd" => self.command(step[1].as_str().unwrap()),
            other => panic!("unknown step {other}"),
        }
    }

    /// Prefer is the only balance with which the recordings let a read fail: the first of the list is read.
    fn read(&mut self) {
        let first = self.mirror.as_ref().unwrap().components[0].key;
        if let Some(is_gone) = self.broken[first.0].take() {
            self.apply(Event::ReadFailed {
                key: first,
                is_gone,
            })
            .unwrap();
        }
    }

    fn metadata(&self, index: usize) -> Value {
        let Some(label) = self.label(index) else {
            return Value::Null;
        };
        let flags = |pairs: &[(bool, &str)]| -> Vec<String> {
            let set = pairs.iter().filter(|(is_set, _)| *is_set);
            set.map(|(_, name)| (*name).to_owned()).collect()
        };
        json!({
            "version": label.version, "all": label.component_count,
            "genid": label.generation_id, "syncid": label.sync_id,
            "priority": label.priority, "balance": label.balance.name(),
            "slice": label.slice_bytes, "mediasize": label.volume_bytes,
            "sync_offset": label.sync_offset_bytes,
            "mflags": flags(&[
                (label.has_no_autosync, "NOAUTOSYNC"),
                (label.has_no_failsync, "NOFAILSYNC"),
            ]),
            "dflags": flags(&[
                (label.is_dirty, "DIRTY"),
                (label.is_rebuilding, "SYNCHRONIZING"),
                (label.is_rebuild_forced, "FORCE_SYNC"),
                (label.is_inactive, "INACTIVE"),
            ]),
            "md5_ok": true,
        })
    }
}

#[test]
fn every_recorded_transition_is_followed_step_by_step() {
    let scenarios = freebsd_json("transitions.json");
    let mut steps = 0;
    for scenario in scenarios.as_array().unwrap() {
        let name = scenario["scenario"].as_str().unwrap();
        let mut world = World {
            is_instant: true,
            ..World::default()
        };
        for index in 0..scenario["members"].as_u64().unwrap() {
            let size = scenario["member_size"].as_u64().unwrap();
            world.add(&format!("m{index}"), size, SECTOR_BYTES, None);
        }
        for (number, step) in scenario["steps"].as_array().unwrap().iter().enumerate() {
            let place = format!("{name} step {number}: {}", step["step"]);
            world.step(&step["step"]);
            for (member, expected) in step["metadata"].as_object().unwrap() {
                let index: usize = member[1..].parse().unwrap();
                assert_eq!(world.metadata(index), *expected, "{place}, {member}");
            }
            let found = world.mirror.as_ref().map_or(Value::Null, |mirror| {
                let members: BTreeMap<String, &str> = mirror
                    .components
                    .iter()
                    .map(|component| (format!("m{}", component.key.0), component.state.name()))
                    .collect();
                json!({"state": mirror.state().name(), "syncid": mirror.sync_id,
                    "genid": mirror.generation_id, "components": mirror.component_count,
                    "members": members})
            });
            assert_eq!(found, step["mirror"], "{place}");
            steps += 1;
        }
    }
    assert!(steps > 60, "only {steps} steps were checked");
}

/// A mirror as the manifest tells it, without what depends on how fast a rebuild is.
fn shown(mirror: &Mirror) -> Value {
    let flags = |pairs: &[(bool, &str)]| -> String {
        let set: Vec<&str> = pairs
            .iter()
            .filter(|(is_set, _)| *is_set)
            .map(|(_, name)| *name)
            .collect();
        if set.is_empty() {
            "NONE".into()
        } else {
            set.join(", ")
        }
    };
    let components: BTreeMap<String, Value> = mirror
        .components
        .iter()
        .map(|component| {
            let label = &component.label;
            let shown = json!({
                "state": component.state.name(), "syncid": label.sync_id,
                "genid": label.generation_id, "priority": label.priority,
                "flags": flags(&[
                    (label.is_dirty, "DIRTY"),
                    (label.is_inactive, "INACTIVE"),
                    (label.is_rebuilding, "SYNCHRONIZING"),
                    (label.is_rebuild_forced, "FORCE_SYNC"),
                    (!label.provider.is_empty(), "HARDCODED"),
                ]),
            });
            (component.key.0.to_string(), shown)
        })
        .collect();
    json!({
        "state": mirror.state().name(), "syncid": mirror.sync_id,
        "genid": mirror.generation_id, "all": mirror.component_count,
        "balance": mirror.balance.name(), "slice": mirror.slice_bytes,
        "flags": flags(&[
            (mirror.has_no_autosync, "NOAUTOSYNC"),
            (mirror.has_no_failsync, "NOFAILSYNC"),
        ]),
        "components": components,
    })
}

fn expected(recorded: &Value) -> Value {
    let mut expected = recorded.clone();
    for component in expected["components"].as_object_mut().unwrap().values_mut() {
        let component = component.as_object_mut().unwrap();
        component.retain(|name, _| {
            ["state", "syncid", "genid", "flags", "priority"].contains(&name.as_str())
        });
    }
    expected
}

fn world_of(case: &Value) -> World {
    let unpacked = unpack_freebsd_case(case["id"].as_str().unwrap());
    let mut world = World::default();
    for member in case["members"].as_array().unwrap() {
        let size = member["size"].as_u64().unwrap();
        let sector = member["sector_size"].as_u64().unwrap();
        let bytes = unpacked.read(member["file"].as_str().unwrap());
        let at = usize::try_from(size - sector).unwrap();
        let label = bytes[at..at + 512].try_into().unwrap();
        world.add(
            member["provider"].as_str().unwrap(),
            size,
            sector,
            Some(label),
        );
    }
    world
}

fn number_of(case: &Value, file: &Value) -> usize {
    let members = case["members"].as_array().unwrap();
    members
        .iter()
        .position(|member| member["file"] == *file)
        .unwrap()
}

fn orders(of: &[usize]) -> Vec<Vec<usize>> {
    if of.len() <= 1 {
        return vec![of.to_vec()];
    }
    let mut all = Vec::new();
    for (at, first) in of.iter().enumerate() {
        let mut rest = of.to_vec();
        rest.remove(at);
        all.extend(orders(&rest).into_iter().map(|mut order| {
            order.insert(0, *first);
            order
        }));
    }
    all
}

#[test]
fn every_golden_mirror_comes_up_as_recorded_in_every_order_of_arrival() {
    let cases = freebsd_cases("gmirror");
    assert_eq!(cases.len(), 15);
    for case in cases {
        let id = case["id"].as_str().unwrap();
        let recorded = &case["upstream_behaviour"];
        let files = case["taste_order"].as_array().unwrap();
        let tasted: Vec<usize> = files.iter().map(|file| number_of(&case, file)).collect();
        let fresh = world_of(&case);
        for order in orders(&tasted) {
            let mut world = World {
                names: fresh.names.clone(),
                sizes: fresh.sizes.clone(),
                sector_sizes: fresh.sector_sizes.clone(),
                sectors: fresh.sectors.clone(),
                broken: fresh.broken.clone(),
                ..World::default()
            };
            for index in &order {
                let _ = world.taste(*index); // a refusal is part of the recorded outcome
            }
            let place = format!("{id} in order {order:?}");
            let look = |world: &World| shown(world.mirror.as_ref().unwrap());
            assert_eq!(
                look(&world),
                expected(&recorded["after_taste"]),
                "{place}, after taste"
            );
            world.wait(START_TIMEOUT_SECONDS + 1);
            let after = expected(&recorded["after_start_timeout"]);
            assert_eq!(look(&world), after, "{place}, after the time-out");
            world.finish();
            let after = expected(&recorded["after_resync"]);
            assert_eq!(look(&world), after, "{place}, after the resync");
            world.apply(Event::Command(Command::Stop)).unwrap();
            for (index, stopped) in recorded["metadata_after_clean_stop"].as_object().unwrap() {
                let index: usize = index.parse().unwrap();
                let found = world.metadata(index);
                for (field, value) in found.as_object().unwrap() {
                    assert_eq!(
                        *value, stopped[field],
                        "{place}, {field} of {index} after the stop"
                    );
                }
            }
        }
    }
}

#[test]
fn a_rebuild_goes_on_where_it_was_stopped_and_begins_anew_after_a_crash() {
    let case = freebsd_cases("gmirror")
        .into_iter()
        .find(|case| case["id"] == "gm09_interrupted_rebuild")
        .unwrap();
    let mut world = world_of(&case);
    for index in [0, 1] {
        world.taste(index).unwrap();
    }
    // FreeBSD goes on at 393,216, although writes may be on one side alone.
    assert_eq!(world.rebuilds, [(Key(1), 0)]);
    let offset_bytes = 524_288;
    world
        .apply(Event::RebuildAt {
            key: Key(1),
            offset_bytes,
        })
        .unwrap();
    for (is_stopped, from_bytes) in [(true, 524_288), (false, 0)] {
        if is_stopped {
            world.apply(Event::Command(Command::Stop)).unwrap();
        }
        world.mirror = None;
        world.rebuilds.clear();
        for index in [1, 0] {
            world.taste(index).unwrap();
        }
        assert_eq!(world.rebuilds, [(Key(1), from_bytes)], "{is_stopped}");
    }
}

#[test]
fn bound_labels_follow_their_names() {
    let mut world = World {
        is_instant: true,
        ..World::default()
    };
    for name in ["da0", "da1"] {
        world.add(name, 262_144, SECTOR_BYTES, None);
    }
    world.make_labels(&[0, 1], Balance::Load);
    for index in [0, 1] {
        world.taste(index).unwrap();
    }
    let bind = Settings {
        is_bound: Some(true),
        ..Settings::default()
    };
    world
        .apply(Event::Command(Command::Configure(bind)))
        .unwrap();
    world.mirror = None;
    world.names[1] = "da7".into();
    world.taste(0).unwrap();
    assert_eq!(
        world.taste(1),
        Err(Refusal::OtherProvider {
            bound_to: "da1".into()
        })
    );
}
