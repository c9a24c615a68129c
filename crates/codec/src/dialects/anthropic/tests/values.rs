//! Random bytes and random JSON.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Map, Value};

use super::{read_reply, read_request, write_request};

pub(super) fn word() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9_-]{1,8}"
}

pub(super) fn said() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "[ \n]{0,2}[a-z\"\\\\\u{0}é🧠]{0,12}"]
}

pub(super) fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        said().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            vec((word(), inner), 0..3).prop_map(|members| Value::Object(Map::from_iter(members))),
        ]
    })
}

pub(super) fn object() -> impl Strategy<Value = Value> {
    vec((word(), value()), 0..3).prop_map(|members| Value::Object(Map::from_iter(members)))
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..200), whole in any::<bool>()) {
        let _ = read_request(&bytes);
        let (_, ends) = read_reply(bytes.chunks(7), !whole);
        prop_assert_eq!(ends, 1);
    }

    #[test]
    fn arbitrary_values_never_panic(members in vec((0..16usize, value()), 0..6)) {
        let body: Map<String, Value> = members.into_iter().map(|(key, value)| {
            let keys = super::super::client_request::KNOWN;
            (keys.get(key).copied().unwrap_or("other").to_owned(), value)
        }).collect();
        if let Ok(read) = read_request(Value::Object(body).to_string().as_bytes()) {
            write_request(&read.value);
        }
    }
}
