use std::collections::BTreeSet;

use axum::http::Method;
use serde_json::Value;

use super::*;
use crate::control::openapi::{document, schemas};
use crate::control::request::Action;

/// Methods and paths of the document.
fn documented() -> BTreeSet<(String, String)> {
    let document = document(&table());
    let paths = document["paths"].as_object().expect("paths").clone();
    let all = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().expect("methods");
        methods
            .keys()
            .map(|method| (method.to_uppercase(), path.clone()))
            .collect::<Vec<_>>()
    });
    all.collect()
}

#[test]
fn every_route_is_in_the_document_and_nothing_else() {
    let table = table();
    let routes: BTreeSet<_> = table
        .iter()
        .map(|route| (route.method.to_string(), route.path.to_owned()))
        .collect();
    assert_eq!(routes.len(), table.len(), "a route stands twice");
    assert_eq!(documented(), routes);
}

#[test]
fn every_route_that_tells_or_changes_something_has_a_role() {
    for route in table() {
        let is_open = ["/", "/page.css", "/page.js"].contains(&route.path);
        assert_eq!(route.role.is_none(), is_open, "{}", route.path);
        let is_dry = route.path.ends_with("/dry-run") || route.path.starts_with("/page/");
        if route.method == Method::POST && !is_dry {
            assert!(route.role > Some(Role::View), "{} changes", route.path);
        }
    }
}

#[test]
fn a_dry_run_needs_the_role_of_the_change() {
    let table = table();
    for route in &table {
        if let Some(change) = route.path.strip_suffix("/dry-run") {
            let change = table.iter().find(|one| one.path == change);
            assert_eq!(change.expect("its change").role, route.role);
        }
    }
}

#[test]
fn every_change_that_there_is_has_its_route() {
    let member = || "m".to_owned();
    let all = [
        Action::Fail { member: member() },
        Action::Add {
            member: member(),
            force: false,
        },
        Action::Remove { member: member() },
        Action::ReAdd { member: member() },
        Action::Replace {
            old: member(),
            new: member(),
            force: false,
        },
        Action::Scrub {
            repair: false,
            stop: false,
        },
        Action::Stop,
        Action::Set {
            settings: std::collections::BTreeMap::new(),
        },
    ];
    for action in all {
        let path = format!("/v1/volumes/{{name}}/{}", action.route());
        let route = table().into_iter().find(|route| route.path == path);
        let role = route.expect("its route").role;
        assert_eq!(role, Some(action.role()), "{path}");
    }
}

#[test]
fn every_change_of_a_pool_that_there_is_has_its_route_and_takes_what_the_document_says() {
    use crate::pool_change::PoolChange;
    let table = table();
    let mut words = 0;
    for route in table.iter().filter(|route| route.method == Method::POST) {
        let word = route.path.strip_prefix("/v1/pools/{name}/");
        let Some(word) = word.filter(|word| !word.ends_with("/dry-run")) else {
            continue;
        };
        words += 1;
        let schema = schemas()[route.body.expect("its schema")].clone();
        let properties = schema["properties"]
            .as_object()
            .cloned()
            .unwrap_or_default();
        let value_of = |(name, what): (&String, &Value)| {
            let value = match what["type"].as_str() {
                Some("string") => Value::from("x"),
                Some("boolean") => Value::from(true),
                Some("array") => Value::from(vec!["x"]),
                _ => Value::from(1),
            };
            (name.clone(), value)
        };
        let mut body: serde_json::Map<String, Value> = properties.iter().map(value_of).collect();
        body.insert("change".into(), Value::from(word));
        let body = Value::Object(body);
        let change: PoolChange = serde_json::from_value(body.clone()).expect(word);
        assert_eq!(change.route(), word);
        assert_eq!(route.role, Some(change.role()), "{word}");
        assert_eq!(
            serde_json::to_value(&change).expect("JSON"),
            body,
            "{word}: a field is lost"
        );
    }
    assert_eq!(words, 15, "all changes of a pool");
}

#[test]
fn every_schema_that_is_named_is_there_and_every_one_there_is_named() {
    let text = document(&table()).to_string();
    let schemas = schemas();
    let is_named = |name: &str| text.contains(&format!("#/components/schemas/{name}\""));
    for name in schemas.keys() {
        // Data of a stream are named in words alone.
        let in_words = ["Event", "Parts"].contains(&name.as_str());
        assert!(in_words || is_named(name), "{name} is nobody's");
    }
    for part in text.split("#/components/schemas/").skip(1) {
        let name = part.split('"').next().unwrap_or_default();
        assert!(schemas.contains_key(name), "{name} is missing");
    }
    for route in table() {
        if let Out::Events(name) = route.out {
            assert!(schemas.contains_key(name), "{name} is missing");
        }
    }
}

/// The names that a type takes, by what it says of one that it does not take.
fn fields_of<T: serde::de::DeserializeOwned>() -> BTreeSet<String> {
    let error = serde_json::from_str::<T>("{\"no such field\": 1}")
        .err()
        .expect("an unknown field is refused");
    let words = error.to_string();
    let names = words.split("expected").nth(1).unwrap_or_default();
    let names = names.split('`').skip(1).step_by(2);
    names.map(str::to_owned).collect()
}

#[test]
fn what_a_request_takes_is_what_the_document_says() {
    use crate::control::alarm_request::Acknowledge;
    use crate::control::open_request::OpenRequest;
    let properties = |name: &str| -> BTreeSet<String> {
        let schema: Value = schemas()[name].clone();
        let properties = schema["properties"].as_object().expect("an object");
        properties.keys().cloned().collect()
    };
    assert_eq!(properties("Open"), fields_of::<OpenRequest>());
    assert_eq!(properties("Acknowledge"), fields_of::<Acknowledge>());
    assert_eq!(properties("Wish"), fields_of::<web::Wish>());
}
