//! The arguments of a tool call that has none. The canonical text is then empty, and every dialect
//! writes an empty object, because readers parse arguments as JSON.

/// The arguments of a call without arguments.
pub const EMPTY_OBJECT: &str = "{}";

/// These arguments, or an empty object if there are none.
pub fn or_empty_object(arguments: &str) -> &str {
    if arguments.trim().is_empty() { EMPTY_OBJECT } else { arguments }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_arguments_become_an_empty_object() {
        for (arguments, written) in
            [("", "{}"), (" \n", "{}"), (" {} ", " {} "), ("{\"a\"", "{\"a\"")]
        {
            assert_eq!(or_empty_object(arguments), written);
        }
    }
}
