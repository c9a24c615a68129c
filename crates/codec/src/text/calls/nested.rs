//! Arguments as nested elements, named after their keys: minimax_m3.
//!
//! Every tag has the prefix `]<]minimax[>[`, which no other text contains. An object has one
//! element per member. An array has one element per item, called `item`. The schema decides between
//! them, or else the name of the first element. A value that starts with text is text up to its own
//! closer. An empty element is an empty array or object if the schema asks for one. A repeated key
//! is passed on twice: emitted text cannot become an array any more.

use super::super::schema::{JsonTypes, Schema};
use super::boundary::Boundary;
use super::sink::Sink;
use super::value::{Value, ValueType, quote};
use super::{MAX_FRAMING, MAX_NAME, Progress, TagStep, prefix_up_to};
use crate::text::marker::{Match, compare};

/// Reads the arguments of one call, up to and including its end.
#[derive(Debug)]
pub(crate) struct NestedArguments {
    state: State,
    /// The open containers. The first one is the arguments themselves.
    open: Vec<Container>,
    /// Their names, and the name of the current element, joined.
    names: String,
    /// The range of the current element's name in `names`.
    current: (usize, usize),
    /// What closes the current element.
    close: String,
    value: Value,
    /// The last byte of the current value, or 0.
    previous_byte: u8,
    /// White space at the start of a value.
    space: String,
    scratch: String,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Where an element, or the end of its container, can follow.
    Between,
    /// After the opening tag of an element, before its type is known.
    ElementStart,
    /// In the text of a value.
    Value,
}

#[derive(Clone, Copy, Debug)]
struct Container {
    list: bool,
    /// The range of its name in `names`.
    name: (usize, usize),
    /// How many elements have started in it.
    elements: usize,
}

const TAG_PREFIX: &str = "]<]minimax[>[";
const END: &str = "]<]minimax[>[</invoke>";
/// Tags that end a call without being part of it: the end of the section, and the next call.
const IMPLICIT_END: [&str; 2] = ["]<]minimax[>[</tool_call>", "]<]minimax[>[<invoke "];
/// The name of an array's element.
const ITEM: &str = "item";

/// Limit for a tag.
const MAX_TAG: usize = MAX_NAME;
/// Limit for the nesting of values.
const MAX_DEPTH: usize = 64;

/// The tag at the start of a text.
enum Tag<'t> {
    Partial,
    Wrong(&'static str),
    Open { name: &'t str, length: usize },
    Close { name: &'t str, length: usize },
}

impl NestedArguments {
    /// Creates a reader for a new call.
    pub(crate) fn new() -> Self {
        let arguments = Container { list: false, name: (0, 0), elements: 0 };
        Self {
            state: State::Between,
            open: vec![arguments],
            names: String::new(),
            current: (0, 0),
            close: String::new(),
            value: Value::new(),
            previous_byte: 0,
            space: String::new(),
            scratch: String::new(),
        }
    }

    /// Reads the next text. `last` means that no text follows.
    pub(crate) fn read(&mut self, text: &str, last: bool, sink: &mut Sink<'_>) -> Progress {
        let mut at = 0;
        loop {
            let step = match self.state {
                State::Between => self.between(text, at, last, sink),
                State::ElementStart => self.element_start(text, at, last, sink),
                State::Value => self.value(text, at, last, sink),
            };
            match step {
                TagStep::To(next) => at = next,
                TagStep::Stop(progress) => return progress,
            }
        }
    }

    fn between(&mut self, text: &str, at: usize, last: bool, sink: &mut Sink<'_>) -> TagStep {
        let rest = text[at..].trim_ascii_start();
        let at = text.len() - rest.len();
        if rest.is_empty() {
            return TagStep::Stop(Progress::More(at));
        }
        if IMPLICIT_END
            .iter()
            .any(|marker| rest.starts_with(marker) && !self.closes_container(marker))
        {
            self.close_from(0, sink);
            return TagStep::Stop(Progress::Ended(at));
        }
        TagStep::Stop(match tag(prefix_up_to(rest, MAX_TAG)) {
            Tag::Partial if rest.len() >= MAX_TAG => Progress::Broken(at, "a tag is too long"),
            Tag::Partial if !last => Progress::More(at),
            Tag::Partial => Progress::More(text.len()),
            Tag::Wrong(why) => Progress::Broken(at, why),
            Tag::Open { .. } if self.open.len() > MAX_DEPTH => {
                Progress::Broken(at, "the arguments are nested too deeply")
            }
            Tag::Open { name, length } => {
                self.begin_element(name, sink);
                return TagStep::To(at + length);
            }
            Tag::Close { name, length } => match self.find_container(name) {
                Some(0) => {
                    self.close_from(0, sink);
                    Progress::Ended(at + length)
                }
                Some(level) => {
                    self.close_from(level, sink);
                    return TagStep::To(at + length);
                }
                None => Progress::Broken(at, "a closing tag without an open element"),
            },
        })
    }

    /// Finds the innermost container that a closing tag of this name closes. Containers inside it,
    /// whose own closing tags are missing, end with it.
    fn find_container(&self, name: &str) -> Option<usize> {
        let is_named =
            |container: &Container| &self.names[container.name.0..container.name.1] == name;
        match self.open[1..].iter().rposition(is_named) {
            Some(index) => Some(index + 1),
            None => (name == "invoke").then_some(0),
        }
    }

    /// Whether a closing tag belongs to a container that has the same name as a section.
    fn closes_container(&self, marker: &str) -> bool {
        match tag(marker) {
            Tag::Close { name, .. } => self.find_container(name).is_some(),
            _ => false,
        }
    }

    /// Closes containers from the innermost one down to `level`, inclusive.
    fn close_from(&mut self, level: usize, sink: &mut Sink<'_>) {
        while self.open.len() > level
            && let Some(container) = self.open.pop()
        {
            self.names.truncate(container.name.0);
            // The arguments open only with their first member, because the call may be cut before.
            sink.write_arguments(match (container.list, container.elements) {
                (true, _) => "]",
                (false, 0) if self.open.is_empty() => "{}",
                (false, _) => "}",
            });
        }
    }

    /// Begins an element in the innermost container.
    fn begin_element(&mut self, name: &str, sink: &mut Sink<'_>) {
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
        sink.write_arguments(&self.scratch);

        self.close.clear();
        self.close.extend([TAG_PREFIX, "</", name, ">"]);
        self.space.clear();
        self.previous_byte = 0;
        self.current = (self.names.len(), self.names.len() + name.len());
        self.names.push_str(name);
        let types = self.schema(sink).types();
        if types.is_unknown() || types.allow(JsonTypes::OBJECT) || types.allow(JsonTypes::ARRAY) {
            self.state = State::ElementStart;
        } else {
            self.value.begin(ValueType::Schema(types), sink);
            self.state = State::Value;
        }
    }

    /// The schema of the current element.
    fn schema<'a>(&self, sink: &Sink<'a>) -> Schema<'a> {
        let (Some(tools), Some(tool)) = (sink.tools(), sink.current_name()) else {
            return Schema::empty();
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

    /// Ends the current element.
    fn end_element(&mut self) {
        self.names.truncate(self.current.0);
        self.state = State::Between;
    }

    fn element_start(&mut self, text: &str, at: usize, last: bool, sink: &mut Sink<'_>) -> TagStep {
        let rest = text[at..].trim_ascii_start();
        let start = text.len() - rest.len();
        // More white space than this is part of a string.
        let room = MAX_FRAMING.saturating_sub(self.space.len());
        if start - at > room {
            self.space.push_str(&text[at..at + room]);
            let types = self.schema(sink).types();
            self.value.begin(ValueType::Schema(types), sink);
            self.value.text(&self.space, sink);
            self.state = State::Value;
            return TagStep::To(at + room);
        }
        self.space.push_str(&text[at..start]);
        let schema = self.schema(sink);
        let types = schema.types();
        let closed = compare(&self.close, rest);
        if let Match::Full(length) = closed
            && !types.allow(JsonTypes::STRING)
            && (types.allow(JsonTypes::ARRAY) || types.allow(JsonTypes::OBJECT))
        {
            let list = types.allow(JsonTypes::ARRAY);
            sink.write_arguments(if list { "[]" } else { "{}" });
            self.end_element();
            return TagStep::To(start + length);
        }
        if !matches!(closed, Match::Full(_)) {
            match tag(prefix_up_to(rest, MAX_TAG)) {
                // An empty text may still become any type.
                Tag::Partial if last => return TagStep::Stop(Progress::More(text.len())),
                Tag::Partial if rest.len() < MAX_TAG => {
                    return TagStep::Stop(Progress::More(start));
                }
                Tag::Open { name, .. } => {
                    let list = match (types.allow(JsonTypes::ARRAY), types.allow(JsonTypes::OBJECT))
                    {
                        (true, false) => true,
                        (false, true) => false,
                        _ => name == ITEM && !schema.has_property(name),
                    };
                    sink.write_arguments(if list { "[" } else { "{" });
                    self.open.push(Container { list, name: self.current, elements: 0 });
                    self.state = State::Between;
                    return TagStep::To(start);
                }
                _ => {}
            }
        }
        self.value.begin(ValueType::Schema(types), sink);
        self.value.text(&self.space, sink);
        self.state = State::Value;
        TagStep::To(start)
    }

    fn value(&mut self, text: &str, at: usize, last: bool, sink: &mut Sink<'_>) -> TagStep {
        let boundary =
            Boundary { outer: &IMPLICIT_END, call_end: &[END], ..Boundary::closer(&self.close) };
        let (end, after) = boundary.find(&text[at..], self.previous_byte, last);
        let inside = &text[at..at + end];
        self.previous_byte = inside.bytes().last().unwrap_or(self.previous_byte);
        self.value.text(inside, sink);
        let Some(after) = after else {
            if last {
                self.value.cut(sink);
            }
            return TagStep::Stop(Progress::More(at + end));
        };
        self.value.end(sink);
        self.end_element();
        TagStep::To(at + after)
    }
}

/// Reads the tag at the start of a text.
fn tag(text: &str) -> Tag<'_> {
    match compare(TAG_PREFIX, text) {
        Match::No => return Tag::Wrong("neither a parameter nor the end of the call"),
        Match::Partial => return Tag::Partial,
        Match::Full(_) => {}
    }
    let inside = match text[TAG_PREFIX.len()..].strip_prefix('<') {
        Some(inside) => inside,
        None if text.len() == TAG_PREFIX.len() => return Tag::Partial,
        None => return Tag::Wrong("the tag prefix is not followed by a tag"),
    };
    let Some(end) = inside.find(['>', '<', '\n']) else {
        return Tag::Partial;
    };
    let length = TAG_PREFIX.len() + 1 + end + 1;
    let (is_closing, name) = match inside[..end].strip_prefix('/') {
        Some(name) => (true, name),
        None => (false, &inside[..end]),
    };
    match inside.as_bytes()[end] {
        b'>' if name.trim().is_empty() => Tag::Wrong("a tag has no name"),
        b'>' if length >= MAX_TAG => Tag::Wrong("a tag is too long"),
        b'>' if is_closing => Tag::Close { name, length },
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

    /// Replaces `(` by the prefix and `<`, and `)` by `>`.
    fn with_prefix(text: &str) -> String {
        text.replace('(', &format!("{TAG_PREFIX}<")).replace(')', ">")
    }

    fn outcome(text: &str) -> Outcome {
        let tools = tools();
        cut_everywhere(NestedArguments::new, Some(&tools), text);
        read(NestedArguments::new, Some(&tools), text)
    }

    fn check(text: &str, expected: &str) {
        let text = with_prefix(text);
        for after in ["", "\n", "x"] {
            let read = outcome(&format!("{text}{after}"));
            assert_eq!(read.arguments, expected, "{text}");
            assert_eq!(read.progress, Progress::Ended(text.len()), "{text}");
        }
    }

    #[test]
    fn reads_parameters_as_elements() {
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
    fn reads_objects_and_arrays_as_nested_elements() {
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
    fn without_a_schema_element_names_decide_the_type() {
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
    fn missing_closing_tags_are_added() {
        check(
            "(o)(next)(zip)1(/zip)(/o)(s)a(/s)(/invoke)",
            r#"{"o":{"next":{"zip":"1"}},"s":"a"}"#,
        );
        check("(l)(item)a(/item)(/invoke)", r#"{"l":["a"]}"#);
        for (value, next) in [("1", "(/tool_call)"), ("1(/invoke)", "(/tool_call)")] {
            let body = with_prefix(&format!("(s){value}{next}"));
            assert_eq!(outcome(&body).arguments, r#"{"s":"1"}"#);
        }
        for next in ["(/tool_call)", "(invoke name=\"u\")"] {
            let body = with_prefix("(o)(zip)1(/zip)");
            let read = outcome(&format!("{body}{}", with_prefix(next)));
            assert_eq!(read.arguments, r#"{"o":{"zip":"1"}}"#);
            assert_eq!(read.progress, Progress::Ended(body.len()));
        }
    }

    #[test]
    fn a_cut_keeps_the_emitted_output() {
        for (text, expected) in [
            ("(s", ""),
            ("(s)", r#"{"s":""#),
            ("(s)ab(/s", r#"{"s":"ab]<]minimax[>[</s"#),
            ("(s)a(/s)", r#"{"s":"a""#),
            ("(s)a(/s)(/inv", r#"{"s":"a""#),
            ("(n)12", r#"{"n":12"#),
            ("(l)(item)a(/item)(it", r#"{"l":["a""#),
            ("(o)(zi", r#"{"o":"#),
        ] {
            let text = with_prefix(text);
            let read = outcome(&text);
            assert_eq!(read.arguments, expected, "{text}");
            assert_eq!(read.progress, Progress::More(text.len()), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_element_breaks_the_call() {
        for text in ["x", "(s)a(/s)x", "(/s)", "(o)(zip)1(/zip)x", "()", "(s<", "]<]minimax[>[s"] {
            let read = outcome(&with_prefix(text));
            assert!(matches!(read.progress, Progress::Broken(..)), "{text}");
        }
        let deep = with_prefix(&"(a)".repeat(MAX_DEPTH + 1));
        let read = |text: &str| read_pieces(NestedArguments::new(), None, &[text], true);
        assert!(matches!(read(&deep).progress, Progress::Broken(..)));
        assert!(matches!(read(&with_prefix(&"(a)".repeat(MAX_DEPTH))).progress, Progress::More(_)));
        let long = with_prefix(&format!("({})", "a".repeat(MAX_TAG)));
        assert!(matches!(read(&long).progress, Progress::Broken(0, _)));
    }

    /// Writes values as the model's template does.
    fn write(value: &Json, out: &mut String) {
        let mut begin_element = |name: &str, value: &Json| {
            out.push_str(&format!("{TAG_PREFIX}<{name}>"));
            write(value, out);
            out.push_str(&format!("{TAG_PREFIX}</{name}>"));
        };
        match value {
            Json::Object(members) => {
                members.iter().for_each(|(key, value)| begin_element(key, value));
            }
            Json::Array(elements) => elements.iter().for_each(|value| begin_element(ITEM, value)),
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
        fn template_output_round_trips(value in values(), cut in 0usize..300) {
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
        fn splits_do_not_change_the_output(
            parts in proptest::collection::vec(proptest::sample::select(vec![
                "(o)", "(/o)", "(l)", "(/l)", "(u)", "(/u)", "(item)", "(/item)", "(zip)", "(/zip)",
                "(/invoke)", "(/tool_call)", "\n", "x", "12", "]", "]<]",
            ]), 0..7),
        ) {
            outcome(&with_prefix(&parts.concat()));
        }
    }
}
