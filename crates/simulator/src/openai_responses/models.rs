//! The models: which efforts each one supports, its default effort, and which sampling settings it
//! refuses.
//!
//! The values are those that the provider's refusals list (published measurements of 2026). Any
//! other name is another vendor's model, which supports everything.

/// All efforts.
pub(crate) const EFFORTS: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// The rules of a model.
#[derive(Debug)]
pub(crate) struct Model {
    /// Models of one family accept each other's reasoning.
    pub(crate) family: &'static str,
    /// The supported efforts; empty if the model does not reason.
    pub(crate) efforts: &'static [&'static str],
    /// The default effort.
    pub(crate) default_effort: &'static str,
    /// Sampling settings are refused while it reasons.
    pub(crate) refuses_sampling: bool,
}

/// A row: the start of a name, another part it must contain, and the model.
struct Row {
    starts: &'static str,
    contains: &'static str,
    model: Model,
}

const fn row(
    starts: &'static str,
    contains: &'static str,
    family: &'static str,
    efforts: &'static [&'static str],
    default_effort: &'static str,
) -> Row {
    Row {
        starts,
        contains,
        model: Model { family, efforts, default_effort, refuses_sampling: false },
    }
}

/// The first row that fits a name counts.
static ROWS: &[Row] = &[
    Row {
        starts: "gpt-6",
        contains: "",
        model: Model {
            family: "gpt-6",
            efforts: &["none", "low", "medium", "high", "xhigh", "max"],
            default_effort: "medium",
            refuses_sampling: true,
        },
    },
    row("gpt-5-", "pro", "gpt-5", &["high"], "high"),
    row("gpt-5-", "codex", "gpt-5", &["low", "medium", "high"], "medium"),
    row("gpt-5.1", "codex-max", "gpt-5", &["low", "medium", "high", "xhigh"], "medium"),
    row("gpt-5.1", "codex", "gpt-5", &["low", "medium", "high"], "medium"),
    row("gpt-5.1", "", "gpt-5", &["none", "low", "medium", "high"], "none"),
    row("gpt-5.", "pro", "gpt-5", &["medium", "high", "xhigh"], "medium"),
    row("gpt-5.", "codex", "gpt-5", &["low", "medium", "high", "xhigh"], "medium"),
    row("gpt-5.2", "", "gpt-5", &["none", "low", "medium", "high", "xhigh"], "none"),
    row("gpt-5.4", "", "gpt-5", &["none", "low", "medium", "high", "xhigh"], "none"),
    row("gpt-5.5", "", "gpt-5", &["none", "low", "medium", "high", "xhigh"], "medium"),
    row("gpt-5.", "", "gpt-5", &["none", "low", "medium", "high", "xhigh", "max"], "medium"),
    row("gpt-5", "", "gpt-5", &["minimal", "low", "medium", "high"], "medium"),
    row("o1", "", "o", &["low", "medium", "high"], "medium"),
    row("o3", "", "o", &["low", "medium", "high"], "medium"),
    row("o4", "", "o", &["low", "medium", "high"], "medium"),
    row("gpt-4", "", "gpt-4", &[], "none"),
    row("gpt-3", "", "gpt-4", &[], "none"),
    row("chatgpt-", "", "gpt-4", &[], "none"),
    // Models that no table of a gateway knows.
    row("few-efforts", "", "open", &["low", "medium", "high"], "medium"),
    row("never-thinks", "", "open", &[], "none"),
    row("", "", "open", EFFORTS, "medium"),
];

impl Model {
    /// The rules for a model name, which may start with a provider and a slash.
    pub(crate) fn named(name: &str) -> &'static Self {
        static UNKNOWN: Model = Model {
            family: "open",
            efforts: EFFORTS,
            default_effort: "medium",
            refuses_sampling: false,
        };
        let bare = name.rsplit('/').next().unwrap_or_default();
        let fits = |row: &&Row| bare.starts_with(row.starts) && bare.contains(row.contains);
        ROWS.iter().find(fits).map_or(&UNKNOWN, |row| &row.model)
    }

    /// Whether the model can reason.
    pub(crate) fn reasons(&self) -> bool {
        !self.efforts.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_name_selects_the_efforts() {
        for (name, first, last, default_effort) in [
            ("gpt-6.1-sol", "none", "max", "medium"),
            ("gpt-5", "minimal", "high", "medium"),
            ("gpt-5-mock", "minimal", "high", "medium"),
            ("gpt-5-pro", "high", "high", "high"),
            ("gpt-5.1", "none", "high", "none"),
            ("gpt-5.3-codex", "low", "xhigh", "medium"),
            ("openai/gpt-5.5", "none", "xhigh", "medium"),
            ("gpt-5.6-luna", "none", "max", "medium"),
            ("o3", "low", "high", "medium"),
            ("my/qwen3", "none", "max", "medium"),
        ] {
            let model = Model::named(name);
            assert_eq!(model.efforts.first(), Some(&first), "{name}");
            assert_eq!(model.efforts.last(), Some(&last), "{name}");
            assert_eq!(model.default_effort, default_effort, "{name}");
        }
        assert!(!Model::named("gpt-4.1").reasons());
        assert!(Model::named("gpt-6-astra").refuses_sampling);
        assert!(!Model::named("gpt-5.5").refuses_sampling);
    }
}
