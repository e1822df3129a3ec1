//! Volumes on several cores: threads beside the main one, each with a shard of every volume and clients of its own
//! (W12).
//!
//! Invariants:
//! - connections go to the cores in turn, the main thread included; what a shard may not do by itself goes to the main
//!   thread;
//! - a volume is stopped only after the sessions of all threads have ended, and a thread lets go of a member only after
//!   that;
//! - counters of a thread are what it had at its last request: reading them disturbs nobody.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use plexum_block::buf::{Buf, BufPool, Rope};
use plexum_block::clock::Clock;
use plexum_block::device::{Fua, IoError, ZeroMode};
use plexum_block::wait::join_all;
use plexum_engine::shard::{Opener, Satellite, ShardSeed, Spawn};
use plexum_front::client::{ClientId, ClientStatus, Leave};
use plexum_front::counted::{Counting, Tally};
use plexum_front::export::{Export, ExportInfo, Extent, ZeroRequest};
use plexum_nbd::server::{Server, ServerLimits};
use plexum_runtime::clock::RealClock;
use plexum_runtime::file::{FileDevice, OpenOptions};
use plexum_runtime::mailbox::{Mailbox, Reply, Sender, mailbox, reply};
use plexum_runtime::socket::Socket;
use plexum_runtime::{Handle, IoChoice, JoinHandle, Runtime};

use super::settings::HostSettings;
use crate::assembly::RealDevice;
use crate::buffers::request_pool;
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
    /// End the sessions of a volume in this way, and say so.
    EndSessions {
        volume: String,
        how: Leave,
        reply: Reply<()>,
    },
    /// Say who the clients of a volume are.
    Clients {
        volume: String,
        reply: Reply<Vec<ClientStatus>>,
    },
    /// End one client of a volume; say whether there was such a one.
    EndClient {
        volume: String,
        client: ClientId,
        how: Leave,
        reply: Reply<bool>,
    },
    /// The volume has stopped: let go of its members, and say so.
    Forget { volume: String, reply: Reply<()> },
}

struct Hand {
    orders: Sender<Order>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// The threads beside the main one.
#[derive(Default)]
pub(super) struct Shards {
    hands: Vec<Hand>,
    turn: Cell<usize>,
}

impl Shards {
    /// Starts `cores - 1` threads.
    ///
    /// # Errors
    /// `IoError` when a thread or its reactor cannot start.
    pub(super) fn start(settings: &HostSettings) -> Result<Self, Problem> {
        let mut hands = Vec::new();
        let (io, spin) = (settings.io, settings.spin);
        let memory_bytes = settings.memory_bytes / settings.cores.max(1) as u64;
        for number in 1..settings.cores {
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
    pub(super) fn cores(&self) -> usize {
        self.hands.len() + 1
    }

    /// Gives each thread its shard of a volume; the tallies are in the same order.
    pub(super) fn serve(&self, seeds: Vec<ShardSeed>, info: &ExportInfo) -> Vec<Arc<Tally>> {
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
    pub(super) fn deal(&self, volume: &str, socket: Socket) -> Option<Socket> {
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

    /// Ends the sessions of a volume at all threads, in this way.
    pub(super) async fn end_sessions(&self, volume: &str, how: Leave) {
        self.ask_all(|reply| Order::EndSessions {
            volume: volume.to_owned(),
            how,
            reply,
        })
        .await;
    }

    /// The clients of a volume at each thread, by its number.
    pub(super) async fn clients(&self, volume: &str) -> Vec<(usize, ClientStatus)> {
        let lists = self.ask_all(|reply| Order::Clients {
            volume: volume.to_owned(),
            reply,
        });
        let lists = lists.await;
        let numbered = (1..).zip(lists);
        let clients = numbered.flat_map(|(core, list)| {
            let list = list.unwrap_or_default(); // a thread that is gone has no clients
            list.into_iter().map(move |client| (core, client))
        });
        clients.collect()
    }

    /// Ends one client at a thread; whether there was such a one.
    pub(super) async fn end_client(
        &self,
        core: usize,
        volume: &str,
        client: ClientId,
        how: Leave,
    ) -> bool {
        let hand = core.checked_sub(1).and_then(|index| self.hands.get(index));
        let Some(hand) = hand else {
            return false;
        };
        let (reply, answer) = reply();
        hand.tell(Order::EndClient {
            volume: volume.to_owned(),
            client,
            how,
            reply,
        });
        answer.await.unwrap_or(false)
    }

    /// The volume has stopped: returns when the threads have let go of its members.
    pub(super) async fn forget(&self, volume: &str) {
        self.ask_all(|reply| Order::Forget {
            volume: volume.to_owned(),
            reply,
        })
        .await;
    }

    /// Asks all threads, and waits for all answers; none from a thread that is gone.
    async fn ask_all<T>(&self, order: impl Fn(Reply<T>) -> Order) -> Vec<Option<T>> {
        let mut answers = Vec::new();
        for hand in &self.hands {
            let (reply, answer) = reply();
            hand.tell(order(reply));
            answers.push(answer);
        }
        let answers = join_all(answers).await;
        answers.into_iter().map(Result::ok).collect()
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
    /// The satellite at work.
    serving: JoinHandle<()>,
    satellite: Rc<RealSatellite>,
    server: Rc<Server<ShardExport, RealClock>>,
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
    let mut locals: Vec<Local> = Vec::new();
    while let Some(order) = inbox.receive().await {
        match order {
            Order::Serve { seed, info, tally } => {
                locals.push(serve(&handle, &pool, limits, *seed, info, tally));
            }
            Order::Connect { volume, socket } => {
                if let (Some(local), Ok(socket)) =
                    (find(&locals, &volume), Socket::from_fd(&handle, socket))
                {
                    let (server, tally) = (Rc::clone(&local.server), Arc::clone(&local.tally));
                    let _session = handle.spawn(async move {
                        let _counted = tally.enter();
                        let _ended = server.serve(socket).await;
                    });
                }
            }
            Order::Clients { volume, reply } => {
                let local = find(&locals, &volume);
                let clients = local.map(|local| local.server.exports().clients(&volume));
                reply.send(clients.unwrap_or_default());
            }
            // What waits is a task of its own: other volumes are served meanwhile.
            Order::EndSessions { volume, how, reply } => match find(&locals, &volume) {
                Some(local) => {
                    let server = Rc::clone(&local.server);
                    let _ending = handle.spawn(async move {
                        server.exports().close(&volume, how).await;
                        reply.send(());
                    });
                }
                None => reply.send(()),
            },
            Order::EndClient {
                volume,
                client,
                how,
                reply,
            } => {
                let local = find(&locals, &volume);
                let client = local.and_then(|local| local.server.exports().client(&volume, client));
                let _ending = handle.spawn(async move {
                    if let Some(client) = &client {
                        client.leave(how).await;
                    }
                    reply.send(client.is_some());
                });
            }
            Order::Forget { volume, reply } => {
                let place = locals.iter().position(|local| local.name == volume);
                let forgotten = place.map(|place| locals.remove(place));
                let _ending = handle.spawn(async move {
                    if let Some(local) = forgotten {
                        local.satellite.end();
                        let _ = local.serving.await;
                    }
                    reply.send(());
                });
            }
        }
    }
}

fn find<'a>(locals: &'a [Local], volume: &str) -> Option<&'a Local> {
    locals.iter().find(|local| local.name == volume)
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
    let serving = handle.spawn(Rc::clone(&satellite).run(spawn_on(handle)));
    let server = Rc::new(Server::new(handle.clock(), pool.clone(), limits));
    let name = info.name.clone();
    let export = ShardExport {
        satellite: Rc::clone(&satellite),
        info,
        counting: Counting::new(handle.clock(), Arc::clone(&tally)),
    };
    // The main thread has this name already, so it is a good one, and this server has no other.
    let _ = server.exports().open(Rc::new(export));
    Local {
        name,
        serving,
        satellite,
        server,
        tally,
    }
}

/// Starts tasks on the thread of `handle`.
pub(super) fn spawn_on(handle: &Handle) -> Spawn {
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
        Some(file.into())
    }
}

/// A volume as the clients of one thread see it.
struct ShardExport {
    satellite: Rc<RealSatellite>,
    info: ExportInfo,
    counting: Counting<RealClock>,
}

impl Export for ShardExport {
    fn info(&self) -> ExportInfo {
        self.info.clone()
    }

    fn counting(&self) -> Option<&Counting<impl Clock>> {
        Some(&self.counting)
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
