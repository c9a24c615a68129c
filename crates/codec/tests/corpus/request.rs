//! Requests of clients: what is found in them, and that an edit changes nothing but its spot.

use serde_json::{Value, json};
use throughline_codec::dialects::anthropic::outline::{Outline, Role};
use throughline_codec::dialects::anthropic::rewrite::{
    ThinkingEdit, close_loop, leave_out, set_effort, set_model, set_thinking,
};
use throughline_codec::json::{Edits, Kind, Span, each_member, validate};

use super::folder::{Capture, captures, report};
use super::tree::Change;

pub(crate) const DEPTH: usize = 64;

pub(crate) fn requests() -> Vec<Capture> {
    captures("anthropic/client_request", &["json"])
}

/// Every setting of thinking that can be asked for.
pub(crate) const THINKING_EDITS: [ThinkingEdit; 5] = [
    ThinkingEdit::Keep,
    ThinkingEdit::Remove,
    ThinkingEdit::Budget(4095),
    ThinkingEdit::Adaptive,
    ThinkingEdit::Disabled,
];

/// A request with all that is compared against.
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

    /// The places of all thinking blocks.
    pub(crate) fn places(&self) -> Vec<(usize, usize)> {
        self.outline.thinking_blocks().map(|(at, index, ..)| (at, index)).collect()
    }

    /// What stays if these blocks go.
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

    /// Makes a change and checks it: as a tree of values would have it, and byte for byte the same
    /// wherever nothing was to change.
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
        let told = || {
            let edited = String::from_utf8_lossy(&edited);
            format!("{} with {change:?}:\n{edited}", self.name)
        };
        assert_eq!(filled, change.apply(&mut expected), "{}", told());
        assert!(validate(&edited, DEPTH).is_ok(), "{}", told());
        let actual: Value = serde_json::from_slice(&edited).unwrap();
        assert_eq!(actual, expected, "{}", told());
        assert!(keys_stand_once(&edited), "{}", told());
        let spots = self.spots(change);
        assert!(same_outside(self.body, &edited, &spots), "{}", told());
    }

    /// The places that a change may touch, in order.
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

/// From what stays before each run that goes to what stays behind it.
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

/// The place of a member's value, or of a new last member.
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

/// Whether no key of the request or of its settings stands twice.
fn keys_stand_once(body: &[u8]) -> bool {
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

/// Whether `edited` is `body` with something else in these spots and nowhere else.
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
        // The leftmost place leaves the most for those that follow.
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
    let told = json!({
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
    // One line for each member, so that a difference is seen at once.
    let members = told.as_object().unwrap().iter();
    let lines: Vec<String> = members.map(|(key, value)| format!("  \"{key}\": {value}")).collect();
    format!("{{\n{}\n}}\n", lines.join(",\n"))
}

/// Covers: S1-14, S1-16, S1-27, S1-30, case 8, case 12, case 13
#[test]
fn requests_have_the_outline_of_their_goldens() {
    report(requests().iter().map(|capture| {
        let outline = Outline::read(&capture.bytes, DEPTH).unwrap();
        capture.golden("outline.json", &outline_lines(&outline))
    }));
}

/// Covers: S1-28
#[test]
fn a_request_that_needs_no_edit_stays_byte_for_byte() {
    for capture in requests() {
        let request = Request::new(&capture.name, &capture.bytes);
        request.check(&Change::default());
        assert_eq!(Edits::default().apply(&capture.bytes), capture.bytes);
    }
}

/// Covers: S1-27, S1-28, case 12
#[test]
fn any_thinking_can_be_left_out_and_nothing_else_changes() {
    for capture in requests() {
        let request = Request::new(&capture.name, &capture.bytes);
        let places = request.places();
        let subsets = 1usize << places.len().min(16);
        // All subsets of six; of more, some that are spread over all of them, and each single one.
        let step = (subsets / 64).max(1);
        let singles = (0..places.len()).map(|at| 1 << at);
        for subset in (0..subsets).step_by(step).chain([subsets - 1]).chain(singles) {
            // The bits of a sample are mixed, else the low ones would never be set.
            let subset = if step > 1 { subset ^ subset >> 4 } else { subset };
            let gone: Vec<_> = places
                .iter()
                .enumerate()
                .filter(|(at, _)| subset >> at & 1 == 1)
                .map(|(_, place)| *place)
                .collect();
            request.check(&Change { keep: request.without(&gone), ..Change::default() });
        }
    }
}

/// Covers: S1-28
#[test]
fn settings_change_in_their_spot_only() {
    for capture in requests() {
        let request = Request::new(&capture.name, &capture.bytes);
        for thinking in THINKING_EDITS {
            for drop_bound in [false, true] {
                for model in [None, Some("claude-\"odd\"-\u{e9}")] {
                    for keep in [Vec::new(), request.without(&request.places())] {
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
fn a_closed_loop_holds_no_calls_and_its_other_blocks_stay() {
    for capture in requests() {
        let request = Request::new(&capture.name, &capture.bytes);
        let Some(from) = request.outline.open_tool_loop() else {
            continue;
        };
        for gone in [Vec::new(), request.places()] {
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
            assert!(keys_stand_once(&edited), "{}", capture.name);
            let left = request.places().len() - gone.len();
            assert_eq!(after.thinking_blocks().count(), left, "{}", capture.name);
        }
    }
}

#[test]
fn a_cut_request_is_refused() {
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
