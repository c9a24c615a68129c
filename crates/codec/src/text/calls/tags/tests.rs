//! Every format with tags, in every split.

use proptest::prelude::*;

use super::super::super::schema::Tools;
use super::super::MAX_HELD;
use super::super::harness::{Machine, Outcome, cut_everywhere, read, read_pieces};
use super::super::parameters::{
    BEAM, DOTS, DSML, DSML_SPACED, GLM, HUNYUAN, KIMI_K3, Key, MINICPM5, MINIMAX_M2, MUSE,
    QWEN3_CODER, SEED_OSS, STEP3,
};
use super::*;

impl Machine for TagArguments {
    fn read(&mut self, text: &str, last: bool, sink: &mut Sink<'_>) -> Progress {
        self.read(text, last, sink)
    }
}

static ROWS: [&Parameters; 13] = [
    &QWEN3_CODER,
    &SEED_OSS,
    &GLM,
    &HUNYUAN,
    &MINIMAX_M2,
    &DOTS,
    &DSML,
    &DSML_SPACED,
    &KIMI_K3,
    &STEP3,
    &MINICPM5,
    &MUSE,
    &BEAM,
];

fn tools() -> Tools {
    Tools::read(
        br#"[{"name":"t","parameters":{"properties":{
        "s":{"type":"string"},"n":{"type":"integer"},"b":{"type":"boolean"},
        "o":{"type":"object"},"l":{"type":"array"},
        "sn":{"type":["string","null"]},"si":{"type":["string","integer"]}}}}]"#,
    )
    .unwrap()
}

fn outcome(row: &'static Parameters, text: &str) -> Outcome {
    let tools = tools();
    cut_everywhere(|| TagArguments::new(row), Some(&tools), text);
    read(|| TagArguments::new(row), Some(&tools), text)
}

/// Checks that the text is a whole call with these arguments, and that the text after it stays
/// unread.
fn check(row: &'static Parameters, text: &str, expected: &str) {
    for after in ["", "\n<more>"] {
        let read = outcome(row, &format!("{text}{after}"));
        assert_eq!(read.arguments, expected, "{text}");
        assert_eq!(read.progress, Progress::Ended(text.len()), "{text}");
    }
}

/// Writes a parameter in a format.
fn parameter(row: &Parameters, key: &str, value: &str) -> String {
    let escape = |text: &str| match row.escaped_attributes {
        true => text.replace('&', "&amp;").replace('"', "&quot;"),
        false => text.to_owned(),
    };
    let tag = match row.key {
        Key::Rest => key.to_owned(),
        Key::Attribute(name) => {
            let typed = row.typed_by.map(|by| format!(" {}={:?}", by.name, by.text));
            format!(" {name}=\"{}\"{}", escape(key), typed.unwrap_or_default())
        }
        Key::Element { close, value } => format!("{key}{close}\n{value}"),
    };
    let tag_end = match row.key {
        Key::Element { .. } => "",
        _ => row.tag_end,
    };
    let frame = if row.framed { "\n" } else { "" };
    let (open, close) = (row.open, row.close);
    format!("{open}{tag}{tag_end}{frame}{value}{frame}{close}\n")
}

#[test]
fn every_format_reads_strings_and_empty_values() {
    for row in ROWS {
        let end = row.end[0];
        check(row, &format!("\n{end}"), "{}");
        let text = parameter(row, "s", "Paris, \"42\"\\ \u{1}\n\t<é🧠>");
        let expected = r#"{"s":"Paris, \"42\"\\ \u0001\n\t<é🧠>"}"#;
        check(row, &format!("{text}{end}"), expected);
        let text = parameter(row, "s", "") + &parameter(row, "k é", &format!("x{end} y"));
        check(row, &format!("{text}{end}"), &format!(r#"{{"s":"","k é":"x{end} y"}}"#));
    }
}

#[test]
fn the_schema_types_values() {
    for row in ROWS.into_iter().filter(|row| row.typed_by.is_none()) {
        let body = |values: &[(&str, &str)]| -> String {
            let each = values.iter().map(|(key, value)| parameter(row, key, value));
            each.chain([row.end[0].to_owned()]).collect()
        };
        let values = [("s", "1"), ("n", "1"), ("b", "True"), ("o", "{'a': 1}")];
        check(row, &body(&values), r#"{"s":"1","n":1,"b":true,"o":{"a":1}}"#);
        let values = [("sn", "null"), ("sn", "nullx"), ("si", "7"), ("si", "7a")];
        check(row, &body(&values), r#"{"sn":null,"sn":"nullx","si":7,"si":"7a"}"#);
        let values = [("x", " [1, 2] "), ("x", "[1, 2"), ("x", "no"), ("n", "x")];
        check(row, &body(&values), r#"{"x":[1, 2],"x":"[1, 2","x":"no","n":"x"}"#);
    }
}

#[test]
fn type_attributes_give_the_types_of_values() {
    let text = concat!(
        r#"<｜DSML｜parameter name="n" string="true">1</｜DSML｜parameter>"#,
        r#"<｜DSML｜parameter name="s" string="false">"x"</｜DSML｜parameter>"#,
        r#"<｜DSML｜parameter name="n">5</｜DSML｜parameter>"#,
        r#"<｜DSML｜parameter name="s" string="false">no json</｜DSML｜parameter>"#,
        "</｜DSML｜invoke>"
    );
    check(&DSML, text, r#"{"n":"1","s":"x","n":5,"s":"no json"}"#);
    let text = concat!(
        r#"<|open|>argument key="a&amp;&quot;b" type="string"<|sep|>1<|close|>argument<|sep|>"#,
        r#"<|open|>argument key="l" type="array"<|sep|>[1,{}]<|close|>argument<|sep|>"#,
        "<|close|>call<|sep|>"
    );
    check(&KIMI_K3, text, r#"{"a&\"b":"1","l":[1,{}]}"#);
}

#[test]
fn line_breaks_that_frame_a_value_are_dropped() {
    let framed = |value: &str| format!("<parameter=s>{value}</parameter></function>");
    let check = |value: &str, expected: &str| {
        let expected = format!(r#"{{"s":"{expected}"}}"#);
        check(&QWEN3_CODER, &framed(value), &expected);
    };
    check("\r\na\r\nb\r\n", r"a\r\nb");
    check("\n", "");
    check("\r\n", "");
    check("\n\n", "");
    check("\n\n\na\n\n\n", r"\n\na\n\n");
    check("\r\r", r"\r\r");
    check("a", "a");
}

#[test]
fn character_data_is_unwrapped() {
    let check = |value: &str, expected: &str| {
        let text = format!(r#"<arguments><param name="s">{value}</param></arguments></function>"#);
        check(&MINICPM5, &text, &format!(r#"{{"s":"{expected}"}}"#));
    };
    check("<![CDATA[a </param> b]]>", "a </param> b");
    check(" \n<![CDATA[ a ]]>\n", " a ");
    check("<![CDATA[]]]]><![CDATA[>]]>", "]]>");
    check("<![CDATA[a]]> b", "a b");
    check(" <![CDATA", " <![CDATA");
    check(" x <![CDATA[y]]>", " x <![CDATA[y]]>");
}

#[test]
fn a_closer_needs_the_suffix_of_its_opener() {
    let text =
        "<arg_key:6a>s</arg_key:6a><arg_value:6a>x</arg_value></arg_value:6a>\n</tool_call:6a>";
    check(&HUNYUAN, text, r#"{"s":"x</arg_value>"}"#);
}

#[test]
fn a_json_object_may_replace_the_parameters() {
    let object = r#"{"a": [1, "}</｜DSML｜invoke>\"", {}]}"#;
    check(&DSML, &format!("\n{object}\n</｜DSML｜invoke>"), object);
    check(&DOTS, "{ }</invoke>", "{ }");
    let open = r#"<|open|>json type="object"<|sep|>"#;
    let text = format!("{open} {object} <|close|>json<|sep|><|close|>call<|sep|>");
    check(&KIMI_K3, &text, object);
    // Without its closing tag it is still complete. Without a bracket it is not.
    let read = outcome(&DSML, &format!("{object}\nText"));
    assert_eq!(read.progress, Progress::Ended(object.len() + 1));
    for end in ["", " ", "</｜DSM"] {
        let text = format!("{object}{end}");
        let read = outcome(&DSML, &text);
        assert_eq!(read.progress, Progress::Ended(text.len()));
    }
    check(&DOTS, r#"{"a":{"b":1}</invoke>"#, r#"{"a":{"b":1}"#);
    let read = outcome(&DOTS, r#"{"a":"b</invoke>"#);
    assert!(matches!(read.progress, Progress::More(_)));
    let read = outcome(&KIMI_K3, &format!("{open}x"));
    assert!(matches!(read.progress, Progress::Broken(..)));
}

#[test]
fn a_call_without_its_end_ends_before_the_next_marker() {
    for row in ROWS {
        for marker in row.implicit_end {
            let text = parameter(row, "s", "a");
            let read = outcome(row, &format!("{text}{marker}"));
            assert_eq!(read.arguments, r#"{"s":"a"}"#);
            assert_eq!(read.progress, Progress::Ended(text.len()));
        }
    }
}

/// A `write_file` call without its content must never look complete.
#[test]
fn a_call_that_ends_between_parameters_is_cut() {
    for row in ROWS {
        for end in ["", "\n", &row.end[0][..row.end[0].len() - 1]] {
            let text = parameter(row, "s", "a") + end;
            let read = outcome(row, &text);
            assert_eq!(read.arguments, r#"{"s":"a""#, "{text}");
            assert_eq!(read.progress, Progress::More(text.len()), "{text}");
        }
    }
}

#[test]
fn a_cut_keeps_the_emitted_output() {
    let check = |text: &str, expected: &str| {
        let read = outcome(&QWEN3_CODER, text);
        assert_eq!(read.arguments, expected, "{text}");
        assert_eq!(read.progress, Progress::More(text.len()), "{text}");
    };
    check("", "");
    check("<parame", "");
    check("<parameter=s", "");
    check("<parameter=s>", r#"{"s":""#);
    check("<parameter=s>\nab", r#"{"s":"ab"#);
    check("<parameter=s>\nab\n</par", r#"{"s":"ab\n</par"#);
    check("<parameter=n>\n12", r#"{"n":12"#);
    check("<parameter=o>\n{\"a\": [", r#"{"o":{"a": ["#);
    check("<parameter=s>\na\n</parameter>\n<", r#"{"s":"a""#);
}

#[test]
fn text_that_is_no_parameter_breaks_the_call() {
    for (text, at) in [
        ("x", 0),
        ("<parameter=s>a</parameter> x", 27),
        ("<parameter=s>a</parameter><think>", 26),
        ("<parameter=>", 0),
        ("<parameter=s\n", 0),
    ] {
        let read = outcome(&QWEN3_CODER, text);
        assert!(
            matches!(read.progress, Progress::Broken(place, _) if place == at),
            "{text} {read:?}"
        );
    }
}

#[test]
fn tags_are_limited() {
    let frame = "<parameter=>".len();
    for (length, fits) in [(MAX_TAG, true), (MAX_TAG + 1, false)] {
        let text = format!("<parameter={}>x", "k".repeat(length - frame));
        let characters: Vec<&str> = text.split_inclusive(|_: char| true).collect();
        let new = || TagArguments::new(&QWEN3_CODER);
        let whole = read_pieces(new(), None, &[&text], true);
        let single = read_pieces(new(), None, &characters, true);
        assert_eq!(single, whole);
        assert_eq!(matches!(whole.progress, Progress::More(_)), fits);
        assert!(fits || matches!(whole.progress, Progress::Broken(0, _)));
    }
}

#[test]
fn a_value_over_the_limit_is_a_string() {
    let tools = tools();
    for (length, is_text) in [(MAX_HELD, false), (MAX_HELD + 1, true)] {
        let value = format!("[{}]", "1".repeat(length - 2));
        let text = format!("<parameter=l>\n{value}\n</parameter>\n</function>");
        let (first, second) = text.split_at(text.len() / 2);
        let new = || TagArguments::new(&QWEN3_CODER);
        let whole = read_pieces(new(), Some(&tools), &[&text], true);
        let split = read_pieces(new(), Some(&tools), &[first, second], true);
        let quote = if is_text { "\"" } else { "" };
        assert_eq!(whole.arguments, format!(r#"{{"l":{quote}{value}{quote}}}"#));
        assert_eq!(split, whole);
    }
}

proptest! {
    #[test]
    fn strings_round_trip_in_every_format(
        values in proptest::collection::vec(
            ("[a-z]{1,3}", prop_oneof![any::<String>(), "[<>/a\\]\\[!\r\n\"\\\\|｜]{0,9}"]), 0..3),
        cut in 0usize..200,
    ) {
        for row in ROWS {
            // Without a schema, a string that is valid JSON would become JSON.
            let values: Vec<(String, String)> = values
                .iter()
                .map(|(key, value)| (key.clone(), format!("~{value}~")))
                .filter(|(_, value)| !value.contains(row.close) && !value.contains("\r"))
                .collect();
            let mut text: String = values.iter().map(|(key, value)| parameter(row, key, value)).collect();
            text.push_str(row.end[0]);
            let cut = (0..=cut.min(text.len())).rev().find(|&cut| text.is_char_boundary(cut)).unwrap();
            let new = || TagArguments::new(row);
            let read = read_pieces(new(), None, &[&text[..cut], &text[cut..]], true);
            prop_assert_eq!(read.progress, Progress::Ended(text.len()));
            let members: Vec<String> = values.iter()
                .map(|(key, value)| format!("{}:{}", serde_json::json!(key), serde_json::json!(value)))
                .collect();
            prop_assert_eq!(&read.arguments, &format!("{{{}}}", members.join(",")));
            let _: serde_json::Value = serde_json::from_str(&read.arguments).unwrap();
        }
    }

    #[test]
    fn splits_do_not_change_the_output(
        parts in proptest::collection::vec(prop_oneof![
            Just("<parameter=s>".to_owned()), Just("</parameter>".to_owned()), Just("</function>".to_owned()),
            Just("<parameter=n>".to_owned()), Just("\r\n".to_owned()), Just("12".to_owned()),
            "[<>/ a{\n\"]{0,3}",
        ], 0..7),
    ) {
        outcome(&QWEN3_CODER, &parts.concat());
    }
}
