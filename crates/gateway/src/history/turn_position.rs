//! Where a turn stands in its conversation. Models give the same answer more than once, so a text
//! alone does not say which turn it is.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use throughline_canonical::{Block, Message, Role};

use crate::history::vault_lookup::text_of;
use crate::thinking::fingerprint::Fingerprint;

/// The position of a turn.
#[derive(Clone, Debug, Default)]
pub(crate) struct TurnPosition {
    /// A hash of all that was said before it.
    pub(crate) before: [u8; 16],
    /// The question that it answers: the text of the messages after the last turn, and the ids of
    /// the calls that they answer.
    pub(crate) question: String,
}

/// Follows a conversation, message by message.
#[derive(Debug, Default)]
pub(crate) struct TurnPositions {
    before: Fingerprint,
    /// Whether the model spoke last.
    speaker: Option<bool>,
    question: String,
}

impl TurnPositions {
    /// The position of the next turn.
    pub(crate) fn next(&self) -> TurnPosition {
        TurnPosition { before: self.before.finish(), question: self.question.clone() }
    }

    /// Passes a message.
    pub(crate) fn pass(&mut self, message: &Message) {
        let is_turn = message.role == Role::Assistant;
        if is_turn {
            self.question.clear();
        }
        for block in &message.content {
            let words = match block {
                Block::Text { text, .. } => text,
                Block::ToolResult { id, .. } | Block::ToolCall { id, .. } => id,
                _ => continue,
            };
            // Clients join and split messages and texts, so only a change of the speaker counts.
            if self.speaker.replace(is_turn) != Some(is_turn) {
                self.before.join([0xff, u8::from(is_turn)]);
            }
            self.before.join(words);
            if !is_turn {
                self.question.push_str(words);
            }
        }
    }
}

/// The texts that more than one turn of a request has.
#[derive(Debug, Default)]
pub(crate) struct RepeatedTexts(HashSet<u64>);

impl RepeatedTexts {
    pub(crate) fn of(messages: &[Message]) -> Self {
        let mut counts: HashMap<u64, usize> = HashMap::new();
        for message in messages.iter().filter(|message| message.role == Role::Assistant) {
            *counts.entry(hash(&message.content)).or_default() += 1;
        }
        Self(counts.into_iter().filter(|(_, count)| *count > 1).map(|(hash, _)| hash).collect())
    }

    /// Whether another turn has the same text.
    pub(crate) fn contains(&self, content: &[Block]) -> bool {
        self.0.contains(&hash(content))
    }
}

fn hash(content: &[Block]) -> u64 {
    let mut hasher = DefaultHasher::new();
    text_of(content).trim().hash(&mut hasher);
    for block in content {
        if let Block::ToolCall { name, arguments, .. } = block {
            (name, arguments).hash(&mut hasher);
        }
    }
    hasher.finish()
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
        Message { role, content: vec![Block::text(text)] }
    }

    #[test]
    fn position_depends_on_all_that_was_said_and_not_on_how_it_is_split() {
        let asked = |texts: &[&str]| {
            let messages: Vec<_> = texts.iter().map(|text| said(Role::User, text)).collect();
            position_after(&messages)
        };
        assert_eq!(asked(&["a", "b"]).before, asked(&["ab"]).before);
        assert_eq!(asked(&["a", "b"]).question, "ab");
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
