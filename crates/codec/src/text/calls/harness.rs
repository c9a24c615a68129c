//! Shows a machine one text in many cuts, and wants the same of each.

use super::super::schema::Tools;
use super::every_cut::{Read, every_way, read_on};
use super::{Progress, Sink};

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

/// Reads pieces as the arguments of a call, and tells the machine at the end that nothing follows,
/// if that is so.
pub(super) fn read_pieces(
    mut machine: impl Machine,
    tools: Option<&Tools>,
    pieces: &[&str],
    last: bool,
) -> Outcome {
    let mut begun = false;
    let read: Read<'_> = Box::new(move |text, last, sink| {
        if !std::mem::replace(&mut begun, true) {
            sink.start("t", None);
        }
        machine.read(text, last, sink)
    });
    let (told, progress) = read_on(read, pieces, tools, last);
    Outcome { arguments: told.strip_prefix('t').unwrap_or_default().to_owned(), progress }
}

/// Reads a text in every way it can be cut. All must give the same.
pub(super) fn read<M: Machine>(new: impl Fn() -> M, tools: Option<&Tools>, text: &str) -> Outcome {
    let whole = read_pieces(new(), tools, &[text], true);
    for pieces in every_way(text) {
        let cut = read_pieces(new(), tools, &pieces, true);
        assert_eq!(cut, whole, "{pieces:?}");
    }
    whole
}

/// Ends a text everywhere. What went out before the end was known is the beginning of what the
/// whole text gives; the end then adds to it and takes nothing back.
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
