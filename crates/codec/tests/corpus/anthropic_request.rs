//! Outlines of requests, and edits in place: an edit changes its own spans and no other byte.

use serde_json::{Value, json};
use throughline_codec::dialects::anthropic::outline::{Outline, Role};
use throughline_codec::dialects::anthropic::rewrite::{
    ThinkingEdit, close_loop, leave_out, set_effort, set_model, set_thinking,
};
use throughline_codec::json::{Edits, Kind, Span, each_member, validate};

use super::anthropic_tree::Change;
use super::folder::{Capture, Findings, captures};
use super::rules::Folder;

pub(crate) const DEPTH: usize = 64;

pub(crate) fn requests() -> Vec<Capture> {
    captures("anthropic/client_request", &["json"])
}

/// Every edit of the thinking setting.
pub(crate) const THINKING_EDITS: [ThinkingEdit; 5] = [
    ThinkingEdit::Keep,
    ThinkingEdit::Remove,
    ThinkingEdit::Budget(4095),
    ThinkingEdit::Adaptive,
    ThinkingEdit::Disabled,
];

/// A request, with the values its edits are compared with.
pub(crate) struct Request<'a> {
    pub(crate) body: &'a [u8],
    pub(crate) outline: Outline,
    tree: Value,
    name: &'a str,
}

impl<'a> Request<'a> {
    pub(crate) fn new(name: &'a str, body: &'a [u8]) -> Self {
        Self {
            body,
            outline: Outline::read(body, DEPTH).unwrap(),
            tree: serde_json::from_slice(body).unwrap(),
            name,
        }
    }

    /// The positions of all thinking blocks: message and block.
    pub(crate) fn positions(&self) -> Vec<(usize, usize)> {
        self.outline.thinking_blocks().map(|(at, index, ..)| (at, index)).collect()
    }

    /// Which blocks stay if these are removed.
    pub(crate) fn without(&self, gone: &[(usize, usize)]) -> Vec<(usize, Vec<bool>)> {
        let mut keep: Vec<(usize, Vec<bool>)> = Vec::new();
        for &(at, index) in gone {
            if keep.last().is_none_or(|(last, _)| *last != at) {
                keep.push((at, vec![true; self.outline.messages[at].blocks().len()]));
            }
            keep.last_mut().unwrap().1[index] = false;
        }
        keep
    }

    /// Applies a change and checks it: the result equals the same change on a tree of values, and all
    /// other bytes are the same.
    pub(crate) fn check(&self, change: &Change) {
        let mut edits = Edits::default();
        let filled = leave_out(&mut edits, &self.outline, &change.keep);
        if let Some(model) = change.model {
            set_model(&mut edits, self.body, &self.outline, model);
        }
        let (thinking, drop_bound) = (&change.thinking, change.drop_bound);
        set_thinking(&mut edits, self.body, &self.outline, thinking, drop_bound);
        let edited = edits.apply(self.body);

        let mut expected = self.tree.clone();
        let context = || {
            let edited = String::from_utf8_lossy(&edited);
            format!("{} with {change:?}:\n{edited}", self.name)
        };
        assert_eq!(filled, change.apply(&mut expected), "{}", context());
        assert!(validate(&edited, DEPTH).is_ok(), "{}", context());
        let actual: Value = serde_json::from_slice(&edited).unwrap();
        assert_eq!(actual, expected, "{}", context());
        assert!(has_unique_keys(&edited), "{}", context());
        let spots = self.spots(change);
        assert!(same_outside(self.body, &edited, &spots), "{}", context());
    }

    /// The spans that a change may touch, in order.
    fn spots(&self, change: &Change) -> Vec<Span> {
        let mut spots = Vec::new();
        for (at, keep) in &change.keep {
            let blocks = self.outline.messages[*at].blocks().iter();
            let spans: Vec<Span> = blocks.map(|block| block.span.clone()).collect();
            spots.extend(gaps(&spans, keep));
        }
        if let (Some(_), Some(model)) = (change.model, &self.outline.model) {
            spots.push(model.span.clone());
        }
        match (&change.thinking, &self.outline.thinking) {
            (ThinkingEdit::Keep, _) if !change.drop_bound => {}
            (ThinkingEdit::Keep, Some(thinking)) => {
                spots.push(member_spot(self.body, &thinking.span, b"block_binding"));
            }
            (ThinkingEdit::Remove, None) => {}
            (ThinkingEdit::Remove, Some(thinking)) => {
                let mut keep = vec![true; self.outline.members.len()];
                keep[thinking.member] = false;
                spots.extend(gaps(&self.outline.members, &keep));
            }
            (_, Some(thinking)) => spots.push(thinking.span.clone()),
            (_, None) => spots.push(member_spot(self.body, &self.outline.body, b"thinking")),
        }
        spots.sort_by_key(|spot| spot.start);
        spots
    }
}

/// The spans from the element before each removed run to the element after it.
fn gaps(elements: &[Span], keep: &[bool]) -> Vec<Span> {
    let mut gaps: Vec<Span> = Vec::new();
    let mut at = 0;
    while at < elements.len() {
        let first = at;
        while at < elements.len() && !keep[at] {
            at += 1;
        }
        if at > first {
            let start = match first {
                0 => elements[0].start,
                _ => elements[first - 1].end,
            };
            let end = elements.get(at).map_or(elements[at - 1].end, |next| next.start);
            gaps.push(start..end);
        }
        at += 1;
    }
    gaps
}

/// The span of a member's value, or of a new last member.
fn member_spot(body: &[u8], object: &Span, key: &[u8]) -> Span {
    let inside = body[object.start..object.end - 1].trim_ascii_end();
    let at = object.start + inside.len();
    let mut spot = at..at;
    each_member(body, object.start, |name, _, span| {
        if name == key {
            spot = span;
        }
    })
    .unwrap();
    spot
}

/// Whether no key of the request or of its settings occurs twice.
fn has_unique_keys(body: &[u8]) -> bool {
    fn once(body: &[u8], at: usize) -> bool {
        let (mut keys, mut settings) = (Vec::new(), Vec::new());
        each_member(body, at, |key, kind, span| {
            keys.push(key);
            let setting = key == b"thinking" || key == b"output_config";
            if setting && kind == Kind::Object {
                settings.push(span.start);
            }
        })
        .unwrap();
        let all = keys.len();
        keys.sort_unstable();
        keys.dedup();
        keys.len() == all && settings.into_iter().all(|at| once(body, at))
    }
    once(body, 0)
}

/// Whether `edited` differs from `body` in these spans only.
fn same_outside(body: &[u8], edited: &[u8], spots: &[Span]) -> bool {
    let (Some(first), Some(last)) = (spots.first(), spots.last()) else {
        return body == edited;
    };
    let Some(rest) = edited.strip_prefix(&body[..first.start]) else {
        return false;
    };
    let Some(mut rest) = rest.strip_suffix(&body[last.end..]) else {
        return false;
    };
    spots.windows(2).all(|pair| {
        let between = &body[pair[0].end..pair[1].start];
        // The leftmost match leaves the most bytes for the next ones.
        let found = memchr::memmem::find(rest, between);
        rest = found.map_or(rest, |at| &rest[at + between.len()..]);
        found.is_some()
    })
}

fn outline_lines(outline: &Outline) -> String {
    let thinking = outline.thinking.as_ref().map(|thinking| {
        json!({"mode": thinking.mode, "budget": thinking.budget, "binding": thinking.binding})
    });
    let blocks: Vec<Value> = outline
        .thinking_blocks()
        .map(|(at, index, kind, key)| json!([at, index, kind, key.map(|key| key.short())]))
        .collect();
    let roles: String = outline
        .messages
        .iter()
        .map(|message| match message.role {
            Role::User => 'u',
            Role::Assistant => 'a',
            Role::Other => '-',
        })
        .collect();
    let members = json!({
        "model": outline.model.as_ref().map(|model| &model.name),
        "stream": outline.stream,
        "max_tokens": outline.max_tokens,
        "thinking": thinking,
        "effort": outline.effort,
        "user_id": outline.user_id,
        "system": outline.system.is_some(),
        "tools": outline.tools.is_some(),
        "roles": roles,
        "thinking_blocks": blocks,
        "open_tool_loop": outline.open_tool_loop(),
        "after_last_user_turn": outline.after_last_user_turn(),
        "repeated_tool_ids": outline.repeated_tool_ids,
    });
    // One line for each member, so that a difference is easy to see.
    let members = members.as_object().unwrap().iter();
    let lines: Vec<String> = members.map(|(key, value)| format!("  \"{key}\": {value}")).collect();
    format!("{{\n{}\n}}\n", lines.join(",\n"))
}

/// Compares the outline of each request with its golden.
pub(crate) fn check(folder: &Folder, findings: &mut Findings) {
    for capture in &folder.captures {
        let outline = Outline::read(&capture.bytes, DEPTH).unwrap();
        findings.golden(capture.beside("outline.json"), Some(&outline_lines(&outline)));
    }
}

/// Covers: S1-28
#[test]
fn a_request_without_edits_keeps_its_bytes() {
    for capture in requests() {
        let request = Request::new(&capture.name, &capture.bytes);
        request.check(&Change::default());
        assert_eq!(Edits::default().apply(&capture.bytes), capture.bytes);
    }
}

/// Covers: S1-27, S1-28, case 12
#[test]
fn removing_thinking_changes_nothing_else() {
    for capture in requests() {
        let request = Request::new(&capture.name, &capture.bytes);
        let positions = request.positions();
        let subsets = 1usize << positions.len().min(16);
        // All subsets of six; of more, some that are spread over all of them, and each single one.
        let step = (subsets / 64).max(1);
        let singles = (0..positions.len()).map(|at| 1 << at);
        for subset in (0..subsets).step_by(step).chain([subsets - 1]).chain(singles) {
            // The bits of a sample are mixed, else the low ones would never be set.
            let subset = if step > 1 { subset ^ subset >> 4 } else { subset };
            let gone: Vec<_> = positions
                .iter()
                .enumerate()
                .filter(|(at, _)| subset >> at & 1 == 1)
                .map(|(_, position)| *position)
                .collect();
            request.check(&Change { keep: request.without(&gone), ..Change::default() });
        }
    }
}

/// Covers: S1-28
#[test]
fn changing_settings_changes_nothing_else() {
    for capture in requests() {
        let request = Request::new(&capture.name, &capture.bytes);
        for thinking in THINKING_EDITS {
            for drop_bound in [false, true] {
                for model in [None, Some("claude-\"odd\"-\u{e9}")] {
                    for keep in [Vec::new(), request.without(&request.positions())] {
                        request.check(&Change {
                            keep,
                            model,
                            thinking: thinking.clone(),
                            drop_bound,
                        });
                    }
                }
            }
        }
    }
}

#[test]
fn closing_a_loop_removes_its_calls_only() {
    for capture in requests() {
        let request = Request::new(&capture.name, &capture.bytes);
        let Some(from) = request.outline.open_tool_loop() else {
            continue;
        };
        for gone in [Vec::new(), request.positions()] {
            let mut edits = Edits::default();
            leave_out(&mut edits, &request.outline, &request.without(&gone));
            let calls = close_loop(&mut edits, &capture.bytes, &request.outline, from);
            assert!(calls > 0, "{}", capture.name);
            set_effort(&mut edits, &capture.bytes, &request.outline, "low");
            let edited = edits.apply(&capture.bytes);
            let after = Outline::read(&edited, DEPTH).unwrap();
            assert_eq!(after.open_tool_loop(), None, "{}", capture.name);
            assert_eq!(after.messages.len(), request.outline.messages.len());
            assert_eq!(after.effort.as_deref(), Some("low"));
            assert!(has_unique_keys(&edited), "{}", capture.name);
            let left = request.positions().len() - gone.len();
            assert_eq!(after.thinking_blocks().count(), left, "{}", capture.name);
        }
    }
}

#[test]
fn the_outline_of_a_cut_request_is_an_error() {
    for capture in requests() {
        let whole = capture.bytes.trim_ascii_end().len();
        for cut in 0..whole {
            assert!(
                Outline::read(&capture.bytes[..cut], DEPTH).is_err(),
                "{} cut at {cut}",
                capture.name
            );
        }
    }
}
