//! Who asks, before a route is entered: over the network by a token, on a Unix socket as the kernel says.
//!
//! Invariants:
//! - an address that others than this machine reach has TLS, and shows nothing to anybody without a token;
//! - a request must be one of this address, of this page or of a program (`door.rs`);
//! - tokens that nobody knows are looked at only so often.

use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::sync::Arc;

use axum::Router;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Request, State};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::post;
use tokio::net::TcpListener;

use super::access::{Access, Caller, Way};
use super::door::Door;
use super::reach::{Reach, refuse};
use super::tls::PageTls;
use super::{connections, cookie, sign_in, table};
use crate::problem::{Code, Problem};

/// Largest form that is taken, in bytes: a token, each of its letters in three.
const FORM_BYTES_MAX: usize = 16 << 10;

/// Whether the page may be served at an address.
///
/// # Errors
/// `InsecureListen` for one that others than this machine reach: all that is missing there.
pub(crate) fn check_address(
    address: SocketAddr,
    tls: Encryption,
    access: &Access,
) -> Result<(), Problem> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    let missing = [
        (tls == Encryption::None).then_some("tls-cert and tls-key"),
        access.tokens.is_empty().then_some("a [[page.token]]"),
        access
            .without_token
            .is_some()
            .then_some("without-token = \"nothing\""),
    ];
    let missing: Vec<&str> = missing.into_iter().flatten().collect();
    if missing.is_empty() {
        return Ok(());
    }
    let text = format!(
        "the page is not served at {address}, which others than this machine reach, without {}",
        missing.join(", ")
    );
    Err(Problem::new(Code::InsecureListen, text)
        .why("whoever reaches it could read what goes there, tokens among it")
        .hint("on this machine:   [page] listen = \"127.0.0.1:9838\"")
        .hint("from another one without TLS:   ssh -L 9838:127.0.0.1:9838 HOST"))
}

/// Whether what goes over a network can be read on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encryption {
    /// It can.
    None,
    /// It cannot.
    Tls,
}

/// Binds an address for the page.
///
/// # Errors
/// As `check_address`; system errors of binding.
pub(super) fn bind(
    address: SocketAddr,
    tls: Encryption,
    access: &Access,
) -> Result<(SocketAddr, StdTcpListener), Problem> {
    check_address(address, tls, access)?;
    let shown = address.to_string();
    let tell = |error: std::io::Error| Problem::from_io(&error, "serving the page at", &shown);
    let listener = StdTcpListener::bind(address).map_err(tell)?;
    listener.set_nonblocking(true).map_err(tell)?;
    let bound = listener.local_addr().map_err(tell)?;
    Ok((bound, listener))
}

/// Serves all routes until the control thread ends.
pub(super) fn serve(
    listener: StdTcpListener,
    address: SocketAddr,
    tls: Option<PageTls>,
    reach: Reach,
) {
    let Ok(listener) = TcpListener::from_std(listener) else {
        return;
    };
    let door = Door::new(address.port(), Arc::clone(&reach.access), tls.clone());
    let mut app = table::router(reach);
    if tls.is_some() {
        let form = Router::new().route(cookie::PATH, post(sign_in::take));
        let form = form.layer(DefaultBodyLimit::max(FORM_BYTES_MAX));
        app = app.merge(form.with_state(door.clone()));
    }
    let app = app.layer(from_fn_with_state(door, by_network));
    let _task = tokio::spawn(async move {
        match tls {
            Some(tls) => connections::serve(tls.accept_from(listener), app).await,
            None => connections::serve(listener, app).await,
        }
    });
}

/// Who is at the other end of a Unix socket is known since it connected.
pub(super) async fn by_socket(
    ConnectInfo(caller): ConnectInfo<Caller>,
    mut request: Request,
    next: Next,
) -> Response {
    request.extensions_mut().insert(caller);
    next.run(request).await
}

async fn by_network(
    State(door): State<Door>,
    ConnectInfo(remote): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response {
    let answer = match door.let_in(&request, remote) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(problem) => refuse(&problem),
    };
    secured(answer, door.way())
}

/// What a browser may load, and to whom its forms go.
macro_rules! policy {
    ($forms:literal) => {
        concat!(
            "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; ",
            "base-uri 'none'; frame-ancestors 'none'; form-action ",
            $forms
        )
    };
}

/// With what keeps a browser from loading anything from elsewhere, from being framed, and from keeping what it saw.
fn secured(mut response: Response, way: Way) -> Response {
    // A form tells its origin to who may be told of it: without that nobody knows where it comes from.
    let (policy, referrer) = match way {
        Way::Tls => (policy!("'self'"), "same-origin"),
        _ => (policy!("'none'"), "no-referrer"),
    };
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", policy),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", referrer),
        ("cross-origin-resource-policy", "same-origin"),
        ("cache-control", "no-store"),
    ] {
        headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
    }
    response
}

#[cfg(test)]
mod tests {
    use super::super::access::{Role, Token};
    use super::*;

    #[test]
    fn where_others_reach_the_page_it_needs_tls_and_a_token_and_what_is_missing_is_named() {
        let token = Token::new("ute", Role::View, "0123456789abcdef").unwrap();
        let known = || Access {
            tokens: vec![token.clone()],
            ..Access::default()
        };
        let open = Access {
            without_token: Some(Role::View),
            ..known()
        };
        for address in ["0.0.0.0:1", "[::]:1", "192.168.1.7:1"] {
            let address: SocketAddr = address.parse().unwrap();
            for (tls, access, missing) in [
                (
                    Encryption::None,
                    Access::default(),
                    "tls-cert and tls-key, a [[page.token]]",
                ),
                (Encryption::None, known(), "tls-cert and tls-key"),
                (Encryption::Tls, Access::default(), "a [[page.token]]"),
                (Encryption::Tls, open.clone(), "without-token = \"nothing\""),
            ] {
                let problem = check_address(address, tls, &access).unwrap_err();
                assert_eq!(problem.code, Code::InsecureListen);
                assert!(
                    problem.message.ends_with(&format!(" without {missing}")),
                    "{problem}"
                );
                assert!(problem.message.contains(&address.to_string()), "{problem}");
            }
            assert!(check_address(address, Encryption::Tls, &known()).is_ok());
        }
        let own = "127.0.0.1:0".parse().unwrap();
        assert!(check_address(own, Encryption::None, &open).is_ok());
    }
}
