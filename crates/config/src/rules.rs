//! What a value must hold: type, range, words, and the rules on texts that JSON Schema has no word for.

use serde_json::Value;
use toml::de::{DeString, DeValue};

/// The longest path of a Unix socket.
const SOCKET_PATH_LENGTH_MAX: usize = 107;

/// A rule on a text, and what it allows in words.
type Rule = (fn(&str) -> bool, &'static str);

fn rule(name: &str) -> Option<Rule> {
    Some(match name {
        "absolute-path" => (is_absolute, "an absolute path"),
        "socket-path" => (is_socket_path, "an absolute path of at most 107 bytes"),
        "name" => (is_name, "letters, digits, dots, underscores and dashes"),
        "scheduler-addresses" => {
            (is_scheduler_addresses, "https://HOST:PORT, several with commas between them")
        }
        "http-url" => (is_plain_http, "http://HOST:PORT/PATH"),
        "postgres-url" => (is_postgres, "postgres://USER:PASSWORD@HOST/DATABASE"),
        "socket-address" => (is_socket_address, "an address and a port such as \"127.0.0.1:6820\""),
        _ => return None,
    })
}

fn is_absolute(text: &str) -> bool {
    text.starts_with('/')
}

/// As [`is_absolute`]; `%n` grows when it becomes the node's name, and is measured once more then.
pub(crate) fn is_socket_path(text: &str) -> bool {
    is_absolute(text) && text.len() <= SOCKET_PATH_LENGTH_MAX
}

pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// Whether it names a host to be asked without TLS.
fn is_plain_http(text: &str) -> bool {
    let uri: Result<http::Uri, _> = text.parse();
    uri.is_ok_and(|uri| uri.scheme_str() == Some("http") && uri.host().is_some_and(|host| !host.is_empty()))
}

/// The schedulers that a text names, host and port each, in the order in which they are tried: `https://HOST:PORT`, with commas
/// between them. Earlier releases wrote `http://`; it means the same, for what is spoken is decided by `auth.method` alone.
pub fn scheduler_addresses(text: &str) -> Option<Vec<(String, u16)>> {
    text.split(',').map(scheduler_address).collect()
}

fn scheduler_address(text: &str) -> Option<(String, u16)> {
    let uri: http::Uri = text.trim().parse().ok()?;
    let host = uri.host().filter(|host| !host.is_empty())?.trim_matches(['[', ']']).to_owned();
    let is_bare = uri.path_and_query().is_none_or(|path| path.as_str() == "/");
    let is_known = is_bare && matches!(uri.scheme_str(), Some("https" | "http"));
    Some((host, uri.port_u16()?)).filter(|_| is_known)
}

fn is_scheduler_addresses(text: &str) -> bool {
    scheduler_addresses(text).is_some()
}

/// Whether a name leads to this very machine, by what it says: `localhost` and the loopback addresses.
pub fn is_loopback_host(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn is_postgres(text: &str) -> bool {
    ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme))
}

fn is_socket_address(text: &str) -> bool {
    text.parse::<std::net::SocketAddr>().is_ok()
}

/// What a key may hold, in words: `10 to 3600`.
pub(crate) fn allowed(schema: &Value) -> String {
    if let Some(words) = schema["enum"].as_array() {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        return match words.split_last() {
            Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
            _ => words.concat(),
        };
    }
    let of_rule = schema["x-rule"].as_str().and_then(rule).map(|(_, words)| words);
    if schema["x-rule"] == "positive" {
        return "a number greater than 0".to_owned();
    }
    let count = if schema["minItems"] == 1 { "a list, not empty, of" } else { "a list of" };
    match kind(schema) {
        "array" if schema["items"]["type"] == "integer" => format!("{count} whole numbers, [1000, 1001]"),
        "array" => format!("{count} {}, [\"a\", \"b\"]", of_rule.map_or("texts", |_| "names")),
        "object" if schema["additionalProperties"]["enum"].is_array() => {
            format!("a table of words, each {}", allowed(&schema["additionalProperties"]))
        }
        "object" => "a table of lists, name = [\"a\", \"b\"]".to_owned(),
        "boolean" => "true or false".to_owned(),
        "string" => of_rule.unwrap_or("a text in quotes").to_owned(),
        kind => match (schema["minimum"].as_f64(), schema["maximum"].as_f64()) {
            (Some(least), Some(most)) => format!("{least} to {most}"),
            _ if kind == "integer" => "a whole number".to_owned(),
            _ => "a number".to_owned(),
        },
    }
}

/// The type, without the null of what may be absent.
fn kind(schema: &Value) -> &str {
    let types = schema["type"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of_several = types.iter().filter_map(Value::as_str).find(|name| *name != "null");
    schema["type"].as_str().or(of_several).unwrap_or_default()
}

/// Whether a value may stand there.
pub(crate) fn holds(schema: &Value, value: &DeValue<'_>) -> bool {
    match (kind(schema), value) {
        ("boolean", DeValue::Boolean(_)) => true,
        ("string", DeValue::String(text)) => holds_text(schema, text),
        ("integer", DeValue::Integer(_)) => number(value).is_some_and(|number| is_within(schema, number)),
        ("number", DeValue::Integer(_) | DeValue::Float(_)) => {
            number(value).is_some_and(|number| is_within(schema, number))
        }
        ("array", DeValue::Array(items)) => {
            let least = schema["minItems"].as_u64().unwrap_or(0);
            let mut items_fit = items.iter().map(|item| match item.get_ref() {
                DeValue::String(text) => holds(&schema["items"], item.get_ref()) && holds_text(schema, text),
                other => holds(&schema["items"], other),
            });
            items.len() as u64 >= least && items_fit.all(|fits| fits)
        }
        ("object", DeValue::Table(entries)) => {
            entries.iter().all(|(_, entry)| holds(&schema["additionalProperties"], entry.get_ref()))
        }
        _ => false,
    }
}

fn holds_text(schema: &Value, text: &DeString<'_>) -> bool {
    let is_word =
        schema["enum"].as_array().is_none_or(|words| words.iter().any(|word| word == text.as_ref()));
    is_word && schema["x-rule"].as_str().and_then(rule).is_none_or(|(holds, _)| holds(text))
}

/// A finite number within its bounds; a whole one keeps its value up to 2^53.
fn is_within(schema: &Value, number: f64) -> bool {
    let least = schema["minimum"].as_f64().is_none_or(|least| number >= least);
    let most = schema["maximum"].as_f64().is_none_or(|most| number <= most);
    let fits_kind = schema["format"] != "uint32" || number <= f64::from(u32::MAX);
    number.is_finite() && least && most && fits_kind && (schema["x-rule"] != "positive" || number > 0.0)
}

#[expect(clippy::cast_precision_loss, reason = "it is compared with bounds far below 2^53")]
fn number(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Integer(integer) => {
            i64::from_str_radix(integer.as_str(), integer.radix()).ok().map(|it| it as f64)
        }
        DeValue::Float(float) => float.as_str().parse().ok(),
        _ => None,
    }
}
