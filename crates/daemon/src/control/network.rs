//! Who asks, before a route is entered: over the network by a token, on a Unix socket as the kernel says.
//!
//! Invariants:
//! - only loopback addresses are listened at: there is no TLS here;
//! - a request must name this address as its host: a page of somebody else, whose name was pointed at this machine,
//!   reaches nothing;
//! - what changes something must come from this page or from no page at all, and be JSON, which a form cannot send.

use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use tokio::net::TcpListener;

use super::access::{Access, Caller};
use super::reach::{Reach, refuse};
use super::table;
use crate::problem::{Code, Problem};

/// Whether the page may be served at an address.
///
/// # Errors
/// `InsecureListen` for one that others than this machine reach: tokens would go there for everybody to read.
pub(crate) fn check_address(address: SocketAddr) -> Result<(), Problem> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    let text = format!("the page is not served at {address}: it is no loopback address");
    Err(Problem::new(Code::InsecureListen, text)
        .why("there is no TLS, so that tokens could be read on the way")
        .hint("on this machine:   [page] listen = \"127.0.0.1:9838\"")
        .hint("from another one:   ssh -L 9838:127.0.0.1:9838 HOST"))
}

/// Binds an address for the page.
///
/// # Errors
/// As `check_address`; system errors of binding.
pub(super) fn bind(address: SocketAddr) -> Result<(SocketAddr, StdTcpListener), Problem> {
    check_address(address)?;
    let shown = address.to_string();
    let tell = |error: std::io::Error| Problem::from_io(&error, "serving the page at", &shown);
    let listener = StdTcpListener::bind(address).map_err(tell)?;
    listener.set_nonblocking(true).map_err(tell)?;
    let bound = listener.local_addr().map_err(tell)?;
    Ok((bound, listener))
}

/// What decides whether a request is let in.
#[derive(Clone)]
struct Door {
    port: u16,
    access: Arc<Access>,
}

/// Serves all routes until the control thread ends.
pub(super) fn serve(listener: StdTcpListener, address: SocketAddr, reach: Reach) {
    if let Ok(listener) = TcpListener::from_std(listener) {
        let door = Door {
            port: address.port(),
            access: Arc::clone(&reach.access),
        };
        let app = table::router(reach).layer(from_fn_with_state(door, by_network));
        let _task = tokio::spawn(async move {
            let _ = axum::serve(listener, app).await;
        });
    }
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

async fn by_network(State(door): State<Door>, mut request: Request, next: Next) -> Response {
    let headers = request.headers();
    let is_change = !matches!(*request.method(), Method::GET | Method::HEAD);
    let checked = check_host(headers, door.port)
        .and_then(|()| check_origin(headers, door.port, is_change))
        .and_then(|()| door.access.of_header(text_of(headers, AUTHORIZATION)));
    match checked {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            secured(next.run(request).await)
        }
        Err(problem) => secured(refuse(&problem)),
    }
}

fn text_of(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    // One that is no text is none that anybody knows.
    let value = headers.get(name)?;
    Some(value.to_str().unwrap_or(""))
}

/// Whether a name with a port is one of this machine.
fn is_own(host: &str, port: u16) -> bool {
    let names = ["127.0.0.1", "localhost", "[::1]"];
    let is_named = names.iter().any(|name| host == format!("{name}:{port}"));
    let address: Option<SocketAddr> = host.parse().ok();
    is_named || address.is_some_and(|one| one.ip().is_loopback() && one.port() == port)
}

fn foreign(what: &str, found: &str) -> Problem {
    let found: String = found.chars().take(80).collect();
    Problem::new(
        Code::RoleMissing,
        format!("the request's {what} is {found:?}, which is not this address"),
    )
    .hint("open the page by the address that the daemon tells at its start")
}

fn check_host(headers: &HeaderMap, port: u16) -> Result<(), Problem> {
    let host = text_of(headers, HOST).unwrap_or("");
    match is_own(host, port) {
        true => Ok(()),
        false => Err(foreign("host", host)),
    }
}

fn check_origin(headers: &HeaderMap, port: u16, is_change: bool) -> Result<(), Problem> {
    let origin = text_of(headers, ORIGIN);
    if let Some(origin) = origin {
        let host = origin.strip_prefix("http://").unwrap_or("");
        if !is_own(host, port) {
            return Err(foreign("origin", origin));
        }
    }
    let site = text_of(headers, HeaderName::from_static("sec-fetch-site")).unwrap_or("none");
    if is_change && !["none", "same-origin"].contains(&site) {
        return Err(foreign("site", site));
    }
    let kind = text_of(headers, CONTENT_TYPE).unwrap_or("");
    if is_change && kind.split(';').next() != Some("application/json") {
        let text = "a change is asked for in JSON: Content-Type is not application/json";
        return Err(Problem::new(Code::Usage, text));
    }
    Ok(())
}

/// With what keeps a browser from loading anything from elsewhere, from being framed, and from keeping what it saw.
fn secured(mut response: Response) -> Response {
    let policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; \
                  base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", policy),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
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
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            let value = HeaderValue::from_static(value);
            (HeaderName::from_static(name), value)
        });
        pairs.collect()
    }

    #[test]
    fn only_the_names_of_this_address_are_its_hosts() {
        for host in ["127.0.0.1:80", "localhost:80", "[::1]:80", "127.0.0.2:80"] {
            assert!(
                check_host(&self::headers(&[]), 80).is_err() && is_own(host, 80),
                "{host}"
            );
        }
        for host in [
            "",
            "localhost",
            "localhost:81",
            "example.com:80",
            "localhost.example.com:80",
            "10.0.0.1:80",
            "localhost:80@example.com",
        ] {
            assert!(!is_own(host, 80), "{host}");
        }
    }

    #[test]
    fn a_change_from_another_page_or_from_a_form_is_refused() {
        let json = ("content-type", "application/json");
        let own = ("origin", "http://localhost:80");
        assert!(check_origin(&headers(&[json]), 80, true).is_ok());
        assert!(check_origin(&headers(&[json, own]), 80, true).is_ok());
        for bad in [
            vec![json, ("origin", "http://example.com")],
            vec![json, ("origin", "null")],
            vec![json, ("origin", "https://localhost:80")],
            vec![json, ("sec-fetch-site", "cross-site")],
            vec![json, ("sec-fetch-site", "same-site")],
            vec![("content-type", "text/plain")],
            vec![("content-type", "application/x-www-form-urlencoded"), own],
            vec![],
        ] {
            assert!(check_origin(&headers(&bad), 80, true).is_err(), "{bad:?}");
        }
        let elsewhere = headers(&[("origin", "http://example.com")]);
        assert!(
            check_origin(&elsewhere, 80, false).is_err(),
            "nor may it read"
        );
    }

    #[test]
    fn the_page_is_refused_at_an_address_that_others_reach() {
        for address in ["0.0.0.0:1", "[::]:1", "192.168.1.7:1"] {
            let problem = check_address(address.parse().unwrap()).unwrap_err();
            assert_eq!(problem.code, Code::InsecureListen);
            assert!(problem.message.contains(address), "{problem}");
        }
        assert!(check_address("127.0.0.1:0".parse().unwrap()).is_ok());
    }
}
