//! What a route is: its method and path, the role that it needs, what goes in and what comes out.

use axum::http::Method;
use axum::routing::MethodRouter;

use super::access::Role;
use super::reach::Reach;

/// What comes out of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Out {
    /// A JSON object with this schema.
    Json(&'static str),
    /// A text of this kind.
    Text(&'static str),
    /// Server-sent events, whose data have this schema.
    Events(&'static str),
}

/// A parameter after the question mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    /// As JSON Schema names it.
    pub(super) kind: &'static str,
    pub(super) what: &'static str,
}

/// A route.
pub(super) struct Route {
    pub(super) method: Method,
    /// Names in braces are parts that a request fills in.
    pub(super) path: &'static str,
    /// None: what it tells is nobody's secret.
    pub(super) role: Option<Role>,
    pub(super) what: &'static str,
    pub(super) query: &'static [Parameter],
    /// Schema of the body of a request that has one.
    pub(super) body: Option<&'static str>,
    pub(super) out: Out,
    pub(super) handler: MethodRouter<Reach>,
}

impl Route {
    fn new(
        method: Method,
        path: &'static str,
        role: impl Into<Option<Role>>,
        what: &'static str,
        handler: MethodRouter<Reach>,
    ) -> Self {
        Self {
            method,
            path,
            role: role.into(),
            what,
            query: &[],
            body: None,
            out: Out::Json("Object"),
            handler,
        }
    }

    pub(super) fn get(
        path: &'static str,
        role: impl Into<Option<Role>>,
        what: &'static str,
        handler: MethodRouter<Reach>,
    ) -> Self {
        Self::new(Method::GET, path, role, what, handler)
    }

    pub(super) fn post(
        path: &'static str,
        role: Role,
        what: &'static str,
        handler: MethodRouter<Reach>,
    ) -> Self {
        Self::new(Method::POST, path, role, what, handler)
    }

    pub(super) fn takes(mut self, schema: &'static str) -> Self {
        self.body = Some(schema);
        self
    }

    pub(super) fn asks(mut self, query: &'static [Parameter]) -> Self {
        self.query = query;
        self
    }

    pub(super) fn gives(mut self, out: Out) -> Self {
        self.out = out;
        self
    }
}
