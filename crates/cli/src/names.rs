//! Names of workloads beside what the scheduler sends as JSON, where keys stand alone.

use serde_json::Value;
use std::collections::HashMap;

/// Names by key, as the scheduler tells them.
pub type Names = HashMap<String, String>;

/// Puts `workload_name` beside every `workload` of which the name is told.
pub fn insert(value: &mut Value, names: &Names) {
    match value {
        Value::Array(elements) => {
            for element in elements {
                insert(element, names);
            }
        }
        Value::Object(fields) => {
            for field in fields.values_mut() {
                insert(field, names);
            }
            let key = fields.get("workload").and_then(Value::as_str);
            if let Some(name) = key.and_then(|key| names.get(key)).cloned() {
                fields.insert("workload_name".to_owned(), Value::String(name));
            }
        }
        _ => {}
    }
}

/// The name of a workload; its key where none is told.
pub fn of<'a>(key: &'a str, names: &'a Names) -> &'a str {
    names.get(key).map_or(key, String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_name_stands_beside_each_key_that_has_one() {
        let names = Names::from([("alice/aa71".to_owned(), "alice/bert".to_owned())]);
        let mut value = json!({ "members": [{ "workload": "alice/aa71", "of": { "workload": "" } }, { "workload": "b/c" }] });
        insert(&mut value, &names);
        let expected = json!({ "members": [
            { "workload": "alice/aa71", "workload_name": "alice/bert", "of": { "workload": "" } },
            { "workload": "b/c" },
        ] });
        assert_eq!(value, expected);
        assert_eq!((of("alice/aa71", &names), of("b/c", &names)), ("alice/bert", "b/c"));
    }
}
