//! `GET /v1/openapi.json`: the routes as an OpenAPI document, made from the table of routes.
//!
//! Invariant: what a route takes and gives is named in the table, and its schema is in `schemas.json`, which the tests
//! hold against the types themselves.

use serde_json::{Map, Value, json};

use super::route::{Out, Route};

/// Schemas of what goes in and comes out.
const SCHEMAS: &str = include_str!("schemas.json");

/// The schemas, by name.
pub(super) fn schemas() -> Map<String, Value> {
    serde_json::from_str(SCHEMAS).unwrap_or_default()
}

/// The document of a table of routes.
pub(super) fn document(table: &[Route]) -> Value {
    let mut paths = Map::new();
    for route in table {
        let methods = paths
            .entry(route.path)
            .or_insert_with(|| Value::Object(Map::new()));
        methods[route.method.as_str().to_ascii_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Plexum",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The daemon that owns the volumes of this machine. On its Unix socket the kernel says who asks; \
                over a network a token does. Fields are only added, never renamed or removed.",
            "license": {"name": "MIT OR Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    })
}

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

fn operation(route: &Route) -> Value {
    let in_path = route.path.split('/').filter_map(|part| {
        let name = part.strip_prefix('{')?.strip_suffix('}')?;
        Some(json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
    });
    let in_query = route.query.iter().map(|one| {
        json!({"name": one.name, "in": "query", "required": false, "description": one.what,
            "schema": {"type": one.kind}})
    });
    let content = match route.out {
        Out::Json(schema) => json!({"application/json": {"schema": reference(schema)}}),
        Out::Text(kind) => json!({kind: {"schema": {"type": "string"}}}),
        Out::Events(schema) => json!({
            "text/event-stream": {"schema": {"type": "string", "description": format!("data: {schema}")}},
            "application/json": {"schema": reference("Object")},
        }),
    };
    let role = route.role.map(super::access::Role::word);
    let mut operation = json!({
        "operationId": name_of(route),
        "summary": route.what,
        "x-role": role,
        "parameters": in_path.chain(in_query).collect::<Vec<_>>(),
        "responses": {
            "200": {"description": "done", "content": content},
            "default": {"description": "why not", "content": {"application/json": {"schema": reference("Refusal")}}},
        },
    });
    if route.role.is_some() {
        operation["security"] = json!([{"token": []}, {}]);
    }
    if let Some(schema) = route.body {
        let must = match schemas()[schema]["required"].as_array() {
            Some(required) => !required.is_empty(),
            None => false,
        };
        operation["requestBody"] = json!({"required": must, "content": {"application/json": {"schema": reference(schema)}}});
    }
    operation
}

/// A name for programs that are made from the document: `get_volumes_name_stats`.
fn name_of(route: &Route) -> String {
    let words = route.path.split(['/', '{', '}', '-', '.']);
    let words: Vec<&str> = words
        .filter(|word| !word.is_empty() && *word != "v1")
        .collect();
    let method = route.method.as_str().to_ascii_lowercase();
    match words.is_empty() {
        true => format!("{method}_page"),
        false => format!("{method}_{}", words.join("_")),
    }
}
