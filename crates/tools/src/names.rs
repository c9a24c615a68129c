//! The names under which models see tools: `server__tool`, within the rules of all providers.

use std::collections::HashSet;

/// The longest name that every provider takes.
const MAX_NAME: usize = 64;
/// Comes between the name of the server and the name of the tool.
const SEPARATOR: &str = "__";

/// A name for a tool that is not among `taken` yet. The same tool gets the same name as long as
/// those before it are the same.
pub(crate) fn model_name(server: &str, tool: &str, taken: &HashSet<String>) -> String {
    let full = format!("{server}{SEPARATOR}{tool}");
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
    let mut name: String =
        full.chars().map(|letter| if allowed(letter) { letter } else { '_' }).collect();
    // Some providers want a letter or an underscore first.
    if !name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') {
        name.insert(0, '_');
    }
    if name.len() <= MAX_NAME && !taken.contains(&name) {
        return name;
    }
    let tag = format!("_{:08x}", hash(&full));
    name.truncate(MAX_NAME - tag.len());
    name + &tag
}

/// FNV-1a, folded to 32 bits. The name of a tool must stay the same in later versions.
fn hash(text: &str) -> u32 {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ (hash >> 32)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_within_the_rules_of_providers() {
        let long = "a".repeat(80);
        let mut taken = HashSet::new();
        let tools =
            [("time", "now"), ("a.b", "c/d"), ("a_b", "c_d"), ("9", "x"), ("s", &long), ("s", "ü")];
        let names: Vec<String> = tools
            .into_iter()
            .map(|(server, tool)| {
                let name = model_name(server, tool, &taken);
                assert!(taken.insert(name.clone()), "{name}");
                name
            })
            .collect();
        assert_eq!(names[..4], ["time__now", "a_b__c_d", "a_b__c_d_0df4f8d1", "_9__x"]);
        for name in names {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
            assert!(name.len() <= MAX_NAME && name.bytes().all(plain), "{name}");
        }
    }
}
