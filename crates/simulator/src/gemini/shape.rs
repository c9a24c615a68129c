//! Reading a body by its table: both spellings of a name become one, and what does not fit is
//! refused in the words of the provider's JSON reader.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value};

use super::schema::{LEVEL, Message, Shape};
use crate::refusal::Refusal;

const PACKAGE: &str = "type.googleapis.com/google.ai.generativelanguage.v1beta";

/// Signatures and data come with padding or without, and nobody minds the last bits.
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

/// Reads a body with its names in camelCase. Without `strict`, what does not fit stays as it is.
pub(crate) fn read(
    body: Map<String, Value>,
    message: &Message,
    strict: bool,
) -> Result<Map<String, Value>, Refusal> {
    Reader { strict }.message(body, message, "")
}

struct Reader {
    strict: bool,
}

impl Reader {
    fn message(
        &self,
        body: Map<String, Value>,
        message: &Message,
        path: &str,
    ) -> Result<Map<String, Value>, Refusal> {
        let mut read = Map::new();
        for (key, value) in body {
            let found = message.members.iter().find(|(name, _)| *name == key || snake(name) == key);
            let Some((name, shape)) = found else {
                if self.strict {
                    return Err(unknown(&key, path));
                }
                read.insert(key, value);
                continue;
            };
            // To this reader null is the same as nothing.
            if value.is_null() {
                continue;
            }
            let below = below(path, &snake(name));
            read.insert((*name).to_owned(), self.value(value, shape, &below)?);
        }
        Ok(read)
    }

    fn value(&self, value: Value, shape: &Shape, path: &str) -> Result<Value, Refusal> {
        let fits = match (shape, value) {
            (Shape::Message(message), Value::Object(members)) => {
                return Ok(self.message(members, message, path)?.into());
            }
            (Shape::List(item), Value::Array(values)) => {
                let values = values.into_iter().enumerate();
                let read =
                    values.map(|(at, value)| self.value(value, item, &format!("{path}[{at}]")));
                return read.collect::<Result<Vec<_>, _>>().map(Value::from);
            }
            // One message where a list of them belongs is a list of one.
            (Shape::List(item @ Shape::Message(_)), value @ Value::Object(_)) => {
                return Ok(vec![self.value(value, item, &format!("{path}[0]"))?].into());
            }
            (Shape::Integer, Value::String(text)) => match text.parse::<i64>() {
                Ok(number) => return Ok(number.into()),
                Err(_) => Err(Value::String(text)),
            },
            (Shape::Word(LEVEL, _), Value::String(word)) => {
                self.word(Value::String(word.to_uppercase()), shape)
            }
            (Shape::Word(..), word) => self.word(word, shape),
            (Shape::Bytes, Value::String(text)) => {
                if self.strict && bytes(&text).is_none() {
                    let text = Value::String(text);
                    return Err(Refusal::invalid(format!(
                        "Invalid value at '{path}' (TYPE_BYTES), Base64 decoding failed for {text}"
                    )));
                }
                Ok(Value::String(text))
            }
            (Shape::Schema, value @ Value::Object(_)) => {
                if self.strict {
                    check_schema(&value, path)?;
                }
                Ok(value)
            }
            (Shape::Any, value)
            | (Shape::Text, value @ Value::String(_))
            | (Shape::Flag, value @ Value::Bool(_))
            | (Shape::Number, value @ Value::Number(_))
            | (Shape::Struct, value @ Value::Object(_)) => Ok(value),
            (Shape::Integer, value) if value.is_i64() || value.is_u64() => Ok(value),
            (Shape::Integer, Value::Number(number)) => match whole(&number) {
                Some(whole) => return Ok(whole.into()),
                None => Err(Value::Number(number)),
            },
            (_, value) => Err(value),
        };
        match fits {
            Ok(value) => Ok(value),
            Err(value) if !self.strict => Ok(value),
            Err(value) => Err(wrong(&value, shape, path)),
        }
    }

    fn word(&self, value: Value, shape: &Shape) -> Result<Value, Value> {
        match shape {
            Shape::Word(_, words) if value.as_str().is_some_and(|word| words.contains(&word)) => {
                Ok(value)
            }
            _ => Err(value),
        }
    }
}

/// `7.0` is as good as `7`.
fn whole(number: &serde_json::Number) -> Option<i64> {
    let number = number.as_f64()?;
    let small = number.fract() == 0.0 && number.abs() < f64::from(i32::MAX);
    small.then_some(number as i64)
}

fn unknown(key: &str, path: &str) -> Refusal {
    let place = match path {
        "" => String::new(),
        path => format!(" at '{path}'"),
    };
    Refusal::invalid(format!(
        "Invalid JSON payload received. Unknown name \"{key}\"{place}: Cannot find field."
    ))
}

fn wrong(value: &Value, shape: &Shape, path: &str) -> Refusal {
    Refusal::invalid(format!("Invalid value at '{path}' ({}), {value}", type_name(shape)))
}

fn type_name(shape: &Shape) -> String {
    match shape {
        Shape::Text => "TYPE_STRING".to_owned(),
        Shape::Flag => "TYPE_BOOL".to_owned(),
        Shape::Number => "TYPE_FLOAT".to_owned(),
        Shape::Integer => "TYPE_INT32".to_owned(),
        Shape::Bytes => "TYPE_BYTES".to_owned(),
        Shape::Struct => "type.googleapis.com/google.protobuf.Struct".to_owned(),
        Shape::Any => "type.googleapis.com/google.protobuf.Value".to_owned(),
        Shape::Schema => format!("{PACKAGE}.Schema"),
        Shape::Word(name, _) => format!("{PACKAGE}.{name}"),
        Shape::Message(message) => format!("{PACKAGE}.{}", message.name),
        Shape::List(item) => type_name(item),
    }
}

/// The provider's schemas know no references and no other members of JSON Schema with a `$`.
fn check_schema(schema: &Value, path: &str) -> Result<(), Refusal> {
    let Some(members) = schema.as_object() else {
        return Ok(());
    };
    for (key, value) in members {
        if key.starts_with('$') {
            return Err(unknown(key, path));
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
    use super::super::schema::GENERATE;
    use super::*;
    use serde_json::json;

    fn read_strictly(body: Value) -> Result<Value, String> {
        let Value::Object(body) = body else {
            panic!("no object");
        };
        let read = read(body, &GENERATE, true);
        read.map(Value::from).map_err(|refusal| refusal.message)
    }

    #[test]
    fn both_spellings_become_one_and_free_objects_stay() {
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

    #[test]
    fn base64_is_read_in_either_alphabet() {
        let expected = Some(vec![0xfb, 0xef, 0xff, 1]);
        for text in ["++//AQ==", "--__AQ==", "--__AQ", "++//AQ"] {
            assert_eq!(bytes(text), expected, "{text}");
        }
        assert_eq!(bytes("no base64!"), None);
    }
}
