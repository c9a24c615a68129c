//! Names of users. Two names that people read as the same one are the same one.

use unicode_normalization::UnicodeNormalization;

use crate::projects::problem::Problem;

/// The longest name, in characters.
const MAX_NAME: usize = 64;

/// A name in the form in which it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserName {
    /// As it is shown: without white space around it, in Unicode's normal form C.
    pub shown: String,
    /// As it is unique: also in lower case.
    pub unique: String,
}

impl UserName {
    /// Reads a name. `None` if no user can have it.
    pub fn read(text: &str) -> Option<Self> {
        let shown: String = text.trim().nfc().collect();
        let is_name = !shown.is_empty()
            && shown.chars().count() <= MAX_NAME
            && !shown.contains(char::is_control);
        let unique = shown.to_lowercase().nfc().collect();
        is_name.then_some(Self { shown, unique })
    }

    /// Reads the name of a new user.
    pub fn read_new(text: &str) -> Result<Self, Problem> {
        Self::read(text).ok_or_else(|| {
            let rule = format!("must have 1 to {MAX_NAME} characters, and no control characters");
            Problem::invalid("name", rule)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_read_the_same_are_the_same() {
        let ada = UserName::read("  Zoë\t").expect("a name");
        assert_eq!((ada.shown.as_str(), ada.unique.as_str()), ("Zoë", "zoë"));
        for same in ["zoë", "ZOË", "Zoe\u{308}", "ZOE\u{308}\n"] {
            assert_eq!(UserName::read(same).expect("a name").unique, ada.unique, "{same:?}");
        }
        assert_ne!(UserName::read("zoe").expect("a name").unique, ada.unique);
    }

    #[test]
    fn names_have_a_length_and_no_control_characters() {
        assert!(UserName::read(&"é".repeat(64)).is_some());
        for wrong in ["", "  ", "a\u{0}b", "a\nb", &"é".repeat(65)] {
            assert_eq!(UserName::read(wrong), None, "{wrong:?}");
        }
    }
}
