//! The page, in parts: each is HTML of its own, which the script exchanges when it changes. Pure.

use jiff::tz::TimeZone;

use super::html::{Html, button, cell};
use super::state::{Channel, Incident, State};
use super::verdict::headline;
use super::volume;
use super::words::{exact_moment, moment, seconds};
use crate::control::access::{Caller, Role, Way};
use crate::control::cookie;
use crate::problem::Problem;

/// The parts of the page by the id of their element, in their order.
pub(super) fn parts(state: &State, zone: &TimeZone) -> Vec<(&'static str, String)> {
    vec![
        ("verdict", verdict(state, zone)),
        ("incidents", incidents(state, zone)),
        ("volumes", volume::all(state, zone)),
        ("events", events(state, zone)),
        ("moment", seen_at(state, zone)),
    ]
}

/// What a tab of the browser is called.
pub(super) fn title(state: &State, zone: &TimeZone) -> String {
    let head = headline(state, zone);
    format!("[{}] {}", state.host, head.text)
}

/// The whole document.
pub(super) fn document(state: Option<&State>, caller: &Caller, zone: &TimeZone) -> String {
    let title = state.map_or("Plexum".to_owned(), |state| title(state, zone));
    let mut page = String::from("<!DOCTYPE html>\n");
    page.push_str(&Html::of(|html| {
        html.element("html", &[("lang", "en")], |html| {
            html.element("head", &[], |html| head(html, &title));
            html.element("body", &[], |html| body(html, state, caller, zone));
        });
    }));
    page
}

/// The document for whoever has shown a token that is not taken.
pub(super) fn not_known(problem: &Problem) -> String {
    let mut page = String::from("<!DOCTYPE html>\n");
    page.push_str(&Html::of(|html| {
        html.element("html", &[("lang", "en")], |html| {
            html.element("head", &[], |html| head(html, "Plexum"));
            html.element("body", &[], |html| {
                html.element("main", &[], |html| {
                    html.say("h1", &[], "Plexum");
                    refusal(html, problem);
                    form(html);
                });
            });
        });
    }));
    page
}

fn refusal(html: &mut Html, problem: &Problem) {
    html.say("p", &[], &problem.message);
    for hint in &problem.hints {
        html.say("p", &[], hint);
    }
}

/// Shows a token without any script; the browser keeps it.
fn form(html: &mut Html) {
    let attributes = [("method", "post"), ("action", cookie::PATH)];
    html.element("form", &attributes, |html| {
        html.element("label", &[], |html| {
            html.text("Token ");
            html.begin(
                "input",
                &[
                    ("name", "token"),
                    ("type", "password"),
                    ("autocomplete", "current-password"),
                    ("required", ""),
                ],
            );
        });
        html.text(" ");
        html.say("button", &[("type", "submit")], "show it");
    });
}

/// The browser lets go of the token that it keeps.
fn leave(html: &mut Html) {
    let attributes = [("method", "post"), ("action", cookie::PATH)];
    html.element("form", &attributes, |html| {
        let attributes = [("type", "submit"), ("name", "leave")];
        html.say("button", &attributes, "keep the token no more");
    });
}

fn head(html: &mut Html, title: &str) {
    html.begin("meta", &[("charset", "utf-8")]);
    let view = "width=device-width, initial-scale=1";
    html.begin("meta", &[("name", "viewport"), ("content", view)]);
    html.begin(
        "meta",
        &[("name", "color-scheme"), ("content", "light dark")],
    );
    html.say("title", &[], title);
    html.begin("link", &[("rel", "icon"), ("href", "data:,")]);
    html.begin("link", &[("rel", "stylesheet"), ("href", "/page.css")]);
    html.element("script", &[("src", "/page.js"), ("defer", "")], |_| {});
}

fn body(html: &mut Html, state: Option<&State>, caller: &Caller, zone: &TimeZone) {
    html.say(
        "a",
        &[("class", "skip"), ("href", "#volumes")],
        "to the volumes",
    );
    let Some(state) = state else {
        html.element("main", &[], |html| {
            html.say("h1", &[], "Plexum");
            if let Err(problem) = caller.check(Role::View) {
                refusal(html, &problem);
            }
            known_as(html, caller);
        });
        return;
    };
    let parts = parts(state, zone);
    let part = |html: &mut Html, name: &'static str| {
        let made = parts.iter().find(|(one, _)| *one == name);
        let made = made.map_or("", |(_, made)| made.as_str());
        // Only the verdict is read out when it changes.
        let live = [("id", name), ("role", "status")];
        let plain = [("id", name)];
        let attributes: &[(&'static str, &str)] = match name {
            "verdict" => &live,
            _ => &plain,
        };
        html.element("div", attributes, |html| html.made(made));
    };
    html.element("header", &[], |html| {
        part(html, "verdict");
        html.element("div", &[("class", "quiet")], |html| {
            html.text("As of ");
            part(html, "moment");
            html.say(
                "span",
                &[("id", "link")],
                " This is what was seen when the page was loaded.",
            );
        });
    });
    html.element("main", &[], |html| {
        part(html, "incidents");
        part(html, "volumes");
        part(html, "events");
        known_as(html, caller);
    });
    html.element(
        "dialog",
        &[("id", "dialog"), ("aria-labelledby", "dialog-title")],
        |_| {},
    );
}

/// Who the browser is, and how it becomes somebody else: by the form where there is TLS, else by the script.
fn known_as(html: &mut Html, caller: &Caller) {
    html.element("p", &[("class", "quiet")], |html| {
        let role = caller.role.map_or("nothing", Role::word);
        html.text("You are ");
        html.say("span", &[("id", "who")], &caller.who);
        html.text(" and may ");
        html.say("span", &[("id", "role")], role);
        html.text(". ");
        if caller.way != Way::Tls {
            html.say(
                "button",
                &[("type", "button"), ("id", "sign-in"), ("class", "scripted")],
                "show a token",
            );
        }
    });
    match (caller.way, caller.role) {
        (Way::Tls, Some(_)) => leave(html),
        (Way::Tls, None) => form(html),
        (Way::Network | Way::Socket, _) => {}
    }
}

fn verdict(state: &State, zone: &TimeZone) -> String {
    let head = headline(state, zone);
    let class = format!("verdict {}", head.badness.word());
    Html::of(|html| {
        html.element("div", &[("class", &class)], |html| {
            html.say("p", &[("class", "host")], &state.host);
            html.element("h1", &[], |html| {
                html.say("span", &[("class", "word")], head.badness.word());
                html.text(" ");
                html.text(&head.text);
            });
            for line in &head.more {
                html.say("p", &[], line);
            }
        });
    })
}

fn seen_at(state: &State, zone: &TimeZone) -> String {
    let judged = state.alarms.as_ref().and_then(|alarms| alarms.judged_s);
    let age = judged.map(|judged| state.now_s.saturating_sub(judged));
    let age = age.map_or(String::new(), |age| {
        format!(", judged {} before", seconds(age))
    });
    Html::of(|html| {
        html.text(&exact_moment(state.now_s, zone));
        html.text(&age);
        html.text(".");
    })
}

fn incidents(state: &State, zone: &TimeZone) -> String {
    let Some(alarms) = &state.alarms else {
        return String::new();
    };
    let open: Vec<&Incident> = state.open_incidents().collect();
    let closed = alarms.incidents.len() - open.len();
    Html::of(|html| {
        html.element("section", &[], |html| {
            html.say("h2", &[], &format!("Open incidents ({})", open.len()));
            for reason in [&alarms.not_kept, &alarms.configuration]
                .into_iter()
                .flatten()
            {
                html.say("p", &[("class", "warning")], reason);
            }
            for one in open {
                incident(html, one, state, zone);
            }
            if closed > 0 {
                let text = format!("{closed} more were closed in the last day.");
                html.say("p", &[("class", "quiet")], &text);
            }
            let channels = alarms.channels.iter();
            let words: Vec<String> = channels.map(|one| channel(one, zone)).collect();
            if !words.is_empty() {
                let text = format!("Messages: {}.", words.join("; "));
                html.say("p", &[("class", "quiet")], &text);
            }
        });
    })
}

fn channel(channel: &Channel, zone: &TimeZone) -> String {
    let name = &channel.name;
    match (channel.failing_since_s, channel.arrived_s) {
        (Some(since), _) => {
            let answer = channel.answer.as_ref().and_then(|answer| answer.as_str());
            let answer = answer.map_or(String::new(), |answer| format!(" ({answer})"));
            format!("{name} fails since {}{answer}", moment(since, zone))
        }
        (None, Some(at)) => format!("{name} arrived last at {}", moment(at, zone)),
        (None, None) => format!("{name} has had nothing to tell"),
    }
}

fn incident(html: &mut Html, one: &Incident, state: &State, zone: &TimeZone) {
    let class = format!("incident {}", one.severity);
    html.element("article", &[("class", &class)], |html| {
        html.element("h3", &[], |html| {
            html.say("span", &[("class", "word")], &one.severity);
            html.text(" ");
            let headline = one.headline.as_deref().unwrap_or("");
            html.text(&format!("{}: {headline}", one.name));
        });
        let since = state.now_s.saturating_sub(one.opened_s);
        let mut text = format!(
            "{}, since {} ({})",
            one.id,
            moment(one.opened_s, zone),
            seconds(since)
        );
        if one.state == "ending" {
            text.push_str(", over, its end is about to be told");
        }
        html.say("p", &[("class", "quiet")], &text);
        for key in ["what", "data", "advice", "before"] {
            for line in one.lines[key].as_array().into_iter().flatten() {
                html.say("p", &[], line.as_str().unwrap_or(""));
            }
        }
        if let Some(known) = &one.acknowledged {
            let text = format!("acknowledged by {}: {}", known.who, known.why);
            html.say("p", &[], &text);
        } else {
            html.element("p", &[("class", "actions needs-operate")], |html| {
                let wish = serde_json::json!({"action": "acknowledge", "id": one.id});
                let name = format!("acknowledge {}", one.id);
                button(html, &wish, "acknowledge", &name);
            });
        }
    });
}

fn events(state: &State, zone: &TimeZone) -> String {
    Html::of(|html| {
        html.element("section", &[], |html| {
            html.say("h2", &[], "What happened");
            if state.events.is_empty() {
                html.say("p", &[("class", "quiet")], "Nothing yet.");
                return;
            }
            html.element("table", &[], |html| {
                html.element("thead", &[], |html| {
                    html.element("tr", &[], |html| {
                        for title in ["When", "Volume", "What"] {
                            html.say("th", &[("scope", "col")], title);
                        }
                    });
                });
                html.element("tbody", &[], |html| {
                    for event in &state.events {
                        html.element("tr", &[], |html| {
                            cell(html, "When", &moment(event.time_s, zone));
                            cell(html, "Volume", &event.volume);
                            cell(html, "What", &event.message);
                        });
                    }
                });
            });
        });
    })
}
