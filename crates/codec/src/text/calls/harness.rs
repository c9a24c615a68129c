//! Shows a machine one text in many cuts, and wants the same of each.

use super::super::event::Event;
use super::super::schema::Tools;
use super::{Numbering, Progress, Sink};

/// What reads the arguments of a call.
pub(super) trait Machine {
    /// As the machines have it.
    fn read(&mut self, text: &str, last: bool, sink: &mut Sink<'_>) -> Progress;
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// All arguments.
    pub(super) arguments: String,
    /// How it ended, with places in the whole text.
    pub(super) progress: Progress,
}

/// The most that may be left over.
const LEFT_OVER: usize = 1100;

/// Reads pieces, and tells the machine at the end that nothing follows, if that is so.
pub(super) fn read_pieces(
    mut machine: impl Machine,
    tools: Option<&Tools>,
    pieces: &[&str],
    last: bool,
) -> Outcome {
    let mut arguments = String::new();
    let mut numbering = Numbering::new("call_");
    let mut out = |event: Event<'_>| {
        if let Event::CallArguments { delta, .. } = event {
            arguments.push_str(delta);
        }
    };
    Sink::new(&mut out, &mut numbering, tools, true).start("t", None);
    let (mut held, mut used) = (String::new(), 0);
    let mut progress = Progress::More(0);
    for (place, piece) in pieces.iter().enumerate() {
        held.push_str(piece);
        let last = last && place + 1 == pieces.len();
        let mut sink = Sink::new(&mut out, &mut numbering, tools, true);
        progress = machine.read(&held, last, &mut sink);
        match progress {
            Progress::More(length) => {
                held.drain(..length);
                used += length;
                assert!(held.len() <= LEFT_OVER, "{held}");
                assert!(!last || held.is_empty(), "{held}");
            }
            _ => break,
        }
    }
    let progress = match progress {
        Progress::More(_) => Progress::More(used),
        Progress::Called(length) => Progress::Called(used + length),
        Progress::Stray(length) => Progress::Stray(used + length),
        Progress::Ended(length) => Progress::Ended(used + length),
        Progress::Broken(length, why) => Progress::Broken(used + length, why),
    };
    Outcome {
        arguments,
        progress,
    }
}

/// Reads a text whole, in single characters and in any two pieces, with the end known at once and
/// afterwards. All must give the same.
pub(super) fn read<M: Machine>(new: impl Fn() -> M, tools: Option<&Tools>, text: &str) -> Outcome {
    let whole = read_alike(&new, tools, text);
    for cut in cuts(text) {
        let (first, second) = text.split_at(cut);
        let split = read_pieces(new(), tools, &[first, second], true);
        assert_eq!(split, whole, "cut at {cut}: {text}");
    }
    whole
}

/// Ends a text everywhere. What went out before the end was known is the beginning of what the
/// whole text gives; the end then adds to it and takes nothing back.
pub(super) fn cut_everywhere<M: Machine>(new: impl Fn() -> M, tools: Option<&Tools>, text: &str) {
    let whole = read_pieces(new(), tools, &[text], true);
    for cut in cuts(text) {
        let open = read_pieces(new(), tools, &[&text[..cut]], false);
        assert!(
            whole.arguments.starts_with(&open.arguments),
            "cut at {cut}: {text}\n{open:?}\n{whole:?}"
        );
        let ended = read_alike(&new, tools, &text[..cut]);
        assert!(ended.arguments.starts_with(&open.arguments));
    }
}

fn read_alike<M: Machine>(new: &impl Fn() -> M, tools: Option<&Tools>, text: &str) -> Outcome {
    let whole = read_pieces(new(), tools, &[text], true);
    let later = read_pieces(new(), tools, &[text, ""], true);
    assert_eq!(later, whole, "the end afterwards: {text}");
    let mut characters: Vec<&str> = text.split_inclusive(|_: char| true).collect();
    characters.push("");
    let single = read_pieces(new(), tools, &characters, true);
    assert_eq!(single, whole, "by characters: {text}");
    whole
}

fn cuts(text: &str) -> impl Iterator<Item = usize> {
    (0..=text.len()).filter(|&cut| text.is_char_boundary(cut))
}
