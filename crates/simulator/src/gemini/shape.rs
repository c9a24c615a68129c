//! Reads a body by its table: both spellings of a name become one, and problems are reported as the
//! provider's JSON reader reports them.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value};

use super::schema::LEVEL;
use crate::refusal::Refusal;
use crate::shape::Shape::{self, Closed, Integer, List, ListOf, Named, Number, Rule};
use crate::shape::{Checker, Flags, Problem, Step, bracketed};

const PACKAGE: &str = "type.googleapis.com/google.ai.generativelanguage.v1beta";

/// Signatures and data may lack padding, and trailing bits are ignored.
const TOLERANT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The bytes of base64 in either alphabet, padded or not.
pub(crate) fn bytes(text: &str) -> Option<Vec<u8>> {
    let standard = text.replace('-', "+").replace('_', "/");
    TOLERANT.decode(standard).ok()
}

/// Base64 in either alphabet.
pub(crate) const BYTES: Shape = Shape::Pattern("base64", |text| bytes(text).is_some());

/// The provider's subset of OpenAPI.
pub(crate) const SCHEMA: Shape = Rule(&Named("Schema", &Shape::Object), |schema, path| {
    check_schema(schema, &snake(&bracketed(path)))
});

/// Reads a body with its names in camelCase. Without `strict`, what does not fit stays unchanged.
pub(crate) fn read(
    body: Map<String, Value>,
    shape: &Shape,
    flags: Flags,
    strict: bool,
) -> Result<Map<String, Value>, Refusal> {
    let Value::Object(body) = normalise(body.into(), shape) else {
        return Ok(Map::new());
    };
    if strict {
        Checker { flags, null_is_absent: true, unknown_first: false, refuse }
            .check(&body, shape)?;
    }
    Ok(body)
}

/// Rewrites the forms that this provider takes for one another into one.
fn normalise(value: Value, shape: &Shape) -> Value {
    match (shape, value) {
        (Named(LEVEL, _), Value::String(word)) => word.to_uppercase().into(),
        (Named(_, inner), value) => normalise(value, inner),
        (Closed(listed), Value::Object(members)) => {
            let mut read = Map::new();
            for (key, value) in members {
                let is_named = |name: &str| name == key || snake(name) == key;
                match listed.iter().find(|member| is_named(member.name())) {
                    // To this provider null is the same as nothing.
                    Some(_) if value.is_null() => {}
                    Some(member) => {
                        read.insert(member.name().to_owned(), normalise(value, member.shape()));
                    }
                    None => {
                        read.insert(key, value);
                    }
                }
            }
            read.into()
        }
        (List(item) | ListOf(_, _, item), Value::Array(values)) => {
            values.into_iter().map(|value| normalise(value, item)).collect()
        }
        // One message where a list of them belongs is a list of one.
        (List(item @ Named(_, Closed(_))), value @ Value::Object(_)) => {
            vec![normalise(value, item)].into()
        }
        // 64-bit integers come as strings, and 7.0 is as good as 7.
        (Integer(..), Value::String(text)) => {
            text.parse::<i64>().map_or(Value::String(text), Value::from)
        }
        (Integer(..), Value::Number(number)) if number.is_f64() => {
            whole(&number).map_or(Value::Number(number), Value::from)
        }
        (_, value) => value,
    }
}

fn whole(number: &serde_json::Number) -> Option<i64> {
    let number = number.as_f64()?;
    let small = number.fract() == 0.0 && number.abs() < f64::from(i32::MAX);
    small.then_some(number as i64)
}

/// Writes a problem as the provider reports it.
fn refuse(path: &[Step<'_>], problem: &Problem<'_>) -> Refusal {
    let at = snake(&bracketed(path));
    let wrong = |expected: &Shape, found: &Value| {
        format!("Invalid value at '{at}' ({}), {found}", type_name(expected))
    };
    Refusal::invalid(match problem {
        Problem::Unknown => return unknown(path),
        Problem::Type { expected, found } => wrong(expected, found),
        Problem::Word { expected, found, .. } => wrong(expected, &Value::from(*found)),
        Problem::Pattern { found, .. } => format!(
            "Invalid value at '{at}' (TYPE_BYTES), Base64 decoding failed for {}",
            Value::from(*found)
        ),
        Problem::Range { expected, .. } => return out_of_range(path, expected),
        Problem::Length { max, .. } => {
            return out_of_bounds(path, &format!("at most {max} stop sequences are allowed"));
        }
        // No table of this dialect requires a member or has tags.
        Problem::Missing | Problem::Tag { .. } => format!("Invalid value at '{at}'"),
    })
}

fn unknown(path: &[Step<'_>]) -> Refusal {
    let (name, parent) = match path {
        [parent @ .., Step::Member(name)] => (*name, snake(&bracketed(parent))),
        parent => ("", snake(&bracketed(parent))),
    };
    unknown_name(name, &parent)
}

fn unknown_name(name: &str, path: &str) -> Refusal {
    let path = if path.is_empty() { String::new() } else { format!(" at '{path}'") };
    Refusal::invalid(format!(
        "Invalid JSON payload received. Unknown name \"{name}\"{path}: Cannot find field."
    ))
}

fn out_of_range(path: &[Step<'_>], expected: &Shape) -> Refusal {
    let name = match path.last() {
        Some(Step::Member("candidateCount")) => {
            return Refusal::invalid("Multiple candidates is not enabled for this model");
        }
        Some(Step::Member(name)) => snake(name),
        _ => String::new(),
    };
    match expected {
        Number(min, max) if *max < f64::MAX => {
            out_of_bounds(path, &format!("{name} must be in the range [{min}, {max}]"))
        }
        _ => out_of_bounds(path, &format!("{name} must be positive")),
    }
}

/// The service checks bounds after the JSON reader, and its errors name the request type.
fn out_of_bounds(path: &[Step<'_>], message: &str) -> Refusal {
    let at = snake(&bracketed(path));
    let at = at.strip_prefix("generate_content_request.").unwrap_or(&at);
    Refusal::invalid(format!("* GenerateContentRequest.{at}: {message}"))
}

fn type_name(shape: &Shape) -> String {
    match shape {
        Shape::Text => "TYPE_STRING".to_owned(),
        Shape::Boolean => "TYPE_BOOL".to_owned(),
        Number(..) => "TYPE_FLOAT".to_owned(),
        Integer(..) => "TYPE_INT32".to_owned(),
        Shape::Pattern(..) => "TYPE_BYTES".to_owned(),
        Shape::Object => "type.googleapis.com/google.protobuf.Struct".to_owned(),
        Named(name, _) => format!("{PACKAGE}.{name}"),
        List(inner) | ListOf(_, _, inner) | Rule(inner, _) => type_name(inner),
        _ => "type.googleapis.com/google.protobuf.Value".to_owned(),
    }
}

/// The provider's schemas have no references, nor any other member that starts with `$`.
fn check_schema(schema: &Value, path: &str) -> Result<(), Refusal> {
    let Some(members) = schema.as_object() else {
        return Ok(());
    };
    for (key, value) in members {
        if key.starts_with('$') {
            return Err(unknown_name(key, path));
        }
        let path = below(path, &snake(key));
        match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                for (at, property) in properties.values().enumerate() {
                    check_schema(property, &format!("{path}[{at}].value"))?;
                }
            }
            ("items", item) => check_schema(item, &path)?,
            (_, Value::Array(items)) if key.ends_with("Of") || key.ends_with("_of") => {
                for (at, item) in items.iter().enumerate() {
                    check_schema(item, &format!("{path}[{at}]"))?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// `thinkingConfig` as `thinking_config`.
pub(crate) fn snake(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::super::schema::{GENERATE, IN_PATH};
    use super::*;
    use serde_json::json;

    fn read_strictly(body: Value) -> Result<Value, String> {
        let Value::Object(body) = body else {
            panic!("no object");
        };
        let read = read(body, &GENERATE, IN_PATH, true);
        read.map(Value::from).map_err(|refusal| refusal.message)
    }

    #[test]
    fn both_spellings_become_camel_case_and_free_objects_stay_unchanged() {
        let args = json!({"snake_key": null, "camelKey": 1});
        let read = read_strictly(json!({
            "system_instruction": {"parts": {"text": "x"}},
            "contents": {"parts": [{"function_call": {"name": "f", "args": args}}]},
            "generationConfig": {"max_output_tokens": "12", "seed": null, "topK": 4, "logprobs": 2.0,
                "thinking_config": {"thinkingLevel": "low"}},
        }));
        let expected = json!({
            "systemInstruction": {"parts": [{"text": "x"}]},
            "contents": [{"parts": [{"functionCall": {"name": "f", "args": args}}]}],
            "generationConfig": {"maxOutputTokens": 12, "topK": 4, "logprobs": 2, "thinkingConfig": {"thinkingLevel": "LOW"}},
        });
        assert_eq!(read, Ok(expected));
    }
}
