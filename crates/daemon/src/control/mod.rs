//! What commands see of a server: the routes of its control socket, and events.

pub mod access;
pub mod alarm_request;
mod alarm_routes;
pub(crate) mod answers;
pub(crate) mod asked;
mod connections;
pub(crate) mod cookie;
mod door;
pub mod event;
pub mod events;
mod guesses;
pub(crate) mod metrics;
pub(crate) mod network;
pub mod open_request;
mod openapi;
pub(crate) mod reach;
pub mod request;
mod route;
mod routes;
pub mod server;
mod sign_in;
mod table;
pub mod tls;

pub use open_request::OpenRequest;
pub use reach::Post;
pub use request::{Action, Answer, Ask, Request};
pub use server::ControlServer;
