//! Duplicate members: we read the last one, but the provider that gets the bytes may read the
//! first.

use crate::json::{decode, each_member};

/// The first of these members that occurs more than once. A body that is not an object has none; its
/// reader reports that.
pub(super) fn find(body: &[u8], members: &[&'static str]) -> Option<&'static str> {
    let mut names = Vec::new();
    each_member(body, 0, |key, _, _| names.push(decode(key))).ok()?;
    members.iter().find(|member| names.iter().filter(|name| name == *member).count() > 1).copied()
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
