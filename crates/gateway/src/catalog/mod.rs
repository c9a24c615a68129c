//! What is known of models: a table, not code.

use std::sync::LazyLock;

use serde::Deserialize;

/// What is known of one model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Which names it goes by.
    pub pattern: String,
    /// Its thinking is bound to everything before it.
    #[serde(default)]
    pub preserved: bool,
    /// Its thinking is bound to the credential.
    #[serde(default)]
    pub account_bound: bool,
    /// It refuses calls of its own that come back without their signature.
    #[serde(default)]
    pub signatures_enforced: bool,
    /// Thinking modes it refuses.
    #[serde(default)]
    pub refuses: Vec<String>,
}

impl Model {
    /// Whether it takes a thinking mode.
    pub fn takes(&self, mode: &str) -> bool {
        !self.refuses.iter().any(|refused| refused == mode)
    }
}

#[derive(Deserialize)]
struct Table {
    model: Vec<Model>,
}

static MODELS: LazyLock<Vec<Model>> = LazyLock::new(|| {
    let table: Result<Table, _> = toml::from_str(include_str!("models.toml"));
    debug_assert!(table.is_ok(), "the embedded table is checked by a test");
    table.map(|table| table.model).unwrap_or_default()
});

static NOTHING_KNOWN: LazyLock<Model> = LazyLock::new(Model::default);

/// What is known of the model of this name; of most, nothing.
pub fn find(name: &str) -> &'static Model {
    MODELS
        .iter()
        .filter(|model| fits(&model.pattern, name))
        .max_by_key(|model| model.pattern.len())
        .unwrap_or(&NOTHING_KNOWN)
}

/// Whether a name fits a pattern in which `*` stands for anything.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|name| {
            (0..=name.len())
                .filter(|&at| name.is_char_boundary(at))
                .any(|at| fits(rest, &name[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_table_is_sound() {
        let table: Table = toml::from_str(include_str!("models.toml")).unwrap();
        assert!(table.model.len() > 10);
        assert!(table.model.iter().all(|model| !model.pattern.is_empty()));
    }

    #[test]
    fn the_longest_pattern_speaks_for_a_model() {
        assert!(find("claude-opus-5-5").preserved);
        assert!(find("anthropic.claude-opus-5-5-20261001-v1:0").preserved);
        assert!(!find("claude-opus-5").preserved);
        assert!(!find("claude-opus-5").takes("enabled"));
        assert!(find("claude-haiku-5-5").account_bound);
        assert!(find("glm-5").takes("enabled"));
        assert!(!find("claude-fable-5-1").takes("disabled"));
    }
}
