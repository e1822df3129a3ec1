//! The door of an address: whether a request is one of its own, and who asks, by header or by what a browser keeps.
//!
//! A request names this address as its host; what changes something comes from this page or from no page at all, and is
//! JSON, which a form cannot send. The one form is that for a token, and it changes what its own browser keeps.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, Method};

use super::access::{Access, Caller, Way};
use super::cookie;
use super::guesses::{Guesses, Peer};
use super::tls::PageTls;
use crate::problem::{Code, Problem};

/// What decides whether a request is let in.
#[derive(Clone)]
pub(super) struct Door {
    port: u16,
    access: Arc<Access>,
    tls: Option<PageTls>,
    guesses: Arc<Mutex<Guesses>>,
    /// Times of guesses are counted from here.
    opened: Instant,
}

impl Door {
    /// Of an address that is listened at from now on.
    pub(super) fn new(port: u16, access: Arc<Access>, tls: Option<PageTls>) -> Self {
        Self {
            port,
            access,
            tls,
            guesses: Arc::default(),
            opened: Instant::now(),
        }
    }

    /// Who asks, when the request is one of this address.
    ///
    /// # Errors
    /// `RoleMissing` for one that comes from elsewhere; `Usage`; as `who`.
    pub(super) fn let_in(&self, request: &Request, remote: SocketAddr) -> Result<Caller, Problem> {
        let headers = request.headers();
        self.check_host(headers)?;
        self.check_origin(headers, Asks::of(request))?;
        self.caller(headers, request.uri().path(), remote)
    }

    /// Who shows a token, when he may show one now.
    ///
    /// # Errors
    /// `UnknownToken`; `TooManyGuesses` for whoever has shown too many of those.
    pub(super) fn who(&self, shown: &str, remote: SocketAddr) -> Result<Caller, Problem> {
        let peer = Peer::of(remote.ip());
        let now = self.opened.elapsed();
        let mut guesses = self.guesses.lock().unwrap_or_else(PoisonError::into_inner);
        guesses.check(peer, now).map_err(|wait| {
            let address = remote.ip();
            let seconds = wait.as_secs() + 1;
            let text = format!("{address} has shown too many tokens that nobody knows");
            Problem::new(Code::TooManyGuesses, text)
                .hint(format!("the next one is looked at in {seconds} s"))
        })?;
        let known = self.access.of_token(shown, self.way());
        if known.is_err() {
            guesses.wrong(peer, now);
        }
        known
    }

    /// Who asks, by his header or, where there is TLS, by what his browser keeps.
    fn caller(
        &self,
        headers: &HeaderMap,
        path: &str,
        remote: SocketAddr,
    ) -> Result<Caller, Problem> {
        if let Some(header) = text_of(headers, AUTHORIZATION) {
            return self.who(header.strip_prefix("Bearer ").unwrap_or_default(), remote);
        }
        let nobody = self.access.without_token(self.way());
        let kept = self.tls.as_ref().and(text_of(headers, COOKIE));
        match kept.and_then(cookie::token_of) {
            // One that is not known any more keeps nobody from showing another.
            Some(token) if OPEN.contains(&path) => Ok(self.who(&token, remote).unwrap_or(nobody)),
            Some(token) => self.who(&token, remote),
            None => Ok(nobody),
        }
    }

    pub(super) fn way(&self) -> Way {
        match self.tls {
            Some(_) => Way::Tls,
            None => Way::Network,
        }
    }

    /// Whether a name with a port is one of this address.
    fn is_own(&self, host: &str) -> bool {
        let Some(tls) = &self.tls else {
            return is_own(host, self.port);
        };
        let Ok(host) = host.parse::<Authority>() else {
            return false;
        };
        let has_user = host.as_str().contains('@');
        let port = host.port_u16().unwrap_or(443);
        !has_user && port == self.port && tls.is_for(&host)
    }

    fn check_host(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let host = text_of(headers, HOST).unwrap_or("");
        match self.is_own(host) {
            true => Ok(()),
            false => Err(foreign("host", host, self.way())),
        }
    }

    fn check_origin(&self, headers: &HeaderMap, asks: Asks) -> Result<(), Problem> {
        if let Some(origin) = text_of(headers, ORIGIN) {
            let scheme = match self.tls {
                Some(_) => "https://",
                None => "http://",
            };
            let host = origin.strip_prefix(scheme).unwrap_or("");
            if !self.is_own(host) {
                return Err(foreign("origin", origin, self.way()));
            }
        }
        let site = text_of(headers, HeaderName::from_static("sec-fetch-site")).unwrap_or("none");
        if asks != Asks::Look && !["none", "same-origin"].contains(&site) {
            return Err(foreign("site", site, self.way()));
        }
        let kind = text_of(headers, CONTENT_TYPE).unwrap_or("");
        if asks == Asks::Change && kind.split(';').next() != Some("application/json") {
            let text = "a change is asked for in JSON: Content-Type is not application/json";
            return Err(Problem::new(Code::Usage, text));
        }
        Ok(())
    }
}

/// Where nobody needs a role.
const OPEN: [&str; 4] = ["/", "/page.css", "/page.js", cookie::PATH];

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    Look,
    /// To be known by a token, by the one form that there is.
    BeKnown,
    Change,
}

impl Asks {
    fn of(request: &Request) -> Self {
        match *request.method() {
            Method::GET | Method::HEAD => Self::Look,
            Method::POST if request.uri().path() == cookie::PATH => Self::BeKnown,
            _ => Self::Change,
        }
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

fn foreign(what: &str, found: &str, way: Way) -> Problem {
    let found: String = found.chars().take(80).collect();
    let problem = Problem::new(
        Code::RoleMissing,
        format!("the request's {what} is {found:?}, which is not this address"),
    );
    problem.hint(match way {
        Way::Tls => "open the page by a name for which its certificate is",
        _ => "open the page by the address that the daemon tells at its start",
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::super::access::{Role, Token};
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            let value = HeaderValue::from_static(value);
            (HeaderName::from_static(name), value)
        });
        pairs.collect()
    }

    fn door() -> Door {
        Door::new(80, Arc::default(), None)
    }

    #[test]
    fn only_the_names_of_this_address_are_its_hosts() {
        for host in ["127.0.0.1:80", "localhost:80", "[::1]:80", "127.0.0.2:80"] {
            assert!(
                door().check_host(&self::headers(&[])).is_err() && door().is_own(host),
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
            assert!(!door().is_own(host), "{host}");
        }
    }

    #[test]
    fn a_change_from_another_page_or_from_a_form_is_refused() {
        let json = ("content-type", "application/json");
        let own = ("origin", "http://localhost:80");
        let check = |headers: HeaderMap, asks| door().check_origin(&headers, asks);
        assert!(check(headers(&[json]), Asks::Change).is_ok());
        assert!(check(headers(&[json, own]), Asks::Change).is_ok());
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
            assert!(check(headers(&bad), Asks::Change).is_err(), "{bad:?}");
        }
        let elsewhere = headers(&[("origin", "http://example.com")]);
        assert!(
            check(elsewhere.clone(), Asks::Look).is_err(),
            "nor may it read"
        );
    }

    #[test]
    fn who_guesses_tokens_is_not_heard_for_a_while_and_nobody_else_waits_for_him() {
        let token = Token::new("ute", Role::View, "0123456789abcdef").unwrap();
        let access = Access {
            tokens: vec![token],
            ..Access::default()
        };
        let door = Door::new(80, Arc::new(access), None);
        let from = |address: &str| SocketAddr::new(address.parse().unwrap(), 1);
        let (guesser, other) = (from("192.0.2.7"), from("192.0.2.8"));
        let mut codes = Vec::new();
        for _ in 0..20 {
            codes.push(door.who("0123456789abcdeg", guesser).unwrap_err().code);
        }
        assert_eq!(codes[0], Code::UnknownToken);
        assert_eq!(codes[19], Code::TooManyGuesses);
        let right = door.who("0123456789abcdef", guesser).unwrap_err();
        assert_eq!(right.code, Code::TooManyGuesses, "not even compared");
        assert!(door.who("0123456789abcdef", other).is_ok());
    }
}
