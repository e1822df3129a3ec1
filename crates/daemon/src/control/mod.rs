//! What commands see of a server: the routes of its control socket, and events.

pub mod alarm_request;
mod alarm_routes;
pub(crate) mod answers;
pub mod event;
pub mod events;
pub(crate) mod metrics;
pub mod open_request;
mod reach;
pub mod request;
pub mod server;

pub use open_request::OpenRequest;
pub use reach::Post;
pub use request::{Action, Answer, Ask, Request};
pub use server::ControlServer;
