//! Volumes on several cores: threads beside the main one, each with a shard of every volume and clients of its own
//! (W12).
//!
//! Invariants:
//! - connections go to the cores in turn, the main thread included; what a shard may not do by itself goes to the main
//!   thread;
//! - a volume is stopped only after the sessions of all threads have ended, and a thread lets go of a member only after
//!   that;
//! - counters of a thread are what it had at its last request: reading them disturbs nobody.

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use plexum_block::buf::{Buf, BufPool, Rope};
use plexum_block::device::{Fua, IoError, ZeroMode};
use plexum_engine::shard::{Opener, Satellite, ShardSeed, Spawn};
use plexum_freebsd::stacked::Stacked;
use plexum_front::client::Leave;
use plexum_front::counted::{Counted, Tally};
use plexum_front::export::{Export, ExportInfo, Extent, ZeroRequest};
use plexum_nbd::server::{Server, ServerLimits};
use plexum_runtime::clock::RealClock;
use plexum_runtime::file::{FileDevice, OpenOptions};
use plexum_runtime::mailbox::{Mailbox, Reply, Sender, mailbox, reply};
use plexum_runtime::socket::Socket;
use plexum_runtime::{Handle, IoChoice, Runtime};

use crate::assembly::RealDevice;
use crate::buffers::request_pool;
use crate::open::AnyDevice;
use crate::problem::{Code, Problem};

/// Orders that may wait at a thread.
const ORDERS_MAX: usize = 1024;

/// What a thread is told.
enum Order {
    /// A volume to serve.
    Serve {
        seed: Box<ShardSeed>,
        info: ExportInfo,
        tally: Arc<Tally>,
    },
    /// A client of a volume.
    Connect { volume: String, socket: OwnedFd },
    /// End the sessions of a volume, and say so.
    EndSessions { volume: String, reply: Reply<()> },
    /// The volume has stopped.
    Forget { volume: String },
}

struct Hand {
    orders: Sender<Order>,
    thread: Option<JoinHandle<()>>,
}

/// The threads beside the main one.
#[derive(Default)]
pub struct Shards {
    hands: Vec<Hand>,
    turn: Cell<usize>,
}

impl Shards {
    /// Starts `cores - 1` threads.
    ///
    /// # Errors
    /// `IoError` when a thread or its reactor cannot start.
    pub fn start(
        cores: usize,
        io: IoChoice,
        spin: Duration,
        memory_bytes: u64,
    ) -> Result<Self, Problem> {
        let mut hands = Vec::new();
        let memory_bytes = memory_bytes / cores.max(1) as u64;
        for number in 1..cores {
            let (orders, inbox) = mailbox(ORDERS_MAX);
            let (started, has_started) = reply();
            let thread = std::thread::Builder::new()
                .name(format!("plexum-core-{number}"))
                .spawn(move || work(inbox, io, spin, memory_bytes, started))
                .map_err(|error| Problem::from_io(&error, "starting", "a thread"))?;
            let failed = |text: String| Problem::new(Code::IoError, text);
            has_started
                .wait()
                .map_err(|_| failed("a thread ended at its start".to_owned()))?
                .map_err(failed)?;
            hands.push(Hand {
                orders,
                thread: Some(thread),
            });
        }
        Ok(Self {
            hands,
            turn: Cell::new(0),
        })
    }

    /// How many threads there are, the main one included.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.hands.len() + 1
    }

    /// Gives each thread its shard of a volume; the tallies are in the same order.
    pub fn serve(&self, seeds: Vec<ShardSeed>, info: &ExportInfo) -> Vec<Arc<Tally>> {
        let give = |(hand, seed): (&Hand, ShardSeed)| {
            let tally = Arc::new(Tally::default());
            hand.tell(Order::Serve {
                seed: Box::new(seed),
                info: info.clone(),
                tally: Arc::clone(&tally),
            });
            tally
        };
        self.hands.iter().zip(seeds).map(give).collect()
    }

    /// Takes a connection when it is the turn of another thread; gives it back when it is the main thread's.
    pub fn deal(&self, volume: &str, socket: Socket) -> Option<Socket> {
        let turn = self.turn.get();
        self.turn.set((turn + 1) % self.cores());
        let Some(hand) = self.hands.get(turn) else {
            return Some(socket);
        };
        let Ok(copy) = socket.duplicate() else {
            return Some(socket); // out of descriptors: it stays where it is
        };
        hand.tell(Order::Connect {
            volume: volume.to_owned(),
            socket: copy,
        });
        None
    }

    /// Ends the sessions of a volume at all threads.
    pub async fn end_sessions(&self, volume: &str) {
        for hand in &self.hands {
            let (reply, answer) = reply();
            hand.tell(Order::EndSessions {
                volume: volume.to_owned(),
                reply,
            });
            let _ = answer.await; // a thread that is gone has no sessions
        }
    }

    /// The volume has stopped: the threads forget it.
    pub fn forget(&self, volume: &str) {
        for hand in &self.hands {
            hand.tell(Order::Forget {
                volume: volume.to_owned(),
            });
        }
    }
}

impl Drop for Shards {
    fn drop(&mut self) {
        for hand in self.hands.drain(..) {
            drop(hand.orders);
            if let Some(thread) = hand.thread {
                let _ = thread.join(); // a panic of it was printed
            }
        }
    }
}

impl Hand {
    fn tell(&self, order: Order) {
        // A thread that is gone, or that a thousand orders wait for, drops it: clients see their connection end.
        let _ = self.orders.send(order);
    }
}

type RealSatellite = Satellite<RealDevice, RealClock, Reopener>;

/// A volume at a thread.
struct Local {
    name: String,
    satellite: Rc<RealSatellite>,
    server: Rc<Server<Counted<ShardExport, RealClock>, RealClock>>,
    tally: Arc<Tally>,
}

/// The thread: does what it is told until nobody can tell it any more.
fn work(
    inbox: Mailbox<Order>,
    io: IoChoice,
    spin: Duration,
    memory_bytes: u64,
    started: Reply<Result<(), String>>,
) {
    let mut runtime = match Runtime::new(io) {
        Ok(runtime) => runtime,
        Err(error) => return started.send(Err(error.to_string())),
    };
    started.send(Ok(()));
    let handle = runtime.handle();
    handle.set_spin(spin);
    runtime.block_on(obey(handle, inbox, memory_bytes));
}

async fn obey(handle: Handle, mut inbox: Mailbox<Order>, memory_bytes: u64) {
    let pool = request_pool(memory_bytes);
    let limits = ServerLimits {
        bytes_max: memory_bytes,
        ..ServerLimits::default()
    };
    let locals: RefCell<Vec<Local>> = RefCell::default();
    let find = |volume: &str| {
        let locals = locals.borrow();
        let local = locals.iter().find(|local| local.name == volume)?;
        Some((Rc::clone(&local.server), Arc::clone(&local.tally)))
    };
    while let Some(order) = inbox.receive().await {
        match order {
            Order::Serve { seed, info, tally } => {
                let local = serve(&handle, &pool, limits, *seed, info, tally);
                locals.borrow_mut().push(local);
            }
            Order::Connect { volume, socket } => {
                if let (Some((server, tally)), Ok(socket)) =
                    (find(&volume), Socket::from_fd(&handle, socket))
                {
                    let _session = handle.spawn(async move {
                        let _counted = tally.enter();
                        let _ended = server.serve(socket).await;
                    });
                }
            }
            Order::EndSessions { volume, reply } => {
                if let Some((server, _)) = find(&volume) {
                    server.exports().close(&volume, Leave::Drain).await;
                }
                reply.send(());
            }
            Order::Forget { volume } => {
                locals.borrow_mut().retain(|local| {
                    let is_other = local.name != volume;
                    if !is_other {
                        local.satellite.end();
                    }
                    is_other
                });
            }
        }
    }
}

fn serve(
    handle: &Handle,
    pool: &BufPool,
    limits: ServerLimits,
    seed: ShardSeed,
    info: ExportInfo,
    tally: Arc<Tally>,
) -> Local {
    let opener = Reopener(handle.clone());
    let satellite = Satellite::new(seed, handle.clock(), pool.clone(), opener);
    let satellite = Rc::new(satellite);
    let _serving = handle.spawn(Rc::clone(&satellite).run(spawn_on(handle)));
    let server = Rc::new(Server::new(handle.clock(), pool.clone(), limits));
    let name = info.name.clone();
    let export = ShardExport {
        satellite: Rc::clone(&satellite),
        info,
    };
    let export = Counted::new(export, handle.clock(), Arc::clone(&tally));
    // The main thread has this name already, so it is a good one, and this server has no other.
    let _ = server.exports().open(Rc::new(export));
    Local {
        name,
        satellite,
        server,
        tally,
    }
}

/// Starts tasks on the thread of `handle`.
pub(crate) fn spawn_on(handle: &Handle) -> Spawn {
    let handle = handle.clone();
    Rc::new(move |task| {
        let _detached = handle.spawn(task);
    })
}

/// Opens members that the main thread has open.
struct Reopener(Handle);

impl Opener<RealDevice> for Reopener {
    async fn open(&self, name: &str, handle: u64) -> Option<RealDevice> {
        let options = OpenOptions::read_write();
        let file = FileDevice::open_again(&self.0, handle, name.as_ref(), &options).ok()?;
        Some(Stacked::Device(Rc::new(AnyDevice::File(file))))
    }
}

/// A volume as the clients of one thread see it.
struct ShardExport {
    satellite: Rc<RealSatellite>,
    info: ExportInfo,
}

impl Export for ShardExport {
    fn info(&self) -> ExportInfo {
        self.info.clone()
    }

    async fn read(&self, offset_bytes: u64, length_bytes: u32) -> Result<Rope, IoError> {
        self.satellite
            .read(offset_bytes, length_bytes as usize)
            .await
    }

    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        self.satellite.write(offset_bytes, data, fua).await
    }

    async fn flush(&self) -> Result<(), IoError> {
        self.satellite.flush().await
    }

    async fn trim(&self, offset_bytes: u64, length_bytes: u64, fua: Fua) -> Result<(), IoError> {
        let mode = ZeroMode::Unmap;
        self.satellite
            .zero(offset_bytes, length_bytes, mode, fua)
            .await
    }

    async fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        how: ZeroRequest,
    ) -> Result<(), IoError> {
        if how.only_if_fast {
            return Err(IoError::Unsupported);
        }
        let mode = how.mode();
        self.satellite
            .zero(offset_bytes, length_bytes, mode, how.fua)
            .await
    }

    async fn cache(&self, _offset_bytes: u64, _length_bytes: u64) -> Result<(), IoError> {
        Ok(()) // a hint; the volume keeps no read cache
    }

    async fn status(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        extents_max: usize,
    ) -> Result<Vec<Extent>, IoError> {
        self.satellite
            .extents(offset_bytes, length_bytes, extents_max)
            .await
    }
}
