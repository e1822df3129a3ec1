//! Every choice that FreeBSD's gmirror made in the recorded traces is made again.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

use plexum_block::clock::Moment;
use plexum_engine::balance::{Balancer, MemberTraits, Policy, Request};
use plexum_layout::CopyPlace;
use serde_json::Value;

/// The attach time of the recorded run is not in the trace; its fraction of a second only matters for `load-7`.
const ATTACHED: Moment = Moment(1_000_000_000_000);

fn number(value: &Value, key: &str) -> u64 {
    value[key]
        .as_u64()
        .unwrap_or_else(|| panic!("{key} in {value}"))
}

fn slot(value: &Value) -> usize {
    usize::try_from(number(value, "m")).unwrap()
}

/// When an I/O began, and for reads its offset and length.
type Begun = (Moment, Option<(u64, u64)>);

/// (member, offset, length)
type Dispatch = (usize, u64, u64);

fn dispatch(line: &Value) -> Vec<Dispatch> {
    let parts = line["dispatch"].as_array().unwrap();
    parts
        .iter()
        .map(|part| (slot(part), number(part, "off"), number(part, "len")))
        .collect()
}

struct Replay {
    balancer: Balancer,
    order: Vec<usize>,
    now: Moment,
    failing: Option<usize>,
    /// Outstanding I/Os of each member.
    queues: BTreeMap<usize, VecDeque<Begun>>,
    reads: usize,
}

impl Replay {
    fn new(header: &Value, policy: Policy) -> Replay {
        let priorities: Vec<u64> = header["priorities"]
            .as_array()
            .unwrap()
            .iter()
            .map(|p| p.as_u64().unwrap())
            .collect();
        let mut order: Vec<usize> = (0..priorities.len()).collect();
        order.sort_by_key(|slot| std::cmp::Reverse(priorities[*slot]));
        let sector_bytes = u32::try_from(number(header, "sector_size")).unwrap();
        let mut balancer = Balancer::new(policy, order.len(), sector_bytes);
        balancer.set_order(&order);
        for slot in 0..order.len() {
            balancer.attach(slot, MemberTraits::default(), ATTACHED);
        }
        Replay {
            balancer,
            order,
            now: ATTACHED,
            failing: None,
            queues: BTreeMap::new(),
            reads: 0,
        }
    }

    fn read(&mut self, offset_bytes: u64, length_bytes: u64) -> Vec<Dispatch> {
        self.reads += 1;
        let mut candidates: Vec<CopyPlace> = self
            .order
            .iter()
            .map(|&slot| CopyPlace {
                slot,
                member_offset_bytes: offset_bytes,
            })
            .collect();
        let pick = self.balancer.pick(
            &Request {
                offset_bytes,
                length_bytes,
                ahead_bytes_max: None,
                group: 0,
                now: self.now,
            },
            &mut candidates,
        );
        let parts: Vec<Dispatch> = pick
            .pieces(&candidates, length_bytes)
            .map(|p| (p.slot, p.member_offset_bytes, p.length_bytes))
            .collect();
        for (slot, offset, length) in &parts {
            self.queues
                .entry(*slot)
                .or_default()
                .push_back((self.now, Some((*offset, *length))));
        }
        parts
    }

    fn write(&mut self, parts: Vec<Dispatch>) {
        for (slot, offset, length) in parts {
            self.balancer.started(slot, offset, length);
            self.queues
                .entry(slot)
                .or_default()
                .push_back((self.now, None));
        }
    }

    /// Completes the oldest I/O of a member; a failed read drops the member and is sent again.
    fn complete(&mut self, member: usize) -> Vec<Dispatch> {
        let (begun, read) = self.queues.get_mut(&member).unwrap().pop_front().unwrap();
        self.balancer.finished(member, self.now.since(begun));
        match read {
            Some((offset, length)) if self.failing == Some(member) => {
                self.balancer.detach(member);
                self.order.retain(|slot| *slot != member);
                self.read(offset, length)
            }
            _ => Vec::new(),
        }
    }
}

fn replay(name: &str, policy: Policy) -> usize {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/freebsd/traces")
        .join(format!("{name}.jsonl"));
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut lines = text.lines().enumerate();
    let header: Value = serde_json::from_str(lines.next().unwrap().1).unwrap();
    let mut replay = Replay::new(&header, policy);
    for (index, line) in lines {
        let at = format!("{name} line {}", index + 1);
        let line: Value = serde_json::from_str(line).unwrap();
        match line["op"].as_str().unwrap() {
            "time" => replay.now = Moment(replay.now.0 + number(&line, "advance_us") * 1000),
            "read" => assert_eq!(
                replay.read(number(&line, "off"), number(&line, "len")),
                dispatch(&line),
                "{at}"
            ),
            "write" => replay.write(dispatch(&line)),
            "make_reads_fail" => replay.failing = Some(slot(&line)),
            "complete_oldest" => {
                let again = replay.complete(slot(&line));
                let expected = if line["dispatch"].is_array() {
                    dispatch(&line)
                } else {
                    Vec::new()
                };
                assert_eq!(again, expected, "{at}");
            }
            other => panic!("{at}: unknown operation {other}"),
        }
    }
    assert!(replay.now.since(ATTACHED) < Duration::from_secs(3600));
    replay.reads
}

#[test]
fn every_recorded_choice_of_freebsd_is_made_again() {
    let split = Policy::Split { slice_bytes: 4096 };
    let traces = [
        ("load_2way_reads", Policy::Load),
        ("load_3way", Policy::Load),
        ("load_3way_failure", Policy::Load),
        ("roundrobin_3way", Policy::RoundRobin),
        ("split_3way", split),
        ("prefer_3way", Policy::Prefer),
        ("load7_3way", Policy::Load7),
    ];
    let reads: usize = traces
        .iter()
        .map(|(name, policy)| replay(name, *policy))
        .sum();
    assert_eq!(reads, 351, "350 reads and one that is sent again");
}

#[test]
fn another_policy_does_not_make_the_recorded_choices() {
    for (name, policy) in [
        ("load_3way", Policy::RoundRobin),
        ("load7_3way", Policy::Load),
        ("prefer_3way", Policy::Load),
    ] {
        let quiet = std::panic::catch_unwind(|| replay(name, policy));
        assert!(
            quiet.is_err(),
            "{name} cannot tell {policy} from its own policy"
        );
    }
}
