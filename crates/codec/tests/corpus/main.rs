//! The corpus and what every file of it proves.
//!
//! A capture is a file drop: put it in a folder of `corpus/`, say in `<name>.about.toml` what is
//! special about it, run with `BLESS=1`, and read the golden that appears beside it. Nothing here
//! changes for that.
//!
//! - [`dialects`]: the shared requests and replies, as every dialect writes them and reads them back;
//! - [`folder`]: captures, their goldens and what is known about them;
//! - [`malformed`]: requests that are wrong, and where they are said to be;
//! - [`reply`]: what providers answer, in every split and every cut;
//! - [`remembered`]: a thinking block has one name, in the reply and when it is sent back;
//! - [`request`]: what clients ask, and that an edit changes nothing but its spot;
//! - [`prefix`]: what does and does not change what a block was made under;
//! - [`refusal`]: what providers refuse;
//! - [`tree`]: the edits once more, made on a tree of values, to compare with;
//! - [`rendered`]: random requests in random spellings, for the same proofs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod dialects;
mod folder;
mod malformed;
mod marks;
mod prefix;
mod refusal;
mod remembered;
mod rendered;
mod reply;
mod request;
mod text;
mod tree;
