//! What every server relies on, seen through two made-up ones: a queue that hands over its memory with each request,
//! and a direct caller of the trait.
#![allow(clippy::unwrap_used)]

mod counting;

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use plexum_block::buf::{Buf, BufPool};
use plexum_block::device::{Fua, IoError};
use plexum_exec::{Executor, Fifo};
use plexum_front::budget::Budget;
use plexum_front::client::{Client, Leave};
use plexum_front::export::{Export, ZeroRequest};
use plexum_front::exports::{Exports, OpenError, Visit};
use plexum_front::memory::{Fill, Memory, MemoryError, Part, check_inside, copy_of};
use plexum_front::parts::Parts;
use plexum_front::perform::{Command, Job, Outcome, Performed, Performer};
use plexum_front::requests::RequestLimits;
use plexum_front::testing::{MemoryExport, Operation};

const SLICE_BYTES: u64 = 64 << 20;

fn part(offset_bytes: usize, count: usize) -> Part {
    Part {
        offset_bytes,
        count,
    }
}

/// Memory of a made-up guest.
#[derive(Clone)]
struct Guest(Rc<RefCell<Vec<u8>>>);

impl Guest {
    fn new(bytes: &[u8]) -> Self {
        Self(Rc::new(RefCell::new(bytes.to_vec())))
    }
}

impl Memory for Guest {
    fn length_bytes(&self) -> usize {
        self.0.borrow().len()
    }
    fn load(&self, offset_bytes: usize, into: &mut [u8]) -> Result<(), MemoryError> {
        let range = check_inside(self.length_bytes(), part(offset_bytes, into.len()))?;
        into.copy_from_slice(&self.0.borrow()[range]);
        Ok(())
    }
    fn store(&self, offset_bytes: usize, from: &[u8]) -> Result<(), MemoryError> {
        let range = check_inside(self.length_bytes(), part(offset_bytes, from.len()))?;
        self.0.borrow_mut()[range].copy_from_slice(from);
        Ok(())
    }
}

/// A request of the queue and its end.
struct Entry {
    command: Command,
    offset_bytes: u64,
    length_bytes: u64,
    memory: Option<Guest>,
    done: Rc<Cell<Option<Result<(), IoError>>>>,
}

/// The queue of one client: requests go in, and are carried out until it has left.
#[derive(Default)]
struct Queue {
    entries: RefCell<Vec<Entry>>,
    pool: Option<BufPool>,
}

impl Queue {
    fn new() -> Rc<Self> {
        Rc::new(Self {
            entries: RefCell::default(),
            pool: Some(BufPool::new(1 << 20)),
        })
    }

    /// Puts a request in; the cell gets its answer.
    fn ask(&self, command: Command, offset_bytes: u64, memory: &Guest) -> Asked {
        let length_bytes = memory.length_bytes() as u64;
        self.ask_range(
            command,
            offset_bytes..offset_bytes + length_bytes,
            Some(memory),
        )
    }

    fn ask_range(
        &self,
        command: Command,
        range: std::ops::Range<u64>,
        memory: Option<&Guest>,
    ) -> Asked {
        let done = Asked::default();
        self.entries.borrow_mut().push(Entry {
            command,
            offset_bytes: range.start,
            length_bytes: range.end - range.start,
            memory: memory.cloned(),
            done: Rc::clone(&done),
        });
        done
    }

    /// Serves the client until it is to leave and nothing of it is under way.
    async fn serve<E: Export>(self: Rc<Self>, visit: Visit<E>) {
        let client: &Client = visit.client();
        let performer = Performer::new(visit.export(), client);
        let parts = Parts::new();
        let answer = |performed: Performed<Entry>| {
            let mut result = performed.result;
            if let (Ok(Outcome::Data(rope)), Some(memory)) = (&result, performed.key.memory) {
                let filled = Fill::new(memory).with(rope);
                result = filled.map(|_| Outcome::Done).map_err(|_| IoError::Failed);
            }
            performed.key.done.set(Some(result.map(|_| ())));
        };
        let mut workers = Vec::new();
        poll_fn(|cx| {
            for entry in self.entries.take() {
                if client.is_leaving() {
                    entry.done.set(Some(Err(IoError::Gone)));
                    continue;
                }
                let pool = self.pool.as_ref().unwrap();
                let data = match (&entry.command, &entry.memory) {
                    (Command::Write(_), Some(memory)) => Some(copy_of(memory, pool).unwrap()),
                    _ => None,
                };
                let mut admitted = pin!(client.requests().admit(0));
                let Poll::Ready(tag) = admitted.as_mut().poll(cx) else {
                    panic!("the queue asks for less than its limits");
                };
                let worker = performer.start(Job {
                    command: entry.command,
                    offset_bytes: entry.offset_bytes,
                    length_bytes: entry.length_bytes,
                    key: entry,
                    data,
                    tag,
                });
                parts.wake(worker);
            }
            parts.poll(cx, |worker| {
                while workers.len() <= worker {
                    workers.push(Box::pin(performer.work(workers.len(), &answer)));
                }
                let waker = parts.waker(worker);
                let Poll::Pending = workers[worker]
                    .as_mut()
                    .poll(&mut Context::from_waker(&waker));
                true
            });
            if client.is_leaving() && client.requests().under_way() == 0 {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref(); // a made-up server may look all the time
            Poll::Pending
        })
        .await;
    }
}

type Asked = Rc<Cell<Option<Result<(), IoError>>>>;

/// An executor that runs until nothing but queues that look is left.
struct World {
    exec: Executor<Fifo>,
    exports: Rc<Exports<MemoryExport>>,
    budget: Budget,
}

impl World {
    fn new(exports: &[&Rc<MemoryExport>]) -> Self {
        let world = Self {
            exec: Executor::new(Fifo),
            exports: Rc::default(),
            budget: Budget::new(64 << 20),
        };
        for export in exports {
            world.exports.open(Rc::clone(export)).unwrap();
        }
        world
    }

    fn settle(&mut self) {
        for _ in 0..200 {
            self.exec.poll_one();
        }
    }

    /// A client of an export, through a queue.
    fn queue(&mut self, name: &str) -> (Rc<Queue>, Rc<Client>) {
        let opened = self.exports.find(name).unwrap();
        let limits = RequestLimits::default();
        let visit = self
            .exports
            .enter(&opened, "queue".into(), limits, &self.budget);
        let queue = Queue::new();
        let serving = Rc::clone(&queue);
        let visit = visit.unwrap();
        let client = self.exports.client(name, visit.client().id()).unwrap();
        self.exec.spawn(serving.serve(visit));
        (queue, client)
    }

    /// Starts `future`; the cell says whether it has ended.
    fn start(&mut self, future: impl Future<Output = ()> + 'static) -> Rc<Cell<bool>> {
        let done = Rc::new(Cell::new(false));
        let cell = Rc::clone(&done);
        self.exec.spawn(async move {
            future.await;
            cell.set(true);
        });
        done
    }
}

fn memory(name: &str) -> Rc<MemoryExport> {
    Rc::new(MemoryExport::new(name, 1 << 30, |_| {}))
}

fn run<R>(future: impl Future<Output = R>) -> R {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut cx) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("it ends without a further event"),
    }
}

fn buf(bytes: &[u8]) -> Buf {
    BufPool::new(0).copy_of(bytes).freeze()
}

#[test]
fn what_one_server_wrote_another_one_reads() {
    let export = memory("v");
    let mut world = World::new(&[&export]);
    let (queue, _) = world.queue("v");
    let written = queue.ask(Command::Write(Fua::No), 4096, &Guest::new(&[7; 1024]));
    world.settle();
    assert_eq!(written.get(), Some(Ok(())));
    // The other server calls the trait itself.
    assert_eq!(run(export.read(4096, 1024)).unwrap().to_vec(), [7; 1024]);
    run(export.write(4096, buf(&[9; 512]), Fua::No)).unwrap();
    let into = Guest::new(&[0; 1024]);
    let read = queue.ask(Command::Read, 4096, &into);
    world.settle();
    assert_eq!(read.get(), Some(Ok(())));
    assert_eq!(*into.0.borrow(), [[9; 512], [7; 512]].concat());
}

#[test]
fn a_guest_that_changes_its_memory_during_a_write_changes_no_byte_of_it() {
    let export = memory("v");
    let mut world = World::new(&[&export]);
    let (queue, _) = world.queue("v");
    export.hold(true);
    let data = Guest::new(&[1; 512]);
    let written = queue.ask(Command::Write(Fua::No), 0, &data);
    world.settle();
    data.0.borrow_mut().fill(2);
    export.release(0);
    world.settle();
    assert_eq!(written.get(), Some(Ok(())));
    assert_eq!(export.bytes(0, 512), [1; 512]);
}

#[test]
fn memory_of_another_length_is_an_error_and_no_range_of_it_wraps() {
    let pool = BufPool::new(0);
    let rope = pool.copy_of(&[3; 8]).freeze().into();
    let wrong = MemoryError::WrongLength {
        found_bytes: 8,
        length_bytes: 9,
    };
    assert_eq!(
        Fill::new(Guest::new(&[0; 9])).with(&rope).err(),
        Some(wrong)
    );
    assert!(check_inside(9, part(usize::MAX, 2)).is_err());
    assert!(check_inside(9, part(9, 1)).is_err());
    assert_eq!(check_inside(9, part(8, 1)), Ok(8..9));
}

#[test]
fn a_client_that_drains_is_answered_what_it_has_under_way_and_asks_nothing_new() {
    let export = memory("v");
    let mut world = World::new(&[&export]);
    let (queue, client) = world.queue("v");
    export.hold(true);
    let written = queue.ask(Command::Write(Fua::No), 0, &Guest::new(&[1; 512]));
    world.settle();
    let leaving = Rc::clone(&client);
    let left = world.start(async move { leaving.leave(Leave::Drain).await });
    world.settle();
    assert_eq!(client.status().leaves, Some(Leave::Drain));
    let late = queue.ask(Command::Flush, 0, &Guest::new(&[]));
    world.settle();
    assert_eq!(late.get(), Some(Err(IoError::Gone)));
    assert!(!left.get(), "a write is under way");
    export.release(0);
    world.settle();
    assert_eq!(written.get(), Some(Ok(())));
    assert!(left.get());
    assert_eq!(export.take_log(), [Operation::Write(0, 512, Fua::No)]);
    assert_eq!(world.exports.clients("v"), []);
}

#[test]
fn of_a_client_that_is_fenced_nothing_reaches_the_export_any_more() {
    let export = memory("v");
    let mut world = World::new(&[&export]);
    let (queue, client) = world.queue("v");
    export.hold(true);
    // Of two slices the first one is with the export.
    let long = queue.ask_range(Command::Trim(Fua::No), 0..2 * SLICE_BYTES, None);
    world.settle();
    let leaving = Rc::clone(&client);
    let left = world.start(async move { leaving.leave(Leave::Fence).await });
    world.settle();
    assert!(!left.get(), "the export still works on a request of it");
    export.release(0);
    world.settle();
    assert!(left.get());
    assert_eq!(long.get(), Some(Err(IoError::Gone)));
    assert_eq!(
        export.take_log(),
        [Operation::Trim(0, SLICE_BYTES, Fua::No)]
    );
}

#[test]
fn a_job_that_lies_on_a_desk_when_its_client_is_fenced_is_not_carried_out() {
    let export = memory("v");
    let world = World::new(&[&export]);
    let opened = world.exports.find("v").unwrap();
    let limits = RequestLimits::default();
    let visit = world
        .exports
        .enter(&opened, String::new(), limits, &world.budget);
    let visit = visit.unwrap();
    let performer = Performer::new(visit.export(), visit.client());
    let tag = run(visit.client().requests().admit(512));
    let worker = performer.start(Job {
        key: (),
        command: Command::Write(Fua::No),
        offset_bytes: 0,
        length_bytes: 512,
        data: Some(buf(&[1; 512])),
        tag,
    });
    visit.client().tell(Leave::Fence);
    let answers = RefCell::new(Vec::new());
    let answer = |performed: Performed<()>| answers.borrow_mut().push(performed.result.err());
    let mut work = pin!(performer.work(worker, answer));
    let mut cx = Context::from_waker(std::task::Waker::noop());
    assert!(work.as_mut().poll(&mut cx).is_pending());
    assert_eq!(*answers.borrow(), [Some(IoError::Gone)]);
    assert_eq!(export.take_log(), []);
    assert_eq!(visit.client().requests().under_way(), 0);
}

#[test]
fn one_client_leaves_and_the_others_of_its_export_stay() {
    let export = memory("v");
    let mut world = World::new(&[&export]);
    let (_first, client) = world.queue("v");
    let (second, _) = world.queue("v");
    let left = world.start(async move { client.leave(Leave::Fence).await });
    world.settle();
    assert!(left.get());
    let written = second.ask(Command::Write(Fua::Yes), 0, &Guest::new(&[1; 512]));
    world.settle();
    assert_eq!(written.get(), Some(Ok(())));
    assert_eq!(world.exports.clients("v").len(), 1);
}

#[test]
fn an_export_closes_when_its_last_client_has_left_and_its_name_is_free_then() {
    let (export, other) = (memory("v"), memory("w"));
    let mut world = World::new(&[&export, &other]);
    let (queue, _) = world.queue("v");
    export.hold(true);
    let flushed = queue.ask(Command::Flush, 0, &Guest::new(&[]));
    world.settle();
    let exports = Rc::clone(&world.exports);
    let closed = world.start(async move { assert!(exports.close("v", Leave::Drain).await) });
    world.settle();
    assert!(!closed.get());
    assert!(world.exports.find("v").is_none(), "nobody comes any more");
    let taken = OpenError::NameTaken("v".into());
    assert_eq!(world.exports.open(memory("v")), Err(taken));
    export.release(0);
    world.settle();
    assert!(closed.get());
    assert_eq!(flushed.get(), Some(Ok(())));
    world.exports.open(memory("v")).unwrap();
    assert_eq!(world.exports.list().len(), 2);
    assert!(!run(world.exports.close("x", Leave::Drain)));
}

#[test]
fn a_close_that_nobody_waits_for_frees_the_name_when_the_last_client_has_left() {
    let export = memory("v");
    let mut world = World::new(&[&export]);
    let (_queue, _) = world.queue("v");
    {
        let mut closing = pin!(world.exports.close("v", Leave::Drain));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(closing.as_mut().poll(&mut cx).is_pending());
    }
    let taken = OpenError::NameTaken("v".into());
    assert_eq!(world.exports.open(memory("v")), Err(taken));
    world.settle();
    world.exports.open(memory("v")).unwrap();
}

#[test]
fn who_closes_with_a_fence_does_not_wait_for_what_drains() {
    let export = memory("v");
    let mut world = World::new(&[&export]);
    let (queue, _) = world.queue("v");
    export.hold(true);
    let long = queue.ask_range(Command::Trim(Fua::No), 0..3 * SLICE_BYTES, None);
    world.settle();
    let mut closed = Vec::new();
    for how in [Leave::Drain, Leave::Fence] {
        let exports = Rc::clone(&world.exports);
        closed.push(world.start(async move { assert!(exports.close("v", how).await) }));
        world.settle();
    }
    export.release(0);
    world.settle();
    assert!(closed.iter().all(|closed| closed.get()));
    assert_eq!(long.get(), Some(Err(IoError::Gone)));
    assert_eq!(export.take_log().len(), 1);
}

#[test]
fn a_size_that_changes_is_told_to_whoever_waits_and_to_whoever_comes_late() {
    let export = memory("v");
    let mut world = World::new(&[&export]);
    let seen = Rc::new(Cell::new(0));
    let (watched, told) = (Rc::clone(&export), Rc::clone(&seen));
    world
        .exec
        .spawn(async move { told.set(watched.resized(1 << 30).await) });
    world.settle();
    assert_eq!(seen.get(), 0);
    export.resize(2 << 30);
    world.settle();
    assert_eq!(seen.get(), 2 << 30);
    assert_eq!(run(export.resized(1 << 30)), 2 << 30, "missed, and told");
    assert_eq!(world.exports.status()[0].info.size_bytes, 2 << 30);
}

#[test]
fn a_client_at_its_limit_is_admitted_again_when_one_of_its_requests_was_answered() {
    let world = World::new(&[&memory("v")]);
    let opened = world.exports.find("v").unwrap();
    let limits = RequestLimits {
        requests_max: 2,
        bytes_max: 10_000,
    };
    let visit = world
        .exports
        .enter(&opened, String::new(), limits, &world.budget);
    let visit = visit.unwrap();
    let requests = visit.client().requests();
    // Larger than the limit, and alone.
    let large = run(requests.admit(50_000));
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let mut second = pin!(requests.admit(100));
    assert!(second.as_mut().poll(&mut cx).is_pending());
    drop(large);
    let second = run(second);
    let third = run(requests.admit(100));
    assert!(pin!(requests.admit(0)).poll(&mut cx).is_pending());
    assert_eq!(world.budget.used_bytes(), 2 * (100 + 512));
    drop((second, third));
    assert_eq!((requests.under_way(), world.budget.used_bytes()), (0, 0));
}
