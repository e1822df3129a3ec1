//! The registry of the volumes that this process serves: they open and close while it runs.
//!
//! `prepare` opens and locks members and assembles them, `admit` gives the volume a name of its own, `open` lets
//! clients in, `close` ends it. Each step can be refused with a reason that programs understand ([`Refusal`]).
//!
//! Invariants:
//! - one name, one volume: a name is free again when the members of its volume are;
//! - nobody can connect before everything that is opened together is open, locked, assembled and listening;
//! - a clean close admits no new requests, lets those under way end, makes the members clean, then lets go of them; the
//!   volume's control socket disappears last, so whoever waits for that knows that the members are free;
//! - one volume's trouble never ends another volume;
//! - nothing is polled: whoever waits is woken by what it waits for.

mod admit;
mod close;
pub(crate) mod device;
pub(crate) mod devices;
mod goal;
mod grow;
mod hosted;
pub(crate) mod listen;
pub(crate) mod machine;
mod machines;
pub(crate) mod making;
pub(crate) mod nvme;
mod plan_told;
mod refusal;
mod registry;
mod reopen;
mod settings;
mod shards;
mod take_over;
mod turn;
pub(crate) mod ways;

pub use admit::Prepared;
pub use close::Close;
pub use device::link_of;
pub use devices::{LeftDevice, Users, named_device, remove_left};
pub(crate) use grow::Doing;
pub use grow::GrowWish;
pub use hosted::{Hosted, Stage};
pub use nvme::NvmeListen;
pub use refusal::{Hold, Refusal};
pub use registry::{ClientKey, Host};
pub use settings::HostSettings;
