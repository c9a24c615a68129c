//! How the formats with tags write their parameters: one row per format, and the reader for the tag
//! of a parameter. The text between tags is read elsewhere.

use crate::text::marker::{Match, compare};

/// How a format writes the parameters of a call, and the end of the call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameters {
    /// The start of a parameter's tag.
    pub(crate) open: &'static str,
    /// How the key is written.
    pub(crate) key: Key,
    /// The end of the parameter's tag.
    pub(crate) tag_end: &'static str,
    /// What ends the value. If it is missing, `implicit_end` does.
    pub(crate) close: &'static str,
    /// The attribute that says whether the value is a string. Without it, the schema decides.
    pub(crate) typed_by: Option<TypeAttribute>,
    /// Whether one line break after the tag and one before the closer belong to them.
    pub(crate) framed: bool,
    /// Whether a value may be inside `<![CDATA[` and `]]>`.
    pub(crate) character_data: bool,
    /// Whether attributes contain `&amp;` and `&quot;`.
    pub(crate) escaped_attributes: bool,
    /// Whether tags may have a suffix, as in `<arg_key:6124c78e>`.
    pub(crate) suffixed: bool,
    /// How all arguments can be written as one JSON object instead.
    pub(crate) json: JsonBody,
    /// Tags around the parameters without meaning.
    pub(crate) wrapper: &'static [&'static str],
    /// What ends the call.
    pub(crate) end: &'static [&'static str],
    /// What ends the call without being part of it: the next call, and the end of the section.
    pub(crate) implicit_end: &'static [&'static str],
    /// Whether calls have no section around them. `end` is then the outermost closer.
    pub(crate) no_section: bool,
}

/// How the key of a parameter is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Key {
    /// As the rest of the tag.
    Rest,
    /// As this attribute.
    Attribute(&'static str),
    /// As an element of its own. The value then has its own opening tag.
    Element {
        /// What closes the key.
        close: &'static str,
        /// What opens the value.
        value: &'static str,
    },
}

/// An attribute that says whether a value is a string. All other values are then JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TypeAttribute {
    /// The name of the attribute.
    pub(crate) name: &'static str,
    /// Its value for a string.
    pub(crate) text: &'static str,
}

/// How all arguments can be written as one JSON object.
#[derive(Clone, Copy, Debug)]
pub(crate) enum JsonBody {
    /// Not at all.
    Never,
    /// Instead of the first parameter.
    Bare,
    /// In an element.
    Element {
        /// The start of its tag.
        open: &'static str,
        /// What closes it.
        close: &'static str,
    },
}

/// `<parameter name="K">V</parameter>`, the model for most formats.
const NAMED: Parameters = Parameters {
    open: "<parameter",
    key: Key::Attribute("name"),
    tag_end: ">",
    close: "</parameter>",
    typed_by: None,
    framed: false,
    character_data: false,
    escaped_attributes: false,
    suffixed: false,
    json: JsonBody::Never,
    wrapper: &[],
    end: &["</invoke>"],
    implicit_end: &[],
    no_section: false,
};

/// qwen3_coder, step3p5, mimo, nemotron_v3.
pub(crate) const QWEN3_CODER: Parameters = Parameters {
    open: "<parameter=",
    key: Key::Rest,
    framed: true,
    // Other models write `<function=NAME>{..}`, and this one sometimes does too.
    json: JsonBody::Bare,
    end: &["</function>"],
    implicit_end: &["</tool_call>", "<tool_call>", "<function="],
    ..NAMED
};

/// seed_oss.
pub(crate) const SEED_OSS: Parameters = Parameters {
    implicit_end: &["</seed:tool_call>", "<seed:tool_call>", "<function="],
    ..QWEN3_CODER
};

/// glm45, glm47, poolside_v1, ling3.
pub(crate) const GLM: Parameters = Parameters {
    open: "<arg_key>",
    key: Key::Element { close: "</arg_key>", value: "<arg_value>" },
    close: "</arg_value>",
    end: &["</tool_call>"],
    implicit_end: &["<tool_call>"],
    no_section: true,
    ..NAMED
};

/// hy_v3, hy_v4.
pub(crate) const HUNYUAN: Parameters = Parameters {
    suffixed: true,
    implicit_end: &["</tool_calls>", "<tool_call>"],
    no_section: false,
    ..GLM
};

/// minimax_m2.
pub(crate) const MINIMAX_M2: Parameters =
    Parameters { implicit_end: &["</minimax:tool_call>", "<invoke "], ..NAMED };

/// dots.
pub(crate) const DOTS: Parameters = Parameters {
    json: JsonBody::Bare,
    implicit_end: &["</dots_function_call>", "<invoke "],
    ..NAMED
};

/// deepseek_v32, deepseek_v4.
pub(crate) const DSML: Parameters = Parameters {
    open: "<｜DSML｜parameter",
    close: "</｜DSML｜parameter>",
    typed_by: Some(TypeAttribute { name: "string", text: "true" }),
    json: JsonBody::Bare,
    end: &["</｜DSML｜invoke>"],
    implicit_end: &["</｜DSML｜function_calls>", "</｜DSML｜tool_calls>", "<｜DSML｜invoke"],
    ..NAMED
};

/// deepseek_v41, which has a space in its tags.
pub(crate) const DSML_SPACED: Parameters = Parameters {
    open: "<｜DSML｜ parameter",
    close: "</｜DSML｜ parameter>",
    end: &["</｜DSML｜ invoke>"],
    implicit_end: &["</｜DSML｜ calls>", "<｜DSML｜ invoke", "<｜DSML｜invoke"],
    ..DSML
};

/// kimi_k3.
pub(crate) const KIMI_K3: Parameters = Parameters {
    open: "<|open|>argument",
    key: Key::Attribute("key"),
    tag_end: "<|sep|>",
    close: "<|close|>argument<|sep|>",
    typed_by: Some(TypeAttribute { name: "type", text: "string" }),
    escaped_attributes: true,
    json: JsonBody::Element { open: "<|open|>json", close: "<|close|>json<|sep|>" },
    end: &["<|close|>call<|sep|>"],
    implicit_end: &["<|close|>tools<|sep|>", "<|open|>call"],
    ..NAMED
};

/// step3.
pub(crate) const STEP3: Parameters = Parameters {
    open: "<steptml:parameter",
    close: "</steptml:parameter>",
    end: &["</steptml:invoke>"],
    implicit_end: &["<｜tool_call_end｜>", "<｜tool_calls_end｜>", "<｜tool_call_begin｜>"],
    ..NAMED
};

/// minicpm5.
pub(crate) const MINICPM5: Parameters = Parameters {
    open: "<param",
    close: "</param>",
    character_data: true,
    wrapper: &["<arguments>", "</arguments>"],
    end: &["</function>"],
    implicit_end: &["<function "],
    no_section: true,
    ..NAMED
};

/// muse_glimmer, muse_spark.
pub(crate) const MUSE: Parameters = Parameters {
    open: "<atem:parameter",
    close: "</atem:parameter>",
    end: &["</atem:invoke>"],
    implicit_end: &["</atem:function_calls>", "<atem:invoke", "<|eom|>", "<|eot|>"],
    ..NAMED
};

/// beam.
pub(crate) const BEAM: Parameters = Parameters {
    open: "<rfl:parameter",
    close: "</rfl:parameter>",
    end: &["<|call|>", "<|end|>"],
    implicit_end: &["<|start|>"],
    no_section: true,
    ..NAMED
};

/// The tag of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag<'t> {
    /// It is incomplete.
    Partial,
    /// It is not the tag of a parameter.
    Wrong(&'static str),
    /// It is complete.
    Full {
        /// Its length in bytes.
        length: usize,
        /// The key, still escaped.
        key: &'t str,
        /// Whether the value is a string, if the tag says so.
        text: Option<bool>,
        /// The suffix of the value's opening tag.
        suffix: &'t str,
    },
    /// It is complete and closes itself, or its value is missing.
    Closed {
        /// Its length in bytes.
        length: usize,
        /// The key, still escaped.
        key: &'t str,
    },
}

impl Parameters {
    /// A tag of which only the attributes are unread. One of them is the key.
    pub(crate) const fn named(key: &'static str, tag_end: &'static str) -> Self {
        Self { open: "", key: Key::Attribute(key), tag_end, escaped_attributes: true, ..NAMED }
    }

    /// Compares the start of a text with a marker of the format, which may have a suffix.
    pub(crate) fn compare_marker(&self, text: &str, marker: &str) -> Match {
        let head = match marker.strip_suffix('>') {
            Some(head) if self.suffixed => head,
            _ => return compare(marker, text),
        };
        match compare(head, text) {
            Match::Full(length) => match read_suffix(&text[length..]) {
                Some(Some(suffix)) => Match::Full(length + suffix.len() + 1),
                Some(None) => Match::No,
                None => Match::Partial,
            },
            other => other,
        }
    }

    /// Reads the tag of a parameter. The text starts at its opening marker.
    pub(crate) fn tag<'t>(&self, text: &'t str) -> Tag<'t> {
        match self.key {
            Key::Rest => self.read_rest(text),
            Key::Attribute(name) => self.read_attributes(self.open, Some(name), text),
            Key::Element { close, value } => self.read_element(close, value, text),
        }
    }

    /// Reads the tag of an element with all arguments.
    pub(crate) fn json_tag<'t>(&self, open: &str, text: &'t str) -> Tag<'t> {
        self.read_attributes(open, None, text)
    }

    fn read_rest<'t>(&self, text: &'t str) -> Tag<'t> {
        let key = &text[self.open.len()..];
        let Some(at) = key.find(['>', '<', '\n']) else {
            return Tag::Partial;
        };
        match compare(self.tag_end, &key[at..]) {
            Match::Full(end) => Tag::Full {
                length: self.open.len() + at + end,
                key: key[..at].trim(),
                text: None,
                suffix: "",
            },
            Match::Partial => Tag::Partial,
            Match::No => Tag::Wrong("a tag does not end"),
        }
    }

    fn read_element<'t>(&self, close: &str, value: &str, text: &'t str) -> Tag<'t> {
        let Match::Full(open) = self.compare_marker(text, self.open) else {
            return Tag::Partial;
        };
        let Some(end) = text[open..].find('<').map(|at| open + at) else {
            return Tag::Partial;
        };
        let after = match self.compare_marker(&text[end..], close) {
            Match::Full(length) => end + length,
            Match::Partial => return Tag::Partial,
            Match::No => return Tag::Wrong("the key of a parameter does not end"),
        };
        let rest = text[after..].trim_ascii_start();
        let at = text.len() - rest.len();
        match self.compare_marker(rest, value) {
            Match::Full(length) => Tag::Full {
                length: at + length,
                key: text[open..end].trim(),
                text: None,
                suffix: &rest[value.len() - 1..length - 1],
            },
            Match::Partial => Tag::Partial,
            // The value is missing. The call stays a call.
            Match::No => Tag::Closed { length: after, key: text[open..end].trim() },
        }
    }

    fn read_attributes<'t>(&self, open: &str, wanted: Option<&str>, text: &'t str) -> Tag<'t> {
        let (mut key, mut kind) = (None, None);
        let mut rest = &text[open.len()..];
        loop {
            rest = rest.trim_ascii_start();
            match compare(self.tag_end, rest) {
                Match::Full(end) => {
                    let Some(key) = key.or(wanted.is_none().then_some("")) else {
                        return Tag::Wrong("a tag has no name");
                    };
                    let text_length = text.len() - rest.len() + end;
                    return Tag::Full { length: text_length, key, text: kind, suffix: "" };
                }
                Match::Partial => return Tag::Partial,
                Match::No => {}
            }
            if self.tag_end == ">" {
                match (compare("/>", rest), key) {
                    (Match::Full(end), Some(key)) => {
                        let length = text.len() - rest.len() + end;
                        return Tag::Closed { length, key };
                    }
                    (Match::Partial, _) => return Tag::Partial,
                    _ => {}
                }
            }
            let (name, value) = match read_attribute(rest, self.tag_end) {
                Attribute::Partial => return Tag::Partial,
                Attribute::Wrong => return Tag::Wrong("a tag cannot be read"),
                Attribute::Full { name, value, after } => {
                    rest = after;
                    (name, value)
                }
            };
            if Some(name) == wanted {
                key = key.or(Some(value));
            } else if let Some(by) = self.typed_by
                && by.name == name
            {
                kind = kind.or(Some(value == by.text));
            }
        }
    }

    /// Decodes an attribute piece by piece.
    pub(crate) fn decode(&self, attribute: &str, mut piece: impl FnMut(&str)) {
        let mut rest = attribute;
        while self.escaped_attributes
            && let Some(at) = rest.find('&')
        {
            piece(&rest[..at]);
            rest = &rest[at..];
            let (character, after) = match rest.strip_prefix("&quot;") {
                Some(after) => ("\"", after),
                None => ("&", rest.strip_prefix("&amp;").unwrap_or(&rest[1..])),
            };
            piece(character);
            rest = after;
        }
        piece(rest);
    }
}

enum Attribute<'t> {
    Partial,
    Wrong,
    Full { name: &'t str, value: &'t str, after: &'t str },
}

/// Reads `name="value"`. Models also write other quotes, or none.
fn read_attribute<'t>(text: &'t str, tag_end: &str) -> Attribute<'t> {
    let is_name = |character: char| character.is_alphanumeric() || "_-:.".contains(character);
    let Some(end) = text.find(|character| !is_name(character)) else {
        return Attribute::Partial;
    };
    let (name, rest) = text.split_at(end);
    let rest = match rest.trim_ascii_start() {
        "" => return Attribute::Partial,
        rest => match rest.strip_prefix('=') {
            Some(rest) if !name.is_empty() => rest.trim_ascii_start(),
            _ => return Attribute::Wrong,
        },
    };
    let Some(first) = rest.chars().next() else {
        return Attribute::Partial;
    };
    let (value, after) = match first {
        '"' | '\'' => match rest[1..].split_once(first) {
            Some(parts) => parts,
            None => return Attribute::Partial,
        },
        _ => {
            // Without quotes: up to white space, or where the tag may end.
            let end = tag_end.chars().next().unwrap_or('>');
            match rest.find(|c: char| c.is_ascii_whitespace() || c == end) {
                Some(0) => return Attribute::Wrong,
                Some(at) => rest.split_at(at),
                None => return Attribute::Partial,
            }
        }
    };
    Attribute::Full { name, value, after }
}

/// The suffix before the `>` of a tag. `None` if more text is needed, `Some(None)` if the text is
/// no suffix.
fn read_suffix(text: &str) -> Option<Option<&str>> {
    const MAX_SUFFIX: usize = 32;
    let is_suffix = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-:".contains(byte);
    let length = text.bytes().take_while(|byte| is_suffix(byte)).count();
    let fits = length == 0 || (length <= MAX_SUFFIX && text.starts_with(':'));
    match text.as_bytes().get(length) {
        _ if !fits => Some(None),
        Some(b'>') => Some(Some(&text[..length])),
        Some(_) => Some(None),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key<'t>(row: &Parameters, text: &'t str) -> Tag<'t> {
        for cut in (0..text.len()).filter(|&cut| text.is_char_boundary(cut)) {
            if cut >= row.open.len() {
                // An invalid tag may be recognized early.
                assert!(!matches!(row.tag(&text[..cut]), Tag::Full { .. }), "{cut} {text}");
            }
        }
        row.tag(text)
    }

    #[test]
    fn tags_contain_their_keys() {
        let check = |row: &Parameters, text: &str, key: &str, is_text: Option<bool>| {
            let whole = Tag::Full { length: text.len(), key, text: is_text, suffix: "" };
            assert_eq!(self::key(row, text), whole, "{text}");
        };
        check(&QWEN3_CODER, "<parameter=city>", "city", None);
        check(&QWEN3_CODER, "<parameter= city >", "city", None);
        check(&GLM, "<arg_key>city</arg_key>\n<arg_value>", "city", None);
        check(&GLM, "<arg_key> a b </arg_key><arg_value>", "a b", None);
        check(&MINIMAX_M2, r#"<parameter name="a>b" >"#, "a>b", None);
        check(&MINIMAX_M2, "<parameter\nname = 'k' x=y>", "k", None);
        check(&MINIMAX_M2, "<parameter name=k>", "k", None);
        check(&MINICPM5, r#"<paramname="k">"#, "k", None);
        check(&DSML, r#"<｜DSML｜parameter name="k" string="true">"#, "k", Some(true));
        check(&DSML, r#"<｜DSML｜parameter string="false" name="k">"#, "k", Some(false));
        check(&KIMI_K3, r#"<|open|>argument key="k" type="number"<|sep|>"#, "k", Some(false));
    }

    #[test]
    fn reads_suffixes() {
        let text = "<arg_key:61a>k</arg_key:61a> <arg_value:61a>";
        let whole = Tag::Full { length: text.len(), key: "k", text: None, suffix: ":61a" };
        assert_eq!(key(&HUNYUAN, text), whole);
        assert_eq!(HUNYUAN.compare_marker("</tool_call:x", "</tool_call>"), Match::Partial);
        for no in ["</tool_calls>", "</tool_callx>", "</tool_call:x y>"] {
            assert_eq!(HUNYUAN.compare_marker(no, "</tool_call>"), Match::No, "{no}");
        }
    }

    #[test]
    fn a_key_without_a_value_is_a_whole_tag() {
        let tag = GLM.tag("<arg_key>k</arg_key>\n</tool_call>");
        assert_eq!(tag, Tag::Closed { length: "<arg_key>k</arg_key>".len(), key: "k" });
        assert_eq!(GLM.tag("<arg_key>k</arg_key>\n"), Tag::Partial);
    }

    #[test]
    fn rejects_text_that_is_no_tag() {
        for (row, text) in [
            (&QWEN3_CODER, "<parameter=city\nParis"),
            (&QWEN3_CODER, "<parameter=city</parameter>"),
            (&GLM, "<arg_key>k<arg_value>"),
            (&MINIMAX_M2, "<parameter>"),
            (&MINIMAX_M2, "<parameters>"),
            (&MINIMAX_M2, "<parameter name=>"),
            (&MINIMAX_M2, "<parameter \"k\">"),
        ] {
            assert!(matches!(key(row, text), Tag::Wrong(_)), "{text}");
        }
    }

    #[test]
    fn decodes_entities_if_the_format_has_them() {
        let decode = |row: &Parameters, text: &str| {
            let mut all = String::new();
            row.decode(text, |piece| all.push_str(piece));
            all
        };
        assert_eq!(decode(&KIMI_K3, "a&amp;quot;&quot;&b&lt;"), "a&quot;\"&b&lt;");
        assert_eq!(decode(&DSML, "a&amp;b"), "a&amp;b");
    }
}
