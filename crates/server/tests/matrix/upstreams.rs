//! The upstreams of the matrix: a strict simulator and a backend for each.

use throughline_simulator::{Options, Scenario, Variant};
use throughline_testkit::Simulator;

/// One row of the matrix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Upstream {
    pub(crate) name: &'static str,
    pub(crate) dialect: &'static str,
    pub(crate) variant: &'static str,
    pub(crate) model: &'static str,
    /// Whether clients see its reasoning.
    pub(crate) shows_reasoning: bool,
    /// Whether the model's template opens the reasoning block.
    pub(crate) template_opens: bool,
    /// Whether the provider refuses thinking if anything before it has changed.
    pub(crate) binds_prefix: bool,
}

const fn row(
    name: &'static str,
    dialect: &'static str,
    variant: &'static str,
    model: &'static str,
) -> Upstream {
    Upstream {
        name,
        dialect,
        variant,
        model,
        shows_reasoning: true,
        template_opens: false,
        binds_prefix: false,
    }
}

/// Returns a row with the chat dialect.
const fn chat(variant: &'static str, model: &'static str) -> Upstream {
    row(variant, "openai_chat", variant, model)
}

/// Returns the same row with another name.
const fn with_name(name: &'static str, upstream: Upstream) -> Upstream {
    Upstream { name, ..upstream }
}

/// Returns a row with a provider that binds thinking to everything before it.
const fn bound(upstream: Upstream) -> Upstream {
    Upstream { binds_prefix: true, ..upstream }
}

/// Returns a row with a model whose template opens the reasoning block.
const fn with_opening_template(name: &'static str, upstream: Upstream) -> Upstream {
    Upstream { template_opens: true, ..with_name(name, upstream) }
}

/// The rows of the matrix. With "template opens", the model's template opens the reasoning block
/// and the server sends reasoning in a separate field.
pub(crate) const UPSTREAMS: &[Upstream] = &[
    row("anthropic, budget", "anthropic", "", "claude-sonnet-4-5"),
    row("anthropic, adaptive", "anthropic", "", "claude-opus-5"),
    bound(row("anthropic, bound", "anthropic", "", "claude-opus-5-5")),
    row("gemini 3", "gemini", "", "gemini-3-pro-preview"),
    row("gemini 2.5", "gemini", "", "gemini-2.5-flash"),
    row("openai_responses", "openai_responses", "", "gpt-6.1-sol"),
    chat("openai", "gpt-6.1-sol"),
    chat("deepseek-r1", "deepseek-reasoner"),
    chat("deepseek-v4", "deepseek-v4"),
    chat("vllm", "qwen3-32b"),
    chat("sglang", "qwen3-32b"),
    chat("llamacpp", "qwen3-32b"),
    chat("think-tags", "qwen3-think-tags"),
    chat("qwen", "qwen3.7-plus"),
    chat("glm", "glm-5"),
    chat("mistral", "magistral-medium-latest"),
    chat("openrouter", "anthropic/claude-sonnet-4.5"),
    chat("xai", "grok-4"),
    chat("groq", "qwen/qwen3-32b"),
    chat("litellm", "claude-sonnet-4-5"),
    chat("google", "gemini-3-pro-preview"),
    row("ollama", "ollama", "", "qwen3:8b"),
    with_name("ollama, chat", chat("ollama", "gpt-oss:20b")),
    with_opening_template("vllm, template opens", chat("vllm", "qwq-32b")),
    with_opening_template(
        "llamacpp, template opens",
        chat("llamacpp", "deepseek-r1-distill-qwen-32b"),
    ),
    with_opening_template("ollama, template opens", row("", "ollama", "", "deepseek-r1:8b")),
];

/// The scenario of every upstream. The last user message selects the step.
pub(crate) const SCENARIO: &str = r#"
[[step]]
when = { contains = "plain" }
say = [{ text = "Just a text." }]
[[step]]
when = { contains = "ponder" }
say = [{ thinking = "First this, then that." }, { text = "I have thought." }]
[[step]]
when = { contains = "hidden" }
say = [{ redacted = true }, { thinking = "This may be seen." }, { text = "Some was hidden." }]
[[step]]
when = { contains = "one tool" }
say = [{ thinking = "I need a row." }, { tool = { name = "lookup", input = { key = "7" } } }]
[[step]]
when = { contains = "no arguments" }
say = [{ thinking = "I need all rows." }, { tool = { name = "lookup", input = {} } }]
[[step]]
when = { contains = "two tools" }
say = [
  { thinking = "I need two rows." }, { text = "I look." },
  { tool = { name = "lookup", input = { key = "7" } } }, { tool = { name = "lookup", input = { key = "8" } } },
]
[[step]]
when = { contains = "row blue" }
say = [{ thinking = "Another row." }, { tool = { name = "lookup", input = { key = "9" } } }]
[[step]]
when = { contains = "row green" }
say = [{ thinking = "That is all." }, { text = "Blue, then green." }]
"#;

impl Upstream {
    /// Whether its simulator caches prompts.
    pub(crate) fn has_cache(&self) -> bool {
        self.dialect != "ollama"
    }

    /// Whether a client of this name sets breakpoints for its cache.
    pub(crate) fn gets_breakpoints_of(&self, client: &str) -> bool {
        let in_front_of_claude = matches!(self.variant, "openrouter" | "litellm");
        client.starts_with("anthropic") || client.starts_with("openai_chat") && in_front_of_claude
    }

    /// Starts its simulator.
    pub(crate) async fn start(&self, identity: &str) -> Simulator {
        self.start_with(identity, SCENARIO).await
    }

    /// Starts its simulator with another scenario.
    pub(crate) async fn start_with(&self, identity: &str, scenario: &str) -> Simulator {
        Simulator::with(Options {
            identity: identity.to_owned(),
            prefix_binding: self.binds_prefix,
            variant: (self.dialect == "openai_chat")
                .then(|| Variant::named(self.variant).expect("a variant of the simulator")),
            scenario: Some(Scenario::from_toml(scenario).expect("a scenario")),
            ..Options::default()
        })
        .await
    }

    /// Returns its `[[backend]]` table.
    pub(crate) fn backend(&self, name: &str, url: &str) -> String {
        let variant = match self.variant {
            "" => String::new(),
            variant => format!("variant = \"{variant}\"\n"),
        };
        format!(
            "[[backend]]\nname = \"{name}\"\ndialect = \"{}\"\n{variant}base_url = \"{url}\"\nmodels = {{ \"*\" = \"{}\" }}\n",
            self.dialect, self.model
        )
    }
}
