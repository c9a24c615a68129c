//! JSON as bytes, with spans that point into them.
//!
//! A request is edited in place: we find the few spans that change and copy the rest unchanged. A
//! tree of values would lose key order, number format and string escapes, and would cost ten times
//! as much.

mod complete;
mod cursor;
mod deep;
mod edit;
mod end_detector;
mod line;
mod object;
mod string;
mod tree;

pub(crate) use complete::{complete_object, finish_character};
pub(crate) use cursor::{BitStack, Found, found_text};
pub use cursor::{
    Cursor, JsonError, Kind, Span, each_element, each_member, find_member, inside, number, slice,
    text, try_each_element, validate,
};
pub use deep::MAX_TREE_DEPTH;
pub use edit::{Edits, append_member, quote, remove_elements};
pub use end_detector::EndDetector;
pub(crate) use line::OneLine;
pub(crate) use object::ObjectWriter;
pub use string::{decode, decode_pieces};
pub(crate) use string::{escape, escape_bytes, quote_bytes};
pub use tree::{Node, read_object};
