//! `GET /metrics`: the page of metrics, on the control sockets, and for the daemon on a loopback address.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener as StdTcpListener};

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;
use serde_json::Value;
use tokio::net::TcpListener;

use super::alarm_request::AlarmRequest;
use super::connections;
use super::reach::{Reach, answer_of, refuse};
use super::request::{Answer, Request};
use crate::expected::Wanted;
use crate::metrics::{OpenIncidents, PageFacts, VolumeCounters, page};
use crate::problem::{Code, Problem};
use crate::volume::status::VolumeStatus;

/// Whether metrics may be served at an address.
///
/// # Errors
/// `Usage` for one that others than this machine reach: the page names disks, and nobody is asked who he is.
pub(crate) fn check_address(address: SocketAddr) -> Result<(), Problem> {
    let shown = address.to_string();
    if !address.ip().is_loopback() {
        let text = format!("metrics are not served at {shown}: it is no loopback address");
        return Err(Problem::new(Code::Usage, text)
            .why("whoever reaches it may read them")
            .hint("on this machine:   plexum daemon --metrics-listen 127.0.0.1:9837"));
    }
    Ok(())
}

/// Binds an address for the page of metrics alone.
///
/// # Errors
/// As `check_address`; system errors of binding.
pub(super) fn bind(address: SocketAddr) -> Result<(SocketAddr, StdTcpListener), Problem> {
    check_address(address)?;
    let shown = address.to_string();
    let tell = |error: std::io::Error| Problem::from_io(&error, "serving metrics at", &shown);
    let listener = StdTcpListener::bind(address).map_err(tell)?;
    listener.set_nonblocking(true).map_err(tell)?;
    let bound = listener.local_addr().map_err(tell)?;
    Ok((bound, listener))
}

/// Serves the page of metrics, and nothing else, until the control thread ends.
pub(super) fn serve(listener: StdTcpListener, reach: Reach) {
    if let Ok(listener) = TcpListener::from_std(listener) {
        let app = Router::new().route("/metrics", get(show)).with_state(reach);
        let _task = tokio::spawn(connections::serve(listener, app));
    }
}

/// Answers with the page.
pub(super) async fn show(State(reach): State<Reach>) -> Response {
    match facts(&reach).await {
        Ok(facts) => {
            let kind = plexum_metrics::page::CONTENT_TYPE;
            ([(CONTENT_TYPE, kind)], page(&facts)).into_response()
        }
        Err(problem) => refuse(&problem),
    }
}

/// A volume that is expected and not served.
#[derive(Deserialize)]
struct Absent {
    volume: String,
    wanted: Wanted,
}

/// An incident, as the daemon's list of them has it.
#[derive(Deserialize)]
struct Incident {
    code: String,
    severity: String,
    closed_s: Option<u64>,
}

/// How many are open of each kind.
fn open_incidents(all: &[Incident]) -> Vec<OpenIncidents> {
    let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for open in all.iter().filter(|one| one.closed_s.is_none()) {
        *counts.entry((&open.severity, &open.code)).or_default() += 1;
    }
    let kinds = counts.into_iter();
    kinds
        .map(|((severity, code), count)| OpenIncidents {
            severity: severity.to_owned(),
            code: code.to_owned(),
            count,
        })
        .collect()
}

async fn facts(reach: &Reach) -> Result<PageFacts, Problem> {
    let told = answer_of(reach, Request::List).await?;
    let waiting = all::<Absent>(&told["waiting"])?.into_iter();
    let missed = waiting.filter(|absent| absent.wanted == Wanted::Served);
    let mut facts = PageFacts {
        not_served: missed.map(|absent| absent.volume).collect(),
        judged_s: seconds_since_1970(),
        ..PageFacts::default()
    };
    if let Ok(alarms) = answer_of(reach, Request::Alarm(AlarmRequest::List)).await {
        facts.incidents = open_incidents(&all(&alarms["incidents"])?);
        facts.delivery_failures = all(&alarms["channels"])?;
        facts.judged_s = alarms["judged_s"].as_u64().unwrap_or(facts.judged_s);
    }
    for status in all::<VolumeStatus>(&told["volumes"])? {
        let ask = Request::Stats {
            volume: status.volume.clone(),
            reset: false,
        };
        let counters = counters(answer_of(reach, ask).await);
        facts.volumes.push((status, counters));
    }
    Ok(facts)
}

/// None of a volume that was closed meanwhile.
fn counters(answer: Answer) -> Option<VolumeCounters> {
    serde_json::from_value(answer.ok()?).ok()
}

fn all<T: serde::de::DeserializeOwned>(value: &Value) -> Result<Vec<T>, Problem> {
    match value {
        Value::Null => Ok(Vec::new()),
        value => serde_json::from_value(value.clone())
            .map_err(|error| Problem::new(Code::Bug, format!("own status: {error}"))),
    }
}

fn seconds_since_1970() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}
