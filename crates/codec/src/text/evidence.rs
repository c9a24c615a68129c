//! What is known before a text begins, and what follows from it.
//!
//! The order in which it counts, the first that says something first:
//!
//! | evidence | says |
//! |---|---|
//! | the worker's flag on a piece | that this piece is reasoning: [`Reader::push_reasoning`](super::Reader::push_reasoning) |
//! | the family that was configured | how to read, and whether the text begins inside reasoning |
//! | the model's name | the same, by the table of families |
//! | the request's `thinking` | `false`: the text does not begin inside reasoning; `true`: look for tags even in a family that has none |
//! | a name that promises reasoning | look for tags even in a family that has none |
//! | markers in the text | what they mark |

use super::recipe::{Recipe, UnknownName};

/// What is known before a text begins.
#[derive(Clone, Copy, Debug, Default)]
pub struct Evidence<'a> {
    /// The family that was configured; `auto` or `None` goes by the model, `none` looks for nothing.
    pub family: Option<&'a str>,
    /// The model's name.
    pub model: &'a str,
    /// Whether the request asked for thinking.
    pub thinking: Option<bool>,
}

impl Evidence<'_> {
    /// How to read the text.
    pub fn recipe(&self) -> Result<Recipe, UnknownName> {
        let mut recipe = match self.family {
            Some("none") => return Ok(Recipe::default()),
            None | Some("auto") => Recipe::for_model(self.model),
            Some(family) => Recipe::family(family)?,
        };
        let promised = self.thinking == Some(true) || promises_reasoning(self.model);
        if recipe.reasoning.is_none() && promised {
            recipe.reasoning = Recipe::named(Some("plain"), &[])?.reasoning;
        }
        if self.thinking == Some(false) {
            recipe.implicit = false;
        }
        Ok(recipe)
    }
}

/// Whether a model is known to reason by its name alone.
pub fn promises_reasoning(model: &str) -> bool {
    let model = model.to_ascii_lowercase();
    // Names may come with the organisation they are from.
    let name = model.rsplit('/').next().unwrap_or(&model);
    name.starts_with("deepseek-r1")
        || name.starts_with("qwq-")
        || name == "qwq"
        || name.contains("reasoning")
        || name.contains("thinking")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Covers: S2-13
    #[test]
    fn names_promise_reasoning() {
        let reasons = [
            "deepseek-r1",
            "DeepSeek-R1-Distill-Qwen-32B",
            "deepseek-ai/DeepSeek-R1-0528",
            "qwq-32b",
            "Qwen/QwQ-32B-Preview",
            "ministral-3-14b-reasoning",
            "Qwen3-30B-A3B-Thinking-2507",
            "phi-4-reasoning-plus",
        ];
        for model in reasons {
            assert!(promises_reasoning(model), "{model}");
        }
        for model in ["gpt-4o", "llama-3.3-70b", "deepseek-v3", "mistral-large", ""] {
            assert!(!promises_reasoning(model), "{model}");
        }
    }

    /// Covers: S2-14, S2-17, C-10
    #[test]
    fn evidence_counts_in_its_order() {
        // family, model, thinking: tag set, whether the text begins inside reasoning
        type Row = (Option<&'static str>, &'static str, Option<bool>, Option<&'static str>, bool);
        let rows: &[Row] = &[
            // What was configured counts before the model's name.
            (Some("none"), "deepseek-r1", Some(true), None, false),
            (Some("deepseek-r1"), "llama-3-8b", None, Some("think"), true),
            (Some("mistral"), "deepseek-r1", Some(false), Some("plain"), false),
            // The name counts before the request's flag.
            (None, "deepseek-r1", None, Some("think"), true),
            (Some("auto"), "deepseek-r1", Some(true), Some("think"), true),
            (None, "Qwen3-8B", Some(true), Some("think"), false),
            (None, "ministral-3-8b-reasoning", None, Some("mistral"), false),
            // The flag says no: the template did not open the tag.
            (None, "deepseek-r1", Some(false), Some("think"), false),
            // The flag says yes, or the name promises: tags are looked for in any family.
            (None, "llama-3-8b", None, None, false),
            (None, "llama-3-8b", Some(true), Some("plain"), false),
            (None, "llama-3-8b-thinking", None, Some("plain"), false),
            // The text of unknown models is searched for markers.
            (None, "someones-model", None, Some("plain"), false),
            (None, "", Some(false), Some("plain"), false),
        ];
        for &(family, model, thinking, tags, implicit) in rows {
            let evidence = Evidence { family, model, thinking };
            let recipe = evidence.recipe().unwrap();
            let found = (recipe.reasoning.map(|tags| tags.name), recipe.implicit);
            assert_eq!(found, (tags, implicit), "{evidence:?}");
        }
        let unknown = Evidence { family: Some("qwen-3"), ..Evidence::default() };
        let message = unknown.recipe().unwrap_err().to_string();
        assert!(message.contains("did you mean `qwen3`"), "{message}");
        assert!(message.contains("gpt-oss"), "{message}");
    }
}
