//! The command line, through the real binary: what it says, where it says it, and how it exits.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod capture;
mod config;
mod doctor;
mod help;
mod keyring;
mod parse;
mod remote;
mod serve;
mod simulate;
mod support;
