//! Arguments written as elements in elements, named after their keys: minimax_m3.
//!
//! Every tag has a mark before it, `]<]minimax[>[`, which no other text has. An object is an element
//! for each member, a list is an element for each of its own, called `item`; the schema decides
//! where it says, and else the name of the first one. A value that begins with text is text up to
//! its own closer. An element that holds nothing is an empty list or object where the schema wants
//! one. A key that comes twice is passed on twice: what went out cannot become a list any more.

use super::super::schema::{Kinds, Schema};
use super::boundary::find;
use super::sink::Sink;
use super::value::{Typing, Value, quote};
use super::{FRAME, NAME, Progress, within};
use crate::text::marker::{Match, compare};

/// Reads the arguments of one call, up to and including what ends it.
#[derive(Debug)]
pub(crate) struct NestedArguments {
    state: State,
    /// The containers that are open, outermost first: the arguments themselves.
    open: Vec<Container>,
    /// Their names and that of the value in them, one behind the other.
    names: String,
    /// Where the name of the element that is read stands in them.
    current: (usize, usize),
    /// What closes that.
    close: String,
    value: Value,
    /// White space at the beginning of a value.
    space: String,
    scratch: String,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Where an element, or the end of what holds it, can stand.
    Between,
    /// Behind the opener of an element, before it is known what it holds.
    Begins,
    /// In the text of a value.
    Value,
}

#[derive(Clone, Copy, Debug)]
struct Container {
    list: bool,
    /// Where its name stands in the names.
    name: (usize, usize),
    /// How many elements have begun in it.
    elements: usize,
}

const MARK: &str = "]<]minimax[>[";
const END: &str = "]<]minimax[>[</invoke>";
/// What ends a call without being part of it: the end of the section, and the next call.
const IMPLICIT_END: [&str; 2] = ["]<]minimax[>[</tool_call>", "]<]minimax[>[<invoke "];
/// The name of an element of a list.
const ITEM: &str = "item";

/// The longest tag.
const LONGEST_TAG: usize = NAME;
/// How deeply values may be nested.
const DEPTH: usize = 64;

/// One step.
enum Step {
    /// Go on here.
    To(usize),
    Stop(Progress),
}

/// The tag at the beginning of a text.
enum Tag<'t> {
    Begun,
    Wrong(&'static str),
    Open { name: &'t str, length: usize },
    Close { name: &'t str, length: usize },
}

impl NestedArguments {
    /// For a new call.
    pub(crate) fn new() -> Self {
        let arguments = Container { list: false, name: (0, 0), elements: 0 };
        Self {
            state: State::Between,
            open: vec![arguments],
            names: String::new(),
            current: (0, 0),
            close: String::new(),
            value: Value::new(),
            space: String::new(),
            scratch: String::new(),
        }
    }

    /// Reads on. `last` says that no text follows.
    pub(crate) fn read(&mut self, text: &str, last: bool, sink: &mut Sink<'_>) -> Progress {
        let mut at = 0;
        loop {
            let step = match self.state {
                State::Between => self.between(text, at, last, sink),
                State::Begins => self.begins(text, at, last, sink),
                State::Value => self.value(text, at, last, sink),
            };
            match step {
                Step::To(place) => at = place,
                Step::Stop(progress) => return progress,
            }
        }
    }

    fn between(&mut self, text: &str, at: usize, last: bool, sink: &mut Sink<'_>) -> Step {
        let rest = text[at..].trim_ascii_start();
        let at = text.len() - rest.len();
        if rest.is_empty() {
            return Step::Stop(Progress::More(at));
        }
        if IMPLICIT_END.iter().any(|marker| rest.starts_with(marker) && !self.is_open(marker)) {
            self.close_down_to(0, sink);
            return Step::Stop(Progress::Ended(at));
        }
        Step::Stop(match tag(within(rest, LONGEST_TAG)) {
            Tag::Begun if rest.len() >= LONGEST_TAG => Progress::Broken(at, "a tag is too long"),
            Tag::Begun if !last => Progress::More(at),
            Tag::Begun => match self.has_ended(rest) {
                Some(used) => {
                    self.close_down_to(0, sink);
                    Progress::Ended(at + used)
                }
                None => Progress::More(text.len()),
            },
            Tag::Wrong(why) => Progress::Broken(at, why),
            Tag::Open { .. } if self.open.len() > DEPTH => {
                Progress::Broken(at, "the arguments are nested too deeply")
            }
            Tag::Open { name, length } => {
                self.element(name, sink);
                return Step::To(at + length);
            }
            Tag::Close { name, length } => match self.holder(name) {
                Some(0) => {
                    self.close_down_to(0, sink);
                    Progress::Ended(at + length)
                }
                Some(level) => {
                    self.close_down_to(level, sink);
                    return Step::To(at + length);
                }
                None => Progress::Broken(at, "a closing tag of nothing that is open"),
            },
        })
    }

    /// Whether a text that ends in a closing tag lacks nothing but the rest of it, and how much of
    /// that is part of the call.
    fn has_ended(&self, rest: &str) -> Option<usize> {
        let closes = self.open.len() == 1 && rest.strip_prefix(MARK)?.starts_with("</");
        if closes && END.starts_with(rest) {
            return Some(rest.len());
        }
        (closes && IMPLICIT_END[0].starts_with(rest)).then_some(0)
    }

    /// The innermost container that a closing tag of this name closes. Those in it, whose own are
    /// missing, end with it.
    fn holder(&self, name: &str) -> Option<usize> {
        let is_named =
            |container: &Container| &self.names[container.name.0..container.name.1] == name;
        match self.open[1..].iter().rposition(is_named) {
            Some(place) => Some(place + 1),
            None => (name == "invoke").then_some(0),
        }
    }

    /// Whether a closing tag belongs to a container that happens to have the name of a section.
    fn is_open(&self, marker: &str) -> bool {
        match tag(marker) {
            Tag::Close { name, .. } => self.holder(name).is_some(),
            _ => false,
        }
    }

    /// Closes containers, down to and including the one at a level.
    fn close_down_to(&mut self, level: usize, sink: &mut Sink<'_>) {
        while self.open.len() > level
            && let Some(container) = self.open.pop()
        {
            self.names.truncate(container.name.0);
            // The arguments open with their first member only, since the call may be cut before.
            sink.arguments(match (container.list, container.elements) {
                (true, _) => "]",
                (false, 0) if self.open.is_empty() => "{}",
                (false, _) => "}",
            });
        }
    }

    /// An element begins in the innermost container.
    fn element(&mut self, name: &str, sink: &mut Sink<'_>) {
        let outermost = self.open.len() == 1;
        let Some(container) = self.open.last_mut() else {
            return;
        };
        self.scratch.clear();
        if container.elements > 0 {
            self.scratch.push(',');
        } else if outermost {
            self.scratch.push('{');
        }
        container.elements += 1;
        if !container.list {
            quote(name, &mut self.scratch);
            self.scratch.push(':');
        }
        sink.arguments(&self.scratch);

        self.close.clear();
        self.close.extend([MARK, "</", name, ">"]);
        self.space.clear();
        self.current = (self.names.len(), self.names.len() + name.len());
        self.names.push_str(name);
        let kinds = self.schema(sink).kinds();
        if kinds.is_unknown() || kinds.allow(Kinds::OBJECT) || kinds.allow(Kinds::ARRAY) {
            self.state = State::Begins;
        } else {
            self.value.begin(Typing::Schema(kinds), sink);
            self.state = State::Value;
        }
    }

    /// What is known of the element that is read.
    fn schema<'a>(&self, sink: &Sink<'a>) -> Schema<'a> {
        let (Some(tools), Some(tool)) = (sink.tools(), sink.open()) else {
            return Schema::nothing();
        };
        let mut schema = tools.schema(tool);
        let inner = self.open[1..].iter().map(|container| container.name);
        for (container, (start, end)) in self.open.iter().zip(inner.chain([self.current])) {
            schema = if container.list {
                schema.element(container.elements.saturating_sub(1))
            } else {
                schema.property(&self.names[start..end])
            };
        }
        schema
    }

    /// The element that was read is complete.
    fn element_ends(&mut self) {
        self.names.truncate(self.current.0);
        self.state = State::Between;
    }

    fn begins(&mut self, text: &str, at: usize, last: bool, sink: &mut Sink<'_>) -> Step {
        let rest = text[at..].trim_ascii_start();
        let start = text.len() - rest.len();
        // So much white space is part of a text.
        let room = FRAME.saturating_sub(self.space.len());
        if start - at > room {
            self.space.push_str(&text[at..at + room]);
            let kinds = self.schema(sink).kinds();
            self.value.begin(Typing::Schema(kinds), sink);
            self.value.text(&self.space, sink);
            self.state = State::Value;
            return Step::To(at + room);
        }
        self.space.push_str(&text[at..start]);
        let schema = self.schema(sink);
        let kinds = schema.kinds();
        let closed = compare(&self.close, rest);
        if let Match::Whole(length) = closed
            && !kinds.allow(Kinds::STRING)
            && (kinds.allow(Kinds::ARRAY) || kinds.allow(Kinds::OBJECT))
        {
            let list = kinds.allow(Kinds::ARRAY);
            sink.arguments(if list { "[]" } else { "{}" });
            self.element_ends();
            return Step::To(start + length);
        }
        if !matches!(closed, Match::Whole(_)) {
            match tag(within(rest, LONGEST_TAG)) {
                // An empty text may still become anything.
                Tag::Begun if last => return Step::Stop(Progress::More(text.len())),
                Tag::Begun if rest.len() < LONGEST_TAG => {
                    return Step::Stop(Progress::More(start));
                }
                Tag::Open { name, .. } => {
                    let list = match (kinds.allow(Kinds::ARRAY), kinds.allow(Kinds::OBJECT)) {
                        (true, false) => true,
                        (false, true) => false,
                        _ => name == ITEM && !schema.names(name),
                    };
                    sink.arguments(if list { "[" } else { "{" });
                    self.open.push(Container { list, name: self.current, elements: 0 });
                    self.state = State::Between;
                    return Step::To(start);
                }
                _ => {}
            }
        }
        self.value.begin(Typing::Schema(kinds), sink);
        self.value.text(&self.space, sink);
        self.state = State::Value;
        Step::To(start)
    }

    fn value(&mut self, text: &str, at: usize, last: bool, sink: &mut Sink<'_>) -> Step {
        let (end, after) = find(&text[at..], &self.close, false, last);
        self.value.text(&text[at..at + end], sink);
        let Some(after) = after else {
            if last {
                self.value.cut(sink);
            }
            return Step::Stop(Progress::More(at + end));
        };
        self.value.end(sink);
        self.element_ends();
        Step::To(at + after)
    }
}

/// Reads the tag at the beginning of a text.
fn tag(text: &str) -> Tag<'_> {
    match compare(MARK, text) {
        Match::No => return Tag::Wrong("neither a parameter nor the end of the call"),
        Match::Begun => return Tag::Begun,
        Match::Whole(_) => {}
    }
    let inside = match text[MARK.len()..].strip_prefix('<') {
        Some(inside) => inside,
        None if text.len() == MARK.len() => return Tag::Begun,
        None => return Tag::Wrong("a mark without a tag"),
    };
    let Some(end) = inside.find(['>', '<', '\n']) else {
        return Tag::Begun;
    };
    let length = MARK.len() + 1 + end + 1;
    let (closes, name) = match inside[..end].strip_prefix('/') {
        Some(name) => (true, name),
        None => (false, &inside[..end]),
    };
    match inside.as_bytes()[end] {
        b'>' if name.trim().is_empty() => Tag::Wrong("a tag has no name"),
        b'>' if length >= LONGEST_TAG => Tag::Wrong("a tag is too long"),
        b'>' if closes => Tag::Close { name, length },
        b'>' => Tag::Open { name, length },
        _ => Tag::Wrong("a tag does not end"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value as Json, json};

    use super::super::super::schema::Tools;
    use super::super::harness::{Machine, Outcome, cut_everywhere, read, read_pieces};
    use super::*;

    impl Machine for NestedArguments {
        fn read(&mut self, text: &str, last: bool, sink: &mut Sink<'_>) -> Progress {
            self.read(text, last, sink)
        }
    }

    fn tools() -> Tools {
        Tools::read(
            br##"[{"name":"t","parameters":{"properties":{
            "s":{"type":"string"},"n":{"type":"integer"},
            "l":{"type":"array","items":{"type":"string"}},
            "o":{"$ref":"#/$defs/o"}},
            "$defs":{"o":{"type":"object","properties":{"item":{"type":"string"},
            "zip":{"type":"string"},"next":{"$ref":"#/$defs/o"},
            "ls":{"type":"array","items":{"$ref":"#/$defs/o"}}}}}}}]"##,
        )
        .unwrap()
    }

    /// `(` stands for the mark and `<`, `)` for `>`.
    fn marked(text: &str) -> String {
        text.replace('(', &format!("{MARK}<")).replace(')', ">")
    }

    fn outcome(text: &str) -> Outcome {
        let tools = tools();
        cut_everywhere(NestedArguments::new, Some(&tools), text);
        read(NestedArguments::new, Some(&tools), text)
    }

    fn check(text: &str, expected: &str) {
        let text = marked(text);
        for after in ["", "\n", "x"] {
            let read = outcome(&format!("{text}{after}"));
            assert_eq!(read.arguments, expected, "{text}");
            assert_eq!(read.progress, Progress::Ended(text.len()), "{text}");
        }
    }

    #[test]
    fn parameters_are_elements() {
        check("(/invoke)", "{}");
        check("\n(s)Paris(/s)\n(n)3(/n)\n(/invoke)", r#"{"s":"Paris","n":3}"#);
        check("(s) 1 \"<b>\n(/s)(n)x(/n)(/invoke)", r#"{"s":" 1 \"<b>\n","n":"x"}"#);
        check("(s)(/s)(/invoke)", r#"{"s":""}"#);
        check(
            "(s)a]<]mini(x)b(/x)(/invoke)(/s)(/invoke)",
            r#"{"s":"a]<]mini]<]minimax[>[<x>b]<]minimax[>[</x>]<]minimax[>[</invoke>"}"#,
        );
    }

    #[test]
    fn objects_and_lists_are_elements_in_elements() {
        check("(l)(item)1(/item)\n(item)b(/item)(/l)(/invoke)", r#"{"l":["1","b"]}"#);
        check("(l)\n(x)1(/x)(y)2(/y)(/l)(/invoke)", r#"{"l":["1","2"]}"#);
        check(
            "(o)\n(zip)01(/zip)(next)(zip)02(/zip)(/next)(/o)(/invoke)",
            r#"{"o":{"zip":"01","next":{"zip":"02"}}}"#,
        );
        check(
            "(o)(ls)(item)(zip)1(/zip)(/item)(item)(zip)2(/zip)(/item)(/ls)(/o)(/invoke)",
            r#"{"o":{"ls":[{"zip":"1"},{"zip":"2"}]}}"#,
        );
        check("(o)(item)1(/item)(/o)(/invoke)", r#"{"o":{"item":"1"}}"#);
    }

    #[test]
    fn without_a_schema_the_names_decide() {
        check("(u)(item)1(/item)(item)x(/item)(/u)(/invoke)", r#"{"u":[1,"x"]}"#);
        check(
            "(u)(a)true(/a)(b)(item) [2] (/item)(/b)(/u)(/invoke)",
            r#"{"u":{"a":true,"b":[[2]]}}"#,
        );
        check("(u) \n(/u)(/invoke)", r#"{"u":" \n"}"#);
        check("(u)\ntext (/u)(/invoke)", r#"{"u":"\ntext "}"#);
    }

    #[test]
    fn containers_may_be_empty_or_json() {
        check("(l)(/l)(o)\n(/o)(/invoke)", r#"{"l":[],"o":{}}"#);
        check(r#"(l) ["a"] (/l)(o){'b': 1}(/o)(/invoke)"#, r#"{"l":["a"],"o":{"b":1}}"#);
    }

    #[test]
    fn closers_that_are_missing_are_made_up_for() {
        check(
            "(o)(next)(zip)1(/zip)(/o)(s)a(/s)(/invoke)",
            r#"{"o":{"next":{"zip":"1"}},"s":"a"}"#,
        );
        check("(l)(item)a(/item)(/invoke)", r#"{"l":["a"]}"#);
        for next in ["(/tool_call)", "(invoke name=\"u\")"] {
            let body = marked("(o)(zip)1(/zip)");
            let read = outcome(&format!("{body}{}", marked(next)));
            assert_eq!(read.arguments, r#"{"o":{"zip":"1"}}"#);
            assert_eq!(read.progress, Progress::Ended(body.len()));
        }
        let text = marked("(s)a(/s)(/inv");
        let read = outcome(&text);
        assert_eq!(read.arguments, r#"{"s":"a"}"#);
        assert_eq!(read.progress, Progress::Ended(text.len()));
    }

    #[test]
    fn a_cut_leaves_what_was_there() {
        for (text, expected) in [
            ("(s", ""),
            ("(s)", r#"{"s":""#),
            ("(s)ab(/s", r#"{"s":"ab]<]minimax[>[</s"#),
            ("(n)12", r#"{"n":12"#),
            ("(l)(item)a(/item)(it", r#"{"l":["a""#),
            ("(o)(zi", r#"{"o":"#),
        ] {
            let text = marked(text);
            let read = outcome(&text);
            assert_eq!(read.arguments, expected, "{text}");
            assert_eq!(read.progress, Progress::More(text.len()), "{text}");
        }
    }

    #[test]
    fn what_is_no_element_breaks_the_call() {
        for text in ["x", "(s)a(/s)x", "(/s)", "(o)(zip)1(/zip)x", "()", "(s<", "]<]minimax[>[s"] {
            let read = outcome(&marked(text));
            assert!(matches!(read.progress, Progress::Broken(..)), "{text}");
        }
        let deep = marked(&"(a)".repeat(DEPTH + 1));
        let read = |text: &str| read_pieces(NestedArguments::new(), None, &[text], true);
        assert!(matches!(read(&deep).progress, Progress::Broken(..)));
        assert!(matches!(read(&marked(&"(a)".repeat(DEPTH))).progress, Progress::More(_)));
        let long = marked(&format!("({})", "a".repeat(LONGEST_TAG)));
        assert!(matches!(read(&long).progress, Progress::Broken(0, _)));
    }

    /// As the model's template writes values.
    fn write(value: &Json, out: &mut String) {
        let mut element = |name: &str, value: &Json| {
            out.push_str(&format!("{MARK}<{name}>"));
            write(value, out);
            out.push_str(&format!("{MARK}</{name}>"));
        };
        match value {
            Json::Object(members) => members.iter().for_each(|(key, value)| element(key, value)),
            Json::Array(elements) => elements.iter().for_each(|value| element(ITEM, value)),
            Json::String(text) => out.push_str(text),
            other => out.push_str(&other.to_string()),
        }
    }

    fn values() -> impl Strategy<Value = Json> {
        let text = "[a-z\\]\\[<>\n\"é]{1,6}".prop_map(|text| json!(format!("~{text}")));
        let leaf = prop_oneof![
            any::<i32>().prop_map(|n| json!(n)),
            any::<bool>().prop_map(|b| json!(b)),
            text
        ];
        leaf.prop_recursive(4, 12, 3, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 1..3).prop_map(Json::Array),
                proptest::collection::btree_map("[a-h]{1,2}", inner, 1..3)
                    .prop_map(|members| Json::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_a_template_writes_comes_back(value in values(), cut in 0usize..300) {
            let arguments = json!({ "key": value });
            let mut text = String::new();
            write(&arguments, &mut text);
            text.push_str(END);
            let cut = (0..=cut.min(text.len())).rev().find(|&cut| text.is_char_boundary(cut)).unwrap();
            let read = read_pieces(NestedArguments::new(), None, &[&text[..cut], &text[cut..]], true);
            prop_assert_eq!(read.progress, Progress::Ended(text.len()));
            prop_assert_eq!(read.arguments, arguments.to_string());
        }

        #[test]
        fn arbitrary_text_is_read_alike_in_any_cut(
            parts in proptest::collection::vec(proptest::sample::select(vec![
                "(o)", "(/o)", "(l)", "(/l)", "(u)", "(/u)", "(item)", "(/item)", "(zip)", "(/zip)",
                "(/invoke)", "(/tool_call)", "\n", "x", "12", "]", "]<]",
            ]), 0..7),
        ) {
            outcome(&marked(&parts.concat()));
        }
    }
}
