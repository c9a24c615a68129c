//! Reading calls: a few machines, and the script that leads through a format's markers to them.
//!
//! A machine reads one kind of body. It is shown the text it has not used yet and says how far it
//! got; what it leaves over is shown again with more text behind it. It must use up what it can: a
//! leftover is a marker that may have begun, a name, a key or a tag, all of which have a limit, so that
//! the work stays linear. What
//! it tells the [`Sink`] may not depend on how the text was cut.

mod ahead;
mod arguments;
mod boundary;
mod dict_calls;
mod draft;
#[cfg(test)]
mod every_cut;
#[cfg(test)]
mod harness;
mod json;
mod json_writer;
mod literal;
mod literal_arguments;
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

pub(crate) use json::{Keys, USUAL};
pub(crate) use literal::{FUNCTION_GEMMA, GEMMA};
pub(crate) use pythonic::Shape;
pub use script::ToolFormat;
pub(crate) use script::{Script, Spelling, Start, Step, Until};
pub(crate) use sink::{Numbering, Sink};

/// How far a machine got in the text it was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// So many bytes are used up, and the body goes on. At the end of a text this means: cut.
    More(usize),
    /// What was read up to here belongs to calls that were told, and the body goes on; more may be
    /// read at once.
    Called(usize),
    /// What was read since is no call, and the body goes on behind it; more may be read at once.
    Stray(usize),
    /// The body ended after so many bytes.
    Ended(usize),
    /// The text is no such body: the bytes before this place were part of it, the one at it cannot
    /// be. With the reason.
    Broken(usize, &'static str),
}

impl Progress {
    /// How many bytes it is about.
    pub(crate) fn used(self) -> usize {
        match self {
            Self::More(used)
            | Self::Called(used)
            | Self::Stray(used)
            | Self::Ended(used)
            | Self::Broken(used, _) => used,
        }
    }

    /// The same, in a text that has so many bytes before the one that was shown.
    pub(crate) fn behind(self, before: usize) -> Self {
        match self {
            Self::More(used) => Self::More(before + used),
            Self::Called(used) => Self::Called(before + used),
            Self::Stray(used) => Self::Stray(before + used),
            Self::Ended(used) => Self::Ended(before + used),
            Self::Broken(used, why) => Self::Broken(before + used, why),
        }
    }
}

/// How long a name, a key or a header may be.
pub(crate) const NAME: usize = 1024;

/// White space that may frame something. More is text.
pub(crate) const FRAME: usize = 64;

/// How much may be held back until it can be told what it is.
pub(crate) const HELD: usize = 1 << 20;

/// How much white space at the beginning.
pub(crate) fn white_space(text: &str) -> usize {
    text.bytes()
        .position(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
        .unwrap_or(text.len())
}

/// As much of a text as is looked at for something that ends within so many bytes, whether or not
/// more of it is there: what is found may not depend on that.
pub(crate) fn within(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}
