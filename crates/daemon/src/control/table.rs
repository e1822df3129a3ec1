//! All routes, one table: what each is called, what it does, which role it needs, what goes in and comes out. The
//! server, the check of roles and the OpenAPI document are made from it, so that none of them knows another route.

use std::collections::BTreeMap;

use axum::Extension;
use axum::Json;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path as UrlPath, Query, Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::{get, post};

use super::access::{Caller, Role};
use super::reach::{Reach, refuse};
use super::route::{Out, Parameter, Route};
use super::routes::{self, act, change_of_pool, rehearse, rehearse_of_pool};
use super::{alarm_routes, metrics, openapi};
use crate::problem::{Code, Problem};
use crate::web;

/// Largest request body, in bytes: actions are a few words.
const BODY_BYTES_MAX: usize = 64 * 1024;

const RESET: Parameter = Parameter {
    name: "reset",
    kind: "boolean",
    what: "count anew afterwards; needs the role operate",
};
const WHY: Parameter = Parameter {
    name: "why",
    kind: "string",
    what: "why it is done: told with the event",
};
const FOLLOW: Parameter = Parameter {
    name: "follow",
    kind: "boolean",
    what: "false: what happened so far as one object, instead of a stream",
};
const AFTER: Parameter = Parameter {
    name: "after",
    kind: "integer",
    what: "only events with a larger number",
};

/// A change of a volume, and its dry run: a route of its own, because a server that knows no dry run must not take it
/// for the change itself.
macro_rules! change {
    ($word:literal, $role:expr, $what:literal, $schema:literal) => {
        change!($word, $role, $what, $schema, "Done")
    };
    ($word:literal, $role:expr, $what:literal, $schema:literal, $out:literal) => {
        change!($word, $role, $what, $schema, $out, "Done")
    };
    ($word:literal, $role:expr, $what:literal, $schema:literal, $out:literal, $dry:literal) => {
        [
            Route::post(
                concat!("/v1/volumes/{name}/", $word),
                $role,
                $what,
                post(
                    |State(reach): State<Reach>,
                     volume: UrlPath<String>,
                     caller: Extension<Caller>,
                     query: Query<BTreeMap<String, String>>,
                     body: Bytes| {
                        act(reach, $word, (volume, caller, query), body)
                    },
                ),
            )
            .asks(&[WHY])
            .takes($schema)
            .gives(Out::Json($out)),
            Route::post(
                concat!("/v1/volumes/{name}/", $word, "/dry-run"),
                $role,
                concat!("Whether this would be done: ", $what),
                post(
                    |State(reach): State<Reach>, UrlPath(volume): UrlPath<String>, body: Bytes| {
                        rehearse(reach, $word, volume, body)
                    },
                ),
            )
            .takes($schema)
            .gives(Out::Json($dry)),
        ]
    };
}

/// All routes.
pub(super) fn table() -> Vec<Route> {
    let mut table = looks();
    table.extend(volumes());
    table.extend(changes());
    table.extend(pools());
    table.extend(alarms());
    table.extend(page());
    table
}

/// What is told of volumes and events.
fn looks() -> Vec<Route> {
    use Role::View;
    vec![
        Route::get(
            "/v1/volumes",
            View,
            "All volumes: those that are served, and those that should be",
            get(routes::list),
        )
        .gives(Out::Json("Volumes")),
        Route::get(
            "/v1/volumes/{name}",
            View,
            "One volume that is served",
            get(routes::show),
        )
        .gives(Out::Json("Volume")),
        Route::get(
            "/v1/volumes/{name}/stats",
            View,
            "Counters and latency of a volume and of its members",
            get(routes::stats),
        )
        .asks(&[RESET])
        .gives(Out::Json("Stats")),
        Route::get(
            "/v1/volumes/{name}/requests",
            View,
            "Requests of clients that are under way",
            get(routes::requests),
        )
        .gives(Out::Json("Requests")),
        Route::get(
            "/v1/events",
            View,
            "What happened: a stream, or with follow=false what happened so far",
            get(routes::events),
        )
        .asks(&[AFTER, FOLLOW])
        .gives(Out::Events("Event")),
        Route::get(
            "/metrics",
            View,
            "Metrics in the text format of Prometheus",
            get(metrics::show),
        )
        .gives(Out::Text("text/plain")),
        Route::get(
            "/v1/openapi.json",
            View,
            "This document",
            get(|| async { Json(openapi::document(&table())) }),
        ),
    ]
}

/// Which volumes there are.
fn volumes() -> Vec<Route> {
    use Role::{Administer, Operate};
    vec![
        Route::post(
            "/v1/volumes",
            Administer,
            "Serve volumes from now on, and at each start",
            post(routes::open),
        )
        .takes("Open")
        .gives(Out::Json("Opened")),
        Route::post(
            "/v1/volumes/{name}/attached",
            Administer,
            "A block device of the kernel stands on the volume from now on",
            post(routes::attached),
        ),
        Route::post(
            "/v1/volumes/{name}/start",
            Operate,
            "Serve a volume again that is known",
            post(routes::start),
        )
        .gives(Out::Json("Opened")),
        Route::post(
            "/v1/volumes/{name}/forget",
            Administer,
            "Expect a volume no more; it must have been stopped",
            post(routes::forget),
        )
        .gives(Out::Json("Done")),
        Route::post(
            "/v1/volumes/{name}/stop",
            Administer,
            "Stop a volume cleanly; it stays stopped over starts",
            post(
                |State(reach): State<Reach>,
                 volume: UrlPath<String>,
                 caller: Extension<Caller>,
                 query: Query<BTreeMap<String, String>>,
                 body: Bytes| { act(reach, "stop", (volume, caller, query), body) },
            ),
        )
        .asks(&[WHY])
        .gives(Out::Json("Done")),
    ]
}

fn changes() -> impl Iterator<Item = Route> {
    use Role::{Administer, Operate};
    [
        change!("fail", Administer, "Treat a member as failed", "Member"),
        change!(
            "add",
            Administer,
            "Add a new member; what is on it is overwritten",
            "NewMember"
        ),
        change!(
            "remove",
            Administer,
            "Let go of a failed member or a spare",
            "Member"
        ),
        change!("re-add", Operate, "Take a member back", "Member"),
        change!(
            "replace",
            Administer,
            "Copy a member to a new one, which is overwritten",
            "Replace"
        ),
        change!(
            "scrub",
            Operate,
            "Compare every byte, mend what differs, or stop that",
            "Scrub"
        ),
        change!(
            "grow",
            Administer,
            "Another number of members, level, layout or strip",
            "Grow",
            "Grown",
            "Grown"
        ),
        change!(
            "device",
            Administer,
            "Make it a block device of the kernel, or remove that",
            "DeviceWish",
            "DeviceAnswer"
        ),
        change!(
            "set",
            Administer,
            "Change settings",
            "Settings",
            "SettingsNow"
        ),
    ]
    .into_iter()
    .flatten()
}

/// A change of a pool that is served, and its dry run.
macro_rules! pool_change {
    ($word:literal, $role:expr, $what:literal, $schema:literal) => {
        [
            Route::post(
                concat!("/v1/pools/{name}/", $word),
                $role,
                $what,
                post(
                    |State(reach): State<Reach>,
                     pool: UrlPath<String>,
                     caller: Extension<Caller>,
                     query: Query<BTreeMap<String, String>>,
                     body: Bytes| {
                        change_of_pool(reach, $word, (pool, caller, query), body)
                    },
                ),
            )
            .asks(&[WHY])
            .takes($schema)
            .gives(Out::Json("PoolDone")),
            Route::post(
                concat!("/v1/pools/{name}/", $word, "/dry-run"),
                $role,
                concat!("Whether this would be done: ", $what),
                post(
                    |State(reach): State<Reach>, UrlPath(pool): UrlPath<String>, body: Bytes| {
                        rehearse_of_pool(reach, $word, pool, body)
                    },
                ),
            )
            .takes($schema)
            .gives(Out::Json("PoolDone")),
        ]
    };
}

/// What is told of pools that are served, and changes of them.
fn pools() -> Vec<Route> {
    let shown = Route::get(
        "/v1/pools/{name}",
        Role::View,
        "A pool whose volumes are served: its members and volumes",
        get(routes::show_pool),
    );
    let mut routes = vec![shown.gives(Out::Json("Pool"))];
    routes.extend(changes_of_datasets());
    routes.extend(changes_of_members());
    routes
}

fn changes_of_datasets() -> impl Iterator<Item = Route> {
    use Role::{Administer, Operate};
    [
        pool_change!(
            "create-volume",
            Administer,
            "Make a volume",
            "PoolNewVolume"
        ),
        pool_change!(
            "snapshot",
            Operate,
            "Take a snapshot of a volume",
            "PoolName"
        ),
        pool_change!(
            "destroy-snapshot",
            Administer,
            "Destroy a snapshot",
            "PoolName"
        ),
        pool_change!(
            "destroy-volume",
            Administer,
            "Destroy a volume that is not served",
            "PoolName"
        ),
        pool_change!(
            "rollback",
            Administer,
            "Make a volume that is not served what its last snapshot is",
            "PoolName"
        ),
        pool_change!(
            "clone",
            Administer,
            "Make a volume of a snapshot",
            "PoolNewName"
        ),
        pool_change!(
            "rename",
            Administer,
            "Give a snapshot, or a volume that is not served, another name",
            "PoolNewName"
        ),
        pool_change!(
            "resize",
            Administer,
            "Give a volume that is not served another size",
            "PoolSize"
        ),
    ]
    .into_iter()
    .flatten()
}

fn changes_of_members() -> impl Iterator<Item = Route> {
    use Role::{Administer, Operate};
    [
        pool_change!("offline", Administer, "Take a member out", "PoolMember"),
        pool_change!(
            "online",
            Operate,
            "Write a member again that is offline, and give it what it missed",
            "PoolMember"
        ),
        pool_change!(
            "replace",
            Administer,
            "Put a new member in the place of another",
            "PoolReplace"
        ),
        pool_change!(
            "attach",
            Administer,
            "Make a new member a side of a mirror",
            "PoolAttach"
        ),
        pool_change!(
            "detach",
            Administer,
            "Take a side out of its mirror",
            "PoolMember"
        ),
        pool_change!("add", Administer, "Add a group of members", "PoolGroup"),
        pool_change!(
            "scrub",
            Operate,
            "Read everything, and write again what is wrong",
            "Object"
        ),
    ]
    .into_iter()
    .flatten()
}

fn alarms() -> [Route; 4] {
    use Role::{Operate, View};
    [
        Route::get(
            "/v1/incidents",
            View,
            "What is wrong now and was not long ago, and how it goes with each channel",
            get(alarm_routes::list),
        )
        .gives(Out::Json("Incidents")),
        Route::get(
            "/v1/incidents/{id}",
            View,
            "One incident with its messages",
            get(alarm_routes::show),
        )
        .gives(Out::Json("Incident")),
        Route::post(
            "/v1/incidents/{id}/acknowledge",
            Operate,
            "Somebody knows of an incident",
            post(alarm_routes::acknowledge),
        )
        .takes("Acknowledge")
        .gives(Out::Json("Incident")),
        Route::post(
            "/v1/channels/{name}/test",
            Operate,
            "Send a message to a channel, to try it",
            post(alarm_routes::test),
        ),
    ]
}

fn page() -> [Route; 6] {
    use Role::View;
    [
        Route::get("/", None, "The page", get(web::show)).gives(Out::Text("text/html")),
        Route::get(
            "/page.css",
            None,
            "What the page looks like",
            get(web::style),
        )
        .gives(Out::Text("text/css")),
        Route::get(
            "/page.js",
            None,
            "What keeps the page live",
            get(web::script),
        )
        .gives(Out::Text("text/javascript")),
        Route::get(
            "/page/live",
            View,
            "Parts of the page, each time they change",
            get(web::live),
        )
        .gives(Out::Events("Parts")),
        Route::post(
            "/page/plan",
            View,
            "What a change would do, and what has to be typed for it",
            post(web::plan),
        )
        .takes("Wish")
        .gives(Out::Json("Plan")),
        Route::post(
            "/page/do",
            View,
            "A change whose plan was shown; needs the role of that change",
            post(web::carry_out),
        )
        .takes("Wish")
        .gives(Out::Json("Done")),
    ]
}

/// Serves the table. Who asks must be known before: `Caller` is among the request's extensions.
pub(super) fn router(reach: Reach) -> Router {
    let mut router = Router::new();
    for route in table() {
        let role = route.role;
        let guarded = route
            .handler
            .route_layer(from_fn(move |request: Request, next: Next| {
                check(role, request, next)
            }));
        router = router.route(route.path, guarded);
    }
    router
        .fallback(|| async {
            refuse(
                &Problem::new(Code::Usage, "no such route")
                    .hint("all of them:   GET /v1/openapi.json"),
            )
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(reach)
}

async fn check(role: Option<Role>, request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<Caller>();
    let allowed = match (role, caller) {
        (None, _) => Ok(()),
        (Some(role), Some(caller)) => caller.check(role),
        (Some(_), None) => Err(Problem::new(Code::Bug, "nobody knows who asks")),
    };
    match allowed {
        Ok(()) => next.run(request).await,
        Err(problem) => refuse(&problem),
    }
}

#[cfg(test)]
mod tests;
