//! The upstreams: one strict simulator each, and the backend that speaks to it.

use throughline_simulator::{Options, Scenario, Variant};
use throughline_testkit::Simulator;

/// One kind of upstream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Upstream {
    pub(crate) name: &'static str,
    pub(crate) dialect: &'static str,
    pub(crate) variant: &'static str,
    pub(crate) model: &'static str,
    /// Whether it shows reasoning to clients.
    pub(crate) shows: bool,
    /// Whether the model's template opens the reasoning block.
    pub(crate) template_opens: bool,
}

const fn row(
    name: &'static str,
    dialect: &'static str,
    variant: &'static str,
    model: &'static str,
) -> Upstream {
    Upstream { name, dialect, variant, model, shows: true, template_opens: false }
}

/// A server of the chat dialect.
const fn chat(variant: &'static str, model: &'static str) -> Upstream {
    row(variant, "openai_chat", variant, model)
}

/// The same upstream under another name.
const fn named(name: &'static str, upstream: Upstream) -> Upstream {
    Upstream { name, ..upstream }
}

/// An upstream with a model whose template opens the reasoning block.
const fn opened(name: &'static str, upstream: Upstream) -> Upstream {
    Upstream { template_opens: true, ..named(name, upstream) }
}

/// The rows of the matrix. "template opens": the model's template opens the reasoning block, and the server
/// sends reasoning in a field of its own.
pub(crate) const UPSTREAMS: &[Upstream] = &[
    row("anthropic, budget", "anthropic", "", "claude-sonnet-4-5"),
    row("anthropic, adaptive", "anthropic", "", "claude-opus-5"),
    row("anthropic, bound", "anthropic", "", "claude-opus-5-5"),
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
    named("ollama, chat", chat("ollama", "gpt-oss:20b")),
    opened("vllm, template opens", chat("vllm", "qwq-32b")),
    opened("llamacpp, template opens", chat("llamacpp", "deepseek-r1-distill-qwen-32b")),
    opened("ollama, template opens", row("", "ollama", "", "deepseek-r1:8b")),
];

/// What every upstream says, by a word in what the user said last.
pub(crate) const SAYS: &str = r#"
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
    /// Its simulator.
    pub(crate) async fn start(&self, identity: &str) -> Simulator {
        self.saying(identity, SAYS).await
    }

    /// Its simulator, with a scenario of its own.
    pub(crate) async fn saying(&self, identity: &str, scenario: &str) -> Simulator {
        Simulator::with(Options {
            identity: identity.to_owned(),
            variant: (self.dialect == "openai_chat")
                .then(|| Variant::named(self.variant).expect("a variant of the simulator")),
            scenario: Some(Scenario::from_toml(scenario).expect("a scenario")),
            ..Options::default()
        })
        .await
    }

    /// Its `[[backend]]` table.
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
