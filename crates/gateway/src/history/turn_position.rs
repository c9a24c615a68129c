//! Where a turn stands in its conversation. Models give the same answer more than once, so a text
//! alone does not say which turn it is.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use throughline_canonical::{Block, Message, Role};
use twox_hash::XxHash3_64;

use crate::history::vault_lookup::text_of;
use crate::thinking::fingerprint::{Fingerprint, TextHash};

/// The position of a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TurnPosition {
    /// A fingerprint of all that was said before it.
    pub(crate) before: [u8; 16],
    /// A fingerprint of the question that it answers: the text after the last turn, and the ids of the
    /// calls that it answers.
    pub(crate) question: [u8; 16],
}

/// Follows a conversation, message by message. Each text is hashed once.
#[derive(Debug, Default)]
pub(crate) struct TurnPositions {
    /// A fingerprint of what the speakers before the present one said.
    before: [u8; 16],
    /// Whether the model speaks.
    is_turn: bool,
    speech: Speech,
}

impl TurnPositions {
    /// The position of the next turn.
    pub(crate) fn next(&self) -> TurnPosition {
        let question = match self.is_turn {
            true => Speech::default().finish(),
            false => self.speech.finish(),
        };
        TurnPosition { before: self.before_next(), question }
    }

    /// Passes a message.
    pub(crate) fn pass(&mut self, message: &Message) {
        let is_turn = message.role == Role::Assistant;
        for block in &message.content {
            let words = match block {
                Block::Text { text, .. } => text,
                Block::ToolResult { id, .. } | Block::ToolCall { id, .. } => id,
                _ => continue,
            };
            // Clients join and split messages and texts, so only a change of the speaker counts.
            if self.is_turn != is_turn {
                self.before = self.before_next();
                self.is_turn = is_turn;
                self.speech = Speech::default();
            }
            self.speech.add(words);
        }
    }

    fn before_next(&self) -> [u8; 16] {
        Fingerprint::of(&[&self.before, &[u8::from(self.is_turn)], &self.speech.finish()])
    }
}

/// What one speaker says until another speaks. White space around it does not count, because clients
/// trim it.
#[derive(Debug, Default)]
struct Speech {
    words: TextHash,
    has_begun: bool,
    /// White space that counts if more words follow.
    space: String,
}

impl Speech {
    fn add(&mut self, words: &str) {
        let words = if self.has_begun { words } else { words.trim_start() };
        let trimmed = words.trim_end();
        if !trimmed.is_empty() {
            self.has_begun = true;
            self.words.join(&self.space);
            self.words.join(trimmed);
            self.space.clear();
        }
        self.space.push_str(&words[trimmed.len()..]);
    }

    fn finish(&self) -> [u8; 16] {
        self.words.finish()
    }
}

/// The texts that more than one turn of a request has.
#[derive(Debug, Default)]
pub(crate) struct RepeatedTexts(HashSet<u64>);

impl RepeatedTexts {
    pub(crate) fn of(messages: &[Message]) -> Self {
        let turns = || messages.iter().filter(|message| message.role == Role::Assistant);
        // Few texts have the same length and the same tail, so few are hashed as a whole.
        let mut tails: HashMap<u64, usize> = HashMap::new();
        for turn in turns() {
            *tails.entry(hash(&turn.content, tail_of)).or_default() += 1;
        }
        let mut counts: HashMap<u64, usize> = HashMap::new();
        for turn in turns().filter(|turn| tails[&hash(&turn.content, tail_of)] > 1) {
            *counts.entry(hash(&turn.content, str::as_bytes)).or_default() += 1;
        }
        Self(counts.into_iter().filter(|(_, count)| *count > 1).map(|(hash, _)| hash).collect())
    }

    /// Whether another turn has the same text.
    pub(crate) fn contains(&self, content: &[Block]) -> bool {
        !self.0.is_empty() && self.0.contains(&hash(content, str::as_bytes))
    }
}

/// Hashes a turn: its calls, its length, and the bytes of its text that `part` chooses.
fn hash(content: &[Block], part: fn(&str) -> &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    let text = text_of(content);
    let text = text.trim();
    hash_part(text, part).hash(&mut hasher);
    for block in content {
        if let Block::ToolCall { name, arguments, .. } = block {
            (name, hash_part(arguments, part)).hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// The length of a text, and a hash of a part of it. Texts may be long, and XXH3 is fast for those.
fn hash_part(text: &str, part: fn(&str) -> &[u8]) -> (usize, u64) {
    (text.len(), XxHash3_64::oneshot(part(text)))
}

/// The last bytes of a text.
fn tail_of(text: &str) -> &[u8] {
    &text.as_bytes()[text.len().saturating_sub(64)..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position_after(messages: &[Message]) -> TurnPosition {
        let mut turn_positions = TurnPositions::default();
        messages.iter().for_each(|message| turn_positions.pass(message));
        turn_positions.next()
    }

    fn said(role: Role, text: &str) -> Message {
        Message::new(role, vec![Block::text(text)])
    }

    #[test]
    fn position_depends_on_the_text_and_not_on_its_split() {
        let asked = |texts: &[&str]| {
            let messages: Vec<_> = texts.iter().map(|text| said(Role::User, text)).collect();
            position_after(&messages)
        };
        assert_eq!(asked(&["a", "b"]).before, asked(&["ab"]).before);
        assert_eq!(asked(&["a", "b"]).question, asked(&["ab"]).question);
        assert_eq!(asked(&["a ", "b"]).before, asked(&[" a b\n"]).before);
        assert_ne!(asked(&["a ", "b"]).before, asked(&["ab"]).before);
        let again = |turns: usize| {
            let turn = [said(Role::User, "again"), said(Role::Assistant, "Done.")];
            let mut messages: Vec<_> = std::iter::repeat_n(turn, turns).flatten().collect();
            messages.push(said(Role::User, "again"));
            position_after(&messages)
        };
        assert_eq!(again(1).question, again(2).question);
        assert_ne!(again(1).before, again(2).before);
        assert_eq!(again(2).before, again(2).before);
    }

    #[test]
    fn repeated_text_is_that_of_two_turns() {
        let messages = [
            said(Role::Assistant, "Done."),
            said(Role::User, "Once."),
            said(Role::Assistant, "Once."),
            said(Role::Assistant, " Done.\n"),
        ];
        let repeated = RepeatedTexts::of(&messages);
        assert!(repeated.contains(&[Block::text("Done.")]));
        assert!(!repeated.contains(&[Block::text("Once.")]));
    }
}
