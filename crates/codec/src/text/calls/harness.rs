//! Test helper for machines that read the arguments of one call: checks that every split gives the
//! same result.

use super::super::schema::Tools;
use super::every_cut::{Read, every_split, read_partial};
use super::{Progress, Sink};

/// A machine that reads the arguments of a call.
pub(super) trait Machine {
    /// Reads the next text.
    fn read(&mut self, text: &str, last: bool, sink: &mut Sink<'_>) -> Progress;
}

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// All arguments.
    pub(super) arguments: String,
    /// The final progress, with positions in the whole text.
    pub(super) progress: Progress,
}

/// Reads pieces as the arguments of a call. `last` says whether the text ends after them.
pub(super) fn read_pieces(
    mut machine: impl Machine,
    tools: Option<&Tools>,
    pieces: &[&str],
    last: bool,
) -> Outcome {
    let mut has_started = false;
    let read: Read<'_> = Box::new(move |text, last, sink| {
        if !std::mem::replace(&mut has_started, true) {
            sink.start("t", None);
        }
        machine.read(text, last, sink)
    });
    let (output, progress) = read_partial(read, pieces, tools, last);
    Outcome { arguments: output.strip_prefix('t').unwrap_or_default().to_owned(), progress }
}

/// Reads a text in every split. All must give the same result.
pub(super) fn read<M: Machine>(new: impl Fn() -> M, tools: Option<&Tools>, text: &str) -> Outcome {
    let whole = read_pieces(new(), tools, &[text], true);
    for pieces in every_split(text) {
        let cut = read_pieces(new(), tools, &pieces, true);
        assert_eq!(cut, whole, "{pieces:?}");
    }
    whole
}

/// Ends a text at every position. The output before the end is known must be a prefix of the whole
/// output. The end may add to it, and must not take anything back.
pub(super) fn cut_everywhere<M: Machine>(new: impl Fn() -> M, tools: Option<&Tools>, text: &str) {
    let whole = read_pieces(new(), tools, &[text], true);
    for cut in (0..=text.len()).filter(|&cut| text.is_char_boundary(cut)) {
        let open = read_pieces(new(), tools, &[&text[..cut]], false);
        assert!(
            whole.arguments.starts_with(&open.arguments),
            "cut at {cut}: {text}\n{open:?}\n{whole:?}"
        );
        let ended = read_pieces(new(), tools, &[&text[..cut]], true);
        let later = read_pieces(new(), tools, &[&text[..cut], ""], true);
        assert_eq!(later, ended, "cut at {cut}: {text}");
        assert!(ended.arguments.starts_with(&open.arguments));
    }
}
