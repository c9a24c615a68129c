//! Renames tools whose names the provider would refuse, and restores the client's names in the
//! reply.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use throughline_canonical::{Block, Loss, LossReason, LossSubject, Request, Tool, ToolChoice};
use throughline_codec::dialects::profile;

/// The renamed tools, in both directions.
#[derive(Debug, Default)]
pub(crate) struct ToolNames {
    sent: HashMap<String, String>,
    client_names: HashMap<String, String>,
    /// How many names became the same.
    collisions: HashMap<String, usize>,
}

impl ToolNames {
    /// Renames tools everywhere in a request.
    pub(crate) fn rename_for(
        request: &mut Request,
        rule: profile::ToolNames,
        losses: &mut Vec<Loss>,
    ) -> Self {
        let mut names = Self::default();
        // Offered names that need no change keep their name.
        let taken: HashSet<String> = request
            .tools
            .iter()
            .filter_map(|tool| match tool {
                Tool::Function { name, .. } => Some(name.clone()),
                Tool::Opaque { .. } => None,
            })
            .collect();
        let mut rename = |name: &mut String| {
            if let Some(max_length) = rule.refuses(name) {
                *name = names.resolve(name, max_length, &taken);
            }
        };
        for tool in &mut request.tools {
            if let Tool::Function { name, .. } = tool {
                rename(name);
            }
        }
        if let Some(ToolChoice::Named { name }) = &mut request.tool_choice {
            rename(name);
        }
        for message in &mut request.messages {
            for block in &mut message.content {
                match block {
                    Block::ToolCall { name, .. } | Block::ToolResult { name: Some(name), .. } => {
                        rename(name);
                    }
                    _ => {}
                }
            }
        }
        if !names.sent.is_empty() {
            losses.push(Loss::SettingAdapted {
                setting: LossSubject::ToolName,
                reason: LossReason::Characters,
            });
        }
        names
    }

    /// The client's name of a tool.
    pub(crate) fn client_name<'a>(&self, name: Cow<'a, str>) -> Cow<'a, str> {
        match self.client_names.get(&*name) {
            Some(own) => Cow::Owned(own.clone()),
            None => name,
        }
    }

    /// A name of letters, digits, `_` and `-` that no other tool has.
    fn resolve(&mut self, name: &str, max_length: usize, taken: &HashSet<String>) -> String {
        if let Some(sent) = self.sent.get(name) {
            return sent.clone();
        }
        let plain = |letter: char| match letter {
            '-' => letter,
            letter if letter.is_ascii_alphanumeric() => letter,
            _ => '_',
        };
        // Some providers require a letter at the start.
        let begins = |first: char| first.is_ascii_alphabetic() || first == '_';
        let start = if name.starts_with(begins) { "" } else { "_" };
        let letters = start.chars().chain(name.chars().map(plain));
        let cleaned: String = letters.take(max_length).collect();
        let mut sent = cleaned.clone();
        let number = self.collisions.entry(cleaned.clone()).or_insert(1);
        while taken.contains(&sent) || self.client_names.contains_key(&sent) {
            *number += 1;
            let end = format!("_{number}");
            let kept = max_length.saturating_sub(end.len());
            sent = format!("{}{end}", &cleaned[..cleaned.len().min(kept)]);
        }
        self.sent.insert(name.to_owned(), sent.clone());
        self.client_names.insert(sent.clone(), name.to_owned());
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_rewritten_once_and_stay_distinct() {
        let mut names = ToolNames::default();
        let taken = ["a_b", "a.b", "a:b"].map(ToOwned::to_owned).into();
        assert_eq!(names.resolve("a.b", 64, &taken), "a_b_2");
        assert_eq!(names.resolve("a:b", 64, &taken), "a_b_3");
        assert_eq!(names.resolve("a.b", 64, &taken), "a_b_2");
        assert_eq!(names.resolve("", 64, &taken), "_");
        assert_eq!(names.resolve("9 lives", 64, &taken), "_9_lives");
        assert_eq!(names.resolve("größe", 4, &taken), "gr__");
        assert_eq!(names.resolve("größer", 4, &taken), "gr_2");
        assert_eq!(names.client_name("a_b_3".into()), "a:b");
        assert_eq!(names.client_name("a_b".into()), "a_b");
        // It stays fast with many names.
        for number in 0..20_000 {
            names.resolve(&format!("{}名", "名".repeat(number % 3)), 64, &taken);
            names.resolve(
                &format!("名{}", char::from_u32(0x4e00 + number as u32).unwrap_or('x')),
                64,
                &taken,
            );
        }
    }
}
