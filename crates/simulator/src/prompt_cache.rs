//! The prompt cache: the prefixes of earlier prompts, for each account, with their lifetimes.
//!
//! A prompt is a list of parts. The cache knows a prefix by the hash of its bytes, so a client that
//! writes its history in another way than before finds nothing. Some providers cache up to the
//! parts that a client marks, others cache blocks of tokens by themselves.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;

use crate::clock::Clock;
use crate::draft;
use crate::refusal::Refusal;
use crate::signing::{Hash, hash};

/// How many parts a marked prefix is searched for, back from each breakpoint.
const LOOKBACK: usize = 20;
/// How many parts may be marked.
const MAX_MARKS: usize = 4;
/// About one token.
const TOKEN_BYTES: usize = 4;
/// More prefixes than this are not kept.
const MAX_PREFIXES: usize = 1 << 18;

/// How long a prefix is kept after its last use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    Minutes,
    Hour,
}

impl Lifetime {
    fn duration(self) -> Duration {
        match self {
            Self::Minutes => Duration::from_secs(5 * 60),
            Self::Hour => Duration::from_secs(60 * 60),
        }
    }
}

/// A part of a prompt.
#[derive(Clone, Debug)]
pub(crate) struct PromptPart {
    /// The bytes that the cache compares.
    text: String,
    tokens: usize,
    breakpoint: Option<Lifetime>,
}

impl PromptPart {
    /// A part whose text counts. `context` is compared too, such as the role of its message.
    pub(crate) fn new(context: &str, text: &str, breakpoint: Option<Lifetime>) -> Self {
        Self { text: format!("{context}{text}"), tokens: draft::tokens(text), breakpoint }
    }

    /// The number of tokens of a prompt.
    pub(crate) fn total(parts: &[Self]) -> usize {
        parts.iter().map(|part| part.tokens).sum()
    }

    /// Marks the last part, as automatic marks do.
    pub(crate) fn mark_last(parts: &mut [Self], breakpoint: Lifetime) {
        if let Some(last) = parts.last_mut() {
            last.breakpoint.get_or_insert(breakpoint);
        }
    }
}

/// How a provider caches.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Caching {
    /// Up to each marked part, if the prefix has at least this number of tokens.
    Marks { least: usize },
    /// In blocks of `step` tokens, from `least` tokens on.
    Blocks { least: usize, step: usize },
}

/// What of a prompt was read from the cache and written to it, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheUse {
    /// All tokens of the prompt.
    pub(crate) total: usize,
    pub(crate) read: usize,
    /// Written, for whatever lifetime.
    pub(crate) write: usize,
    /// The part of `write` that is kept for an hour.
    pub(crate) write_1h: usize,
}

impl CacheUse {
    /// The tokens that were neither read nor written.
    pub(crate) fn uncached(&self) -> usize {
        self.total.saturating_sub(self.read + self.write)
    }
}

/// The caches of all accounts.
pub(crate) struct PromptCache {
    pub(crate) clock: Clock,
    /// The hash of each prefix, when it expires, and its lifetime.
    prefixes: Mutex<HashMap<Hash, (Duration, Lifetime)>>,
}

impl PromptCache {
    pub(crate) fn new() -> Self {
        Self { clock: Clock::start(), prefixes: Mutex::default() }
    }

    /// Reads what is cached of a prompt and writes the rest, as far as the provider caches it.
    /// `scope` names the account and the model.
    pub(crate) fn serve(&self, scope: &Hash, parts: &[PromptPart], caching: Caching) -> CacheUse {
        let used = match caching {
            Caching::Marks { least } => self.serve_marks(scope, parts, least),
            Caching::Blocks { least, step } => self.serve_blocks(scope, parts, least, step),
        };
        CacheUse { total: PromptPart::total(parts), ..used }
    }

    fn serve_marks(&self, scope: &Hash, parts: &[PromptPart], least: usize) -> CacheUse {
        let mut running = (*scope, 0);
        let prefixes: Vec<(Hash, usize)> = parts
            .iter()
            .map(|part| {
                running = (hash(&[&running.0, part.text.as_bytes()]), running.1 + part.tokens);
                running
            })
            .collect();
        let marks: Vec<(usize, Lifetime)> = parts
            .iter()
            .enumerate()
            .filter_map(|(at, part)| Some((at, part.breakpoint?)))
            .collect();
        let mut cache = self.open();
        let found = marks.iter().rev().find_map(|(breakpoint, _)| {
            let window = breakpoint.saturating_sub(LOOKBACK - 1)..=*breakpoint;
            window.rev().find(|at| cache.is_live(&prefixes[*at].0))
        });
        let mut used = CacheUse::default();
        if let Some(at) = found {
            cache.refresh(&prefixes[at].0);
            used.read = prefixes[at].1;
        }
        for (breakpoint, lifetime) in marks {
            let (prefix, tokens) = prefixes[breakpoint];
            if tokens < least {
                continue;
            }
            cache.write(prefix, lifetime);
            let written = tokens.saturating_sub(used.read);
            used.write = used.write.max(written);
            if lifetime == Lifetime::Hour {
                used.write_1h = used.write_1h.max(written);
            }
        }
        used
    }

    fn serve_blocks(
        &self,
        scope: &Hash,
        parts: &[PromptPart],
        least: usize,
        step: usize,
    ) -> CacheUse {
        let text: String = parts.iter().map(|part| part.text.as_str()).collect();
        let mut running = *scope;
        let blocks: Vec<Hash> = text
            .as_bytes()
            .chunks_exact(step * TOKEN_BYTES)
            .map(|block| {
                running = hash(&[&running, block]);
                running
            })
            .collect();
        let mut cache = self.open();
        let hits = blocks.iter().take_while(|block| cache.is_live(block)).count() * step;
        if blocks.len() * step < least {
            return CacheUse::default();
        }
        let read = if hits < least { 0 } else { hits.min(PromptPart::total(parts)) };
        let write = (blocks.len() * step).min(PromptPart::total(parts)) - read;
        for block in blocks {
            cache.write(block, Lifetime::Minutes);
        }
        CacheUse { read, write, ..CacheUse::default() }
    }

    fn open(&self) -> OpenCache<'_> {
        OpenCache { now: self.clock.now(), prefixes: self.prefixes.lock() }
    }
}

/// The cache during one request.
struct OpenCache<'a> {
    now: Duration,
    prefixes: parking_lot::MutexGuard<'a, HashMap<Hash, (Duration, Lifetime)>>,
}

impl OpenCache<'_> {
    fn is_live(&self, prefix: &Hash) -> bool {
        self.prefixes.get(prefix).is_some_and(|(expires, _)| *expires > self.now)
    }

    /// Every use of a prefix starts its lifetime again.
    fn refresh(&mut self, prefix: &Hash) {
        if let Some((expires, lifetime)) = self.prefixes.get_mut(prefix) {
            *expires = self.now + lifetime.duration();
        }
    }

    fn write(&mut self, prefix: Hash, lifetime: Lifetime) {
        if self.prefixes.len() >= MAX_PREFIXES {
            let now = self.now;
            self.prefixes.retain(|_, (expires, _)| *expires > now);
            if self.prefixes.len() >= MAX_PREFIXES {
                self.prefixes.clear();
            }
        }
        let expires = self.now + lifetime.duration();
        let entry = self.prefixes.entry(prefix).or_insert((expires, lifetime));
        if entry.0 <= expires {
            *entry = (expires, lifetime);
        }
    }
}

/// The marks of a prompt with their paths, in the order of the prompt.
#[derive(Default)]
pub(crate) struct Marks {
    found: Vec<(String, Lifetime)>,
}

impl Marks {
    /// Reads the breakpoint of a part. `path` is the path of the part.
    pub(crate) fn read(
        &mut self,
        part: &Value,
        path: impl FnOnce() -> String,
    ) -> Result<(), Refusal> {
        let breakpoint = &part["cache_control"];
        if breakpoint.is_null() {
            return Ok(());
        }
        let path = format!("{}.cache_control", path());
        let path = path.trim_start_matches('.').to_owned();
        if breakpoint["type"] != "ephemeral" {
            return Err(Refusal::invalid(format!("{path}.type: Input should be 'ephemeral'")));
        }
        if !matches!(breakpoint["ttl"].as_str(), None | Some("5m" | "1h")) {
            return Err(Refusal::invalid(format!("{path}.ttl: Input should be '5m' or '1h'")));
        }
        self.found.extend(mark_of(part).map(|lifetime| (path, lifetime)));
        Ok(())
    }

    /// Refuses too many marks, and a breakpoint for an hour after one for minutes.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        if self.found.len() > MAX_MARKS {
            return Err(Refusal::invalid(format!(
                "A maximum of {MAX_MARKS} blocks with cache_control may be provided. Found {}.",
                self.found.len()
            )));
        }
        let short = self.found.iter().position(|(_, lifetime)| *lifetime == Lifetime::Minutes);
        let late = self.found.iter().rposition(|(_, lifetime)| *lifetime == Lifetime::Hour);
        match (short, late) {
            (Some(short), Some(late)) if short < late => Err(Refusal::invalid(format!(
                "{}.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' \
                 cache_control block. Note that blocks are processed in the following order: \
                 `tools`, `system`, `messages`.",
                self.found[late].0
            ))),
            _ => Ok(()),
        }
    }
}

/// The breakpoint of a part.
pub(crate) fn mark_of(part: &Value) -> Option<Lifetime> {
    let breakpoint = part.get("cache_control").filter(|breakpoint| !breakpoint.is_null())?;
    Some(match breakpoint["ttl"].as_str() {
        Some("1h") => Lifetime::Hour,
        _ => Lifetime::Minutes,
    })
}

/// A part without its breakpoint, which the cache does not compare.
pub(crate) fn unmarked(part: &Value) -> Value {
    let mut part = part.clone();
    if let Some(members) = part.as_object_mut() {
        members.shift_remove("cache_control");
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCOPE: Hash = [7; 32];

    /// Parts of 100 tokens each, with the marks at these indexes.
    fn prompt(letters: &str, marks: &[(usize, Lifetime)]) -> Vec<PromptPart> {
        let part = |(at, letter): (usize, char)| {
            let breakpoint = marks.iter().find(|(marked, _)| *marked == at);
            PromptPart::new(
                "",
                &letter.to_string().repeat(400),
                breakpoint.map(|(_, lifetime)| *lifetime),
            )
        };
        letters.chars().enumerate().map(part).collect()
    }

    fn marked(cache: &PromptCache, letters: &str, marks: &[(usize, Lifetime)]) -> [usize; 4] {
        let used = cache.serve(&SCOPE, &prompt(letters, marks), Caching::Marks { least: 200 });
        [used.read, used.write, used.write_1h, used.uncached()]
    }

    #[test]
    fn marked_prefix_is_written_once_and_read_until_it_expires() {
        let cache = PromptCache::new();
        let minutes = [(1, Lifetime::Minutes), (2, Lifetime::Minutes)];
        assert_eq!(marked(&cache, "abcd", &minutes), [0, 300, 0, 100]);
        assert_eq!(marked(&cache, "abcd", &minutes), [300, 0, 0, 100]);
        assert_eq!(marked(&cache, "abXd", &minutes), [200, 100, 0, 100]);
        assert_eq!(marked(&cache, "Xbcd", &minutes), [0, 300, 0, 100]);
        cache.clock.advance(Duration::from_secs(4 * 60));
        assert_eq!(marked(&cache, "abcd", &minutes), [300, 0, 0, 100]);
        cache.clock.advance(Duration::from_secs(4 * 60));
        assert_eq!(marked(&cache, "abcd", &minutes), [300, 0, 0, 100]);
        cache.clock.advance(Duration::from_secs(5 * 60 + 1));
        assert_eq!(marked(&cache, "abcd", &minutes), [0, 300, 0, 100]);
    }

    #[test]
    fn mark_for_an_hour_outlives_a_mark_for_minutes() {
        let cache = PromptCache::new();
        let marks = [(1, Lifetime::Hour), (2, Lifetime::Minutes)];
        assert_eq!(marked(&cache, "abc", &marks), [0, 300, 200, 0]);
        cache.clock.advance(Duration::from_secs(59 * 60));
        assert_eq!(marked(&cache, "abc", &marks), [200, 100, 0, 0]);
        cache.clock.advance(Duration::from_secs(61 * 60));
        assert_eq!(marked(&cache, "abc", &marks), [0, 300, 200, 0]);
    }

    #[test]
    fn short_prefix_and_unmarked_prompt_are_not_cached() {
        let cache = PromptCache::new();
        for _ in 0..2 {
            assert_eq!(marked(&cache, "ab", &[(0, Lifetime::Minutes)]), [0, 0, 0, 200]);
            assert_eq!(marked(&cache, "abc", &[]), [0, 0, 0, 300]);
        }
    }

    #[test]
    fn search_goes_back_twenty_parts_from_a_mark() {
        let cache = PromptCache::new();
        marked(&cache, "aab", &[(2, Lifetime::Minutes)]);
        let longer = |more: usize| format!("aab{}", "x".repeat(more));
        assert_eq!(marked(&cache, &longer(20), &[(22, Lifetime::Minutes)])[0], 0);
        let other = PromptCache::new();
        marked(&other, "aab", &[(2, Lifetime::Minutes)]);
        assert_eq!(marked(&other, &longer(19), &[(21, Lifetime::Minutes)])[0], 300);
    }

    #[test]
    fn automatic_cache_reads_whole_blocks_of_an_equal_start() {
        let cache = PromptCache::new();
        let blocks = Caching::Blocks { least: 256, step: 128 };
        let serve = |letters: &str| {
            let used = cache.serve(&SCOPE, &prompt(letters, &[]), blocks);
            [used.read, used.write, used.uncached()]
        };
        assert_eq!(serve("ab"), [0, 0, 200]);
        assert_eq!(serve("abcdef"), [0, 512, 88]);
        assert_eq!(serve("abcdefg"), [512, 128, 60]);
        assert_eq!(serve("abcXef"), [256, 256, 88]);
        assert_eq!(serve("aXcdef"), [0, 512, 88]);
        cache.clock.advance(Duration::from_secs(5 * 60 + 1));
        assert_eq!(serve("abcdef"), [0, 512, 88]);
    }

    #[test]
    fn accounts_do_not_share_a_cache() {
        let cache = PromptCache::new();
        let parts = prompt("abcd", &[(3, Lifetime::Minutes)]);
        let caching = Caching::Marks { least: 200 };
        assert_eq!(cache.serve(&SCOPE, &parts, caching).write, 400);
        assert_eq!(cache.serve(&[8; 32], &parts, caching).write, 400);
        assert_eq!(cache.serve(&SCOPE, &parts, caching).read, 400);
    }
}
