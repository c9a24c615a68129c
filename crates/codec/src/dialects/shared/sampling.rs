//! Sampling settings and stop sequences, as OpenAI-shaped requests write them.

use serde_json::Value;
use throughline_canonical::{Fault, Sampling};

use super::fields::count;
use crate::json::Node;

/// Reads the sampling settings. Mistral calls the seed `random_seed`.
pub(crate) fn read_sampling(root: &Node<'_>) -> Result<Sampling, Fault> {
    let number = |name: &str| -> Result<Option<f64>, Fault> {
        root.get(name).map(|member| member.number()).transpose()
    };
    let seed = |name: &str| -> Result<Option<i64>, Fault> {
        let Some(member) = root.get(name) else {
            return Ok(None);
        };
        let whole = member.value().as_i64();
        whole.map(Some).ok_or_else(|| member.wrong("a whole number"))
    };
    Ok(Sampling {
        temperature: number("temperature")?,
        top_p: number("top_p")?,
        top_k: count(root, "top_k")?,
        seed: seed("seed")?.or(seed("random_seed")?),
        presence_penalty: number("presence_penalty")?,
        frequency_penalty: number("frequency_penalty")?,
    })
}

/// Reads `stop`: one string, or a list of them.
pub(crate) fn read_stop(root: &Node<'_>) -> Result<Vec<String>, Fault> {
    let Some(stop) = root.get("stop") else {
        return Ok(Vec::new());
    };
    match stop.value() {
        Value::String(text) => Ok(vec![text.clone()]),
        Value::Array(_) => {
            stop.elements()?.map(|element| element.text().map(str::to_owned)).collect()
        }
        _ => Err(stop.wrong("a string or a list of strings")),
    }
}
