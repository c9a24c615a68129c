//! Duplicate members: we read the last one, but the provider that gets the bytes may read the
//! first.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

/// The first of these members that occurs more than once.
pub(super) fn find(body: &[u8], members: &[&'static str]) -> Option<&'static str> {
    let Names(names) = serde_json::from_slice(body).ok()?;
    members.iter().find(|member| names.iter().filter(|name| name == *member).count() > 1).copied()
}

/// The names of all members, with duplicates.
struct Names(Vec<String>);

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Object)
    }
}

struct Object;

impl<'de> Visitor<'de> for Object {
    type Value = Names;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Names, A::Error> {
        let mut names = Vec::new();
        while let Some((name, IgnoredAny)) = members.next_entry::<String, IgnoredAny>()? {
            names.push(name);
        }
        Ok(Names(names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_member_is_found_in_every_spelling() {
        let members = ["a_b", "c"];
        for (body, found) in [
            (r#"{"a_b":1,"x":{"a_b":2}}"#, None),
            (r#" {"a_b":1,"x":[1,{}],"a_b":2}"#, Some("a_b")),
            (r#"{"c":1,"\u0063":2}"#, Some("c")),
            (r#"{"x":1,"x":2}"#, None),
            ("[]", None),
        ] {
            assert_eq!(find(body.as_bytes(), &members), found, "{body}");
        }
    }
}
