//! Drafts: the part of a reply that all dialects share, which is its pieces, its ending, its token
//! counts and its ids. Signing and writing come later.

use crate::exchange::Exchange;
use crate::script::{self, Piece, Random, Script, Situation};
use crate::signing::{Hash, hash};

/// A reply before it is signed and written.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) ending: Ending,
}

/// Why a reply ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The limit of tokens cut it.
    Limit,
    /// It reached this stop sequence, which is not part of the text.
    StopSequence(String),
    /// It waits for the results of its calls.
    Calls,
    /// The reply is complete.
    Done,
}

/// The limits a request sets for its reply.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits<'a> {
    pub(crate) stop_sequences: &'a [String],
    pub(crate) tokens: Option<u64>,
    /// The most tokens of thinking, where the provider enforces a budget.
    pub(crate) thinking: Option<u64>,
}

impl Draft {
    /// Chooses the pieces: from the scenario's step, else from the situation.
    pub(crate) fn write(
        exchange: &Exchange<'_>,
        seed: &Hash,
        limits: Limits<'_>,
        situation: impl FnOnce() -> Situation,
    ) -> Self {
        let script = match exchange.scripted_pieces() {
            Some(pieces) => Script { pieces: pieces.to_vec(), scripted: true },
            None => script::write(&situation(), &mut Random::new(seed)),
        };
        Self::cut(script, limits)
    }

    fn cut(script: Script, limits: Limits<'_>) -> Self {
        let Script { mut pieces, scripted } = script;
        if let Some(budget) = limits.thinking {
            script::limit_thinking(&mut pieces, budget);
        }
        let stopped = stop_at(&mut pieces, limits.stop_sequences);
        let most = match limits.tokens {
            Some(most) if most == 0 || !scripted => most,
            _ => u64::MAX,
        };
        let cut = script::limit(&mut pieces, most);
        let is_call = |piece: &Piece| matches!(piece, Piece::Tool { .. });
        let ending = match stopped {
            _ if cut => Ending::Limit,
            Some(sequence) => Ending::StopSequence(sequence),
            None if pieces.iter().any(is_call) => Ending::Calls,
            None => Ending::Done,
        };
        Self { pieces, ending }
    }

    /// The approximate number of tokens, thinking included.
    pub(crate) fn tokens(&self) -> usize {
        self.pieces.iter().map(|piece| tokens(&piece.text())).sum()
    }

    /// The approximate number of thinking tokens.
    pub(crate) fn thinking_tokens(&self) -> usize {
        let thinking = self
            .pieces
            .iter()
            .filter(|piece| matches!(piece, Piece::Thinking(_) | Piece::Redacted(_)));
        thinking.map(|piece| tokens(&piece.text())).sum()
    }
}

/// The approximate number of tokens in a text.
pub(crate) fn tokens(text: &str) -> usize {
    text.len().div_ceil(4)
}

/// Splits a text into stream deltas of four characters, about one token each.
pub(crate) fn deltas(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = rest.char_indices().nth(4).map_or(rest.len(), |(at, _)| at);
        let (piece, after) = rest.split_at(end);
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

/// The user's words, or `None` for a reminder that a client added. Reminders contain words that
/// would trigger special replies.
pub(crate) fn user_words(text: &str) -> Option<&str> {
    let text = text.trim();
    (!text.starts_with("<system")).then_some(text)
}

/// An id with the length and alphabet that providers use. The seed depends on the whole
/// conversation, so no later reply gets the same id.
pub(crate) fn identifier(seed: &Hash, kind: &str, index: usize) -> String {
    let digest = hash(&[seed, kind.as_bytes(), &index.to_be_bytes()]);
    let letters = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
    let picked = digest.iter().take(22).map(|byte| {
        let at = usize::from(*byte) % letters.len();
        letters.get(at).copied().map_or('1', char::from)
    });
    std::iter::once('0').chain(['1']).chain(picked).collect()
}

/// Cuts the pieces at the first stop sequence in a text.
fn stop_at(pieces: &mut Vec<Piece>, sequences: &[String]) -> Option<String> {
    for index in 0..pieces.len() {
        let Some(Piece::Text(text)) = pieces.get_mut(index) else {
            continue;
        };
        let found = sequences
            .iter()
            .filter(|sequence| !sequence.is_empty())
            .filter_map(|sequence| Some((text.find(sequence.as_str())?, sequence)))
            .min();
        if let Some((at, sequence)) = found {
            text.truncate(at);
            let keep = index + usize::from(!text.is_empty());
            pieces.truncate(keep);
            return Some(sequence.clone());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str, scripted: bool, tokens: Option<u64>) -> Draft {
        let script = Script {
            pieces: vec![Piece::Thinking("abcd".to_owned()), Piece::Text(text.to_owned())],
            scripted,
        };
        let limits = Limits { stop_sequences: &["END".to_owned()], tokens, ..Limits::default() };
        Draft::cut(script, limits)
    }

    #[test]
    fn draft_reports_why_it_ends() {
        assert_eq!(cut("all of it", false, None).ending, Ending::Done);
        assert_eq!(cut("all of it", false, Some(2)).ending, Ending::Limit);
        assert_eq!(cut("all of it", true, Some(2)).ending, Ending::Done);
        let stopped = cut("some END of it", false, None);
        assert_eq!(stopped.ending, Ending::StopSequence("END".to_owned()));
        assert_eq!((stopped.tokens(), stopped.thinking_tokens()), (3, 1));
    }

    #[test]
    fn thinking_stays_within_its_budget() {
        let pieces = vec![
            Piece::Thinking("abcdefgh".to_owned()),
            Piece::Text("some".to_owned()),
            Piece::Redacted("ijkl".to_owned()),
            Piece::Thinking("mnopqrst".to_owned()),
        ];
        for (budget, tokens, spans) in [(9, 5, 3), (5, 5, 3), (4, 4, 3), (2, 2, 1), (1, 1, 1)] {
            let script = Script { pieces: pieces.clone(), scripted: true };
            let limits = Limits { thinking: Some(budget), ..Limits::default() };
            let draft = Draft::cut(script, limits);
            assert_eq!(draft.thinking_tokens(), tokens, "budget {budget}");
            assert_eq!((draft.pieces.len(), &draft.ending), (spans + 1, &Ending::Done));
        }
    }

    #[test]
    fn deltas_have_four_characters_and_join_to_the_text() {
        let text = "tok éééé日本語";
        let pieces: Vec<&str> = deltas(text).collect();
        assert_eq!(pieces, ["tok ", "éééé", "日本語"]);
        assert_eq!(deltas("").count(), 0);
    }

    #[test]
    fn client_reminder_is_not_part_of_the_user_text() {
        assert_eq!(user_words(" hello\n"), Some("hello"));
        assert_eq!(user_words("\n<system-reminder>use a tool"), None);
    }
}
