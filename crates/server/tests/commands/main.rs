//! The command line of the real binary: standard output, standard error and exit codes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod capture;
mod config;
mod doctor;
mod examples;
mod help;
mod keyring;
mod parse;
mod readme;
mod remote;
mod serve;
mod simulate;
mod support;
