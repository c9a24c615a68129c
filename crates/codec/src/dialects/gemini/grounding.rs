//! Citations (`groundingMetadata`), both ways.
//!
//! Positions are bytes of the whole answer here, across all parts. Canonical positions are
//! characters of a block.

use std::collections::HashMap;

use serde_json::{Value, json};
use throughline_canonical::{Citation, Verbatim};

use super::{NAME, names};

/// A source, and the bytes of the answer that refer to it.
#[derive(Debug)]
pub(crate) struct Grounded {
    citation: Citation,
    /// The half-open byte range, and the text there, if known.
    segment: Option<(usize, usize, Option<String>)>,
}

/// Reads the metadata of a candidate: every source as often as it is cited. The metadata are rare,
/// so trees are fine.
pub(crate) fn read(json: &[u8]) -> Vec<Grounded> {
    let Ok(metadata) = serde_json::from_slice::<Value>(json) else {
        return Vec::new();
    };
    let chunks = list(&metadata, "groundingChunks");
    let mut used = vec![false; chunks.len()];
    let mut all = Vec::new();
    for support in list(&metadata, "groundingSupports") {
        let segment = member(support, "segment").map(segment);
        for index in list(support, "groundingChunkIndices") {
            let index = index.as_u64().and_then(|index| usize::try_from(index).ok());
            let Some((index, chunk)) = index.and_then(|at| Some((at, chunks.get(at)?))) else {
                continue;
            };
            if let Some(used) = used.get_mut(index) {
                *used = true;
            }
            all.push(Grounded { citation: source(chunk), segment: segment.clone() });
        }
    }
    let unused = chunks.iter().zip(used).filter(|(_, used)| !used);
    all.extend(unused.map(|(chunk, _)| Grounded { citation: source(chunk), segment: None }));
    // `citationMetadata` lists recited sources.
    let recited = list(&metadata, "citationSources").iter();
    for cited in recited.chain(list(&metadata, "citations")) {
        let text = |key: &str| member(cited, key).and_then(Value::as_str).map(str::to_owned);
        all.push(Grounded {
            citation: Citation { url: text("uri"), title: text("title"), ..Citation::default() },
            segment: Some(segment(cited)),
        });
    }
    all.retain(|one| one.citation.url.is_some() || one.citation.verbatim.is_some());
    all
}

fn member<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    let mut members = value.as_object()?.iter();
    members.find(|(key, _)| names::is(key, name)).map(|(_, value)| value)
}

fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    let found = member(value, name).and_then(Value::as_array);
    found.map(Vec::as_slice).unwrap_or_default()
}

fn segment(value: &Value) -> (usize, usize, Option<String>) {
    let at = |name: &str| {
        let found = member(value, name).and_then(Value::as_u64);
        usize::try_from(found.unwrap_or_default()).unwrap_or(usize::MAX)
    };
    let words = member(value, "text").and_then(Value::as_str);
    (at("startIndex"), at("endIndex"), words.map(str::to_owned))
}

/// Reads a source. A web source with an address and a title is complete.
fn source(chunk: &Value) -> Citation {
    let kinds = chunk.as_object().into_iter().flatten();
    let (web, kind) = match member(chunk, "web") {
        Some(web) => (true, Some(web)),
        None => (false, kinds.map(|(_, kind)| kind).next()),
    };
    let text = |key: &str| {
        let found = kind.and_then(|kind| member(kind, key)?.as_str());
        found.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let plain = web && kind.and_then(Value::as_object).is_some_and(|web| web.len() <= 2);
    let url = text("uri");
    Citation {
        // A source without a title repeats its address as the title.
        title: text("title").filter(|title| url.as_ref() != Some(title)),
        url,
        quote: text("text"),
        span: None,
        verbatim: (!plain && chunk.is_object())
            .then(|| Verbatim { dialect: NAME.to_owned(), value: chunk.clone() }),
    }
}

impl Grounded {
    /// A key that identifies it.
    pub(crate) fn key(&self) -> String {
        let at = self.segment.as_ref().map(|(start, end, _)| (start, end));
        let verbatim = self.citation.verbatim.as_ref().map(|own| &own.value);
        json!([self.citation.url, self.citation.title, at, verbatim]).to_string()
    }

    /// Whether it belongs to a text at this byte offset, or to the whole answer.
    pub(crate) fn is_of(&self, text: &str, before: usize) -> bool {
        match &self.segment {
            Some((start, end, _)) => *start >= before && *end <= before.saturating_add(text.len()),
            None => true,
        }
    }
}

/// The citations of a text at this byte offset. A range is kept only if the text there matches,
/// because it may refer to a part or to something we do not have.
pub(crate) fn cite(all: Vec<Grounded>, text: &str, before: usize) -> Vec<Citation> {
    let range = |grounded: &Grounded| {
        let (start, end, words) = grounded.segment.as_ref()?;
        let fits = |start: usize, end: usize| {
            let found = text.get(start..end).filter(|found| !found.is_empty())?;
            let same = words.as_ref().is_none_or(|words| words == found);
            same.then_some((start, end))
        };
        let whole = start.checked_sub(before).zip(end.checked_sub(before));
        let own = whole.and_then(|(start, end)| fits(start, end));
        own.or_else(|| fits(*start, *end).filter(|_| words.is_some()))
    };
    let ranges: Vec<Option<(usize, usize)>> = all.iter().map(range).collect();
    let mut at: Vec<usize> = ranges.iter().flatten().flat_map(|(a, b)| [*a, *b]).collect();
    at.sort_unstable();
    let (mut count, mut last) = (0, 0);
    let mut characters = HashMap::new();
    for at in at {
        let between = text.get(last..at).unwrap_or_default();
        count += between.chars().count() as u64;
        last = at;
        characters.insert(at, count);
    }
    let placed = all.into_iter().zip(ranges);
    placed
        .map(|(grounded, range)| {
            let at = |at: usize| characters.get(&at).copied();
            Citation {
                span: range.and_then(|(start, end)| Some((at(start)?, at(end)?))),
                ..grounded.citation
            }
        })
        .collect()
}

/// The sources of an answer, as they are written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grounding {
    chunks: Vec<Value>,
    supports: Vec<Value>,
    /// Index of a chunk, by its JSON.
    known: HashMap<String, usize>,
}

impl Grounding {
    /// Adds the citations of a text at this byte offset. Sources that only another dialect can
    /// express are left out.
    pub(crate) fn add(&mut self, text: &str, before: usize, citations: &[Citation]) {
        let spans = citations.iter().filter_map(|citation| citation.span);
        let mut at: Vec<u64> = spans.flat_map(|(start, end)| [start, end]).collect();
        at.sort_unstable();
        at.dedup();
        let mut bytes = HashMap::new();
        let mut wanted = at.into_iter().peekable();
        let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
        for (count, offset) in (0u64..).zip(ends) {
            if wanted.next_if_eq(&count).is_some() {
                bytes.insert(count, offset);
            }
        }
        // Positions after the end of the text mean its end.
        let offset = |at: u64| bytes.get(&at).copied().unwrap_or(text.len());
        for citation in citations {
            let chunk = match (citation.written_by(NAME), &citation.url) {
                (Some(own), _) => own.clone(),
                (None, Some(url)) => {
                    let title = citation.title.as_ref().unwrap_or(url);
                    json!({"web": {"uri": url, "title": title}})
                }
                (None, None) => continue,
            };
            let (start, end) = match citation.span {
                Some((start, end)) => (offset(start), offset(end)),
                None => (0, text.len()),
            };
            let index = self.index(chunk);
            let words = text.get(start..end).unwrap_or_default();
            let segment =
                json!({"startIndex": before + start, "endIndex": before + end, "text": words});
            match self.supports.last_mut() {
                Some(last) if last["segment"] == segment => {
                    if let Some(indices) = last["groundingChunkIndices"].as_array_mut() {
                        indices.push(index.into());
                    }
                }
                _ => self
                    .supports
                    .push(json!({"segment": segment, "groundingChunkIndices": [index]})),
            }
        }
    }

    fn index(&mut self, chunk: Value) -> usize {
        let next = self.chunks.len();
        let index = *self.known.entry(chunk.to_string()).or_insert(next);
        if index == next {
            self.chunks.push(chunk);
        }
        index
    }

    /// Writes the metadata as a member of a candidate, with a comma after it; nothing if it is
    /// empty.
    pub(crate) fn write_into(&self, json: &mut String) {
        if !self.chunks.is_empty() {
            let metadata =
                json!({"groundingChunks": self.chunks, "groundingSupports": self.supports});
            json.push_str("\"groundingMetadata\":");
            json.push_str(&metadata.to_string());
            json.push(',');
        }
    }
}
