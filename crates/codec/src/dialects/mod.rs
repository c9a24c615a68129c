//! One folder for each wire dialect. Adding one is a folder here and its captures in `corpus/`.

pub mod anthropic;
