//! A migration over made-up members, with a ledger in memory that can be cut, refuse, or take its time.
#![allow(clippy::unwrap_used)] // tests

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use super::*;
use crate::intent::regions::Regions;
use crate::metadata::PlainMetadata;
use crate::options::VolumeOptions;
use crate::state::{FailCause, MemberId, MemberRecord, Standing};
use crate::testing::{DATA_BYTES, Memory, STRIP_BYTES, Still, run};
use crate::volume::{DrivePart, VolumeParts};
use plexum_block::buf::BufPool;
use plexum_block::ranges::RangeSet;
use plexum_block::wait::poll_once;
use plexum_layout::{Geometry, GeometrySpec, Organisation, Raid0Layout, Raid5Layout};

const STRIPED: Organisation = Organisation::Raid0(Raid0Layout::Original);
const PARITY: Organisation = Organisation::Raid5(Raid5Layout::LeftSymmetric);

/// Two organisations over the same members.
#[derive(Clone, Copy)]
struct Change {
    before: (Organisation, u16),
    after: (Organisation, u16),
    gap_bytes: u64,
}

/// One member more, in place.
fn wider(organisation: Organisation, count: u16) -> Change {
    Change {
        before: (organisation, count),
        after: (organisation, count + 1),
        gap_bytes: 0,
    }
}

type Watch = Box<dyn Fn(Position)>;

/// What is durable besides the members: it outlives a migration.
#[derive(Default)]
struct Durable {
    position: Cell<Option<Position>>,
    kept: RefCell<Vec<u8>>,
    has_ended: Cell<bool>,
    is_proven: Cell<bool>,
    /// Saves that succeed before one is refused.
    saves_left: Cell<Option<u32>>,
    /// The refused one is durable: an error says that nobody knows.
    is_durable_all_the_same: Cell<bool>,
    /// Saves wait as long as this is set.
    is_slow: Cell<bool>,
    /// Who looks at the members before a position is durable.
    watch: RefCell<Option<Watch>>,
}

impl Durable {
    fn position(&self) -> Position {
        self.position.get().unwrap_or(at_border(0))
    }

    async fn take(&self, position: Position) -> Result<(), IoError> {
        if let Some(watch) = self.watch.borrow().as_ref() {
            watch(position);
        }
        std::future::poll_fn(|_| match self.is_slow.get() {
            true => Poll::Pending,
            false => Poll::Ready(()),
        })
        .await;
        if let Some(left) = self.saves_left.get() {
            self.saves_left.set(Some(left.saturating_sub(1)));
            if left == 0 {
                if self.is_durable_all_the_same.get() {
                    self.position.set(Some(position));
                }
                return Err(IoError::Failed);
            }
        }
        self.position.set(Some(position));
        Ok(())
    }
}

impl Ledger for Rc<Durable> {
    async fn save(&self, position: Position) -> Result<(), IoError> {
        self.take(position).await
    }

    async fn end(&self) -> Result<(), IoError> {
        self.take(at_border(u64::MAX)).await?;
        self.has_ended.set(true);
        Ok(())
    }

    async fn keep(&self, at_bytes: u64, data: Buf) -> Result<(), IoError> {
        let mut kept = self.kept.borrow_mut();
        kept.truncate(at_bytes as usize); // of a start that was cut before its save
        assert_eq!(kept.len() as u64, at_bytes, "in order");
        kept.extend_from_slice(&data);
        Ok(())
    }

    async fn flush_kept(&self) -> Result<(), IoError> {
        Ok(())
    }

    async fn kept(&self, range: Range<u64>) -> Result<Buf, IoError> {
        let kept = self.kept.borrow();
        let part = &kept[range.start as usize..range.end as usize];
        Ok(BufPool::new(0).copy_of(part).freeze())
    }

    fn note_proven(&self) {
        self.is_proven.set(true);
    }
}

type Moving = Migration<Memory, Still, Rc<Durable>>;

/// Members, and what is durable of their migration.
struct World {
    change: Change,
    members: Vec<Memory>,
    durable: Rc<Durable>,
    step_bytes: u64,
}

impl World {
    /// Members with `content` in the old geometry.
    fn new(change: Change) -> Self {
        let count = change.before.1.max(change.after.1);
        let world = Self {
            change,
            members: (0..count).map(|_| Memory::new()).collect(),
            durable: Rc::default(),
            step_bytes: 0,
        };
        let before = world.before();
        let content = content(before.size_bytes());
        let data = BufPool::new(0).copy_of(&content).freeze();
        run(before.write(0, data, Fua::No)).unwrap();
        world
    }

    fn volume(&self, of: (Organisation, u16), data: Range<u64>) -> Volume<Memory, Still> {
        let geometry = Geometry::new(&GeometrySpec {
            organisation: of.0,
            member_count: of.1,
            strip_bytes: STRIP_BYTES,
            component_bytes: data.end - data.start,
            member_sizes_bytes: Vec::new(),
        })
        .unwrap();
        let members = self.members.iter().take(usize::from(of.1));
        let part = |(slot, member): (u16, &Memory)| DrivePart {
            name: format!("disk{slot}"),
            device: Some(member.clone()),
            record: MemberRecord {
                slot: Some(slot),
                standing: Standing::Active,
                is_replacement: false,
                is_write_mostly: false,
            },
            data: data.clone(),
            bad: RangeSet::new(),
        };
        Volume::new(VolumeParts {
            name: "v".to_owned(),
            regions: Regions::without_bitmap(&geometry, 512, None),
            geometry,
            clock: Still,
            pool: BufPool::new(0),
            members: (0..).zip(members).map(part).collect(),
            metadata: Box::new(PlainMetadata::new("made up")),
            event_count: 0,
            is_uneven: false,
            log: None,
            resync_start_bytes: None,
            options: VolumeOptions::default(),
        })
    }

    fn before(&self) -> Volume<Memory, Still> {
        self.volume(self.change.before, self.change.gap_bytes..DATA_BYTES)
    }

    fn after(&self) -> Volume<Memory, Still> {
        self.volume(self.change.after, 0..DATA_BYTES - self.change.gap_bytes)
    }

    fn window(&self, direction: Direction) -> Result<Window, Unfit> {
        Window::new(&WindowSpec {
            before: self.before().geometry(),
            after: self.after().geometry(),
            direction,
            gap_bytes: self.change.gap_bytes,
            step_bytes: self.step_bytes,
        })
    }

    fn open(&self, position: Position, window: Window) -> Result<Moving, Unfit> {
        Migration::new(MigrationParts {
            before: self.before(),
            after: Rc::new(self.after()),
            bond: Bond::Apart,
            window,
            ledger: Rc::clone(&self.durable),
            position,
            is_doubtful: false,
        })
    }

    /// As a start finds it.
    fn start(&self) -> Moving {
        let window = self.window(Direction::Up).unwrap();
        self.open(self.durable.position(), window).unwrap()
    }
}

fn content(length: u64) -> Vec<u8> {
    let sector = |at: u64| [(at / 512 % 251 + 1) as u8; 512];
    (0..length).step_by(512).flat_map(sector).collect()
}

fn read(moving: &Moving, range: Range<u64>) -> Result<Vec<u8>, IoError> {
    let length = (range.end - range.start) as usize;
    run(moving.read(range.start, length, |_, _| {})).map(|data| data.to_vec())
}

fn write(moving: &Moving, at: u64, fill: u8, length: usize) -> Result<(), IoError> {
    let mut data = BufPool::new(0).take(length);
    data.fill(fill);
    run(moving.write(at, data.freeze(), Fua::No, |_, _| {}))
}

const CHANGES: [Change; 4] = [
    Change {
        before: (STRIPED, 2),
        after: (STRIPED, 3),
        gap_bytes: 0,
    },
    Change {
        before: (PARITY, 3),
        after: (PARITY, 4),
        gap_bytes: 0,
    },
    Change {
        before: (PARITY, 3),
        after: (PARITY, 5),
        gap_bytes: 2 * STRIP_BYTES,
    },
    // Rows of the same length: only the gap makes room.
    Change {
        before: (PARITY, 3),
        after: (Organisation::Raid4, 3),
        gap_bytes: STRIP_BYTES,
    },
];

#[test]
fn everything_moves_and_what_is_new_reads_as_zeroes_with_their_parity() {
    for change in CHANGES {
        let world = World::new(change);
        let moving = world.start();
        let size = moving.size_bytes();
        run(moving.run());
        assert!(world.durable.has_ended.get() && moving.job().is_none());
        let after = world.after();
        let whole = run(after.read(0, after.size_bytes() as usize))
            .unwrap()
            .to_vec();
        assert!(whole[..size as usize] == content(size));
        if change.after.0 == STRIPED {
            continue; // what was never anybody's is not written
        }
        assert!(whole[size as usize..].iter().all(|byte| *byte == 0));
        after.array().fail_member(MemberId(0), FailCause::Gone);
        let degraded = run(after.read(0, whole.len())).unwrap().to_vec();
        assert!(degraded == whole, "its parity is right");
    }
}

/// R2: whatever is saved, all behind that border is in its new place already.
#[test]
fn the_border_follows_when_the_data_are_in_place() {
    for change in CHANGES {
        let world = World::new(change);
        let after = Rc::new(world.after());
        let (reader, saves) = (Rc::clone(&after), Rc::new(Cell::new(0)));
        let size = world.before().size_bytes();
        let count = Rc::clone(&saves);
        world.durable.watch.replace(Some(Box::new(move |position| {
            let moved = position.border_bytes.min(size) as usize;
            if moved > 0 {
                let there = run(reader.read(0, moved)).unwrap().to_vec();
                assert!(there == content(moved as u64), "{position:?}");
            }
            count.set(count.get() + 1);
        })));
        run(world.start().run());
        assert!(saves.get() > 4, "{} saves", saves.get());
    }
}

/// Lets the save after so many fail, durable or not, and goes on from what a start finds. `None`: it ended before.
fn cut_and_go_on(change: Change, step_bytes: u64, saves: u32, is_durable: bool) -> Option<()> {
    let mut world = World::new(change);
    world.step_bytes = step_bytes;
    let durable = &world.durable;
    durable.saves_left.set(Some(saves));
    durable.is_durable_all_the_same.set(is_durable);
    let moving = world.start();
    let size = moving.size_bytes();
    run(moving.run());
    if durable.has_ended.get() {
        return None;
    }
    assert!(moving.job().is_none(), "an error has ended it");
    durable.saves_left.set(None);
    if durable.position().border_bytes == u64::MAX {
        return Some(()); // its end was durable
    }
    let again = world.start();
    if durable.position().kept_bytes == 0 {
        let found = read(&again, 0..size).unwrap();
        assert!(found == content(size), "{saves} saves");
    }
    run(again.run());
    assert!(durable.has_ended.get());
    let whole = run(world.after().read(0, size as usize)).unwrap();
    assert!(whole.to_vec() == content(size), "{saves} saves");
    Some(())
}

/// R3, R6, R8: whichever save fails, the next start finds everything from what is durable.
#[test]
fn what_the_durable_border_needs_is_never_written_over() {
    for change in CHANGES {
        for (step_bytes, is_durable) in [(0, false), (0, true), (u64::MAX, false), (u64::MAX, true)]
        {
            let mut saves = 0;
            while cut_and_go_on(change, step_bytes, saves, is_durable).is_some() {
                saves += 1;
            }
            assert!(saves > 2, "{saves}");
        }
    }
}

/// R4.
#[test]
fn a_request_to_a_window_waits_until_its_border_is_durable() {
    let world = World::new(CHANGES[3]);
    let moving = world.start();
    world.durable.is_slow.set(true);
    let mut running = pin!(moving.run());
    assert!(poll_once(running.as_mut()).is_pending());
    let row = 2 * STRIP_BYTES;
    let mut inside = pin!(moving.read(row - 512, 512, |_, _| {}));
    assert!(poll_once(inside.as_mut()).is_pending());
    let ahead = read(&moving, row..row + 512).unwrap();
    assert!(ahead == content(row + 512)[row as usize..], "the old place");
    world.durable.is_slow.set(false);
    assert!(poll_once(running.as_mut()).is_ready());
    let data = run(inside).unwrap();
    assert!(data.to_vec() == content(row)[row as usize - 512..]);
}

/// R4: a later start takes what it finds, the border before or the one after.
#[test]
fn between_two_borders_that_may_both_be_durable_nothing_is_answered() {
    for change in CHANGES {
        let world = World::new(change);
        world.durable.saves_left.set(Some(3));
        let moving = world.start();
        run(moving.run());
        let border = moving.progress().0;
        let end = world.window(Direction::Up).unwrap().next(border).end;
        assert!(border > 0 && end > border);
        assert_eq!(read(&moving, border..border + 512), Err(IoError::Failed));
        assert_eq!(write(&moving, end - 512, 1, 512), Err(IoError::Failed));
        assert_eq!(write(&moving, border - 512, 7, 512), Ok(()));
        assert_eq!(write(&moving, end, 8, 512), Ok(()));
        assert_eq!(read(&moving, border - 512..border), Ok(vec![7; 512]));
        assert_eq!(read(&moving, end..end + 512), Ok(vec![8; 512]));
    }
}

#[test]
fn a_request_over_the_border_is_cut_there() {
    for change in CHANGES {
        let world = World::new(change);
        world.durable.saves_left.set(Some(3));
        run(world.start().run());
        let moving = world.start();
        let border = moving.progress().0;
        assert_eq!(border, world.durable.position().border_bytes);
        let parts = RefCell::new(Vec::new());
        let mut data = BufPool::new(0).take(2048);
        data.fill(9);
        let answered = |volume: &Volume<Memory, Still>, part: Range<u64>| {
            parts.borrow_mut().push((volume.geometry().clone(), part));
        };
        run(moving.write(border - 1024, data.freeze(), Fua::No, answered)).unwrap();
        let expected = vec![
            (world.after().geometry().clone(), border - 1024..border),
            (world.before().geometry().clone(), border..border + 1024),
        ];
        assert_eq!(parts.into_inner(), expected);
        assert_eq!(
            read(&moving, border - 1024..border + 1024),
            Ok(vec![9; 2048])
        );
        world.durable.saves_left.set(None);
        run(moving.run());
        let there = run(world.after().read(border - 1024, 2048)).unwrap();
        assert_eq!(there.to_vec(), vec![9; 2048], "it moves with the rest");
    }
}

/// R5: its stale blocks are those that its parity was made of.
#[test]
fn a_row_that_the_border_cuts_is_read_and_written_by_its_parity() {
    let world = World::new(CHANGES[1]);
    let row = 2 * STRIP_BYTES;
    let is_cut = |border: u64| !border.is_multiple_of(row);
    let saves = (2..).find(|saves| {
        let tried = World::new(CHANGES[1]);
        tried.durable.saves_left.set(Some(*saves));
        run(tried.start().run());
        is_cut(tried.durable.position().border_bytes)
    });
    world.durable.saves_left.set(saves);
    run(world.start().run());
    let moving = world.start();
    let border = moving.progress().0;
    assert!(is_cut(border));
    let end = border.next_multiple_of(row);
    write(&moving, border, 5, 512).unwrap();
    let before = moving.before().unwrap();
    let old = before.geometry();
    let (number, in_row) = old.row_of(border);
    let slot = old
        .row_map(number)
        .data_slot((in_row / STRIP_BYTES) as usize);
    let lost = MemberId(slot as u16);
    before.array().fail_member(lost, FailCause::Gone);
    let data = read(&moving, border..end).unwrap();
    assert_eq!(data[..512], [5; 512]);
    assert!(data[512..] == content(end)[border as usize + 512..]);
}

/// R6.
#[test]
fn the_first_rows_answer_nothing_while_only_the_ledger_has_them() {
    let world = World::new(CHANGES[0]);
    world.durable.saves_left.set(Some(1));
    run(world.start().run());
    let kept = world.durable.position().kept_bytes;
    assert_eq!(kept, 6 * STRIP_BYTES, "two rows of three");
    assert!(*world.durable.kept.borrow() == content(kept));
    let moving = world.start();
    let mut early = pin!(moving.read(0, 512, |_, _| {}));
    assert!(poll_once(early.as_mut()).is_pending());
    assert!(read(&moving, kept..kept + 512).is_ok());
    world.durable.saves_left.set(None);
    run(moving.run());
    assert!(run(early).unwrap().to_vec() == content(512));
}

#[test]
fn with_a_gap_nothing_is_kept() {
    for change in [CHANGES[2], CHANGES[3]] {
        let world = World::new(change);
        run(world.start().run());
        assert!(world.durable.kept.borrow().is_empty());
    }
}

/// R13.
#[test]
fn a_stop_ends_it_between_two_windows_and_the_next_start_goes_on() {
    let world = World::new(CHANGES[1]);
    let moving = world.start();
    world.durable.is_slow.set(true);
    let mut running = pin!(moving.run());
    assert!(poll_once(running.as_mut()).is_pending());
    let mut stopping = pin!(moving.stop());
    assert!(poll_once(stopping.as_mut()).is_pending());
    world.durable.is_slow.set(false);
    assert!(poll_once(running.as_mut()).is_ready());
    run(stopping).unwrap();
    let (border, end) = moving.progress();
    assert!(border > 0 && border < end, "{border}");
    assert_eq!(world.durable.position(), at_border(border));
    run(world.start().run());
    assert!(world.durable.has_ended.get());
}

/// R10: what was cut before it could say that it has ended says so at the next start.
#[test]
fn a_start_at_the_end_only_says_that_it_has_ended() {
    let world = World::new(CHANGES[0]);
    let end = world.window(Direction::Up).unwrap().end_bytes();
    let moving = world
        .open(at_border(end), world.window(Direction::Up).unwrap())
        .unwrap();
    run(moving.run());
    assert!(world.durable.has_ended.get());
}

/// Members are not to be trusted: their position may be any number.
#[test]
fn a_position_at_which_no_migration_stops_is_refused() {
    let world = World::new(wider(PARITY, 3));
    let window = || world.window(Direction::Up).unwrap();
    let (unit, end) = (window().unit_bytes(), window().end_bytes());
    for (border_bytes, kept_bytes) in [
        (unit, 0), // inside of the first rows
        (3 * unit + 512, 0),
        (end + unit, 0),
        (u64::MAX, 0),
        (0, unit),
        (0, u64::MAX),
        (3 * unit, window().critical_bytes()),
    ] {
        let position = Position {
            border_bytes,
            kept_bytes,
        };
        let refused = world.open(position, window()).err();
        assert_eq!(refused, Some(Unfit::Position(position)));
        let text = refused.unwrap().to_string();
        assert!(text.contains(&border_bytes.to_string()), "{text}");
    }
    assert!(world.open(at_border(3 * unit), window()).is_ok());
}
