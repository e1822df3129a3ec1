//! Serving volumes: control socket, events, metrics
#![forbid(unsafe_code)]
