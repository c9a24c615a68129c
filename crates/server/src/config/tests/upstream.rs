//! Wire formats: variants, addresses, and the URLs that requests go to.

use throughline_canonical::{Block, Message, Request, Role};
use throughline_codec::dialects::Target;
use throughline_codec::dialects::openai_chat::variants::VARIANTS;

use throughline_gateway::backend::join_url;

use super::super::upstream::{PROVIDERS, variants};
use super::*;

fn backend(dialect: &str, lines: &str) -> String {
    format!("[[backend]]\nname = 'x'\ndialect = '{dialect}'\napi_key = 'k'\n{lines}\n")
}

/// Where a request for the model `m` goes.
fn goes_to(backend: &Backend) -> String {
    let target = Target { model: "m", profile: backend.profile() };
    let written = backend.wire_dialect.upstream().write_request(&Request::default(), &target);
    let base = backend.base_url.as_deref().unwrap();
    join_url(base, &written.value.path)
}

#[test]
#[rustfmt::skip]
fn documented_addresses_lead_to_the_right_url() {
    // Dialect, address, the variant that follows from it, and the URL of requests.
    for (dialect, url, variant, target) in [
        ("anthropic", "https://api.anthropic.com", "", "https://api.anthropic.com/v1/messages"),
        ("anthropic", "https://api.anthropic.com/v1/", "", "https://api.anthropic.com/v1/messages"),
        ("anthropic", "https://api.z.ai/api/anthropic", "", "https://api.z.ai/api/anthropic/v1/messages"),
        ("anthropic", "https://api.deepseek.com/anthropic/v1", "", "https://api.deepseek.com/anthropic/v1/messages"),
        ("openai_chat", "https://api.openai.com", "openai", "https://api.openai.com/v1/chat/completions"),
        ("openai_chat", "https://api.openai.com/v1", "openai", "https://api.openai.com/v1/chat/completions"),
        ("openai_chat", "https://api.deepseek.com", "deepseek-v4", "https://api.deepseek.com/v1/chat/completions"),
        ("openai_chat", "https://api.deepseek.com/v1", "deepseek-v4", "https://api.deepseek.com/v1/chat/completions"),
        ("openai_chat", "https://openrouter.ai/api/v1", "openrouter", "https://openrouter.ai/api/v1/chat/completions"),
        ("openai_chat", "https://openrouter.ai/api", "openrouter", "https://openrouter.ai/api/v1/chat/completions"),
        ("openai_chat", "https://api.x.ai/v1", "xai", "https://api.x.ai/v1/chat/completions"),
        ("openai_chat", "https://api.groq.com/openai/v1", "groq", "https://api.groq.com/openai/v1/chat/completions"),
        ("openai_chat", "https://api.mistral.ai/v1", "mistral", "https://api.mistral.ai/v1/chat/completions"),
        ("openai_chat", "https://dashscope.aliyuncs.com/compatible-mode/v1", "qwen", "https://dashscope.aliyuncs.com/compatible-mode/v1/chat/completions"),
        ("openai_chat", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "qwen", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1/chat/completions"),
        ("openai_chat", "https://h.example/api/v3", "compatible", "https://h.example/api/v3/chat/completions"),
        ("openai_responses", "https://h.example/api/v3/", "", "https://h.example/api/v3/responses"),
        ("anthropic", "https://h.example/v2", "", "https://h.example/v2/messages"),
        ("openai_chat", "https://api.z.ai/api/paas/v4", "glm", "https://api.z.ai/api/paas/v4/chat/completions"),
        ("openai_chat", "https://api.z.ai/api/paas/v4/", "glm", "https://api.z.ai/api/paas/v4/chat/completions"),
        ("openai_chat", "https://api.z.ai/api/coding/paas/v4", "glm", "https://api.z.ai/api/coding/paas/v4/chat/completions"),
        ("openai_chat", "https://open.bigmodel.cn/api/paas/v4", "glm", "https://open.bigmodel.cn/api/paas/v4/chat/completions"),
        ("openai_chat", "https://generativelanguage.googleapis.com/v1beta/openai", "google", "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions"),
        ("openai_chat", "https://generativelanguage.googleapis.com/v1beta/openai/", "google", "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions"),
        ("openai_chat", "https://generativelanguage.googleapis.com/v1beta", "google", "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions"),
        ("openai_chat", "https://generativelanguage.googleapis.com", "google", "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions"),
        ("openai_chat", "http://127.0.0.1:8000/v1", "vllm", "http://127.0.0.1:8000/v1/chat/completions"),
        ("openai_chat", "http://127.0.0.1:8000", "vllm", "http://127.0.0.1:8000/v1/chat/completions"),
        ("openai_chat", "http://[::1]:8000/v1", "vllm", "http://[::1]:8000/v1/chat/completions"),
        ("openai_chat", "http://192.168.0.7:30000/v1", "vllm", "http://192.168.0.7:30000/v1/chat/completions"),
        ("openai_chat", "http://vllm:8000/v1", "vllm", "http://vllm:8000/v1/chat/completions"),
        ("openai_chat", "https://api.openai.com.example/v1", "compatible", "https://api.openai.com.example/v1/chat/completions"),
        ("openai_chat", "https://api.together.example/v1", "compatible", "https://api.together.example/v1/chat/completions"),
        ("openai_chat", "http://localhost:11434/v1", "ollama", "http://localhost:11434/v1/chat/completions"),
        ("openai_chat", "http://gpu.lan:11434", "ollama", "http://gpu.lan:11434/v1/chat/completions"),
        ("openai_chat", "https://ollama.com/v1", "ollama", "https://ollama.com/v1/chat/completions"),
        ("openai_chat", "http://127.0.0.1:8000/some/chat", "vllm", "http://127.0.0.1:8000/some/chat/v1/chat/completions"),
        ("ollama", "http://localhost:11434", "", "http://localhost:11434/api/chat"),
        ("ollama", "http://localhost:11434/api/", "", "http://localhost:11434/api/chat"),
        ("ollama", "https://ollama.com", "", "https://ollama.com/api/chat"),
        ("openai_responses", "https://api.openai.com", "openai", "https://api.openai.com/v1/responses"),
        ("openai_responses", "https://api.openai.com/v1", "openai", "https://api.openai.com/v1/responses"),
        ("openai_responses", "https://me.openai.azure.com/openai/v1/", "openai", "https://me.openai.azure.com/openai/v1/responses"),
        ("openai_responses", "https://me.services.ai.azure.com/openai/v1", "openai", "https://me.services.ai.azure.com/openai/v1/responses"),
        ("openai_responses", "https://eu.api.openai.com/v1", "openai", "https://eu.api.openai.com/v1/responses"),
        ("openai_chat", "https://eu.api.openai.com/v1", "openai", "https://eu.api.openai.com/v1/chat/completions"),
        ("openai_responses", "https://api.openai.com.example/v1", "", "https://api.openai.com.example/v1/responses"),
        ("openai_responses", "https://openrouter.ai/api/v1", "", "https://openrouter.ai/api/v1/responses"),
        ("openai_responses", "http://127.0.0.1:8000/v1", "", "http://127.0.0.1:8000/v1/responses"),
        ("gemini", "https://generativelanguage.googleapis.com", "", "https://generativelanguage.googleapis.com/v1beta/models/m:generateContent"),
        ("gemini", "https://generativelanguage.googleapis.com/v1beta", "", "https://generativelanguage.googleapis.com/v1beta/models/m:generateContent"),
        ("gemini", "https://generativelanguage.googleapis.com/v1/", "", "https://generativelanguage.googleapis.com/v1beta/models/m:generateContent"),
        ("gemini", "https://generativelanguage.googleapis.com/v1beta/models", "", "https://generativelanguage.googleapis.com/v1beta/models/m:generateContent"),
        ("gemini", "https://europe-west4-aiplatform.googleapis.com/v1beta1/projects/p/locations/europe-west4", "vertex", "https://europe-west4-aiplatform.googleapis.com/v1beta1/projects/p/locations/europe-west4/publishers/google/models/m:generateContent"),
        ("gemini", "https://aiplatform.googleapis.com/v1/projects/p/locations/global/publishers/google/models/", "vertex", "https://aiplatform.googleapis.com/v1/projects/p/locations/global/publishers/google/models/m:generateContent"),
        ("gemini", "https://aiplatform.googleapis.com/v1", "vertex", "https://aiplatform.googleapis.com/v1/publishers/google/models/m:generateContent"),
        ("gemini", "https://aiplatform.googleapis.com/v1beta1", "vertex", "https://aiplatform.googleapis.com/v1beta1/publishers/google/models/m:generateContent"),
    ] {
        let config = good(&backend(dialect, &format!("base_url = '{url}'")));
        let found = &config.backends[0];
        assert_eq!(
            (found.variant.as_str(), goes_to(found).as_str()),
            (variant, target),
            "{url}"
        );
        assert_eq!(config.notes, Vec::<String>::new(), "{url}");
    }
}

#[test]
#[rustfmt::skip]
fn full_request_urls_are_rejected_with_the_right_base_url() {
    for (dialect, url, words) in [
        ("anthropic", "https://h.example/v1/messages", "write `https://h.example`"),
        ("anthropic", "https://h.example/x/messages/", "write `https://h.example/x`"),
        ("openai_chat", "https://api.openai.com/v1/chat/completions", "write `https://api.openai.com`"),
        ("openai_chat", "https://api.deepseek.com/chat/completions", "write `https://api.deepseek.com`"),
        ("openai_chat", "https://api.z.ai/api/paas/v4/chat/completions", "write `https://api.z.ai/api/paas`"),
        ("openai_chat", "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions", "write `https://generativelanguage.googleapis.com`"),
        ("openai_responses", "https://api.openai.com/v1/responses", "write `https://api.openai.com`"),
        ("gemini", "https://generativelanguage.googleapis.com/v1beta/models/g:generateContent", "write `https://generativelanguage.googleapis.com`"),
        ("gemini", "https://aiplatform.googleapis.com/v1/projects/p/locations/l/publishers/google/models/g:streamGenerateContent", "write `https://aiplatform.googleapis.com/v1/projects/p/locations/l`"),
        ("ollama", "http://localhost:11434/api/chat", "write `http://localhost:11434`"),
        // A URL of another dialect names that dialect.
        ("openai_chat", "http://localhost:11434/api/chat", "write `dialect = \"ollama\"` and `base_url = \"http://localhost:11434\"`"),
        ("openai_chat", "https://api.openai.com/v1/responses", "write `dialect = \"openai_responses\"` and `base_url = \"https://api.openai.com\"`"),
        ("openai_responses", "https://openrouter.ai/api/v1/chat/completions", "write `dialect = \"openai_chat\"` and `base_url = \"https://openrouter.ai/api\"`"),
        ("openai_chat", "http://localhost:8000/v1/messages", "write `dialect = \"anthropic\"` and `base_url = \"http://localhost:8000\"`"),
        ("gemini", "https://generativelanguage.googleapis.com/v1beta/openai/", "write `dialect = \"openai_chat\"` and `base_url = \"https://generativelanguage.googleapis.com\"`"),
        ("anthropic", "https://api.z.ai/api/paas/v4", "write `dialect = \"openai_chat\"` and `base_url = \"https://api.z.ai/api/paas\"`"),
        // A host where the dialect needs a path prefix.
        ("openai_chat", "https://openrouter.ai", "write `https://openrouter.ai/api/v1`"),
        ("openai_chat", "https://api.groq.com/v1", "write `https://api.groq.com/openai/v1`"),
        ("openai_chat", "https://api.z.ai/v4", "write `https://api.z.ai/api/paas/v4`"),
        ("openai_chat", "https://dashscope-us.aliyuncs.com/", "write `https://dashscope-us.aliyuncs.com/compatible-mode/v1`"),
    ] {
        let text = backend(dialect, &format!("base_url = '{url}'"));
        each_has_one_mistake(&[
            (&text, words),
            (&text, "throughline.toml:5:12: `base_url` is `"),
        ]);
    }
}

#[test]
fn explicit_variant_wins_over_the_address() {
    for variant in VARIANTS {
        let name = variant.name;
        let lines = format!("base_url = 'https://openrouter.ai/api/v1'\nvariant = '{name}'");
        let config = good(&backend("openai_chat", &lines));
        assert_eq!(config.backends[0].variant, name);
        // Settings about raw text have an effect exactly where the server may send it.
        let noted = !good(&backend("openai_chat", &format!("{lines}\nfamily = 'qwen3'")))
            .notes
            .iter()
            .all(|note| !note.contains("has no effect"));
        assert_eq!(noted, !variant.raw_text, "{name}");
    }
    let own = "base_url = 'https://generativelanguage.googleapis.com'\n";
    for (dialect, lines, variant) in [
        ("gemini", "variant = 'vertex'", "vertex"),
        ("gemini", "cumulative = true", "cumulative"),
        ("gemini", "cumulative = false", ""),
        ("gemini", "variant = 'vertex'\ncumulative = true", "vertex cumulative"),
        ("anthropic", "variant = 'unsigned'", "unsigned"),
        ("anthropic", "cumulative = false", ""),
    ] {
        let config = good(&backend(dialect, &format!("{own}{lines}")));
        assert_eq!(config.backends[0].variant, variant, "{lines}");
    }
    let env = [("THROUGHLINE_BACKEND__X__VARIANT", "vertex")];
    let config = read_with(&backend("gemini", own), &env).unwrap();
    assert_eq!(config.backends[0].variant, "vertex");
}

/// Each variant changes what the codec writes.
#[test]
fn every_variant_is_known_to_the_codec() {
    let thought = Block::Thinking { text: "t".to_owned(), signature: None };
    let mut request = Request::default();
    request.messages.push(Message::new(Role::Assistant, vec![thought]));
    for (dialect, variant) in [(Dialect("anthropic"), "unsigned"), (Dialect("gemini"), "vertex")] {
        assert_eq!(variants(dialect), [variant]);
        let write = |variant| {
            let target = Target { model: "m", profile: dialect.upstream().profile(variant) };
            dialect.upstream().write_request(&request, &target).value
        };
        assert_ne!(write(variant), write(""), "{variant}");
    }
}

#[test]
#[rustfmt::skip]
fn other_combinations_are_rejected() {
    let own = "base_url = 'https://h.example'\n";
    for (dialect, lines, words) in [
        ("openai_chat", "variant = 'vlm'", "throughline.toml:6:11: `variant` is `vlm`, which is not a variant of the dialect `openai_chat`"),
        ("openai_chat", "variant = 'vlm'", "did you mean `vllm`?"),
        ("openai_chat", "variant = 'vertex'", "it is a variant of `dialect = \"gemini\"`"),
        ("openai_chat", "variant = 'zzzzzz'", "expected one of `openai`, `compatible`, `deepseek-r1`, "),
        ("openai_chat", "variant = 'zzzzzz'", "remove the line"),
        ("openai_chat", "variant = ''", "`variant` is empty"),
        ("openai_chat", "variant = ['vllm']", "expected a string in quotes"),
        ("openai_chat", "variant = 'gemini'", "it is a variant of `dialect = \"simulator\"`"),
        ("openai_responses", "variant = 'vllm'", "expected `openai`"),
        ("openai_responses", "variant = 'vllm'", "it is a variant of `dialect = \"openai_chat\"`"),
        ("ollama", "variant = 'vllm'", "expected no `variant`"),
        ("gemini", "variant = 'unsigned'", "expected `vertex`"),
        ("anthropic", "variant = 'vllm'", "expected `unsigned`"),
        ("anthropic", "cumulative = true", "throughline.toml:6:14: `cumulative` has no effect on the dialect `anthropic`"),
        ("gemini", "cumulative = 'yes'", "`true` or `false`"),
    ] {
        each_has_one_mistake(&[(&backend(dialect, &format!("{own}{lines}")), words)]);
    }
    for (lines, words) in [
        ("variant = 'anthropc'", "expected one of `gemini`, `ollama`, `openai_chat`, `openai_responses`"),
        ("variant = 'gemni'", "did you mean `gemini`?"),
        ("variant = 'vllm'", "it is a variant of `dialect = \"openai_chat\"`"),
        ("variant = 'gemini'\ncumulative = true", "no effect on the dialect `simulator`"),
    ] {
        each_has_one_mistake(&[(&backend("simulator", lines), words)]);
    }
}

#[test]
fn simulator_speaks_the_dialect_of_its_variant() {
    for (lines, wire_dialect, variant) in [
        ("", Dialect("anthropic"), ""),
        ("variant = 'openai_chat'", Dialect("openai_chat"), "vllm"),
        ("variant = 'openai_responses'", Dialect("openai_responses"), ""),
        ("variant = 'gemini'", Dialect("gemini"), ""),
    ] {
        let config = good(&backend("simulator", lines));
        let found = &config.backends[0];
        assert_eq!(
            (found.dialect, found.wire_dialect, found.variant.as_str()),
            (Dialect::SIMULATOR, wire_dialect, variant)
        );
        assert_eq!(found.wire_dialect.upstream().name(), wire_dialect.name());
        assert_eq!(found.base_url, None);
    }
}

#[test]
fn models_path_follows_the_dialect() {
    for (dialect, lines, path) in [
        ("anthropic", "", "/v1/models"),
        ("openai_chat", "", "/v1/models"),
        ("openai_chat", "variant = 'glm'", "/v4/models"),
        ("openai_chat", "variant = 'google'", "/v1beta/openai/models"),
        ("openai_responses", "", "/v1/models"),
        ("gemini", "", "/v1beta/models"),
        ("gemini", "variant = 'vertex'", "/publishers/google/models"),
    ] {
        let text = backend(dialect, &format!("base_url = 'https://h.example'\n{lines}"));
        assert_eq!(good(&text).backends[0].models_path(), path, "{text}");
    }
}

#[test]
fn thinking_settings_of_other_dialects_are_read() {
    for (written, fields) in [
        ("['reasoning']", &[ReasoningField::Reasoning][..]),
        (
            "['reasoning_content', 'reasoning', 'reasoning_content']",
            &[ReasoningField::ReasoningContent, ReasoningField::Reasoning],
        ),
        ("[]", &[]),
    ] {
        let config = good(&format!("[thinking]\nreasoning_fields = {written}"));
        assert_eq!(config.reasoning_fields, fields, "{written}");
    }
    for (written, value) in [
        ("auto", ToolThinking::Auto),
        ("sequential", ToolThinking::Sequential),
        ("interleaved", ToolThinking::Interleaved),
    ] {
        let config = good(&format!("thinking.tool_thinking = '{written}'"));
        assert_eq!(config.thinking.tool_thinking, value);
    }
    each_has_one_mistake(&[
        ("thinking.tool_thinking = 'interleave'", "did you mean `interleaved`?"),
        ("thinking.reasoning_fields = 'reasoning'", "expected a list of strings"),
        ("thinking.reasoning_fields = ['reasonning']", "1:30: `reasoning_fields` has `reasonning`"),
        (
            "thinking.reasoning_fields = ['thoughts']",
            "expected one of `reasoning`, `reasoning_content`",
        ),
        ("thinking.reasoning_fields = [1]", "`reasoning_fields` holds an integer"),
    ]);
}

#[test]
fn documentation_has_a_valid_backend_for_every_provider() {
    let page = include_str!("../../../../../docs/backends.md");
    let blocks = page.split("```toml\n").skip(1);
    let mut copied = Vec::new();
    for block in blocks.filter_map(|rest| rest.split("```").next()) {
        let variable = block.split("api_key_env = \"").nth(1);
        let variable = variable.and_then(|rest| rest.split('"').next());
        let key: Vec<(&str, &str)> = variable.map(|name| (name, "k")).into_iter().collect();
        let config = read_with(block, &key).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        assert_eq!(config.notes, Vec::<String>::new(), "{block}");
        copied.extend(config.backends);
    }
    for variant in VARIANTS {
        let shown = copied.iter().any(|backend| backend.variant == variant.name);
        let listed = page.contains(&format!("`{}`", variant.name));
        assert!(shown || listed, "{} is nowhere", variant.name);
    }
    let rows: Vec<String> = PROVIDERS
        .iter()
        .map(|row| format!("| `{}` | `{}` | `{}` |\n", row.dialect, row.host, row.variant))
        .collect();
    assert!(page.contains(&rows.concat()), "put this into docs/backends.md:\n{}", rows.concat());
}

#[test]
fn documentation_lists_the_raw_text_servers() {
    let page = include_str!("../../../../../docs/configuration.md").replace('\n', " ");
    let names = VARIANTS.iter().filter(|variant| variant.raw_text);
    let mut names: Vec<String> = names.map(|variant| format!("`{}`", variant.name)).collect();
    let last = names.pop().unwrap_or_default();
    let words = format!("servers of the variants {} and {last}.", names.join(", "));
    assert!(page.contains(&words), "lacks: {words}");
}
