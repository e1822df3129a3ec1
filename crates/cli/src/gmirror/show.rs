//! `gmirror status`, `list` and `dump`: FreeBSD's formats, and an object each with `--json`.
//!
//! Invariants:
//! - of a mirror that is served its server knows best: what it has dropped is not shown as a component, whatever labels
//!   say.
//!
//! Source: freebsd-geom.md section 1.13.

use plexum_daemon::problem::{Code, Problem};
use plexum_daemon::status::{JobKind, MemberState, VolumeStatus};
use plexum_format::gmirror::describe;
use plexum_freebsd::gmirror::{Component, ComponentState, Mirror};
use serde_json::{Value, json};

use super::{Known, live, mirrors, provider_at};
use crate::errors::Outcome;
use crate::fields::fields_json;
use crate::output::{Screen, object};
use crate::words::Words;

/// A mirror as it is now.
struct View<'a> {
    mirror: &'a Mirror,
    state: &'static str,
    shown: Vec<Shown<'a>>,
}

struct Shown<'a> {
    component: &'a Component,
    state: &'static str,
    /// How far it is filled.
    done_bytes: Option<u64>,
}

impl Shown<'_> {
    fn percent(&self, mirror: &Mirror) -> Option<u64> {
        let done = u128::from(self.done_bytes?);
        let percent = done * 100 / u128::from(mirror.volume_bytes.max(1));
        u64::try_from(percent).ok()
    }

    fn text(&self, mirror: &Mirror) -> String {
        match self.percent(mirror) {
            Some(percent) => format!("{}, {percent}%", self.state),
            None => self.state.to_owned(),
        }
    }
}

/// What labels say, and of a served mirror what its server says.
fn view<'a>(known: &'a Known, mirror: &'a Mirror, served: Option<&VolumeStatus>) -> View<'a> {
    let shown = mirror.components.iter().filter_map(|component| {
        let of_label = Shown {
            component,
            state: component.state.name(),
            done_bytes: (component.state == ComponentState::Synchronizing)
                .then_some(component.label.sync_offset_bytes),
        };
        match served {
            None => Some(of_label),
            Some(status) => of_server(of_label, &known.paths[component.key.0], status),
        }
    });
    let shown: Vec<Shown<'a>> = shown.collect();
    let active = shown.iter().filter(|one| one.state == "ACTIVE").count();
    let state = match served {
        None => mirror.state().name(),
        Some(_) if active == usize::from(mirror.component_count) => "COMPLETE",
        Some(_) => "DEGRADED",
    };
    View {
        mirror,
        state,
        shown,
    }
}

fn of_server<'a>(label: Shown<'a>, path: &str, status: &VolumeStatus) -> Option<Shown<'a>> {
    let mut members = status.members.iter();
    let member = members.find(|member| {
        member
            .path
            .as_deref()
            .is_some_and(|at| live::is_same(at, path))
    });
    match member.map(|member| member.state) {
        Some(MemberState::Active) => Some(Shown {
            state: ComponentState::Active.name(),
            done_bytes: None,
            ..label
        }),
        Some(MemberState::Rebuilding) => {
            let mut jobs = status.jobs.iter();
            let job = jobs.find(|job| matches!(job.kind, JobKind::Rebuild | JobKind::Replace));
            let done_bytes = job.map(|job| job.done_bytes).or(label.done_bytes);
            Some(Shown {
                state: ComponentState::Synchronizing.name(),
                done_bytes: Some(done_bytes.unwrap_or(0)),
                ..label
            })
        }
        // It never joined: it is behind, and waits for the operator.
        None if label.state == ComponentState::Stale.name() => Some(label),
        _ => None,
    }
}

/// How much is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `status`: a line for each component.
    Status,
    /// `list`: everything.
    List,
}

/// `status` and `list`.
///
/// # Errors
/// `NoMetadata` for a mirror that is named and not there.
pub fn run(form: Form, words: &Words, screen: &Screen) -> Outcome {
    let served = live::served();
    let known = mirrors(&words.places)?;
    let mut views = Vec::new();
    for known in &known {
        let Some(mirror) = known.mirror() else {
            continue;
        };
        let status = live::status_of(known, &served);
        views.push(view(known, mirror, status));
    }
    for name in &words.rest {
        let is_there = |view: &View<'_>| is_called(view.mirror, name);
        if !views.iter().any(is_there) {
            return Err(
                Problem::new(Code::NoMetadata, format!("no mirror {name} was found"))
                    .hint("say where its members are:   --in DIR"),
            );
        }
    }
    if !words.rest.is_empty() {
        views.retain(|view| words.rest.iter().any(|name| is_called(view.mirror, name)));
    }
    let lines = match form {
        Form::Status => status(&views, words.has('s'), words.has('g')),
        Form::List => views.iter().flat_map(list).collect(),
    };
    for line in lines {
        screen.line(line);
    }
    for view in &views {
        screen.object(&as_object(view));
    }
    Ok(0)
}

fn is_called(mirror: &Mirror, name: &str) -> bool {
    name.strip_prefix("mirror/").unwrap_or(name) == mirror.name
}

/// Columns as wide as what is in them; `is_script`: no heading, and every line complete.
fn status(views: &[View<'_>], is_script: bool, is_geom: bool) -> Vec<String> {
    let name_of = |view: &View<'_>| {
        let prefix = if is_geom { "" } else { "mirror/" };
        format!("{prefix}{}", view.mirror.name)
    };
    let widest =
        |words: &mut dyn Iterator<Item = usize>, least: usize| words.max().unwrap_or(0).max(least);
    let name_width = widest(
        &mut views.iter().map(|view| name_of(view).len()),
        "Name".len(),
    );
    let state_width = widest(
        &mut views.iter().map(|view| view.state.len()),
        "Status".len(),
    );
    let mut lines = Vec::new();
    if !is_script {
        let (name, state) = ("Name", "Status");
        lines.push(format!(
            "{name:>name_width$}  {state:>state_width$}  Components"
        ));
    }
    for view in views {
        let full = name_of(view);
        let mut rows: Vec<String> = Vec::new();
        for shown in &view.shown {
            rows.push(format!(
                "{} ({})",
                shown.component.provider,
                shown.text(view.mirror)
            ));
        }
        if rows.is_empty() {
            rows.push("N/A".to_owned());
        }
        for (at, row) in rows.iter().enumerate() {
            let is_told = at == 0 || is_script;
            let (name, state) = if is_told {
                (full.as_str(), view.state)
            } else {
                ("", "")
            };
            lines.push(format!("{name:>name_width$}  {state:>state_width$}  {row}"));
        }
    }
    lines
}

fn flags(pairs: &[(bool, &str)]) -> String {
    let set = pairs.iter().filter(|(is_set, _)| *is_set);
    let set: Vec<&str> = set.map(|(_, name)| *name).collect();
    if set.is_empty() {
        "NONE".to_owned()
    } else {
        set.join(", ")
    }
}

fn list(view: &View<'_>) -> Vec<String> {
    let mirror = view.mirror;
    let switches = flags(&[
        (mirror.has_no_autosync, "NOAUTOSYNC"),
        (mirror.has_no_failsync, "NOFAILSYNC"),
    ]);
    let mut lines = vec![
        format!("Geom name: {}", mirror.name),
        format!("State: {}", view.state),
        format!("Components: {}", mirror.component_count),
        format!("Balance: {}", mirror.balance.name()),
        format!("Slice: {}", mirror.slice_bytes),
        format!("Flags: {switches}"),
        format!("GenID: {}", mirror.generation_id),
        format!("SyncID: {}", mirror.sync_id),
        format!("ID: {}", mirror.mirror_id),
        "Type: AUTOMATIC".to_owned(),
        "Providers:".to_owned(),
        format!("1. Name: mirror/{}", mirror.name),
        format!("   Mediasize: {}", mirror.volume_bytes),
        format!("   Sectorsize: {}", mirror.sector_bytes),
        "   Mode: r0w0e0".to_owned(),
        "Consumers:".to_owned(),
    ];
    for (index, shown) in view.shown.iter().enumerate() {
        let number = index + 1;
        lines.push(format!("{number}. Name: {}", shown.component.provider));
        let fields = fields(shown, mirror);
        lines.extend(fields.into_iter().map(|field| format!("   {field}")));
    }
    lines.push(String::new());
    lines
}

fn component_flags(component: &Component) -> String {
    let label = &component.label;
    flags(&[
        (label.is_dirty, "DIRTY"),
        (!label.provider.is_empty(), "HARDCODED"),
        (label.is_inactive, "INACTIVE"),
        (label.is_rebuilding, "SYNCHRONIZING"),
        (label.is_rebuild_forced, "FORCE_SYNC"),
    ])
}

fn fields(shown: &Shown<'_>, mirror: &Mirror) -> Vec<String> {
    let (component, label) = (shown.component, &shown.component.label);
    let mut fields = vec![
        format!("Mediasize: {}", component.size_bytes),
        format!("Sectorsize: {}", component.sector_bytes),
        "Mode: r0w0e0".to_owned(),
        format!("State: {}", shown.state),
        format!("Priority: {}", label.priority),
        format!("Flags: {}", component_flags(component)),
        format!("GenID: {}", label.generation_id),
        format!("SyncID: {}", label.sync_id),
        format!("ID: {}", label.component_id),
    ];
    if let (Some(percent), Some(done)) = (shown.percent(mirror), shown.done_bytes) {
        fields.push(format!("Synchronized: {percent}%"));
        fields.push(format!("BytesSynced: {done}"));
    }
    fields
}

fn as_object(view: &View<'_>) -> Value {
    let mirror = view.mirror;
    let components = view.shown.iter().map(|shown| {
        let label = &shown.component.label;
        json!({
            "provider": shown.component.provider, "state": shown.state,
            "done_bytes": shown.done_bytes, "size_bytes": shown.component.size_bytes,
            "sector_bytes": shown.component.sector_bytes, "priority": label.priority,
            "flags": component_flags(shown.component), "generation_id": label.generation_id,
            "sync_id": label.sync_id, "component_id": label.component_id,
        })
    });
    let fields = json!({
        "state": view.state, "member_count": mirror.component_count, "balance": mirror.balance.name(),
        "slice_bytes": mirror.slice_bytes, "has_no_autosync": mirror.has_no_autosync,
        "has_no_failsync": mirror.has_no_failsync, "generation_id": mirror.generation_id,
        "sync_id": mirror.sync_id, "mirror_id": mirror.mirror_id, "size_bytes": mirror.volume_bytes,
        "sector_bytes": mirror.sector_bytes, "components": components.collect::<Vec<Value>>(),
    });
    object("mirror", Some(&mirror.name), fields)
}

/// `dump`: every field of labels.
///
/// # Errors
/// `NoMetadata` for what is no component.
pub fn dump(words: &Words, screen: &Screen) -> Outcome {
    for path in &words.rest {
        let provider = provider_at(path)?;
        screen.line(format!("Metadata on {path}:"));
        let fields = describe(&provider.label);
        for field in &fields {
            screen.line(format!("{:>22}: {}", field.name, field.value));
        }
        let value = json!({"member": path, "label": fields_json(&fields)});
        screen.object(&object("label", Some(&provider.label.name), value));
    }
    Ok(0)
}
