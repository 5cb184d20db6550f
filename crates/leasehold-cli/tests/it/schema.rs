//! The JSON Schema of the output, and the page that describes it.

use boon::{Compiler, Schemas};
use serde_json::Value;

const SCHEMA: &str = include_str!("../../../../docs/schema/leasehold.json");
const PAGE: &str = include_str!("../../../../docs/json.md");

/// Parses the output of a command, which its definition in the schema must describe: all keys, and no others, in the
/// order of the schema.
#[track_caller]
pub(crate) fn checked(definition: &str, text: &str) -> Value {
    let output = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    if let Err(fault) = validate(&format!("#/$defs/{definition}"), &output) {
        panic!("{fault}: {text}");
    }
    // Nor is it the output of another command.
    assert_eq!(validate("", &output), Ok(()));
    let known = required(&serde_json::from_str(SCHEMA).unwrap());
    for keys in keys_of_objects(text) {
        assert!(known.contains(&keys), "{keys:?} of {text}");
    }
    output
}

/// Validates an object by a part of the schema, which is also checked.
fn validate(part: &str, output: &Value) -> Result<(), String> {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let id = schema["$id"].as_str().unwrap().to_owned();
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    compiler.enable_format_assertions();
    compiler.add_resource(&id, schema).unwrap();
    let part = compiler
        .compile(&format!("{id}{part}"), &mut schemas)
        .unwrap();
    let result = schemas.validate(output, part);
    result.map_err(|fault| format!("{fault:#}"))
}

/// The lists of required keys of a schema.
fn required(schema: &Value) -> Vec<Vec<String>> {
    let nested: Vec<&Value> = match schema {
        Value::Object(object) => object.values().collect(),
        Value::Array(array) => array.iter().collect(),
        _ => return Vec::new(),
    };
    let mut lists: Vec<_> = nested.into_iter().flat_map(required).collect();
    if let Some(Value::Array(keys)) = schema.get("required") {
        let keys = keys.iter().map(|key| key.as_str().unwrap().to_owned());
        lists.push(keys.collect());
    }
    lists
}

/// The keys of each object in a JSON text, in their order.
fn keys_of_objects(text: &str) -> Vec<Vec<String>> {
    let (mut open, mut closed) = (Vec::<Vec<String>>::new(), Vec::new());
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}', '"']) {
        rest = &rest[at..];
        let mut length = 1;
        if rest.starts_with('{') {
            open.push(Vec::new());
        } else if rest.starts_with('}') {
            closed.push(open.pop().unwrap());
        } else {
            let mut strings = serde_json::Deserializer::from_str(rest).into_iter::<String>();
            let string = strings.next().unwrap().unwrap();
            length = strings.byte_offset();
            if rest[length..].trim_start().starts_with(':') {
                open.last_mut().unwrap().push(string);
            }
        }
        rest = &rest[length..];
    }
    closed
}

#[test]
fn the_schema_refuses_other_keys_and_values() {
    let free = r#"{"store": "memory:", "name": "a", "held": false, "lock": null}"#;
    let validate = |text: &str| validate("#/$defs/show", &serde_json::from_str(text).unwrap());
    assert_eq!(validate(free), Ok(()));
    for (from, to) in [
        ("false", "true"),
        (r#", "lock": null"#, ""),
        ("null", "null, \"more\": 1"),
        ("\"a\"", "\"\""),
    ] {
        let other = free.replace(from, to);
        assert!(other != free && validate(&other).is_err(), "{other}");
    }
}

#[test]
fn the_examples_of_the_page_are_valid() {
    let (_, page) = PAGE.split_once("\n## ").unwrap();
    let mut seen = Vec::new();
    for section in page.split("\n## ") {
        let mut blocks = section.split("```json\n").skip(1);
        let Some(example) = blocks.next() else {
            continue;
        };
        assert!(blocks.next().is_none(), "one example for a section");
        let (example, _) = example.split_once("```").unwrap();
        let heading = section.lines().next().unwrap().trim_matches('`');
        let definition = match heading {
            "Errors" => "error".to_owned(),
            "jobs --reset" => "jobs_reset".to_owned(),
            command => command.replace(' ', "_"),
        };
        checked(&definition, example);
        seen.push(definition);
    }
    let all = "ls show release leader watch jobs jobs_reset doctor watchdog_status hold error";
    assert_eq!(seen.join(" "), all);
}

#[test]
fn the_page_names_every_value_of_a_list() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    for path in [
        "/$defs/error/properties/error/properties/kind/enum",
        "/$defs/severity/enum",
        "/$defs/monitored_client/properties/state/enum",
        "/$defs/hold/properties/event/enum",
        "/$defs/hold/properties/cause/enum",
    ] {
        let values = schema.pointer(path).unwrap().as_array().unwrap();
        // A null is not a name.
        for value in values.iter().filter_map(Value::as_str) {
            let code = format!("`{value}`");
            assert!(PAGE.contains(&code), "{code}");
        }
    }
}
