//! Tests of the settings of turns.

use super::*;

#[test]
fn unknown_member_is_named() {
    for (settings, expected) in [
        (json!({"max_tokens": 5, "colour": "red"}), Some("colour")),
        (json!({"max_tokens": 5, "temperature": 1}), None),
    ] {
        let Value::Object(settings) = settings else { panic!("an object") };
        let refused = read_settings(settings, false).err();
        let path = refused.as_ref().and_then(|problem| problem.fault().path.as_deref());
        assert_eq!(path, expected, "{refused:?}");
    }
}
