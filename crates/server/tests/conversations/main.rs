//! The conversation API over real HTTP: projects, branches, nodes, turns and runs, with strict
//! simulators as providers.

#[allow(dead_code, reason = "the matrix uses all of it")]
#[path = "../matrix/upstreams.rs"]
mod upstreams;

mod support;

mod branches;
mod broken_turns;
mod documentation;
mod edges;
mod node_count;
mod projects;
mod raw_replies;
mod runs;
mod switching;
mod tutorial;
