//! The OpenAPI document of a running daemon, held against what the daemon answers: strictly, both ways. A field that is
//! not described is as wrong as one that is described otherwise.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::common::Place;
use super::common::served::{done, wait_until};
use super::daemon::Daemon;

/// Status code, kind and body of one request.
fn send(at: &str, method: &str, path: &str, body: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(at).unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nAuthorization: Bearer 0123456789abcdefghij\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    let kind = head
        .lines()
        .find_map(|line| line.strip_prefix("content-type: "));
    let kind = kind
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default();
    (code, kind.to_owned(), body.to_owned())
}

/// A daemon with a degraded volume, one that was stopped, and an incident that somebody knows.
fn daemon(name: &str) -> (Place, Daemon, String) {
    let place = Place::in_memory(name);
    let token = place.file("token");
    std::fs::write(&token, "0123456789abcdefghij").unwrap();
    assert_eq!(place.tool("chmod", "600 token").exit, 0);
    let folder = place.file("config/plexum");
    std::fs::create_dir_all(&folder).unwrap();
    let text = format!(
        "[page]\nlisten = \"127.0.0.1:0\"\n[[page.token]]\nname = \"all\"\nrole = \"administer\"\nfile = \"{}\"\n\
         [alarm]\nhold = \"0s\"\n[[alarm.channel]]\nname = \"own\"\nkind = \"program\"\ncommand = [\"/bin/true\"]\n",
        token.display()
    );
    std::fs::write(folder.join("plexum.toml"), text).unwrap();
    done(
        &place,
        "create home --level 6 --member-size 16M a b c d e --assume-clean -y",
    );
    done(
        &place,
        "create old --level 1 --member-size 16M f g --assume-clean -y",
    );
    let daemon = Daemon::start(&place, "--json --scrub-every 30d");
    let told: Value = serde_json::from_str(&daemon.said).unwrap();
    let at = told["page"].as_str().unwrap().to_owned();
    done(&place, "serve a b c d e");
    done(&place, "serve f g");
    (place, daemon, at)
}

/// What of a value is not as its schema says; every field has to be described.
fn faults(value: &Value, schema: &Value, all: &Value, at: &str, found: &mut Vec<String>) {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap();
        return faults(value, &all[name], all, &format!("{at}<{name}>"), found);
    }
    if let Some(any) = schema["anyOf"].as_array() {
        let tried: Vec<Vec<String>> = any
            .iter()
            .map(|one| {
                let mut found = Vec::new();
                faults(value, one, all, at, &mut found);
                found
            })
            .collect();
        if !tried.iter().any(Vec::is_empty) {
            // What nearly fits says most.
            found.extend(tried.into_iter().max_by_key(Vec::len).unwrap_or_default());
        }
        return;
    }
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => return, // anything
    };
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_i64() || number.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    if !kinds.contains(&kind) {
        found.push(format!("{at} is {kind}, not {kinds:?}"));
        return;
    }
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        found.push(format!("{at} is {value}, none of {words:?}"));
    }
    if !schema["const"].is_null() && schema["const"] != *value {
        found.push(format!("{at} is {value}, not {}", schema["const"]));
    }
    if let Some(items) = value.as_array() {
        for item in items {
            faults(item, &schema["items"], all, &format!("{at}[]"), found);
        }
    }
    if let (Some(fields), Some(described)) = (value.as_object(), schema["properties"].as_object()) {
        for (name, value) in fields {
            match described.get(name) {
                Some(schema) => faults(value, schema, all, &format!("{at}.{name}"), found),
                None => found.push(format!("{at}.{name} is not described")),
            }
        }
        for name in schema["required"].as_array().into_iter().flatten() {
            if !fields.contains_key(name.as_str().unwrap()) {
                found.push(format!("{at}.{name} is missing"));
            }
        }
    }
}

/// Bodies of requests that this daemon can fulfil.
fn body_of(schema: &str, place: &Place, path: &str) -> Value {
    let file = |name: &str| place.file(name).display().to_string();
    match schema {
        "Acknowledge" => json!({"who": "ute", "why": "ordered"}),
        "Open" => json!({"members": [file("f"), file("g")]}),
        "NewMember" => json!({"member": file("n")}),
        "Replace" => json!({"old": file("c"), "new": file("m")}),
        "Settings" => json!({"settings": {"rebuild-max": "100M"}}),
        "Scrub" => json!({}),
        "Grow" => json!({"members": 3}),
        "DeviceWish" => json!({"remove": true}),
        "Wish" => json!({"action": "scrub", "volume": "home", "stop": true}),
        "Member" if path.contains("re-add") => json!({"member": file("b")}),
        "Member" if path.contains("remove") => json!({"member": file("b")}),
        "Member" => json!({"member": file("d")}),
        other => body_of_pool(other, file),
    }
}

/// The same of changes of the pool `tank`. Its new members are made.
fn body_of_pool(schema: &str, file: impl Fn(&str) -> String) -> Value {
    let size = 64 << 20;
    match schema {
        "PoolName" => json!({"name": "tank/v@a"}),
        "PoolNewName" => json!({"old": "tank/v@a", "new": "tank/c"}),
        "PoolNewVolume" => json!({"name": "tank/w", "size_bytes": 1 << 20}),
        "PoolSize" => json!({"name": "tank/w", "size_bytes": 2 << 20}),
        "PoolMember" => json!({"member": file("p2")}),
        "PoolAttach" => {
            json!({"side": file("p1"), "new": file("p5"), "member_size_bytes": size})
        }
        "PoolReplace" => json!({"old": file("p1"), "new": file("p6"), "member_size_bytes": size}),
        "PoolGroup" => {
            json!({"group": "mirror", "members": [file("p3"), file("p4")], "member_size_bytes": size})
        }
        "Object" => json!({}),
        other => panic!("{other} has no example"),
    }
}

/// Changes in an order in which each can be fulfilled; what changes nothing comes before.
const CHANGES: [&str; 15] = [
    "/v1/incidents/{id}/acknowledge",
    "/v1/channels/{name}/test",
    "/v1/volumes/{name}/attached",
    "/v1/volumes/{name}/set",
    "/v1/volumes/{name}/forget",
    "/v1/volumes",
    "/v1/volumes/{name}/start",
    "/v1/volumes/{name}/scrub",
    "/page/plan",
    "/page/do",
    "/v1/volumes/{name}/fail",
    "/v1/volumes/{name}/remove",
    "/v1/volumes/{name}/re-add",
    "/v1/volumes/{name}/add",
    "/v1/volumes/{name}/stop",
];

#[test]
fn every_documented_path_answers_as_documented() {
    let (place, _daemon, at) = daemon("api");
    let (code, _, text) = send(&at, "GET", "/v1/openapi.json", "");
    assert_eq!(code, 200, "{text}");
    let document: Value = serde_json::from_str(&text).unwrap();
    let schemas = &document["components"]["schemas"];
    for name in ["n", "m"] {
        place.sparse(name, 24 << 20);
    }
    done(&place, "pool create tank mirror --member-size 64M p1 p2");
    done(&place, "pool create-volume tank/v 1M p1 p2");
    done(&place, "serve --write --dataset tank/v p1 p2");
    done(&place, "pool snapshot tank/v@a");
    done(&place, "fail home b");
    done(&place, "stop old");
    let mut incident = String::new();
    wait_until(&place, "an incident is open", || {
        let (_, _, text) = send(&at, "GET", "/v1/incidents", "");
        let told: Value = serde_json::from_str(&text).unwrap();
        // One that lasts: a slow machine may have others for a moment.
        let lasts = |one: &&Value| one["name"] == "home" && one["code"] == "redundancy";
        let found = told["incidents"].as_array().unwrap().iter().find(lasts);
        let id = found.and_then(|one| one["id"].as_str());
        incident = id.unwrap_or_default().to_owned();
        !incident.is_empty()
    });
    let mut operations: Vec<(&str, &str, &Value)> = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            operations.push((path, method, operation));
        }
    }
    operations.sort_by_key(|(path, method, _)| {
        let place = CHANGES.iter().position(|one| one == path);
        (method == &"post", place.map_or(0, |place| place + 1), *path)
    });
    let mut answered = 0;
    for (path, method, operation) in operations {
        // What needs another state is tried beside: its refusal is described as well.
        let volume = if path.contains("start") || path.contains("forget") {
            "old"
        } else {
            "home"
        };
        let is_of_pool = path.starts_with("/v1/pools/");
        let name = match path.contains("channels") {
            true => "own",
            false if is_of_pool => "tank",
            false => volume,
        };
        let mut url = path.replace("{name}", name).replace("{id}", &incident);
        if path == "/v1/events" || path == "/page/live" {
            url.push_str("?follow=false");
        }
        if path == "/page/live" {
            continue; // it does not end; browsers read it
        }
        let schema =
            operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].as_str();
        let schema = schema.map(|one| one.rsplit('/').next().unwrap());
        let body = schema.map_or(String::new(), |schema| {
            body_of(schema, &place, path).to_string()
        });
        let (code, kind, text) = send(&at, &method.to_uppercase(), &url, &body);
        let answer = &operation["responses"][if code == 200 { "200" } else { "default" }];
        let content = &answer["content"][&kind];
        assert!(content.is_object(), "{method} {url}: {code} {kind} {text}");
        if kind == "application/json" {
            let value: Value = serde_json::from_str(&text).unwrap();
            let mut found = Vec::new();
            faults(&value, &content["schema"], schemas, "", &mut found);
            assert_eq!(found, Vec::<String>::new(), "{method} {url}: {text}");
        }
        // A volume of two copies does not grow, and there is no device of it to be removed.
        let states = [
            "/dry-run", "/re-add", "/replace", "/scrub", "/grow", "/device",
        ];
        let may_be_refused = is_of_pool || states.iter().any(|end| path.ends_with(end));
        assert!(code == 200 || may_be_refused, "{method} {url}: {text}");
        answered += usize::from(code == 200);
    }
    assert!(answered >= 45, "{answered}");
    let (code, kind, text) = send(&at, "GET", "/v1/nothing", "");
    assert_eq!((code, kind.as_str()), (400, "application/json"), "{text}");
}
