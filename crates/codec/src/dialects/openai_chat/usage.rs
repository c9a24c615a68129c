//! Token counts, both ways. This dialect includes cached tokens in the input.

use serde_json::{Map, Value, json};
use throughline_canonical::Usage;

use super::variants::Variant;
use crate::json::{JsonError, Kind, Span, each_member, find_member, number};

/// Reads the token counts of a reply.
pub(super) fn read(json: &[u8], usage: &Span, variant: &Variant) -> Result<Usage, JsonError> {
    let [mut prompt, mut completion, mut total]: [Option<u64>; 3] = Default::default();
    let [mut read, mut written, mut thinking]: [Option<u64>; 3] = Default::default();
    let [mut prompt_details, mut written_details, mut completion_details]: [Option<Span>; 3] =
        Default::default();
    let mut written_1h = None;
    each_member(json, usage.start, |key, kind, span| match (key, kind) {
        (b"prompt_tokens", Kind::Number) => prompt = number(json, &span),
        (b"completion_tokens", Kind::Number) => completion = number(json, &span),
        (b"total_tokens", Kind::Number) => total = number(json, &span),
        // DeepSeek, LiteLLM and Moonshot report these here.
        (
            b"prompt_cache_hit_tokens" | b"cache_read_input_tokens" | b"cached_tokens",
            Kind::Number,
        ) => {
            read = number(json, &span);
        }
        (b"cache_creation_input_tokens", Kind::Number) => written = number(json, &span),
        (b"reasoning_tokens", Kind::Number) => thinking = number(json, &span),
        (b"prompt_tokens_details", Kind::Object) => prompt_details = Some(span),
        (b"completion_tokens_details", Kind::Object) => completion_details = Some(span),
        _ => {}
    })?;
    if let Some(details) = prompt_details {
        each_member(json, details.start, |key, kind, span| match (key, kind) {
            (b"cached_tokens", Kind::Number) => read = number(json, &span).or(read),
            (b"cache_write_tokens" | b"cache_creation_tokens", Kind::Number) => {
                written = number(json, &span).or(written);
            }
            // Only LiteLLM reports how long its provider keeps them.
            (b"cache_creation_token_details", Kind::Object) => written_details = Some(span),
            _ => {}
        })?;
    }
    if let Some(details) = written_details {
        each_member(json, details.start, |key, kind, span| {
            if key == b"ephemeral_1h_input_tokens" && kind == Kind::Number {
                written_1h = number(json, &span);
            }
        })?;
    }
    if let Some(details) = completion_details {
        let tokens = find_member(json, details.start, b"reasoning_tokens", Kind::Number)?;
        thinking = tokens.and_then(|span| number(json, &span)).or(thinking);
    }
    let mut output = completion;
    if variant.counts_thinking_apart
        && let (Some(prompt), Some(completion), Some(total)) = (prompt, completion, total)
        && let Some(apart) = total.checked_sub(prompt.saturating_add(completion))
        && apart > 0
    {
        output = Some(completion.saturating_add(apart));
        thinking = thinking.or(Some(apart));
    }
    Ok(Usage {
        input: prompt.map(|prompt| {
            prompt
                .saturating_sub(read.unwrap_or_default())
                .saturating_sub(written.unwrap_or_default())
        }),
        cache_read: read,
        cache_write: written,
        cache_write_1h: written_1h,
        output,
        thinking,
    })
}

/// Writes the token counts of a reply.
pub(super) fn write(usage: &Usage) -> Value {
    let parts = [usage.input, usage.cache_read, usage.cache_write];
    let prompt = parts.into_iter().flatten().fold(0, u64::saturating_add);
    let completion = usage.output.unwrap_or_default();
    let mut value = json!({
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt.saturating_add(completion),
    });
    let mut details = |name: &str, counts: &[(&str, Option<u64>)]| {
        let known: Map<String, Value> = counts
            .iter()
            .filter_map(|(name, count)| Some(((*name).to_owned(), (*count)?.into())))
            .collect();
        if !known.is_empty() {
            value[name] = Value::Object(known);
        }
    };
    details(
        "prompt_tokens_details",
        &[("cached_tokens", usage.cache_read), ("cache_write_tokens", usage.cache_write)],
    );
    details("completion_tokens_details", &[("reasoning_tokens", usage.thinking)]);
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialects::openai_chat::variants::find;

    fn check(variant: &str, usage: &str, expected: [Option<u64>; 5]) {
        let [input, cache_read, cache_write, output, thinking] = expected;
        let expected =
            Usage { input, cache_read, cache_write, output, thinking, ..Usage::default() };
        let found = read(usage.as_bytes(), &(0..usage.len()), find(variant)).unwrap();
        assert_eq!(found, expected, "{variant}: {usage}");
    }

    #[test]
    fn token_counts_mean_the_same_for_every_server() {
        let all = r#"{"prompt_tokens":12,"completion_tokens":80,"total_tokens":92,"prompt_tokens_details":{"cached_tokens":2,"cache_write_tokens":3,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":64}}"#;
        check("openai", all, [Some(7), Some(2), Some(3), Some(80), Some(64)]);
        let plain = r#"{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"prompt_tokens_details":null}"#;
        check("vllm", plain, [Some(1), None, None, Some(2), None]);
        let deepseek = r#"{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_cache_hit_tokens":4,"prompt_cache_miss_tokens":6}"#;
        check("deepseek-v4", deepseek, [Some(6), Some(4), None, Some(5), None]);
        let litellm = r#"{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"cache_read_input_tokens":4,"cache_creation_input_tokens":1}"#;
        check("litellm", litellm, [Some(5), Some(4), Some(1), Some(5), None]);
        let xai = r#"{"prompt_tokens":10,"completion_tokens":5,"total_tokens":35,"completion_tokens_details":{"reasoning_tokens":20}}"#;
        check("xai", xai, [Some(10), None, None, Some(25), Some(20)]);
        let google = r#"{"prompt_tokens":10,"completion_tokens":5,"total_tokens":35}"#;
        check("google", google, [Some(10), None, None, Some(25), Some(20)]);
        check("openai", google, [Some(10), None, None, Some(5), None]);
        check("openai", "{}", [None; 5]);
    }

    #[test]
    fn litellm_usage_reports_one_hour_cache_writes() {
        let usage = r#"{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":4,"cache_creation_tokens":3,"cache_creation_token_details":{"ephemeral_5m_input_tokens":1,"ephemeral_1h_input_tokens":2}}}"#;
        let found = read(usage.as_bytes(), &(0..usage.len()), find("litellm")).unwrap();
        assert_eq!((found.cache_write, found.cache_write_1h), (Some(3), Some(2)));
    }

    #[test]
    fn written_usage_reads_back() {
        let usage = Usage {
            input: Some(7),
            cache_read: Some(2),
            cache_write: Some(3),
            output: Some(80),
            thinking: Some(64),
            ..Usage::default()
        };
        let written = write(&usage);
        assert_eq!(written["prompt_tokens"], 12);
        assert_eq!(written["total_tokens"], 92);
        let written = written.to_string();
        let read = read(written.as_bytes(), &(0..written.len()), find("openai")).unwrap();
        assert_eq!(read, usage);
    }
}
