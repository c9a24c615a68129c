//! Reads calls: a few machines, and the script that leads through a format's markers to them.
//!
//! A machine reads one kind of body. It gets the unread text and returns how far it got. The caller
//! shows the rest again, with more text after it. A machine must use as much as it can. It may
//! leave a partial marker, a name, a key or a tag. Each of these has a length limit, so the work
//! stays linear. The output in the [`Sink`] must not depend on how the text was cut.

mod arguments;
mod boundary;
mod dict_calls;
mod draft;
mod echo;
#[cfg(test)]
mod every_cut;
#[cfg(test)]
mod harness;
mod hex;
mod json;
mod json_writer;
mod literal;
mod literal_arguments;
mod lookahead;
mod malformed;
mod nested;
mod number;
pub(crate) mod parameters;
mod pythonic;
mod quoted;
#[cfg(test)]
mod rendered;
mod scan;
mod script;
mod sink;
mod tags;
mod value;

pub(crate) use json::{DEFAULT_KEYS, Keys};
pub(crate) use literal::{FUNCTION_GEMMA, GEMMA};
pub(crate) use pythonic::Layout;
pub(crate) use scan::{JsonScanner, ScanResult};
pub use script::ToolFormat;
pub(crate) use script::{NameStyle, Script, Start, Step, Terminator};
pub(crate) use sink::{Numbering, Sink};

/// How far a machine got in the text it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// This many bytes are used, and the body continues. At the end of a text this means: cut.
    More(usize),
    /// Everything up to here belongs to calls that were emitted, and the body continues. More can
    /// be read at once.
    Called(usize),
    /// The last part is no call. The body continues after it, and more can be read at once.
    Stray(usize),
    /// The text since the last call, with these bytes, is content. More can be read at once.
    Text(usize),
    /// The body ended after this many bytes.
    Ended(usize),
    /// The text is no such body: the byte at this position does not fit. With the reason.
    Broken(usize, &'static str),
}

impl Progress {
    /// The number of bytes.
    pub(crate) fn used(self) -> usize {
        match self {
            Self::More(used)
            | Self::Called(used)
            | Self::Stray(used)
            | Self::Text(used)
            | Self::Ended(used)
            | Self::Broken(used, _) => used,
        }
    }

    /// The same progress, in a text that has `before` more bytes at its start.
    pub(crate) fn offset_by(self, before: usize) -> Self {
        match self {
            Self::More(used) => Self::More(before + used),
            Self::Called(used) => Self::Called(before + used),
            Self::Stray(used) => Self::Stray(before + used),
            Self::Text(used) => Self::Text(before + used),
            Self::Ended(used) => Self::Ended(before + used),
            Self::Broken(used, why) => Self::Broken(before + used, why),
        }
    }
}

/// One step of a machine that reads tags.
enum TagStep {
    /// Continue at this position.
    To(usize),
    /// Return to the caller.
    Stop(Progress),
}
/// Limit for a name, a key or a header.
pub(crate) const MAX_NAME: usize = 1024;

/// Limit for white space that frames something. More is text.
pub(crate) const MAX_FRAMING: usize = 64;

/// Limit for text that is held back until it is known what it is.
pub(crate) const MAX_HELD: usize = 1 << 20;

/// The length of the white space at the start of a text.
pub(crate) fn leading_white_space(text: &str) -> usize {
    text.bytes()
        .position(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
        .unwrap_or(text.len())
}

/// The start of a text, up to `max` bytes. Used to search for something that must end within that
/// limit, so that the result does not depend on how much text has arrived.
pub(crate) fn prefix_up_to(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}
